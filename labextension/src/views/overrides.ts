/**
 * The truth about overrides: what each asked for, who asked, what it got and gains, and why not; on and off; the Python
 * line to copy, all of them as code; a way to take each back.
 */
import { copy, open } from './dialog.js';
import { epochsMore, h, percent, short } from './dom.js';
import { undoKey } from './editbar.js';
import { type Overridden, type Store, syncedTrait, type SyncedTrait } from './store.js';

const MOST = 48 * 1024; // bytes of a file that a page sends
/** Cycles that an override saves, their share of what it takes without it, epochs that it adds; null: nothing fits then. */
type Gain = [gain: number | null, share: number | null, epochs: number | null];

const GLYPH: Record<Overridden['state'], string> = { obtained: '✓', missed: '!', vetoed: '✕', unmatched: '?', pending: '…', off: '○' };

export class OverridesPanel {
  readonly element = h('section', {
    class: 'tb-view tb-overrides', 'data-tb-view': 'overrides', 'aria-label': 'Overrides', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
  });
  private readonly stops: (() => void)[] = [];
  private gains: Map<string, Gain> | null = null;
  private code: { python: string; json: string } | null = null;
  private shown: 'list' | 'python' | 'json' = 'list';
  private readonly way: SyncedTrait<string>;

  constructor(private readonly store: Store) {
    this.element.addEventListener('keydown', event => void undoKey(event, store));
    this.stops.push(
      store.on('frame', key => {
        if (key !== 'edits') return;
        this.gains = null;
        this.render();
        if (this.shown !== 'list') this.ask('code');
      }),
      store.listen('gains', message => {
        if (message['ok']) this.gains = new Map((message['gains'] as [string, string, ...Gain][]).map(([k, t, ...g]) => [`${k} ${t}`, g]));
        else store.say(false, String(message['text']));
        this.render();
      }),
      store.listen('code', message => {
        if (!message['ok']) return;
        this.code = { python: String(message['python']), json: String(message['json']) };
        this.render();
      }));
    const show = (code: string): void => {
      this.shown = code === 'python' || code === 'json' ? code : 'list';
      if (this.shown !== 'list') this.ask('code');
      this.render();
    };
    this.way = syncedTrait(store, 'show_code', '', show);
    this.stops.push(() => this.way.dispose());
    show(this.way.value());
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private ask(type: 'gains' | 'code'): void {
    this.store.host.send({ type });
  }

  private render(): void {
    const list = this.store.edits?.overrides ?? [];
    if (!list.length) {
      this.shown = 'list';
      this.element.replaceChildren(h('div', { class: 'tb-empty' },
        'No overrides. Drag the edge of an op in the core grid to give it another shape. ', this.import()));
      return;
    }
    this.element.replaceChildren(this.bar(), this.shown === 'list' ? this.table(list) : this.text());
  }

  private bar(): HTMLElement {
    const tab = (name: 'list' | 'python' | 'json', label: string) => h('button', {
      'aria-pressed': String(this.shown === name), 'data-tb-action': `overrides-${name}`,
      onclick: () => {
        this.shown = name;
        this.way.tell(name === 'list' ? '' : name);
        if (name !== 'list') this.ask('code');
        this.render();
      }
    }, label);
    return h('header', { class: 'tb-bar' },
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Show as' }, tab('list', 'List'), tab('python', 'Python'), tab('json', 'JSON')),
      this.shown === 'list' && h('button', {
        class: 'tb-button', 'data-tb-action': 'gains', title: 'Calculate what each override saves, against the placement without it',
        disabled: this.store.edits?.busy ?? true, onclick: () => this.ask('gains')
      }, 'Estimate gains'),
      this.shown !== 'list' && this.code && h('button', {
        class: 'tb-button', 'data-tb-action': 'copy-code',
        onclick: () => copy(this.code![this.shown as 'python' | 'json'], (ok, text) => this.store.say(ok, text), `all overrides as ${this.shown}`)
      }, 'Copy'),
      h('span', { class: 'tb-spring' }), this.import(),
      h('button', { class: 'tb-button', 'data-tb-action': 'export', onclick: () => open(this.element, { what: 'export' }) }, 'Export'));
  }

  /** Overrides from a file of the one who looks: one undo step. */
  private import(): HTMLElement | string {
    const { store } = this;
    if (!store.edits) return '';
    const file = h('input', {
      type: 'file', accept: '.json', hidden: true, 'data-tb-action': 'overrides-file', 'aria-label': 'a JSON file of overrides',
      onchange: () => {
        const chosen = file.files?.[0];
        if (!chosen) return;
        if (chosen.size > MOST) store.say(false, `${chosen.name} is larger than a page may send; load it in Python: session.load_overrides(path)`);
        else void chosen.text().then(text => store.edit({ do: 'load', file: chosen.name, text }));
        file.value = '';
      }
    });
    return h('span', {}, file, h('button', {
      class: 'tb-button', 'data-tb-action': 'overrides-import', title: 'Add the overrides of a JSON file that Export wrote',
      disabled: store.edits.busy, onclick: () => file.click()
    }, 'Import'));
  }

  /** Drags an override to another place of the list: arrows do the same. */
  private grip(record: Overridden): HTMLElement | string {
    const { store } = this;
    if (!record.order || record.at === undefined) return '';
    const at = record.at;
    const row = (place: number) => this.element.querySelector<HTMLElement>(`tr[data-tb-at="${place}"]`);
    const move = (to: number) => {
      if (to !== at && row(to) && !store.edits!.busy) store.edit({ do: 'reorder', at, to });
    };
    let over = at;
    const drop = (event: PointerEvent) => {
      const target = document.elementFromPoint(event.clientX, event.clientY)?.closest<HTMLElement>('tr[data-tb-at]');
      row(over)?.classList.remove('tb-drop');
      over = target && this.element.contains(target) ? Number(target.dataset['tbAt']) : at;
      if (over !== at) row(over)?.classList.add('tb-drop');
    };
    const grip: HTMLElement = h('button', {
      class: 'tb-button tb-order', 'data-tb-action': 'order-override', disabled: store.edits!.busy,
      title: 'Drag, or press up and down, to reorder: the last override of an op wins',
      'aria-label': `place ${at + 1} of the overrides: ${record.field} of ${record.target}`,
      onpointerdown: (event: PointerEvent) => grip.setPointerCapture(event.pointerId),
      onpointermove: (event: PointerEvent) => {
        if (grip.hasPointerCapture(event.pointerId)) drop(event);
      },
      onpointerup: (event: PointerEvent) => {
        drop(event);
        row(over)?.classList.remove('tb-drop');
        move(over);
      },
      onkeydown: (event: KeyboardEvent) => {
        const way = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
        if (!way) return;
        event.preventDefault();
        event.stopPropagation();
        move(at + way);
      }
    }, '⠿');
    return grip;
  }

  private text(): HTMLElement {
    return h('pre', { class: 'tb-source', tabindex: 0, 'data-tb-code': this.shown }, this.code ? this.code[this.shown as 'python' | 'json'] : '…');
  }

  private table(list: Overridden[]): HTMLElement {
    const titles = ['', 'On', 'Op', 'Field', 'Requested', 'Obtained', 'State', 'By', ...(this.gains ? ['Gain'] : []), 'Python', ''];
    return h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...titles.map(t => h('th', { scope: 'col', class: 'tb-title' }, t)))),
      h('tbody', {}, ...list.map(record => this.row(record))));
  }

  private gain(record: Overridden): string {
    const found = this.gains?.get(`${record.field} ${record.target}`);
    if (!found) return '–';
    const [gain, share, epochs] = found;
    if (gain === null) return 'nothing fits without it';
    if (gain === 0) return 'nothing';
    return `${gain > 0 ? 'saves' : 'costs'} ${short(Math.abs(gain))} (${percent(Math.abs(share!))})${epochsMore(epochs!)}`;
  }

  private row(record: Overridden): HTMLElement {
    const { store } = this;
    const { target, field, state } = record;
    const names = record.names.length ? record.names : [target];
    const on = record.enabled !== false;
    return h('tr', { 'data-tb-override': target, 'data-tb-state': state, 'data-tb-at': record.at },
      h('td', {}, this.grip(record)),
      h('td', {}, h('input', {
        type: 'checkbox', checked: on, 'data-tb-action': 'switch-override', 'aria-label': `${field} of ${target} is in force`,
        disabled: !record.removable || store.edits!.busy,
        onchange: () => store.edit({ do: on ? 'disable' : 'enable', op: target, kinds: [field] })
      })),
      h('td', {}, h('button', {
        class: 'tb-link', 'data-tb-action': 'select-op', title: target, onclick: () => store.select(names, 'overrides')
      }, target), record.matches > 1 ? ` (${record.matches} ops)` : ''),
      h('td', {}, field), h('td', {}, record.requested), h('td', {}, record.obtained || '–'),
      h('td', { title: record.because },
        h('span', { class: `tb-state tb-state-${state}` }, `${GLYPH[state]} ${state}`),
        record.because ? h('div', { class: 'tb-because' }, record.because) : ''),
      h('td', {}, record.source ?? ''),
      this.gains ? h('td', { 'data-tb-gain': '' }, this.gain(record)) : '',
      h('td', { title: record.python }, h('code', {}, record.python)),
      h('td', {},
        h('button', {
          class: 'tb-button', 'data-tb-action': 'copy-override', title: 'Copy the Python line', 'aria-label': `copy ${record.python}`,
          onclick: () => copy(record.python, (ok, text) => store.say(ok, text))
        }, 'Copy'), ' ',
        (record.removable || record.ops) && on ? h('button', {
          class: 'tb-button', 'data-tb-action': 'remove-override', title: 'Remove this override',
          'aria-label': `remove ${field} of ${target}`, disabled: store.edits!.busy,
          onclick: () => store.edit(record.ops
            ? { do: 'constrain', ops: record.ops, on: false } : { do: 'clear', op: target, kinds: [field] })
        }, 'Remove') : ''));
  }
}
