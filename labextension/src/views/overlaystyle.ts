/** Styles of the panels over the views, of suggestions, drops, bands, breaks and spin controls. */
export const overlayStyle = `
.tb-root { position: relative; }
.tb-overlays { position: absolute; inset: 0; pointer-events: none; z-index: 60; }
.tb-overlays > .tb-toasts { bottom: 12px; }
.tb-dialog { pointer-events: auto; position: absolute; top: 44px; left: 50%; transform: translateX(-50%); width: min(880px, calc(100% - 24px)); max-height: min(760px, calc(100% - 56px)); min-height: 0; overflow: auto; background: var(--tb-raised); border: 1px solid var(--tb-strong); border-radius: 10px; box-shadow: var(--tb-shadow); }
.tb-dialog:focus-visible { outline: none; border-color: var(--tb-accent); }
.tb-dialog > header { position: sticky; top: 0; z-index: 1; background: var(--tb-raised); display: flex; justify-content: space-between; gap: 12px; align-items: flex-start; padding: 10px 14px 8px; border-bottom: 1px solid var(--tb-line); }
.tb-dialog > header h3 { font-size: 13px; font-weight: 650; overflow-wrap: anywhere; }
.tb-dialog-body { padding: 12px 14px 14px; }
.tb-dialog-body > p { margin: 0 0 10px; }
[data-tb-root=page] .tb-dialog { position: fixed; top: 8vh; max-height: 80vh; }
.tb-dialog-prompt { width: min(320px, calc(100% - 24px)); }
.tb-dialog-prompt .tb-search { width: 100%; }
.tb-dialog-keys .tb-dialog-body { columns: 2 330px; column-gap: 26px; }
.tb-dialog-keys section { break-inside: avoid; margin-bottom: 12px; }
.tb-dialog h4 { font-size: 11px; font-weight: 650; color: var(--tb-muted); text-transform: uppercase; letter-spacing: .04em; margin-bottom: 4px; }
.tb-root dl.tb-keys { display: grid; grid-template-columns: 112px 1fr; gap: 3px 10px; align-items: baseline; }
.tb-root dl.tb-keys i { font-style: normal; color: var(--tb-muted); }
.tb-keys kbd { font: 600 11px var(--tb-code); background: var(--tb-faint); border: 1px solid var(--tb-line); border-bottom-width: 2px; border-radius: 4px; padding: 1px 5px; margin-right: 4px; color: var(--tb-text); white-space: nowrap; }
.tb-dialog .tb-plain { width: 100%; border-collapse: collapse; margin: 0 0 10px; font-variant-numeric: tabular-nums; }
.tb-root .tb-dialog .tb-plain th { text-align: left; font-weight: 600; color: var(--tb-muted); padding: 4px 8px; border-bottom: 1px solid var(--tb-line); white-space: nowrap; }
.tb-root .tb-dialog .tb-plain td.tb-doings { white-space: nowrap; text-align: right; }
.tb-doings > * + * { margin-left: 6px; }
.tb-root .tb-dialog .tb-plain th.tb-right { text-align: right; }
.tb-root .tb-dialog .tb-plain td { padding: 4px 8px; border-bottom: 1px solid var(--tb-line); text-align: left; }
.tb-root .tb-dialog .tb-plain td.tb-right { text-align: right; white-space: nowrap; }
.tb-dialog tr.tb-chosen td { background: var(--tb-accent-soft); font-weight: 600; }
.tb-dialog details li { margin: 3px 0 3px 18px; }
.tb-dialog summary { cursor: pointer; color: var(--tb-accent); }
.tb-refusal { color: var(--tb-bad); }
.tb-note, .tb-wait { color: var(--tb-muted); }
.tb-dialog .tb-tabs { margin: -4px 0 10px; flex-wrap: wrap; }
.tb-form { display: grid; gap: 8px; margin-bottom: 12px; }
.tb-form p, .tb-words p { margin: 0; }
.tb-form label, .tb-knob { display: flex; gap: 10px; align-items: center; }
.tb-form label > span { flex: 0 0 210px; color: var(--tb-muted); }
.tb-form label input.tb-search { flex: 1; }
.tb-form label input[type=number] { flex: 0 0 90px; }
.tb-root select { font: inherit; color: inherit; background: var(--tb-surface); border: 1px solid var(--tb-line); border-radius: 6px; height: 26px; padding: 0 6px; min-width: 0; }
.tb-buttons { display: flex; gap: 8px; }
.tb-root .tb-button.tb-primary { background: var(--tb-accent) !important; border-color: var(--tb-accent) !important; color: var(--tb-on-accent); font-weight: 600; }
.tb-root .tb-button.tb-primary:hover:enabled { filter: brightness(1.08); }
.tb-words { display: grid; gap: 8px; }
.tb-cli { display: grid; grid-template-columns: 100px 1fr auto; gap: 10px; align-items: center; }
.tb-cli span { color: var(--tb-muted); }
.tb-cli code { font: 11.5px var(--tb-code); background: var(--tb-faint); border: 1px solid var(--tb-line); border-radius: 6px; padding: 5px 8px; overflow-wrap: anywhere; color: var(--tb-text); }
.tb-result { margin: 12px 0 0 !important; min-height: 18px; overflow-wrap: anywhere; }
.tb-result[data-tb-answer=done] { color: var(--tb-good); }
.tb-result[data-tb-answer=refused] { color: var(--tb-bad); }
.tb-editbar .tb-button[aria-pressed=true] { background: var(--tb-accent-soft) !important; border-color: var(--tb-accent) !important; font-weight: 600; }

.tb-suggestions { flex: none; border-bottom: 1px solid var(--tb-line); background: var(--tb-faint); }
.tb-suggestions .tb-note { margin: 0; padding: 5px 12px; }
.tb-suggestions .tb-note:empty { display: none; }
.tb-hints { max-height: 84px; overflow: auto; position: relative; scrollbar-width: thin; }
.tb-root .tb-hints:focus-visible { outline-offset: -2px; }
.tb-hint-row { display: grid; grid-template-columns: 20px auto minmax(0, 1fr) auto auto auto auto; gap: 10px; padding: 3px 12px; cursor: default; font-variant-numeric: tabular-nums; align-items: baseline; }
.tb-hint-row > span:first-of-type { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tb-hint-row > .tb-link { cursor: pointer; }
.tb-hint-row > span:not(.tb-link) { color: var(--tb-text); }
.tb-hint-row > span { white-space: nowrap; }
.tb-hint-row[aria-selected=true] { background: var(--tb-accent-soft); }
.tb-hint-row b { text-align: right; color: var(--tb-muted); }
.tb-gain { color: var(--tb-good) !important; font-weight: 600; }
.tb-hint-layer { pointer-events: none; }
.tb-hint rect { fill: none; stroke: var(--tb-good); stroke-width: 1.5; stroke-dasharray: 3 4; opacity: .75; }
.tb-hint circle { fill: var(--tb-surface); stroke: var(--tb-good); }
.tb-hint text { font: 600 10.5px var(--tb-font); fill: var(--tb-text); }
.tb-hint-on rect { fill: var(--tb-good); fill-opacity: .22; stroke-width: 3; stroke-dasharray: none; opacity: 1; }
.tb-hint-on circle { fill: var(--tb-good); }
.tb-hint-on text { fill: var(--tb-surface); }

.tb-displaced { fill: var(--tb-text); fill-opacity: .05; stroke: var(--tb-text); stroke-width: 1.5; stroke-dasharray: 2 5; opacity: .8; animation: tb-fade .18s ease-out; }
@keyframes tb-fade { from { opacity: 0; } }
.tb-displaced-way { stroke: var(--tb-text); stroke-width: 1.2; stroke-dasharray: 2 4; opacity: .7; pointer-events: none; }
.tb-ghost.tb-estimate { stroke-dasharray: 5 4; }
@media (prefers-reduced-motion: reduce) { .tb-displaced { animation: none; } }
.tb-band { fill: var(--tb-accent); fill-opacity: .12; stroke: var(--tb-accent); stroke-width: 1.2; stroke-dasharray: 4 3; pointer-events: none; }
.tb-core-cursor { fill: none; stroke: var(--tb-accent); stroke-width: 2.5; pointer-events: none; }
[data-tb-dragging=group], [data-tb-dragging=group] .tb-tile { cursor: grabbing; }
[data-tb-dragging=band] { cursor: crosshair; }
.tb-root .tb-drop { outline: 2px solid var(--tb-accent) !important; outline-offset: 1px; background: var(--tb-accent-soft) !important; }
.tb-chip-strip { display: flex; gap: 6px; padding: 5px 10px; border-bottom: 1px solid var(--tb-line); flex: none; flex-wrap: wrap; }
.tb-chip-drop { border: 1px solid var(--tb-line); border-radius: 6px; padding: 3px 10px; color: var(--tb-muted); }
.tb-chip-drop b { color: var(--tb-text); }

.tb-inspector > p { margin: 0 0 4px; }
.tb-knobs { display: grid; gap: 5px; padding: 4px 0 8px; }
.tb-knob > span { flex: 1 1 90px; color: var(--tb-muted); }
.tb-knobs select { flex: 0 1 130px; }
.tb-knobs p { margin: 0; }
.tb-root .tb-overrides > .tb-bar { position: sticky; top: 0; background: var(--tb-surface); z-index: 2; }
.tb-root .tb-list th.tb-title { padding: 4px 9px; font-weight: 600; color: var(--tb-muted); white-space: nowrap; }
.tb-root .tb-overrides .tb-list td:has(> code) { max-width: 230px; }
.tb-root .tb-overrides .tb-list td:last-child { white-space: nowrap; overflow: visible; max-width: none; }
.tb-overrides tr[data-tb-state=off] td:not(:first-child) { opacity: .6; }
.tb-state-off { color: var(--tb-muted); }
.tb-source { margin: 0; padding: 10px 14px; font: 11.5px/1.5 var(--tb-code); overflow: auto; color: var(--tb-text); background: none; }
.tb-breaks { position: absolute; inset: 0; overflow: hidden; pointer-events: none; }
.tb-break { position: absolute; left: 0; right: 0; height: 14px; margin-top: -7px; pointer-events: auto; cursor: ns-resize; touch-action: none; }
.tb-break::before { content: ''; position: absolute; left: 0; right: 0; top: 5px; height: 4px; background: var(--tb-break); opacity: .85; }
.tb-break:hover::before, .tb-break:focus-visible::before, .tb-break.tb-moving::before { top: 4px; height: 6px; opacity: 1; }
.tb-root .tb-break:focus-visible { outline-offset: -3px; }
.tb-break.tb-upright { left: auto; right: auto; top: 0; bottom: 0; width: 14px; height: auto; margin: 0 0 0 -7px; cursor: ew-resize; }
.tb-break.tb-upright::before, .tb-break.tb-upright:hover::before, .tb-break.tb-upright.tb-moving::before { left: 5px; right: auto; top: 0; bottom: 0; width: 4px; height: auto; }
.tb-break.tb-upright .tb-break-tag { max-width: 260px; width: max-content; }
.tb-break-tag { position: absolute; left: 8px; top: 8px; max-width: calc(100% - 20px); background: var(--tb-raised); border: 1px solid var(--tb-break); border-radius: 5px; padding: 1px 7px; font-size: 11px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; font-variant-numeric: tabular-nums; }
.tb-break.tb-moving .tb-break-tag { font-weight: 600; border-width: 2px; }
.tb-break-epoch { --tb-break: var(--tb-accent); }
.tb-break-chip { --tb-break: var(--tb-warn); }
.tb-menu hr { border: 0; border-top: 1px solid var(--tb-line); margin: 3px 4px; width: auto; }
.tb-menu button small { display: block; color: var(--tb-muted); font-size: 10.5px; }
.tb-menu kbd { float: right; font: 600 10.5px var(--tb-code); color: var(--tb-muted); margin-left: 18px; }
`;
