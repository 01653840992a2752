/** Styles of the cluster view. */
export const clusterStyle = `
.tb-cluster { display: flex; flex-direction: column; }
.tb-cluster-plane { flex: 1 1 0; min-height: 0; overflow: auto; padding: 12px; position: relative; }
.tb-cluster-board { position: relative; transform-origin: 0 0; }
.tb-cluster-links { position: absolute; left: 0; top: 0; overflow: visible; }
.tb-eth { stroke: var(--tb-strong); }
.tb-eth.tb-busy { stroke: var(--tb-incoming); }
.tb-eth.tb-full { stroke: var(--tb-bad); }
.tb-eth-text { fill: var(--tb-text); font: 600 11px var(--tb-font); paint-order: stroke; stroke: var(--tb-surface); stroke-width: 4px; }
.tb-chip-card { position: absolute; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 9px; padding: 7px 9px; display: flex; flex-direction: column; gap: 4px; font-variant-numeric: tabular-nums; }
.tb-chip-card.tb-idle { border-style: dashed; background: var(--tb-faint); color: var(--tb-muted); }
.tb-chip-card.tb-limits-pace { border-color: var(--tb-incoming); border-width: 2px; padding: 6px 8px; }
.tb-chip-card.tb-over { outline: 3px solid var(--tb-accent); outline-offset: 1px; background: var(--tb-accent-soft); }
.tb-chip-card header { display: flex; gap: 6px; align-items: center; }
.tb-mmio { border: 1px solid var(--tb-good); color: var(--tb-good); border-radius: 99px; padding: 0 6px; font-size: 10px; font-weight: 600; }
.tb-cluster-mini { width: 100%; flex: 1 1 0; min-height: 0; }
.tb-chip-op { cursor: grab; touch-action: none; }
.tb-chip-op.tb-selected { stroke: var(--tb-accent); stroke-width: 1.8; }
.tb-chip-now, .tb-chip-cycles { font-size: 11px; color: var(--tb-muted); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.tb-limits-pace .tb-chip-cycles { color: var(--tb-text); font-weight: 600; }
.tb-chip-epochs { display: flex; gap: 3px; flex-wrap: wrap; max-height: 20px; overflow: hidden; min-height: 18px; }
.tb-root button.tb-chip-epoch { border: 1px solid var(--tb-line); border-radius: 4px; padding: 0 5px; font-size: 10.5px; line-height: 16px; touch-action: none; cursor: grab; background: var(--tb-surface); }
.tb-root button.tb-chip-epoch.tb-now { border-color: var(--tb-accent); background: var(--tb-accent-soft); font-weight: 600; }
.tb-chip-load { height: 4px; border-radius: 2px; background: var(--tb-line); overflow: hidden; }
.tb-chip-load i { display: block; height: 100%; }
.tb-cluster[data-tb-dragging] { cursor: grabbing; user-select: none; }
.tb-cluster[data-tb-dragging] .tb-chip-op, .tb-cluster[data-tb-dragging] .tb-chip-epoch { pointer-events: none; }
.tb-page .tb-cluster { height: 480px; }
.tb-page > *, .tb-page > section > .tb-view { min-width: 0; }
`;
