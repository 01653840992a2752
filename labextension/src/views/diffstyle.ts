/** Styles of the comparison. Classes have a colour and a glyph, in grid and table alike. */
export const diffStyle = `
.tb-root { --tb-d-added: #1b7f4b; --tb-d-removed: #c0271d; --tb-d-resized: #1f63d6; --tb-d-moved: #7a3fc4; --tb-d-retimed: #9a5b00; }
.tb-root.tb-dark { --tb-d-added: #5dcc8f; --tb-d-removed: #ff8078; --tb-d-resized: #6aa5ff; --tb-d-moved: #c39bff; --tb-d-retimed: #f0b95e; }
.tb-d-added { --tb-d: var(--tb-d-added); }
.tb-d-removed { --tb-d: var(--tb-d-removed); }
.tb-d-resized { --tb-d: var(--tb-d-resized); }
.tb-d-moved { --tb-d: var(--tb-d-moved); }
.tb-d-retimed { --tb-d: var(--tb-d-retimed); }
.tb-diff { display: flex; flex-direction: column; }
.tb-root > .tb-diff { height: var(--tb-height, 560px); }
.tb-diff-bar { gap: 7px; }
.tb-root .tb-select { font: inherit; color: var(--tb-text); background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 6px; height: 26px; padding: 0 6px; max-width: 190px; }
.tb-classes { display: inline-flex; gap: 5px; flex-wrap: wrap; }
.tb-root .tb-class { display: inline-block; border: 1px solid var(--tb-d, var(--tb-line)); color: var(--tb-d, var(--tb-text)); border-radius: 99px; padding: 0 8px; font-size: 11px; line-height: 18px; font-weight: 600; white-space: nowrap; margin-right: 4px; }
.tb-root .tb-class.tb-mini { padding: 0; width: 20px; text-align: center; margin-right: 3px; }
.tb-root button.tb-class { padding: 0 8px; margin-right: 0; }
.tb-root button.tb-class[aria-pressed=false] { border-style: dashed; font-weight: 400; text-decoration: line-through; }
.tb-diff-summary { display: flex; flex-wrap: wrap; gap: 0 16px; padding: 6px 12px; color: var(--tb-muted); font-variant-numeric: tabular-nums; flex: none; }
.tb-diff-summary:empty { display: none; }
.tb-diff-summary b { color: var(--tb-text); }
.tb-diff-summary .tb-note { color: var(--tb-warn); flex-basis: 100%; }
.tb-diff-body { flex: 1 1 0; min-height: 0; display: flex; flex-direction: column; position: relative; }
.tb-diff-grids { display: flex; gap: 10px; padding: 2px 10px 8px; min-height: 0; min-width: 0; flex: 1 1 45%; }
.tb-diff-grids:empty { display: none; }
.tb-diff-grids figure { margin: 0; flex: 1 1 0; min-width: 0; display: flex; flex-direction: column; }
.tb-diff-grids figcaption { color: var(--tb-muted); font-variant-numeric: tabular-nums; padding: 2px 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tb-diff-grids svg { flex: 1 1 0; min-height: 0; width: 100%; }
.tb-diff-none { flex: 1; display: grid; place-items: center; color: var(--tb-muted); border: 1px dashed var(--tb-line); border-radius: 8px; }
.tb-diff-list { flex: 1 1 40%; min-width: 0; }
@container (min-width: 900px) {
  .tb-diff-body { flex-direction: row; }
  .tb-diff-grids { flex: 1 1 52%; }
  .tb-diff-list { flex: 1 1 48%; border-left: 1px solid var(--tb-line); }
  .tb-tabbed .tb-diff-grids { flex: 1 1 44%; }
}
.tb-diff-tile { --tile-text: var(--tb-text); }
.tb-diff-tile .tb-body { fill: color-mix(in srgb, var(--tb-d) 20%, var(--tb-surface)); stroke: var(--tb-d); stroke-width: 2; }
.tb-diff-tile.tb-d-same { --tile-text: var(--tb-muted); }
.tb-diff-tile.tb-d-same .tb-body { fill: var(--tb-faint); stroke: var(--tb-strong); stroke-width: 1; }
.tb-diff-tile.tb-selected .tb-body { stroke: var(--tb-accent); stroke-width: 4; }
.tb-diff-tile .tb-sub { opacity: 1; font-weight: 600; }
.tb-diff-ghost { fill: none; stroke: var(--tb-muted); stroke-width: 1.8; stroke-dasharray: 5 4; }
.tb-diff-ghost.tb-d-removed { stroke: var(--tb-d); }
.tb-diff-same { color: var(--tb-muted); padding: 10px 12px; margin: 0; }
.tb-worse { color: var(--tb-bad); font-weight: 600; }
.tb-better { color: var(--tb-good); font-weight: 600; }
.tb-root .tb-diff-queues { margin-top: 10px; }
.tb-diff-page .tb-diff { height: 78vh; min-height: 560px; }
`;
