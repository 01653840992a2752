/** Styles of the pass stepper. */
export const passStyle = `
.tb-passes { display: flex; flex-direction: column; }
.tb-passes-body { flex: 1 1 0; min-height: 0; display: flex; }
.tb-root ol.tb-passes-list { flex: 0 0 auto; width: 300px; max-width: 40%; overflow: auto; list-style: none; border-right: 1px solid var(--tb-line); }
.tb-passes-list li { border-bottom: 1px solid var(--tb-line); margin: 0; }
.tb-root .tb-passes-list button { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0 8px; width: 100%; text-align: left; padding: 4px 10px; font-variant-numeric: tabular-nums; }
.tb-root .tb-passes-list button:hover { background: var(--tb-hover); }
.tb-passes-list li[aria-current] button { background: var(--tb-accent-soft); box-shadow: inset 3px 0 var(--tb-accent); }
.tb-pass-name { font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tb-pass-nodes, .tb-pass-time { color: var(--tb-muted); text-align: right; font-size: 11px; }
.tb-pass-marks { display: flex; gap: 8px; font-size: 11px; font-weight: 600; }
.tb-pass-added { color: var(--tb-d-added); }
.tb-pass-removed { color: var(--tb-d-removed); }
.tb-pass-changed { color: var(--tb-d-retimed); }
.tb-pass-error { color: var(--tb-bad); padding: 6px 10px; }
.tb-passes-body > .tb-graph { flex: 1 1 0; height: auto; border: 0; border-radius: 0; min-width: 0; }
.tb-passes .tb-graph > .tb-bar h3, .tb-passes .tb-graph > .tb-bar .tb-segmented { display: none; }
.tb-passes-notes { flex: 0 0 auto; width: 270px; max-width: 32%; overflow: auto; border-left: 1px solid var(--tb-line); padding: 4px 10px; font-size: 11.5px; }
.tb-passes-notes p { margin: 4px 0; color: var(--tb-muted); }
.tb-passes-notes li { list-style: none; display: flex; gap: 7px; padding: 2px 0; overflow-wrap: anywhere; }
.tb-passes-notes li > span { font-weight: 700; flex: none; width: 10px; }
@container (max-width: 760px) { .tb-passes-notes { display: none; } .tb-root ol.tb-passes-list { width: 210px; } }
.tb-page .tb-passes { height: 520px; }
`;
