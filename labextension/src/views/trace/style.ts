/** Styles of what lies over the grid and stands in the stage bar: the playhead's moment, runs, checks. */
export const traceStyle = `
.tb-doing rect { stroke-width: .8; }
.tb-doing text { font: 600 9px var(--tb-font); fill: var(--tb-text); paint-order: stroke; stroke: var(--tb-surface); stroke-width: 3px; }
.tb-plane.tb-at-moment .tb-sub { display: none; }
.tb-stages .tb-message { flex: 1 1 260px; }
.tb-plane.tb-at-moment .tb-tile:not(.tb-active, .tb-selected) { opacity: .42; }
.tb-done-share { fill: var(--tb-good); fill-opacity: .3; pointer-events: none; }
.tb-done-bar { fill: var(--tb-good); pointer-events: none; }
.tb-now .tb-body { stroke: var(--tb-good); stroke-width: 3.5; }
.tb-check circle { stroke-width: 1.4; stroke: var(--tb-surface); }
.tb-check text { font: 700 9.5px var(--tb-font); fill: #fff; text-anchor: middle; }
.tb-check-good circle { fill: #1b7f4b; }
.tb-check-bad circle { fill: #c0271d; }
.tb-check-first circle { stroke: #c0271d; stroke-width: 2.5; fill: #7d0f08; }
.tb-run-buttons { display: inline-flex; gap: 5px; flex-wrap: wrap; }
.tb-run-buttons:empty { display: none; }
.tb-device:empty { display: none; }
.tb-stages[data-tb-state=paused] .tb-message { color: var(--tb-warn); font-weight: 600; }
.tb-queue-levels { display: flex; flex-wrap: wrap; gap: 3px 14px; padding: 3px 12px 5px; font-size: 11px; color: var(--tb-muted); flex: none; }
.tb-queue-level { display: inline-flex; align-items: center; gap: 5px; font-variant-numeric: tabular-nums; }
.tb-queue-level i { width: 44px; height: 7px; border-radius: 3px; background: var(--tb-line); overflow: hidden; }
.tb-queue-level i b { display: block; height: 100%; background: var(--tb-good); }
.tb-live-stall { font: 700 12px var(--tb-font); fill: var(--tb-warn); }
.tb-compare { border-left: 3px solid var(--tb-good); padding: 1px 0 2px 9px; margin: 8px 0; }
.tb-compare.tb-bad { border-left-color: var(--tb-bad); }
.tb-compare h4 { color: var(--tb-good) !important; margin-top: 0 !important; }
.tb-compare.tb-bad h4 { color: var(--tb-bad) !important; }
.tb-compare figure { margin: 6px 0 0; }
.tb-compare figcaption { color: var(--tb-muted); font-size: 10.5px; }
.tb-tensor { display: block; border: 1px solid var(--tb-line); }
.tb-cell.tb-pass { color: var(--tb-good); }
.tb-cell.tb-fail { color: var(--tb-bad); font-weight: 700; }
`;
