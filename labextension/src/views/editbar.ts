/** Undo, redo, and whether the picture is older than the edits. */
import { h } from './dom.js';
import type { Store } from './store.js';

export class EditBar {
  readonly element = h('span', { class: 'tb-editbar' });
  private readonly stops: (() => void)[] = [];
  /** What was there when the bar was last drawn: a placement, and a failure of the last work. */
  private placed = false;
  private failed = false;

  constructor(private readonly store: Store) {
    this.stops.push(
      store.on('frame', key => {
        if (key === 'edits' || key === 'problems' || (key === 'ops' && !this.placed)) this.render();
      }),
      store.on('status', () => {
        if (store.status.failed !== this.failed) this.render();
      }),
      store.on('asked', () => this.element.querySelectorAll('button').forEach(b => (b.disabled = true))),
      store.on('answer', () => this.render()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const { store } = this;
    const edits = store.edits;
    this.placed = store.frames.has('ops');
    this.failed = store.status.failed;
    if (!edits) {
      this.element.replaceChildren();
      return;
    }
    const step = (what: 'undo' | 'redo', sign: string, label: string, keys: string) =>
      h('button', {
        class: 'tb-button', 'data-tb-action': what, disabled: !label || edits.busy,
        title: label ? `${what}: ${label} (${keys})` : `Nothing to ${what}`, 'aria-label': label ? `${what} ${label}` : what,
        onmousedown: (event: Event) => event.preventDefault(), // the focus stays in the grid
        onclick: () => store.ask({ type: what })
      }, sign);
    const state = edits.first ? 'first placement' : edits.shown ? 'preview' : edits.busy ? 'working' : edits.stale && this.placed ? 'stale' : ''; // nothing is older than what never was
    this.element.replaceChildren(
      state ? h('span', {
        class: 'tb-stale-chip', 'data-tb-stale': state,
        title: edits.first ? 'A better one is searched; an edit keeps this one' : edits.shown ? `Preview, not applied: ${edits.shown}` : state === 'stale' ? this.why() : 'The last placement stays visible until the new one is ready'
      }, state === 'stale' && this.failed ? 'not compiled' : state) : '',
      edits.first ? h('button', {
        class: 'tb-button', 'data-tb-action': 'keep-first', title: 'Keep this placement and end the search', onclick: () => store.ask({ type: 'keep_first' })
      }, 'Keep this one') : '',
      step('undo', '↶', edits.undo, 'Ctrl+Z'), step('redo', '↷', edits.redo, 'Ctrl+Shift+Z'));
  }

  /** Why the placement shown is older than the edits, and what to do. */
  private why(): string {
    const { status, frames } = this.store;
    if (!status.failed) return 'Some edits are not compiled yet: press Run, or compile the session';
    const problems = frames.get('problems');
    const at = problems?.text('severity').indexOf('error') ?? -1;
    const said = at < 0 ? status.message : [problems!.text('message')[at]!, problems!.text('fix')[at]!].filter(Boolean).join('; ');
    return `The last placement that worked is shown. ${said}. Undo takes the edit back.`;
  }
}

/** Ctrl+Z, Ctrl+Shift+Z and Ctrl+Y; true when the event was one of them. */
export function undoKey(event: KeyboardEvent, store: Store): boolean {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || !store.edits) return false;
  const key = event.key.toLowerCase();
  if (key !== 'z' && key !== 'y') return false;
  event.preventDefault();
  event.stopPropagation();
  store.ask({ type: key === 'y' || event.shiftKey ? 'redo' : 'undo' }); // the kernel takes one after the other
  return true;
}
