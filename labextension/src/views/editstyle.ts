/** Styles of everything that edits. */
export const editStyle = `
/* Once an op was tapped, a finger drags it; a tap on empty ground lets it scroll the page again. */
.tb-plane.tb-in-hand { touch-action: none; }
.tb-handle-hit { fill: transparent; }
.tb-handle-mark { fill: var(--tb-accent); stroke: var(--tb-surface); stroke-width: 1.5; }
.tb-handle:hover .tb-handle-mark { stroke: var(--tb-text); }
.tb-handle-e, .tb-handle-w, [data-tb-dragging=e], [data-tb-dragging=w] { cursor: ew-resize; }
.tb-handle-s, .tb-handle-n, [data-tb-dragging=s], [data-tb-dragging=n] { cursor: ns-resize; }
.tb-handle-se, .tb-handle-nw, [data-tb-dragging=se], [data-tb-dragging=nw] { cursor: nwse-resize; }
.tb-handle-sw, .tb-handle-ne, [data-tb-dragging=sw], [data-tb-dragging=ne] { cursor: nesw-resize; }
.tb-root .tb-frame.tb-off { opacity: .35; }
.tb-order { cursor: grab; touch-action: none; padding: 0 5px; }
.tb-list tr.tb-drop { outline: 2px solid var(--tb-accent); }
.tb-tile.tb-failed .tb-body { fill: color-mix(in srgb, var(--tb-bad) 32%, var(--tb-surface)); stroke: var(--tb-bad); stroke-width: 2.5; }
.tb-tile.tb-failed text { fill: var(--tb-text); }
.tb-pipe path { fill: none; stroke: var(--tb-accent); stroke-linecap: round; opacity: .8; }
.tb-pipe .tb-pipe-head { fill: var(--tb-accent); stroke: var(--tb-surface); stroke-width: 1; opacity: 1; }
.tb-legend select { font: inherit; color: var(--tb-text); background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 5px; margin-left: 5px; }
.tb-hint-kind { min-width: 44px; color: var(--tb-muted); }
[data-tb-dragging=move], [data-tb-dragging=move] .tb-tile { cursor: grabbing; }
.tb-plane[data-tb-dragging] { user-select: none; }
.tb-ghosts { pointer-events: none; }
.tb-ghost { fill: var(--tb-accent); fill-opacity: .3; stroke: var(--tb-accent); stroke-width: 3; }
.tb-ghost.tb-crowded { stroke-dasharray: 9 4; }
.tb-wanted { fill: none; stroke: var(--tb-text); stroke-width: 1.5; stroke-dasharray: 4 3; }
.tb-wanted.tb-bad { stroke: var(--tb-bad); stroke-width: 2; }
.tb-struck { stroke: var(--tb-bad); stroke-width: 1.2; opacity: .55; fill: none; }
.tb-verdict-ground { fill: var(--tb-surface); stroke: var(--tb-bad); stroke-width: 1.5; }
.tb-verdict-glyph { stroke: var(--tb-bad); stroke-width: 2.2; fill: none; }
.tb-tag { position: absolute; z-index: 30; pointer-events: none; width: max-content; max-width: 320px; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-left: 3px solid var(--tb-accent); border-radius: 6px; box-shadow: var(--tb-shadow); padding: 7px 11px; display: grid; gap: 1px; font-size: 11.5px; font-variant-numeric: tabular-nums; }
.tb-tag.tb-refused { border-left-color: var(--tb-bad); }
.tb-tag b { font-size: 12.5px; margin-bottom: 2px; }
.tb-tag span { overflow-wrap: anywhere; }
.tb-tag span:has(i) { display: grid; grid-template-columns: 118px minmax(0, 1fr); gap: 8px; }
.tb-tag i { font-style: normal; color: var(--tb-muted); }
.tb-tag u { text-decoration: none; }
.tb-tag em { font-style: normal; color: var(--tb-muted); margin-top: 3px; }
.tb-tag.tb-refused em { color: var(--tb-text); margin: 0; }
.tb-plane.tb-old .tb-tiles { filter: grayscale(1); }
.tb-cores { overflow: visible; }
.tb-editbar { display: inline-flex; align-items: center; gap: 4px; }
.tb-stale-chip { border: 1px solid var(--tb-warn); color: var(--tb-warn); border-radius: 99px; padding: 0 8px; font-size: 11px; font-weight: 600; margin-right: 4px; }
.tb-toasts { position: absolute; left: 10px; right: 10px; bottom: 34px; z-index: 25; display: flex; justify-content: center; pointer-events: none; }
.tb-toast { pointer-events: auto; display: flex; align-items: flex-start; gap: 9px; max-width: 620px; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 8px; box-shadow: var(--tb-shadow); padding: 8px 11px; }
.tb-toast .tb-glyph { color: var(--tb-good); }
.tb-toast.tb-refused .tb-glyph { color: var(--tb-bad); }
.tb-toast.tb-slower .tb-glyph { color: var(--tb-warn, var(--tb-bad)); }
.tb-toast span { overflow-wrap: anywhere; }
.tb-root .tb-close { font-size: 16px; line-height: 1.1; padding: 0 3px; color: var(--tb-muted); }
.tb-live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.tb-overrides { overflow: auto; }
.tb-overrides .tb-empty { position: static; padding: 10px 12px; place-items: start; text-align: left; }
.tb-root .tb-overrides .tb-list td { max-width: 330px; }
.tb-overrides .tb-list tbody tr { cursor: default; }
.tb-state { font-weight: 600; white-space: nowrap; }
.tb-state-obtained { color: var(--tb-good); }
.tb-state-missed, .tb-state-unmatched { color: var(--tb-warn); }
.tb-state-vetoed { color: var(--tb-bad); }
.tb-state-pending { color: var(--tb-muted); }
.tb-root .tb-overrides .tb-list th.tb-title { padding: 5px 9px; font-weight: 600; color: var(--tb-muted); white-space: nowrap; }
.tb-root .tb-overrides .tb-list code { font: 11px var(--tb-code); }
.tb-overrides .tb-because { color: var(--tb-muted); white-space: normal; }
.tb-menu { position: absolute; z-index: 40; min-width: 190px; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 7px; box-shadow: var(--tb-shadow); padding: 4px; display: grid; }
.tb-menu strong { padding: 3px 9px 5px; font-size: 11px; color: var(--tb-muted); font-weight: 600; overflow-wrap: anywhere; max-width: 280px; }
.tb-root .tb-menu button { text-align: left; padding: 5px 9px; border-radius: 5px; }
.tb-root .tb-menu button:hover:enabled, .tb-root .tb-menu button:focus-visible { background: var(--tb-hover); }
`;
