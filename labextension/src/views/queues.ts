/** Of a netlist file: its queues as a table, its programs as text. */
import { withThousands, h } from './dom.js';
import type { Frame } from './frame.js';
import type { Store } from './store.js';

const COLUMNS: [string, string, string][] = [
  ['name', 'Queue', 'Name of the queue or ram'],
  ['type', 'Type', 'Queue, ram, or view of another ram'],
  ['group', 'Role', 'What it holds'],
  ['producer', 'Producer', 'Op that writes the queue, or the host'],
  ['readers', 'Readers', 'Ops that read the queue'],
  ['entries', 'Entries', 'Number of slots'],
  ['shape', 't×rt×ct', 'Tiles of one entry'],
  ['grid', 'Grid', 'Buffers: rows × columns'],
  ['df', 'Format', 'Data format and layout'],
  ['bytes', 'Bytes', 'Bytes of all buffers, with headers'],
  ['place', 'Place', 'Memory, channels, address of the first buffer'],
  ['chip', 'Chip', 'Chip of the queue']
];
const NUMBERS = new Set(['entries', 'bytes']);

/** The queues of a netlist file. A click selects the queue and, where an op writes or reads it, shows that. */
export class QueueTable {
  readonly element: HTMLElement;
  private readonly filter: HTMLInputElement;
  private readonly count = h('span', { class: 'tb-count' });
  private readonly head = h('thead');
  private readonly body = h('tbody');
  private readonly stops: (() => void)[] = [];
  private rows: string[][] = [];
  private frame: Frame | null = null;
  private sort = { id: '', down: false };

  constructor(private readonly store: Store) {
    this.filter = h('input', {
      type: 'search', class: 'tb-search', placeholder: 'Filter queues', 'aria-label': 'Filter queues', spellcheck: 'false',
      'data-tb-action': 'queue-filter', 'data-lm-suppress-shortcuts': 'true', oninput: () => this.render()
    });
    this.element = h('section', { class: 'tb-view tb-ops', 'data-tb-view': 'queues', 'aria-label': 'Queues' },
      h('header', { class: 'tb-bar' }, this.filter, this.count),
      h('div', { class: 'tb-scroll', tabindex: 0 }, h('table', { class: 'tb-list' }, this.head, this.body)));
    this.body.addEventListener('click', event => {
      const row = (event.target as Element).closest<HTMLElement>('[data-tb-queue]');
      if (row) store.click(row.dataset['tbQueue']!, event.ctrlKey || event.metaKey, 'queues');
    });
    this.stops.push(
      store.on('frame', key => {
        if (key === 'queues') this.load();
      }),
      store.on('selection', source => this.mark(source !== 'queues'))
    );
    this.load();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private load(): void {
    const frame = this.frame = this.store.frames.get('queues') ?? null;
    if (frame) {
      const columns = COLUMNS.map(([id]) => NUMBERS.has(id)
        ? Array.from(frame.column(`queue_${id}`), Number).map(withThousands)
        : frame.text(`queue_${id}`));
      this.rows = columns[0]!.map((_, i) => columns.map(column => column[i]!));
    }
    this.render();
  }

  private sortBy(id: string): void {
    if (this.sort.id !== id) this.sort = { id, down: NUMBERS.has(id) };
    else if (this.sort.down === NUMBERS.has(id)) this.sort = { id, down: !this.sort.down };
    else this.sort = { id: '', down: false };
    this.render();
  }

  private render(): void {
    this.head.replaceChildren(h('tr', {}, ...COLUMNS.map(([id, label, title]) => {
      const active = this.sort.id === id;
      return h('th', { title, class: NUMBERS.has(id) ? 'tb-right' : '', 'aria-sort': active ? (this.sort.down ? 'descending' : 'ascending') : 'none' },
        h('button', { 'data-tb-action': `queue-sort-${id}`, onclick: () => this.sortBy(id) }, label,
          active ? h('i', { class: 'tb-arrow' }, this.sort.down ? '▼' : '▲') : ''));
    })));
    const wanted = this.filter.value.trim().toLowerCase();
    const shown = this.rows.map((_, i) => i).filter(i => !wanted || this.rows[i]!.join(' ').toLowerCase().includes(wanted));
    const at = COLUMNS.findIndex(([id]) => id === this.sort.id);
    if (at >= 0) {
      const numbers = NUMBERS.has(this.sort.id) ? this.frame!.column(`queue_${this.sort.id}`) : null;
      const sign = this.sort.down ? -1 : 1;
      shown.sort((a, b) => {
        const [x, y] = numbers ? [numbers[a]!, numbers[b]!] : [this.rows[a]![at]!, this.rows[b]![at]!];
        return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
      });
    }
    this.count.textContent = shown.length === this.rows.length ? `${shown.length} queues` : `${shown.length} of ${this.rows.length} queues`;
    this.body.replaceChildren(...shown.map(i => h('tr', { 'data-tb-queue': this.rows[i]![0]! },
      ...this.rows[i]!.map((text, k) => h('td', { class: NUMBERS.has(COLUMNS[k]![0]) ? 'tb-right' : '', title: text }, text)))));
    this.mark(false);
  }

  private mark(scroll: boolean): void {
    const chosen = new Set(this.store.selection.names);
    for (const row of this.body.children as HTMLCollectionOf<HTMLElement>) {
      const on = chosen.has(row.dataset['tbQueue']!);
      row.classList.toggle('tb-selected', on);
      row.setAttribute('aria-selected', String(on));
      if (on && scroll && this.element.offsetParent) {
        const box = row.closest<HTMLElement>('.tb-scroll')!;
        if (row.offsetTop < box.scrollTop || row.offsetTop > box.scrollTop + box.clientHeight - 30) box.scrollTop = row.offsetTop - box.clientHeight / 3;
        scroll = false;
      }
    }
  }
}

/** The programs of a netlist file as text. */
export class ProgramsView {
  readonly element = h('section', { class: 'tb-view', 'data-tb-view': 'programs', 'aria-label': 'Programs' });
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.stops.push(store.on('frame', key => {
      if (key === 'programs') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('programs');
    const text = frame ? new TextDecoder().decode(frame.column('text')) : '';
    this.element.replaceChildren(text
      ? h('pre', { class: 'tb-code tb-programs', tabindex: 0 }, text)
      : h('div', { class: 'tb-empty' }, 'The netlist has no programs.'));
  }
}
