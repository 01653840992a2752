/** The style sheet, as text: it travels with the bundle and stands inside each root. JupyterLab's variables come first. */
export const style = `
.tb-root {
  --tb-font: var(--jp-ui-font-family, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif);
  --tb-code: var(--jp-code-font-family, ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace);
  --tb-ground: #f4f6f9; --tb-surface: #ffffff; --tb-raised: #ffffff; --tb-line: #dce2ea; --tb-strong: #b9c3d0;
  --tb-text: #17202e; --tb-muted: #566376; --tb-faint: #eef1f5; --tb-hover: #e9eef6;
  --tb-accent: #1f63d6; --tb-accent-soft: #dde9fc; --tb-on-accent: #ffffff;
  --tb-incoming: #c2570c; --tb-outgoing: #1668c7; --tb-good: #1b7f4b; --tb-bad: #c0271d; --tb-warn: #9a5b00;
  --tb-edge: #9aa8ba; --tb-group: #edf1f7; --tb-group-edge: #c3cddb; --tb-lattice: #f0f3f7; --tb-lattice-edge: #dde3eb;
  --tb-hatch: #c9ced7; --tb-hatch-ground: #eceff3; --tb-shadow: 0 1px 2px rgb(16 24 40 / 6%), 0 6px 24px rgb(16 24 40 / 14%);
  color: var(--tb-text); font: 12.5px/1.45 var(--tb-font); text-align: left; container-type: inline-size;
}
.tb-root.tb-dark {
  --tb-ground: #14181f; --tb-surface: #1c222b; --tb-raised: #262e39; --tb-line: #323b48; --tb-strong: #4a5667;
  --tb-text: #e6eaf0; --tb-muted: #9eabbc; --tb-faint: #222933; --tb-hover: #2a3340;
  --tb-accent: #6aa5ff; --tb-accent-soft: #243a5e; --tb-on-accent: #0b1320;
  --tb-incoming: #ffa657; --tb-outgoing: #79b8ff; --tb-good: #5dcc8f; --tb-bad: #ff8078; --tb-warn: #f0b95e;
  --tb-edge: #66758a; --tb-group: #232b36; --tb-group-edge: #43505f; --tb-lattice: #202731; --tb-lattice-edge: #2f3844;
  --tb-hatch: #4b5563; --tb-hatch-ground: #262d37; --tb-shadow: 0 2px 4px rgb(0 0 0 / 30%), 0 8px 28px rgb(0 0 0 / 55%);
}
.tb-root *, .tb-root *::before { box-sizing: border-box; }
.tb-root [hidden] { display: none !important; }
.tb-root button, .tb-root input { font: inherit; color: inherit; }
.tb-root button { cursor: pointer; background: none; border: 0; padding: 0; margin: 0; }
.tb-root button:disabled { cursor: default; opacity: .4; }
.tb-root h3, .tb-root h4, .tb-root dl, .tb-root dd, .tb-root ul, .tb-root ol { margin: 0; padding: 0; }
.tb-root :focus-visible { outline: 2px solid var(--tb-accent); outline-offset: 1px; }
.tb-root b { font-weight: 600; }
.tb-root dl dt, .tb-root dl dd { float: none; width: auto; margin: 0; padding: 0; font-weight: 400; display: block; }
.tb-root button.tb-button, .tb-root input.tb-search { border-radius: 6px; }

.tb-bringup { background: var(--tb-ground); border: 1px solid var(--tb-line); border-radius: 10px; padding: 10px; display: grid; gap: 10px; }
.tb-view { background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 8px; position: relative; min-width: 0; }
.tb-upper, .tb-lower { display: grid; gap: 10px; min-width: 0; }
.tb-graph, .tb-grid { display: flex; flex-direction: column; height: 520px; }
.tb-tabbed, .tb-inspector { height: 330px; }
.tb-lower > .tb-inspector.tb-nothing { height: 56px; }
@container (min-width: 860px) {
  .tb-upper { grid-template-columns: minmax(0, 10fr) minmax(0, 11fr); }
  .tb-lower { grid-template-columns: minmax(0, 1fr) 330px; }
  .tb-lower > .tb-inspector.tb-nothing { height: 330px; }
  .tb-lower:has(> .tb-inspector[hidden]) { grid-template-columns: minmax(0, 1fr); }
}
.tb-root > .tb-view { height: var(--tb-height, 520px); overflow: hidden; }
.tb-root.tb-filling { position: fixed; inset: 0; z-index: 9999; overflow: auto; background: var(--tb-ground); }
.tb-filling .tb-upper > .tb-view { height: max(520px, calc(100vh - 480px)); }
.tb-root > .tb-view.tb-problems { height: auto; max-height: var(--tb-height, 520px); overflow: auto; }

.tb-bar { display: flex; align-items: center; gap: 8px; padding: 6px 10px; min-height: 40px; border-bottom: 1px solid var(--tb-line); flex: none; flex-wrap: wrap; }
.tb-bar h3 { font-size: 12.5px; font-weight: 650; white-space: nowrap; }
.tb-spring { flex: 1 1 0; }
.tb-tools { display: flex; gap: 8px; margin-left: auto; }
.tb-grid > .tb-bar > .tb-segmented { margin-left: auto; }
.tb-graph { container: graph / inline-size; }
.tb-graph > header.tb-bar { flex-wrap: nowrap; }
.tb-graph > header .tb-search { flex: 1 1 80px; min-width: 56px; max-width: 150px; }
.tb-graph > header .tb-found { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; }
.tb-root .tb-more { display: none; }
@container graph (max-width: 740px) {
  .tb-graph > header.tb-bar { gap: 6px; padding: 6px 8px; }
  .tb-graph .tb-wide { display: none; }
  .tb-graph > header .tb-segmented button { padding: 0 6px; }
  .tb-graph .tb-tools { gap: 3px; }
}
@container graph (max-width: 610px) { .tb-graph > header h3 { display: none; } }
@container graph (max-width: 550px) {
  .tb-root .tb-graph .tb-more { display: block; flex: none; margin-left: auto; }
  .tb-graph .tb-tools { display: none; position: absolute; z-index: 15; top: 38px; right: 6px; gap: 6px; padding: 6px; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 8px; box-shadow: var(--tb-shadow); }
  .tb-graph .tb-tools.tb-open { display: flex; }
}
.tb-button { border: 1px solid var(--tb-line) !important; border-radius: 6px; min-width: 26px; height: 26px; padding: 0 8px !important; background: var(--tb-surface) !important; color: var(--tb-text); line-height: 1; }
.tb-button:hover:enabled { background: var(--tb-hover) !important; border-color: var(--tb-strong) !important; }
.tb-segmented { display: inline-flex; border: 1px solid var(--tb-line); border-radius: 6px; overflow: hidden; flex: none; }
.tb-segmented button { padding: 0 9px; height: 24px; color: var(--tb-muted); border-right: 1px solid var(--tb-line); }
.tb-segmented button:last-child { border-right: 0; }
.tb-segmented button:hover:enabled { background: var(--tb-hover); }
.tb-segmented button[aria-pressed=true] { background: var(--tb-accent-soft); color: var(--tb-text); font-weight: 600; }
.tb-search { height: 26px; width: 150px; min-width: 80px; border: 1px solid var(--tb-line); border-radius: 6px; padding: 0 8px; background: var(--tb-surface); }
.tb-search::placeholder { color: var(--tb-muted); opacity: 1; }
.tb-found { color: var(--tb-muted); white-space: nowrap; font-size: 11.5px; }
.tb-check { display: inline-flex; align-items: center; gap: 5px; color: var(--tb-muted); white-space: nowrap; }
.tb-check input { margin: 0; accent-color: var(--tb-accent); }
.tb-link { color: var(--tb-accent) !important; text-align: left; }
.tb-link:hover { text-decoration: underline; }
.tb-empty { color: var(--tb-muted); padding: 24px; text-align: center; position: absolute; inset: 0; display: grid; place-items: center; }
.tb-tabbed .tb-view .tb-empty { position: static; }
.tb-late { min-height: 90px; position: relative; }
.tb-late .tb-button { margin-top: 8px; }
.tb-problems .tb-empty { position: static; padding: 10px 12px; place-items: start; text-align: left; }
.tb-page .tb-device { display: none; }
.tb-legend { display: flex; flex-wrap: wrap; gap: 3px 12px; padding: 5px 10px; border-top: 1px solid var(--tb-line); color: var(--tb-muted); font-size: 11px; flex: none; min-height: 27px; }
.tb-key { display: inline-flex; align-items: center; gap: 5px; white-space: nowrap; }
.tb-key i { width: 13px; height: 10px; border: 1px solid; border-radius: 2.5px; display: inline-block; }
.tb-swatch-in { border: 2px solid var(--tb-incoming) !important; }
.tb-swatch-out { border: 2px dashed var(--tb-outgoing) !important; }

.tb-stages { display: flex; align-items: center; gap: 12px; flex-wrap: wrap; position: relative; min-height: 30px; }
.tb-stages ol { flex: 0 1 auto; display: flex; list-style: none; gap: 4px; flex-wrap: wrap; }
.tb-step { display: inline-flex; align-items: center; gap: 5px; padding: 3px 10px 3px 8px; border-radius: 99px; background: var(--tb-surface); border: 1px solid var(--tb-line); color: var(--tb-muted); white-space: nowrap; }
.tb-step small { font-size: 10.5px; color: var(--tb-muted); font-variant-numeric: tabular-nums; }
.tb-step.tb-done { color: var(--tb-text); }
.tb-done .tb-dot { color: var(--tb-good); }
.tb-step.tb-running { color: var(--tb-text); border-color: var(--tb-accent); background: var(--tb-accent-soft); font-weight: 600; }
.tb-running .tb-dot { color: var(--tb-accent); }
.tb-step.tb-failed { border-color: var(--tb-bad); color: var(--tb-bad); font-weight: 600; }
.tb-message:empty { display: none; }
.tb-message { flex: 1 1 120px; color: var(--tb-muted); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tb-stages[data-tb-state=failed] .tb-message { color: var(--tb-bad); white-space: normal; }
.tb-run-line { flex: 1 1 auto; min-width: 0; display: flex; align-items: center; justify-content: flex-end; gap: 12px; flex-wrap: wrap; }
.tb-run-line .tb-message { flex: 1 1 60px; }
.tb-device { font-variant-numeric: tabular-nums; white-space: nowrap; color: var(--tb-muted); }
.tb-progress { position: absolute; left: 0; right: 0; bottom: -7px; height: 3px; border-radius: 2px; background: var(--tb-line); overflow: hidden; }
.tb-progress i { display: block; height: 100%; background: var(--tb-accent); transition: width .2s; }
.tb-failure { background: var(--tb-surface); border: 1px solid var(--tb-bad); border-left-width: 4px; border-radius: 8px; padding: 9px 14px 10px; min-width: 0; }
.tb-failure h4 { font-size: 13px; font-weight: 650; color: var(--tb-bad); }
.tb-failure h4 small { font-size: inherit; font-weight: 400; color: var(--tb-muted); }
.tb-failure ul { list-style: none; display: grid; gap: 7px; margin-top: 5px; }
.tb-failure p { margin: 5px 0 0; }
.tb-failure li, .tb-failure p { overflow-wrap: anywhere; }
.tb-failure .tb-fix { color: var(--tb-muted); }
.tb-failure .tb-link { margin-top: 6px; }
.tb-topline { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; min-width: 0; }
.tb-docks { display: flex; gap: 8px; margin-left: auto; }
.tb-docks button { background: var(--tb-surface); }
.tb-metrics[hidden] + .tb-docks { display: none; }
.tb-metrics { display: flex; flex-wrap: wrap; gap: 8px; }
.tb-metric { background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 8px; padding: 5px 14px 6px; display: flex; align-items: baseline; gap: 7px; }
.tb-metric b { font-size: 16px; font-weight: 650; font-variant-numeric: tabular-nums; letter-spacing: -.01em; }
.tb-metric span { color: var(--tb-muted); }
.tb-metric.tb-good b { color: var(--tb-good); }
.tb-metric.tb-bad b { color: var(--tb-bad); }

.tb-stage { position: relative; flex: 1 1 0; min-height: 0; overflow: hidden; cursor: grab; touch-action: none; user-select: none; }
.tb-stage.tb-panning { cursor: grabbing; }
.tb-stage:focus-visible, .tb-plane:focus-visible { outline-offset: -2px; }
.tb-canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
.tb-minimap { position: absolute; right: 8px; top: 8px; border: 1px solid var(--tb-line); border-radius: 5px; background: color-mix(in srgb, var(--tb-surface) 88%, transparent); cursor: pointer; touch-action: none; }
.tb-hooks { position: absolute; left: 0; top: 0; width: 0; height: 0; transform-origin: 0 0; }
.tb-root .tb-hook { position: absolute; cursor: inherit; }

.tb-epoch-head { display: flex; flex-wrap: wrap; gap: 0 12px; padding: 6px 12px 0; color: var(--tb-muted); font-variant-numeric: tabular-nums; flex: none; }
.tb-epoch-head:empty { display: none; }
.tb-epoch-head b { color: var(--tb-text); }
.tb-strip { display: flex; gap: 6px; padding: 7px 10px; overflow-x: auto; flex: none; border-bottom: 1px solid var(--tb-line); scrollbar-width: thin; position: relative; }
.tb-strip:empty { display: none; }
.tb-root .tb-frame { flex: none; width: 62px; padding: 4px; border-radius: 6px; border: 1px solid transparent; display: grid; gap: 3px; }
.tb-root .tb-frame.tb-wide { width: 82px; }
.tb-root .tb-frame.tb-touched { width: 74px; }
.tb-root .tb-frame.tb-wide.tb-touched { width: 94px; }
.tb-root .tb-frame:hover { background: var(--tb-hover); }
.tb-root .tb-frame[aria-current] { border-color: var(--tb-accent); background: var(--tb-accent-soft); }
.tb-frame.tb-touched .tb-frame-text b::after { content: ' ●'; color: var(--tb-accent); font-size: 9px; vertical-align: 1px; }
.tb-frame svg { display: block; width: 100%; height: 42px; }
.tb-mini-ground { fill: var(--tb-lattice); stroke: var(--tb-lattice-edge); stroke-width: .6; }
.tb-frame-bar { height: 3px; border-radius: 2px; background: var(--tb-line); overflow: hidden; }
.tb-frame-bar i { display: block; height: 100%; background: var(--tb-muted); }
.tb-frame-text { display: flex; gap: 4px; white-space: nowrap; justify-content: space-between; font-size: 10.5px; line-height: 1; color: var(--tb-muted); font-variant-numeric: tabular-nums; }
.tb-frame-text b { color: var(--tb-text); }
.tb-plane { flex: 1 1 0; min-height: 0; padding: 4px 6px; position: relative; }
.tb-cores { width: 100%; height: 100%; display: block; }
.tb-ruler { fill: var(--tb-muted); font: 500 calc(10.5px * var(--tb-letter, 1)) var(--tb-font); }
.tb-lattice { fill: var(--tb-lattice); stroke: var(--tb-lattice-edge); }
.tb-tile { cursor: pointer; outline: none; }
.tb-body { stroke-width: 1; }
.tb-seams { stroke-width: 1; opacity: .28; fill: none; pointer-events: none; }
.tb-tile text { fill: var(--tile-text); pointer-events: none; font-family: var(--tb-font); }
.tb-name { font-size: calc(10.8px * var(--tb-letter, 1)); font-weight: 600; }
.tb-sub { font-size: calc(10px * var(--tb-letter, 1)); opacity: .82; font-variant-numeric: tabular-nums; }
.tb-hot { font-weight: 700; opacity: 1; }
.tb-limits .tb-body { stroke-width: 2; }
.tb-has-selection .tb-tile:not(.tb-selected, .tb-feeds, .tb-fed, .tb-hovered) :is(.tb-body, .tb-seams) { opacity: .45; }
.tb-has-selection .tb-tile:not(.tb-selected, .tb-feeds, .tb-fed, .tb-hovered) text { fill: var(--tb-text); opacity: .78; }
.tb-hovered .tb-body { stroke: var(--tb-accent); stroke-width: 2.5; }
.tb-feeds .tb-body { stroke: var(--tb-incoming); stroke-width: 3.2; }
.tb-fed .tb-body { stroke: var(--tb-outgoing); stroke-width: 3.2; stroke-dasharray: 7 3; }
.tb-selected .tb-body { stroke: var(--tb-accent); stroke-width: 4; }
.tb-tile:focus-visible .tb-body { stroke: var(--tb-accent); stroke-width: 4; stroke-dasharray: 2 2; }
.tb-hatch-ground { fill: var(--tb-hatch-ground); }
.tb-hatch-line { stroke: var(--tb-hatch); stroke-width: 3; }
.tb-harvested text { fill: var(--tb-muted); font: 600 10px var(--tb-font); paint-order: stroke; stroke: var(--tb-hatch-ground); stroke-width: 5px; }
.tb-card { position: absolute; z-index: 20; width: min(430px, 96%); background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 8px; box-shadow: var(--tb-shadow); padding: 10px 12px; pointer-events: none; font-size: 11.5px; }
.tb-card header { display: flex; gap: 8px; justify-content: space-between; margin-bottom: 6px; }
.tb-card strong { overflow-wrap: anywhere; }
.tb-card header span { color: var(--tb-muted); }
.tb-root dl.tb-facts { display: grid; overflow: visible; width: auto; grid-template-columns: max-content minmax(0, 1fr); gap: 1px 12px; font-variant-numeric: tabular-nums; }
.tb-facts dt { color: var(--tb-muted); }
.tb-facts dt[title], .tb-metric[title], .tb-epoch-head span[title] { cursor: help; }
.tb-inspector dl.tb-facts { grid-template-columns: minmax(68px, max-content) minmax(0, 1fr); }
.tb-diff-strip { fill: var(--tb-hatch-ground); stroke: var(--tb-hatch); stroke-width: .5; }
.tb-facts dd { overflow-wrap: anywhere; white-space: pre-line; }
.tb-card h4, .tb-inspector h4 { font-size: 11px; font-weight: 650; color: var(--tb-muted); margin: 9px 0 3px; }
.tb-root dl.tb-entry { overflow: visible; width: auto; font: 10.8px/1.5 var(--tb-code); background: var(--tb-faint); border-radius: 5px; padding: 5px 8px; display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: 0 12px; }
.tb-entry > div { display: flex; gap: 8px; min-width: 0; }
.tb-entry > .tb-long { grid-column: 1 / -1; }
.tb-entry dt { color: var(--tb-muted); }
.tb-entry dd { overflow-wrap: anywhere; }

.tb-tabbed { position: relative; display: flex; flex-direction: column; background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 8px; min-width: 0; overflow: hidden; }
.tb-tabs { display: flex; overflow-x: auto; scrollbar-width: none; border-bottom: 1px solid var(--tb-line); padding: 0 34px 0 6px; flex: none; }
.tb-root .tb-detach[aria-pressed=true] { color: var(--tb-accent); }
.tb-root .tb-detach { position: absolute; top: 5px; right: 8px; padding: 1px 5px; color: var(--tb-muted); background: var(--tb-surface); box-shadow: 0 0 5px 5px var(--tb-surface); }
.tb-tabs button { padding: 7px 12px; color: var(--tb-muted); border-bottom: 2px solid transparent; }
@container (max-width: 1080px) { .tb-tabs button { padding: 7px 8px; } }
.tb-tabs button[aria-selected=true] { color: var(--tb-text); font-weight: 600; border-bottom-color: var(--tb-accent); }
.tb-badge { margin-left: 6px; padding: 0 6px; border-radius: 9px; background: var(--tb-line); font-size: 10.5px; font-weight: 600; color: var(--tb-text); }
.tb-tabbed > .tb-view { border: 0; border-radius: 0; flex: 1 1 0; min-height: 0; display: flex; flex-direction: column; }
.tb-ops { display: flex; flex-direction: column; }
.tb-ops .tb-bar { border-bottom: 0; }
.tb-table { flex: 1 1 0; min-height: 0; overflow: auto; position: relative; font-variant-numeric: tabular-nums; border-top: 1px solid var(--tb-line); }
.tb-table .tb-row { display: flex; position: absolute; height: 26px; min-width: 100%; width: max-content; align-items: center; }
.tb-table .tb-headrow { position: sticky; top: 0; z-index: 2; background: var(--tb-faint); border-bottom: 1px solid var(--tb-line); font-weight: 600; color: var(--tb-muted); }
.tb-rows { position: relative; min-width: max-content; }
.tb-rows .tb-row { cursor: pointer; }
.tb-rows .tb-odd { background: color-mix(in srgb, var(--tb-faint) 55%, transparent); }
.tb-rows .tb-row.tb-hovered { background: var(--tb-hover); }
.tb-rows .tb-row.tb-selected { background: var(--tb-accent-soft); box-shadow: inset 3px 0 var(--tb-accent); }
.tb-cell { padding: 0 9px; white-space: nowrap; flex: none; text-align: left; }
/* Every clip is a layer to be sorted with each frame: only where words may be too long. */
.tb-long, .tb-total-text { overflow: hidden; text-overflow: ellipsis; }
.tb-root .tb-headrow .tb-cell { padding: 0; height: 100%; }
.tb-root .tb-headrow button { width: 100%; height: 100%; padding: 0 9px; color: inherit; font-weight: inherit; text-align: inherit; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tb-root .tb-headrow button:hover { color: var(--tb-text); }
.tb-right, .tb-root button.tb-right { text-align: right; }
.tb-arrow { font-style: normal; font-size: 8px; margin-left: 4px; vertical-align: 1px; }
.tb-loaded { display: flex; align-items: center; justify-content: space-between; gap: 7px; }
.tb-load { display: block; flex: none; width: 42px; height: 7px; border-radius: 3px; background: var(--tb-faint); }
.tb-load b { display: block; height: 100%; border: 1px solid; border-radius: 3px; }
.tb-code { flex: 1 1 0; min-height: 0; overflow: auto; font: 11.5px/18px var(--tb-code); }
.tb-code-body { position: relative; min-width: 100%; min-height: 100%; }
.tb-line { position: absolute; white-space: pre; height: 18px; min-width: 100%; padding-right: 12px; }
.tb-line.tb-marked { background: var(--tb-accent-soft); box-shadow: inset 3px 0 var(--tb-accent); }
.tb-line[aria-current] { outline: 1.5px solid var(--tb-accent); outline-offset: -1.5px; }
.tb-line[aria-current] .tb-number { color: var(--tb-accent); font-weight: 700; }
.tb-number { display: inline-block; width: 5ch; margin-right: 1.5ch; text-align: right; color: var(--tb-muted); user-select: none; }
.tb-problems { overflow: auto; }
.tb-problems > .tb-bar { position: sticky; top: 0; z-index: 1; background: var(--tb-surface); }
.tb-problem { display: flex; gap: 9px; padding: 7px 12px; border-bottom: 1px solid var(--tb-line); list-style: none; }
.tb-glyph { flex: none; width: 17px; height: 17px; border-radius: 50%; display: grid; place-items: center; font-size: 10.5px; font-weight: 700; border: 1.5px solid currentcolor; margin-top: 1px; }
.tb-error .tb-glyph { color: var(--tb-bad); }
.tb-warning .tb-glyph { color: var(--tb-warn); }
.tb-note .tb-glyph { color: var(--tb-muted); }
.tb-problem code { font: 11px var(--tb-code); color: var(--tb-muted); margin-left: 8px; }
.tb-fix { color: var(--tb-muted); }
.tb-inspector { overflow: auto; padding: 10px 12px; font-size: 11.5px; }
.tb-inspector header { margin-bottom: 6px; font-size: 12.5px; overflow-wrap: anywhere; }
.tb-inspector .tb-facts + .tb-facts { margin-top: 6px; padding-top: 6px; border-top: 1px solid var(--tb-line); }
.tb-inspector h4.tb-in { color: var(--tb-incoming); }
.tb-inspector h4.tb-out { color: var(--tb-outgoing); }
.tb-chips { display: flex; flex-wrap: wrap; gap: 4px; }
.tb-root .tb-chip { border: 1px solid var(--tb-line); border-radius: 5px; padding: 1px 7px; max-width: 100%; overflow: hidden; text-overflow: ellipsis; background: var(--tb-faint); }
.tb-root .tb-chip:hover { border-color: var(--tb-accent); }

.tb-overlap { pointer-events: none; }
.tb-overlap rect { fill: var(--tb-surface); fill-opacity: .82; stroke: var(--tb-bad); stroke-width: 2; }
.tb-overlap path { stroke: var(--tb-bad); stroke-width: 1; opacity: .45; fill: none; }
.tb-overlap text { fill: var(--tb-bad); font: 700 11px var(--tb-font); }
.tb-absent { stroke: var(--tb-hatch); fill: none; }
.tb-file { gap: 12px; }
[data-tb-root=page] > .tb-file { max-width: 1680px; margin: 0 auto; padding: 20px 24px 50px; }
[data-tb-root=page] > .tb-file .tb-upper > * { height: 600px; }
[data-tb-root=page] > .tb-file .tb-lower > * { height: 480px; }
.tb-file-head h3 { font-size: 17px; margin: 0 0 7px; overflow-wrap: anywhere; }
.tb-file-head p { margin: 6px 0 0; color: var(--tb-muted); }
.tb-findings { max-height: 230px; }
.tb-valid { display: flex; gap: 8px; padding: 8px 12px; color: var(--tb-muted); }
.tb-valid span { color: var(--tb-good); font-weight: 700; }
.tb-scroll { flex: 1 1 0; min-height: 0; overflow: auto; position: relative; border-top: 1px solid var(--tb-line); }
.tb-root .tb-list { border-collapse: separate; border-spacing: 0; min-width: 100%; font-variant-numeric: tabular-nums; font-size: inherit; table-layout: auto; }
.tb-root .tb-list th { position: sticky; top: 0; background: var(--tb-faint); border-bottom: 1px solid var(--tb-line); text-align: left; padding: 0; z-index: 1; }
.tb-root .tb-list th button { padding: 4px 9px; font-weight: 600; color: var(--tb-muted); white-space: nowrap; }
.tb-root .tb-list td { padding: 3px 9px; white-space: nowrap; max-width: 260px; overflow: hidden; text-overflow: ellipsis; text-align: left; }
.tb-root .tb-list .tb-right { text-align: right; }
.tb-list tbody tr { cursor: pointer; }
.tb-list tbody tr:nth-child(even) { background: color-mix(in srgb, var(--tb-faint) 55%, transparent); }
.tb-list tbody tr:hover { background: var(--tb-hover); }
.tb-list tbody tr.tb-selected { background: var(--tb-accent-soft); box-shadow: inset 3px 0 var(--tb-accent); }
.tb-root .tb-programs { margin: 0; padding: 8px 12px; white-space: pre; overflow: auto; }

.tb-page { max-width: 1560px; margin: 0 auto; padding: 22px 26px 60px; display: grid; gap: 20px; }
.tb-page h1 { font-size: 22px; margin: 0; letter-spacing: -.01em; }
.tb-page h2 { font-size: 15px; margin: 10px 0 8px; }
.tb-page > header p { margin: 4px 0 0; color: var(--tb-muted); }
.tb-page .tb-inspector, .tb-page .tb-tabbed { height: 460px; }
.tb-page .tb-graph, .tb-page .tb-grid { height: 600px; }
.tb-page .tb-stages { margin-top: 10px; }
.tb-page .tb-plain { margin-top: 10px; }
.tb-gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 430px), 1fr)); gap: 12px; }
.tb-gallery figure { margin: 0; background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 8px; padding: 8px; }
.tb-gallery figcaption { color: var(--tb-muted); padding: 0 4px 4px; font-variant-numeric: tabular-nums; }
.tb-plain { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.tb-plain th, .tb-plain td { text-align: left; padding: 4px 18px 4px 0; border-bottom: 1px solid var(--tb-line); }
.tb-plain th { color: var(--tb-muted); font-weight: 500; }
@media print { .tb-page { max-width: none; padding: 0; } .tb-bar .tb-button, .tb-search { display: none; } .tb-gallery figure { break-inside: avoid; } }
`;
