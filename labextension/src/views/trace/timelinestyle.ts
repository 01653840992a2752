/** Styles of the timeline. */
export const timelineStyle = `
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
.tb-tabbed:has(> .tb-trace:not([hidden])), .tb-tabbed:has(> .tb-trace:not([hidden])) + .tb-inspector { height: 500px; }
.tb-page .tb-view.tb-trace { height: 640px; }
`;
