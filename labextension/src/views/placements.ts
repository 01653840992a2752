/** The placements of a session in one table: sorted, two of them compared, any of them gone back to; files beside them. */
import { h, percent, withThousands } from './dom.js';
import type { Frame } from './frame.js';
import { LazyFrames } from './lazyframes.js';
import type { Store } from './store.js';

interface Row {
  name: string;
  kind: string;
  at: string;
  epochs: number;
  chips: number;
  l1: number;
  cycles: number;
  pcc: number;
}

const COLUMNS: [keyof Row, string, string][] = [
  ['name', 'Placement', 'What it is called: the edit that made it, a checkpoint, a file'],
  ['kind', 'From', 'start, compile, optimise, checkpoint or file'],
  ['at', 'Made', 'When it was made'],
  ['cycles', 'Cycles / input', 'Simulated, for the batch of the session'],
  ['epochs', 'Epochs', ''],
  ['chips', 'Chips', ''],
  ['l1', 'L1', 'Fullest core'],
  ['pcc', 'PCC', 'Worst output against torch, where it was compared']
];
const RIGHT = new Set<keyof Row>(['cycles', 'epochs', 'chips', 'l1', 'pcc']);

export function rowsOf(frame: Frame): Row[] {
  const text = (name: string) => frame.text(`row_${name}`);
  const [names, kinds, times] = [text('name'), text('kind'), text('at')];
  const number = (name: string, i: number) => Number(frame.column(`row_${name}`)[i]);
  return names.map((name, i) => ({
    name, kind: kinds[i]!, at: times[i]!, epochs: number('epochs', i), chips: number('chips', i), l1: number('l1', i), cycles: number('cycles', i), pcc: number('pcc', i)
  }));
}

/** In the order of a column; what is not known comes last, whichever way. */
export function sortedRows(rows: Row[], by: keyof Row, down: boolean): Row[] {
  const unknown = (row: Row) => (typeof row[by] === 'number' ? Number.isNaN(row[by]) : row[by] === '');
  return [...rows].sort((a, b) => Number(unknown(a)) - Number(unknown(b)) || (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * (down ? -1 : 1));
}

function shown(row: Row, column: keyof Row): string {
  const value = row[column];
  if (typeof value === 'number' && Number.isNaN(value)) return '–';
  if (column === 'cycles') return withThousands(row.cycles);
  if (column === 'l1') return percent(row.l1);
  if (column === 'pcc') return row.pcc.toFixed(5);
  if (column === 'at') return row.at ? new Date(row.at).toLocaleTimeString() : '–';
  return String(value);
}

export class PlacementsView {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar' });
  private readonly list = h('div', { class: 'tb-scroll', tabindex: 0 });
  private readonly note = h('p', { class: 'tb-empty', role: 'status' });
  private readonly path = h('input', { type: 'text', class: 'tb-search', placeholder: 'netlist file', 'aria-label': 'Path of a netlist file to compare with', 'data-tb-action': 'placement-path', spellcheck: 'false' });
  private readonly compare = h('button', { class: 'tb-button', 'data-tb-action': 'placement-diff', onclick: () => this.diff() }, 'Compare');
  private readonly stops: (() => void)[] = [];
  private readonly frames: LazyFrames;
  private chosen: string[] = [];
  private sorting: { by: keyof Row; down: boolean } = { by: 'at', down: false };

  constructor(private readonly store: Store) {
    const open = () => {
      if (this.path.value.trim()) store.ask({ type: 'open_placement', path: this.path.value.trim() });
    };
    this.path.addEventListener('keydown', event => {
      if (event.key === 'Enter') open();
    });
    this.bar.append(h('h3', {}, 'Placements'), this.compare,
      h('button', { class: 'tb-button', 'data-tb-action': 'placement-mark', title: 'Give the placement shown a name', onclick: () => store.ask({ type: 'checkpoint' }) }, 'Checkpoint'),
      h('span', { class: 'tb-spring' }), this.path,
      h('button', { class: 'tb-button', 'data-tb-action': 'placement-open', title: 'Open a netlist file to compare with', onclick: open }, 'Open'));
    this.element = h('section', { class: 'tb-view tb-placements', 'data-tb-view': 'placements', 'aria-label': 'Placements' }, this.bar, this.note, this.list);
    this.frames = new LazyFrames(store, this.element, {
      keys: ['placements'], ready: () => store.frames.has('ops'), question: () => ({ type: 'want', key: 'placements' }), paint: () => this.render()
    });
    this.stops.push(() => this.frames.dispose(), store.on('frame', key => {
      if (key === 'placements') this.frames.draw();
      else if (key === 'edits' && store.edits?.busy !== true) this.frames.onOutdated();
      else if (key === 'summary' || key === 'ops') this.frames.onOutdated();
    }), store.on('answer', () => this.frames.onOutdated()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private diff(): void {
    const [a, b] = this.chosen;
    if (!a || !b) return;
    this.store.ask({ type: 'want', key: 'diff', a, b });
    this.element.dispatchEvent(new CustomEvent('tb-front', { bubbles: true, detail: 'diff' }));
  }

  private choose(name: string, on: boolean): void {
    this.chosen = on ? [...this.chosen.filter(n => n !== name), name].slice(-2) : this.chosen.filter(n => n !== name);
    this.render();
  }

  private render(): void {
    const frame = this.store.frames.get('placements');
    this.note.hidden = frame !== undefined;
    this.note.textContent = this.frames.waiting('Collecting …', 'Placements appear here once the model is placed.');
    this.compare.disabled = this.chosen.length !== 2;
    this.compare.textContent = this.chosen.length === 2 ? `Compare ${this.chosen.map(n => (n.length > 24 ? `${n.slice(0, 23)}…` : n)).join(' with ')}` : 'Compare two';
    this.compare.title = this.chosen.length === 2 ? this.chosen.join(' with ') : 'Choose two rows';
    if (!frame) {
      this.list.replaceChildren();
      return;
    }
    const current = String(frame.meta['current']);
    const rows = rowsOf(frame);
    this.chosen = this.chosen.filter(name => rows.some(row => row.name === name));
    const { by, down } = this.sorting;
    const ordered = by === 'at' && !down ? rows : sortedRows(rows, by, down);
    this.list.replaceChildren(h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col', class: 'tb-title' }, '⇄'), ...COLUMNS.map(([id, label, title]) => h('th', {
        scope: 'col', title: title || label, class: RIGHT.has(id) ? 'tb-right' : '', 'aria-sort': by === id ? (down ? 'descending' : 'ascending') : 'none'
      }, h('button', { 'data-tb-action': `placement-sort-${id}`, onclick: () => {
        this.sorting = { by: id, down: by === id ? !down : false };
        this.render();
      } }, label, by === id ? h('i', { class: 'tb-arrow' }, down ? '▼' : '▲') : ''))), h('th', { scope: 'col' }))),
      h('tbody', {}, ...ordered.map(row => this.row(row, row.name === current)))));
  }

  private row(row: Row, current: boolean): HTMLElement {
    const { store } = this;
    const back = row.kind !== 'file' && !current && store.edits;
    return h('tr', { 'data-tb-placement': row.name, 'data-tb-kind': row.kind, class: current ? 'tb-selected' : '', 'aria-current': current ? 'true' : undefined },
      h('td', {}, h('input', {
        type: 'checkbox', checked: this.chosen.includes(row.name), 'aria-label': `compare ${row.name}`,
        onchange: (event: Event) => this.choose(row.name, (event.target as HTMLInputElement).checked)
      })),
      ...COLUMNS.map(([id]) => h('td', { class: RIGHT.has(id) ? 'tb-right' : '', title: id === 'at' ? row.at : shown(row, id) }, shown(row, id))),
      h('td', {}, current ? h('span', { class: 'tb-state' }, '● shown') : back ? h('button', {
        class: 'tb-button', 'data-tb-action': 'placement-back', disabled: store.edits.busy, title: `Back to ${row.name}: one step, undo takes it back`,
        onclick: () => store.ask({ type: 'go_back', name: row.name })
      }, 'Go back') : ''));
  }
}
