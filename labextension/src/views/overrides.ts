/** The truth about overrides: what each asked for, what it got, and why not; the Python line to copy; a way to take it back. */
import { h } from './dom.js';
import { undoKey } from './editbar.js';
import type { Overridden, Store } from './store.js';

const GLYPH: Record<Overridden['state'], string> = { obtained: '✓', missed: '!', vetoed: '✕', unmatched: '?', pending: '…' };

export class OverridesPanel {
  readonly element = h('section', {
    class: 'tb-view tb-overrides', 'data-tb-view': 'overrides', 'aria-label': 'Overrides', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
  });
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store, private readonly counted: (count: number) => void = () => undefined) {
    this.element.addEventListener('keydown', event => void undoKey(event, store));
    this.stops.push(store.on('frame', key => {
      if (key === 'edits') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const edits = this.store.edits;
    const list = edits?.overrides ?? [];
    this.counted(list.length);
    if (!list.length) {
      this.element.replaceChildren(h('div', { class: 'tb-empty' },
        'No overrides. Drag the edge of an op in the core grid to give it another shape.'));
      return;
    }
    const titles = ['Op', 'Field', 'Requested', 'Obtained', 'State', 'Python', ''];
    this.element.replaceChildren(h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...titles.map(t => h('th', { scope: 'col', class: 'tb-title' }, t)))),
      h('tbody', {}, ...list.map(record => this.row(record)))));
  }

  private row(record: Overridden): HTMLElement {
    const { store } = this;
    const { target, field, state } = record;
    const names = record.names.length ? record.names : [target];
    return h('tr', { 'data-tb-override': target, 'data-tb-state': state },
      h('td', {}, h('button', {
        type: 'button', class: 'tb-link', 'data-tb-action': 'select-op', title: target, onclick: () => store.select(names, 'overrides')
      }, target), record.matches > 1 ? ` (${record.matches} ops)` : ''),
      h('td', {}, field), h('td', {}, record.requested), h('td', {}, record.obtained || '–'),
      h('td', { title: record.because },
        h('span', { class: `tb-state tb-state-${state}` }, `${GLYPH[state]} ${state}`),
        record.because ? h('div', { class: 'tb-because' }, record.because) : ''),
      h('td', {}, h('code', {}, record.python)),
      h('td', {},
        h('button', {
          type: 'button', class: 'tb-button', 'data-tb-action': 'copy-override', title: 'copy the Python line', 'aria-label': `copy ${record.python}`,
          onclick: () => this.copy(record.python)
        }, 'Copy'), ' ',
        record.removable ? h('button', {
          type: 'button', class: 'tb-button', 'data-tb-action': 'remove-override', title: 'remove this override',
          'aria-label': `remove ${field} of ${target}`, disabled: store.edits!.busy,
          onclick: () => store.ask({ type: 'edit', do: 'clear', op: target, kinds: [field] })
        }, 'Remove') : ''));
  }

  private copy(text: string): void {
    // A page that isn't served safely has no clipboard.
    const written = (navigator.clipboard as Clipboard | undefined)?.writeText(text) ?? Promise.reject(new Error('no clipboard'));
    written.then(() => this.store.say(true, `copied ${text}`), () => this.store.say(false, 'The browser gives no access to the clipboard.'));
  }
}
