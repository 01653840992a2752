/** Styles of the memory view. */
export const memoryStyle = `
.tb-memory { display: flex; flex-direction: column; container: memory / inline-size; }
.tb-memory-body { flex: 1 1 0; min-height: 0; display: flex; flex-direction: column; overflow: auto; position: relative; }
.tb-heat-box, .tb-lane-box { flex: 1 1 50%; min-height: 180px; min-width: 0; padding: 6px 10px; display: flex; flex-direction: column; }
.tb-heat-box svg { flex: 1 1 0; min-height: 0; width: 100%; }
.tb-core-box { flex: 1 1 45%; min-width: 0; padding: 8px 12px; overflow: auto; position: relative; }
@container memory (min-width: 560px) {
  .tb-memory-body { flex-direction: row; overflow: hidden; }
  .tb-core-box { border-left: 1px solid var(--tb-line); }
  .tb-heat-box + .tb-core-box { min-width: 360px; }
  .tb-lane-box { flex: 1 1 66%; overflow: auto; }
}
.tb-root { --tb-m-output: #2f6fd0; --tb-m-intermediate: #8d5fd3; --tb-m-parameter: #2b8f63; --tb-m-input: #d08a1e; --tb-m-reserved: #8a94a3; }
.tb-root.tb-dark { --tb-m-output: #5b9bf5; --tb-m-intermediate: #b58df0; --tb-m-parameter: #52b98a; --tb-m-input: #e8ad4a; --tb-m-reserved: #667285; }
.tb-core-head { margin: 0 0 7px; color: var(--tb-muted); }
.tb-core-head b { color: var(--tb-text); }
.tb-l1bar { display: flex; height: 22px; border: 1px solid var(--tb-strong); border-radius: 4px; overflow: hidden; background: var(--tb-surface); }
.tb-l1bar .tb-seg { display: block; height: 100%; min-width: 1px; border-right: 1px solid var(--tb-surface); }
.tb-l1ends { display: flex; justify-content: space-between; font: 10px var(--tb-code); color: var(--tb-muted); margin: 2px 0 6px; }
.tb-seg-output { background: var(--tb-m-output); }
.tb-seg-overlay { background: var(--tb-m-reserved); }
.tb-seg-intermediate { background: var(--tb-m-intermediate); }
.tb-seg-parameter { background: var(--tb-m-parameter); }
.tb-seg-input { background: var(--tb-m-input); }
.tb-seg-reserved { background: repeating-linear-gradient(135deg, var(--tb-m-reserved) 0 3px, var(--tb-hatch-ground) 3px 6px); }
.tb-seg-free { background: transparent; }
.tb-seg-key { display: inline-block; width: 11px; height: 11px; border: 1px solid var(--tb-strong); border-radius: 2px; margin-right: 7px; vertical-align: -1px; }
.tb-root .tb-core .tb-list tbody tr { cursor: default; }
.tb-root .tb-core .tb-list td { max-width: 150px; padding-left: 7px; padding-right: 7px; }
@container memory (min-width: 740px) { .tb-heat-box + .tb-core-box { min-width: 470px; } }
@container memory (max-width: 739px) {
  .tb-root .tb-core .tb-list td:nth-child(2) { max-width: 76px; }
  .tb-core .tb-list :is(th, td):nth-child(4) { display: none; }
}
.tb-root .tb-list .tb-hex { font: 11px var(--tb-code); }
.tb-heat .tb-sub { font-size: 9px; }
.tb-heat .tb-name { font-size: 10px; }
.tb-lanes { display: grid; gap: 5px; grid-auto-rows: minmax(22px, 34px); flex: 1 1 0; align-content: start; }
.tb-lane { display: grid; grid-template-columns: 46px minmax(0, 1fr) 72px 92px; gap: 8px; align-items: center; border-radius: 5px; padding: 0 3px; font-variant-numeric: tabular-nums; }
.tb-lane.tb-over { outline: 2px solid var(--tb-accent); background: var(--tb-accent-soft); }
.tb-lane.tb-chosen { background: var(--tb-accent-soft); box-shadow: inset 0 0 0 1px var(--tb-accent); }
.tb-lane-name { color: var(--tb-muted); white-space: nowrap; }
.tb-root button.tb-lane-name { border: 0; background: none; padding: 0; font: inherit; text-align: left; cursor: pointer; }
.tb-core-mark { fill: none; stroke: var(--tb-accent); stroke-width: 2; stroke-dasharray: 5 3; pointer-events: none; }
.tb-lane-bar { position: relative; height: 100%; background: var(--tb-lattice); border: 1px solid var(--tb-lattice-edge); border-radius: 3px; overflow: hidden; }
.tb-lane-gap { position: absolute; top: 0; bottom: 0; background: repeating-linear-gradient(135deg, var(--tb-hatch) 0 2px, var(--tb-hatch-ground) 2px 6px); }
.tb-root button.tb-block { position: absolute; top: 1px; bottom: 1px; min-width: 2px; border: 1px solid var(--tb-q-edge); background: var(--tb-q); border-radius: 2px; touch-action: none; }
.tb-root button.tb-block.tb-idle { opacity: .28; }
.tb-root button.tb-block:hover { filter: brightness(1.12); }
.tb-root button.tb-block.tb-selected { border: 2px solid var(--tb-text); opacity: 1; z-index: 2; }
.tb-memory[data-tb-dragging] { cursor: grabbing; user-select: none; }
.tb-memory[data-tb-dragging] .tb-block { pointer-events: none; }
.tb-q-input { --tb-q: #58b7c4; --tb-q-edge: #2b8592; }
.tb-q-parameter { --tb-q: #7fc09c; --tb-q-edge: #3f8a62; }
.tb-q-constant { --tb-q: #b9c98a; --tb-q-edge: #7f9147; }
.tb-q-output { --tb-q: #7aa5e6; --tb-q-edge: #3a6bb7; }
.tb-q-e2e { --tb-q: #eab065; --tb-q-edge: #b37720; }
.tb-q-sparse-tiles { --tb-q: #c29ade; --tb-q-edge: #8656ab; }
.tb-q-sparse-encoding { --tb-q: #e0a0b8; --tb-q-edge: #ab5a78; }
.tb-q-other { --tb-q: #b0b8c4; --tb-q-edge: #76808e; }
.tb-key i.tb-block-key { position: static; background: var(--tb-q); border-color: var(--tb-q-edge); }
.tb-key i.tb-lane-gap.tb-block-key { background: repeating-linear-gradient(135deg, var(--tb-hatch) 0 2px, var(--tb-hatch-ground) 2px 6px); border-color: var(--tb-hatch); }
.tb-lane-held { text-align: right; color: var(--tb-muted); white-space: nowrap; }
.tb-lane-load { display: flex; align-items: center; gap: 6px; justify-content: flex-end; white-space: nowrap; }
.tb-lane-load i { display: block; width: 40px; height: 7px; border-radius: 3px; background: var(--tb-line); overflow: hidden; }
.tb-lane-load b { display: block; height: 100%; background: var(--tb-accent); }
.tb-lane-load.tb-worse b { background: var(--tb-bad); }
.tb-queue-tag { max-width: 250px; }
.tb-memory .tb-legend { border-top: 0; padding: 7px 0 0; }
.tb-page .tb-memory { height: 440px; }
`;
