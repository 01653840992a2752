/** Styles of several chips beside each other, of links over the grid, of the bar of passes, and of sub-totals in the table. */
export const chipStyle = `
.tb-plane.tb-many { overflow: auto; flex-basis: 320px; }
.tb-together { display: grid; gap: 10px 12px; align-items: start; padding: 2px 2px 8px; }
.tb-together figure { margin: 0; border: 1px solid var(--tb-line); border-radius: 7px; padding: 4px 6px 6px; min-width: 0; }
.tb-together figure.tb-chip-now { border-color: var(--tb-accent); box-shadow: 0 0 0 1px var(--tb-accent); }
.tb-together figure.tb-chip-idle { opacity: .72; border-style: dashed; }
.tb-together figure.tb-drop { outline: 2px solid var(--tb-accent); }
.tb-together figcaption { display: flex; flex-wrap: wrap; gap: 0 8px; font-size: 11px; color: var(--tb-muted); padding: 0 2px 3px; font-variant-numeric: tabular-nums; }
.tb-root .tb-together figcaption button:disabled { color: var(--tb-muted); text-decoration: none; cursor: default; }
.tb-together .tb-cores { height: auto; }
.tb-root button.tb-chip-drop { font: inherit; background: none; border: 1px solid var(--tb-line); padding: 3px 10px; cursor: pointer; }
.tb-chip-strip { align-items: center; }
.tb-root .tb-button[aria-pressed=true] { background: var(--tb-accent-soft); border-color: var(--tb-accent); font-weight: 600; }
.tb-root .tb-pass-bar { min-height: 34px; padding-top: 4px; padding-bottom: 4px; }
.tb-pass-bar select { font: inherit; color: var(--tb-text); background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 5px; height: 24px; min-width: 0; max-width: 260px; flex: 0 1 auto; }
.tb-root button.tb-chip-drop:hover { background: var(--tb-hover); }
.tb-root button.tb-chip-drop[aria-pressed=true] { background: var(--tb-accent-soft); border-color: var(--tb-accent); }
.tb-upper[data-tb-mode=graph], .tb-upper[data-tb-mode=grid] { grid-template-columns: minmax(0, 1fr); }
.tb-noc path { fill: none; pointer-events: stroke; }
.tb-noc .tb-link-back { stroke-dasharray: 7 3; }
.tb-noc .tb-link-over { stroke-dasharray: 2 2; }
.tb-words text { fill: var(--tile-text); stroke: var(--tile-fill); stroke-width: 3.5px; paint-order: stroke; stroke-linejoin: round; pointer-events: none; font-family: var(--tb-font); }
.tb-noc path:hover { stroke: var(--tb-accent); }
.tb-legend .tb-link-key { display: inline-block; width: 20px; border: 0; border-radius: 1px; vertical-align: middle; }
.tb-legend input[type=number] { width: 46px; font: inherit; color: var(--tb-text); background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 5px; margin: 0 4px 0 5px; }
.tb-linkbox { flex: 0 1 auto; max-height: 190px; overflow: auto; border-top: 1px solid var(--tb-line); padding: 4px 12px 8px; }
.tb-root .tb-linklist { list-style: none; margin: 4px 0 0; padding: 0; display: grid; gap: 5px; font-variant-numeric: tabular-nums; }
.tb-linklist li { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 1px 8px; }
.tb-linklist b { font-weight: 600; }
.tb-linklist .tb-over { color: var(--tb-bad); font-weight: 600; }
.tb-rows .tb-row.tb-total { background: var(--tb-faint); border-top: 1px solid var(--tb-line); cursor: default; font-weight: 600; font-variant-numeric: tabular-nums; }
.tb-total .tb-total-head { width: 100px; }
.tb-total .tb-total-text { color: var(--tb-muted); font-weight: 500; overflow: visible; }
.tb-linkusers { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 3px; color: var(--tb-muted); font-size: 11px; }
`;
