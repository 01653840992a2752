/** Styles of the timeline. */
export const traceStyle = `
.tb-trace { display: flex; flex-direction: column; }
.tb-root > .tb-view.tb-trace { height: var(--tb-height, 560px); }
.tb-trace-stage { position: relative; flex: 1 1 0; min-height: 120px; overflow: hidden; outline-offset: -2px; }
.tb-trace-canvas { position: absolute; left: 210px; top: 0; touch-action: none; cursor: crosshair; }
.tb-trace-scroll { position: absolute; left: 0; top: 38px; bottom: 0; width: 210px; overflow: hidden auto; border-right: 1px solid var(--tb-line); scrollbar-width: thin; }
.tb-trace-labels { position: relative; }
.tb-trace-label { position: absolute; left: 0; right: 0; display: flex; align-items: center; gap: 4px; padding: 0 6px 0 4px; white-space: nowrap; overflow: hidden; font-size: 11px; }
.tb-trace-epoch { background: var(--tb-faint); justify-content: flex-start; }
.tb-trace-epoch span { color: var(--tb-muted); margin-left: auto; font-variant-numeric: tabular-nums; }
.tb-trace-op { padding-left: 12px; }
.tb-trace-op.tb-related .tb-trace-name { color: var(--tb-outgoing); }
.tb-trace-op.tb-selected { background: var(--tb-accent-soft); box-shadow: inset 3px 0 var(--tb-accent); }
.tb-root .tb-trace-name { overflow: hidden; text-overflow: ellipsis; min-width: 24px; text-align: left; line-height: 20px; flex: 1 1 auto; }
.tb-root .tb-trace-name:hover { text-decoration: underline; }
.tb-trace-part, .tb-trace-fill { color: var(--tb-muted); padding-left: 34px; font-size: 10.5px; }
.tb-trace .tb-caret { width: 16px; min-width: 16px; height: 20px; line-height: 20px; text-align: center; color: var(--tb-muted); font-size: 10px; }
.tb-trace-stalled { color: var(--tb-warn); font-weight: 700; margin-left: auto; }
.tb-cursors { position: absolute; left: 210px; top: 0; bottom: 0; pointer-events: none; overflow: hidden; }
.tb-cursor { position: absolute; top: 20px; bottom: 0; width: 11px; margin-left: -5px; pointer-events: auto; cursor: ew-resize; touch-action: none; background: linear-gradient(var(--tb-warn), var(--tb-warn)) center/1.5px 100% no-repeat; }
.tb-cursor i { position: absolute; top: 0; left: -2px; width: 15px; height: 15px; border-radius: 3px; background: var(--tb-warn); color: var(--tb-surface); font: 700 9.5px/15px var(--tb-font); text-align: center; }
.tb-between { position: absolute; top: 20px; bottom: 0; background: var(--tb-warn); opacity: .1; }
.tb-bubble { position: absolute; top: 40px; transform: translateX(-50%); background: var(--tb-raised); border: 1px solid var(--tb-warn); border-radius: 99px; padding: 1px 10px; font-size: 11px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; box-shadow: var(--tb-shadow); }
.tb-playhead { position: absolute; top: 18px; bottom: 0; width: 0; border-left: 1.5px solid var(--tb-bad); pointer-events: none; }
.tb-playhead::before { content: ''; position: absolute; left: -6px; top: 0; border: 5.5px solid transparent; border-top-color: var(--tb-bad); }
.tb-trace .tb-key svg { display: block; }
.tb-stalls { border-top: 1px solid var(--tb-line); max-height: 116px; overflow: auto; padding: 4px 12px; font-size: 11.5px; }
.tb-stalls summary { cursor: pointer; color: var(--tb-muted); font-weight: 600; }
.tb-stalls ul { list-style: none; padding: 0; margin: 0; }
.tb-stalls li { display: flex; gap: 8px; padding: 3px 0; align-items: flex-start; }
.tb-stalls .tb-critical .tb-glyph { color: var(--tb-warn); }
.tb-stalls .tb-glyph { color: var(--tb-muted); width: 15px; height: 15px; }
.tb-root .tb-stalls .tb-button { height: 20px; }
.tb-root .tb-trace .tb-button[aria-pressed=true] { background: var(--tb-accent-soft) !important; border-color: var(--tb-accent) !important; }
.tb-doing rect { stroke-width: .8; }
.tb-doing text { font: 600 9px var(--tb-font); fill: var(--tb-text); paint-order: stroke; stroke: var(--tb-surface); stroke-width: 3px; }
.tb-plane.tb-at-moment .tb-sub { display: none; }
.tb-tabbed:has(> .tb-trace:not([hidden])), .tb-tabbed:has(> .tb-trace:not([hidden])) + .tb-inspector { height: 500px; }
.tb-page .tb-view.tb-trace { height: 640px; }
.tb-stages .tb-message { flex: 1 1 260px; order: 1; }
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
