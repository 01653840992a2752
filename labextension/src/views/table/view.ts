/** One row per op, sortable and filtered; only the rows in sight are elements. */
import { DeferredWork } from '../drawtimes.js';
import { quantity, elide, h } from '../dom.js';
import { FOLD_FROM, stemOf } from '../names.js';
import type { Frame } from '../frame.js';
import { Ops } from '../ops.js';
import { opTimes } from '../optimes.js';
import { onPreferences, preferences } from '../preferences.js';
import { PreloadButtons } from '../opcontrols.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, loadPaint, onTheme } from '../theme.js';
import { Checks } from '../trace/checks.js';
import { chooser, COLUMNS, coreOf, foldedRows, MEASURED, type Row, rowsOf, totalRow } from './rows.js';

const ROW = 26;
const LETTER = 7.2; // px of a letter in a name, on average at most
const REST = 250; // ms without typing until Python is told

export class TableView {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly body = h('div', { class: 'tb-rows', role: 'rowgroup' });
  private readonly head = h('div', { class: 'tb-row tb-headrow', role: 'row' });
  private readonly filter: HTMLInputElement;
  private readonly only: HTMLInputElement;
  private readonly count = h('span', { class: 'tb-found', 'aria-live': 'polite' });
  private readonly preload: PreloadButtons;
  private readonly stops: (() => void)[] = [];
  private ops: Ops | null = null;
  /** Where ops stand is seen first, in the grid: the table follows behind. */
  private readonly later = new DeferredWork(() => this.come());
  /** What the rows say beside the ops: unchanged, they need not be made again. */
  private checks: Frame | null = null;
  private overridden = '';
  private readonly grouped: HTMLInputElement;
  private readonly cores: HTMLInputElement;
  private readonly layers: HTMLInputElement;
  private readonly fold: SyncedTrait<boolean | null>;
  private readonly unfolded = new Set<string>();
  /** Ops that the filter keeps, in their order. */
  private filteredOps: number[] = [];
  private shown: Row[] = [];
  /** What was in sight when it changed last. */
  private visible: { top: number; height: number } | null = null;
  private readonly columns: SyncedTrait<string[]>;
  private readonly order: SyncedTrait<string>;
  private readonly renew: () => void;
  private sort: { id: string; down: boolean } = { id: '', down: false };

  constructor(private readonly store: Store) {
    this.scroller = h('div', {
      class: 'tb-table', role: 'grid', tabindex: 0, 'aria-label': 'Ops. Up and down move the selection.',
      'data-lm-suppress-shortcuts': 'true'
    }, this.head, this.body);
    this.filter = h('input', {
      type: 'search', class: 'tb-search', placeholder: 'Filter ops', 'aria-label': 'Filter ops', spellcheck: 'false',
      'data-tb-action': 'table-filter', 'data-lm-suppress-shortcuts': 'true'
    });
    this.preload = new PreloadButtons(store);
    this.stops.push(() => this.preload.dispose());
    this.only = h('input', { type: 'checkbox', 'data-tb-action': 'table-epoch-only' });
    const box = (action: string, tell: () => void) => h('input', { type: 'checkbox', 'data-tb-action': action, onchange: () => {
      tell();
      this.arrange();
    } });
    this.grouped = box('table-group', () => group.tell(this.grouped.checked ? 'epoch' : 'none'));
    this.cores = box('table-per-core', () => perCore.tell(this.cores.checked));
    this.layers = box('table-fold', () => this.fold.tell(this.layers.checked));
    const [columns, choices, renew] = chooser(() => this.columnsShown.map(c => c.id), () => this.usual.map(c => c.id), ids => {
      this.columns.tell(ids);
      this.arrange();
    });
    this.renew = renew;
    this.element = h('section', { class: 'tb-view tb-ops', 'data-tb-view': 'table', 'aria-label': 'Ops' },
      h('header', { class: 'tb-bar' }, this.filter, h('label', { class: 'tb-check' }, this.only, 'this epoch only'),
        h('label', { class: 'tb-check' }, this.grouped, 'by epoch'), h('label', { class: 'tb-check' }, this.cores, 'per core'),
        h('label', { class: 'tb-check', title: 'One row for the same op of layers that repeat' }, this.layers, 'fold layers'), this.count, this.preload.effect,
        h('span', { class: 'tb-spring' }), columns),
      choices, this.scroller);
    const hear = <T>(name: string, plain: T, take: (value: T) => void = () => undefined, rest = 0): SyncedTrait<T> => {
      const trait = syncedTrait(store, name, plain, value => {
        take(value);
        this.arrange();
      }, { rest });
      take(trait.value());
      this.stops.push(() => trait.dispose());
      return trait;
    };
    this.columns = hear<string[]>('columns', []);
    const filter = hear('filter', '', text => (this.filter.value = text), REST);
    this.filter.addEventListener('input', () => {
      filter.tell(this.filter.value);
      this.arrange();
    });
    this.order = hear('sort', '', text => (this.sort = { id: text.replace(/^-/, ''), down: text.startsWith('-') }));
    const group = hear('group', 'none', how => (this.grouped.checked = how === 'epoch'));
    this.fold = hear<boolean | null>('fold_layers', null);
    const perCore = hear('per_core', false, on => (this.cores.checked = on));
    this.listen();
    this.load();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.later.dispose();
  }

  private listen(): void {
    const { store } = this;
    this.stops.push(
      store.on('frame', key => {
        if (key === 'ops' && !this.ops) this.load();
        else if (key === 'ops' || key === 'checks' || key === 'edits' || key === 'measured') this.later.soon();
      }),
      store.on('epoch', () => {
        if (this.only.checked) this.arrange();
      }),
      store.on('selection', source => this.follow(source !== 'table')),
      store.on('hover', () => this.mark()), onPreferences(() => this.later.soon()),
      onTheme(() => this.render())
    );
    let hidden = true;
    const resize = new ResizeObserver(() => {
      this.look();
      const came = hidden && this.scroller.clientHeight > 0; // what was selected meanwhile is brought into sight
      hidden = this.scroller.clientHeight === 0;
      if (came) this.follow(true);
      this.render();
    });
    resize.observe(this.scroller);
    this.stops.push(() => resize.disconnect());
    this.scroller.addEventListener('scroll', () => {
      this.look();
      this.render();
    });
    this.only.addEventListener('change', () => this.arrange());
    this.body.addEventListener('click', event => {
      const row = (event.target as Element).closest<HTMLElement>('[data-tb-op]');
      const stem = (event.target as Element).closest<HTMLElement>('[data-tb-alike]')?.dataset['tbAlike'];
      if (stem !== undefined) {
        if (!this.unfolded.delete(stem)) this.unfolded.add(stem);
        this.arrange();
        return;
      }
      if (row) store.click(row.dataset['tbOp']!, event.ctrlKey || event.metaKey, 'table');
    });
    this.body.addEventListener('pointerover', event => {
      store.setHover((event.target as Element).closest<HTMLElement>('[data-tb-op]')?.dataset['tbOp'] ?? '');
    });
    this.body.addEventListener('pointerleave', () => store.setHover(''));
    this.scroller.addEventListener('keydown', event => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !this.ops || !this.shown.length) return;
      event.preventDefault();
      event.stopPropagation();
      const order = [...new Set(this.shown.map(row => row.op))].filter(op => op >= 0);
      const at = order.indexOf(this.ops.indexOf.get(store.selection.names.at(-1) ?? '') ?? -1);
      const next = order[Math.max(0, Math.min(order.length - 1, at + step))]!;
      store.select([this.ops.name[next]!], 'table');
      this.reveal([next]);
    });
  }

  private look(): void {
    this.visible = { top: this.scroller.scrollTop, height: this.scroller.clientHeight };
  }

  private load(): void {
    const frame = this.store.frames.get('ops');
    this.ops = frame ? Ops.of(frame) : null;
    this.readOverrides();
    this.arrange();
    if (this.ops && preferences().follow) this.reveal(this.ops.matcher.find(this.store.selection.names));
  }

  /** Frames came: other ops, or only something else to say of them. */
  private come(): void {
    const frame = this.store.frames.get('ops');
    if (this.ops !== (frame ? Ops.of(frame) : null)) this.load();
    else if (this.readOverrides()) this.arrange();
  }

  /** Reads what is overridden and how the ops compare with torch; whether that is news to this table. */
  private readOverrides(): boolean {
    const { ops, store } = this;
    const checks = store.frames.get('checks') ?? null;
    const asked = new Map<string, string[]>();
    for (const o of store.edits?.overrides ?? []) {
      for (const name of o.state === 'off' ? [] : o.names) asked.set(name, [...(asked.get(name) ?? []), o.field]);
    }
    const overridden = JSON.stringify([...asked]);
    const measured = opTimes(store.frames.get('measured'));
    const news = checks !== this.checks || overridden !== this.overridden || (ops?.measured ?? null) !== measured;
    this.checks = checks;
    this.overridden = overridden;
    if (ops) {
      ops.overridden = asked;
      ops.measured = measured;
      if ((ops.checks?.frame ?? null) !== checks) ops.checks = checks && new Checks(checks);
    }
    return news;
  }

  private sortBy(id: string): void {
    // First click: large numbers first, names from A; then the other way; then schedule order again.
    const text = COLUMNS.find(c => c.id === id)!.text;
    if (this.sort.id !== id) this.sort = { id, down: !text };
    else if (this.sort.down !== text) this.sort = { id, down: text };
    else this.sort = { id: '', down: false };
    this.order.tell(`${this.sort.down ? '-' : ''}${this.sort.id}`);
    this.toTop(); // whoever sorts wants the first rows, wherever the selection stands
    this.arrange();
  }

  private toTop(): void {
    this.scroller.scrollTop = 0;
    this.look();
  }

  /** The columns that are wanted, in that order; all of them where none are named. */
  private get columnsShown(): typeof COLUMNS {
    const wanted = this.columns.value().flatMap(id => COLUMNS.filter(c => c.id === id));
    return wanted.length ? wanted : this.usual;
  }

  private get usual(): typeof COLUMNS {
    return COLUMNS.filter(c => (this.ops?.checks || c.id !== 'pcc') && (this.ops?.measured || !MEASURED.has(c.id)));
  }

  private arrange(): void {
    const { ops, store } = this;
    this.renew();
    this.head.replaceChildren(...this.columnsShown.map(column => {
      const active = this.sort.id === column.id;
      return h('div', {
        role: 'columnheader', class: column.text ? 'tb-cell' : 'tb-cell tb-right', style: `width:${column.width}px`,
        'aria-sort': active ? (this.sort.down ? 'descending' : 'ascending') : 'none'
      }, h('button', { title: column.title, 'data-tb-action': `sort-${column.id}`, onclick: () => this.sortBy(column.id) },
        column.label, active ? h('i', { class: 'tb-arrow' }, this.sort.down ? '▼' : '▲') : ''));
    }));
    if (!ops) {
      this.shown = [];
      this.render();
      return;
    }
    const wanted = this.filter.value.trim().toLowerCase();
    this.filteredOps = ops.name.map((_, i) => i).filter(i =>
      (!wanted || `${ops.name[i]!} ${ops.type[i]!}`.toLowerCase().includes(wanted)) &&
      (!this.only.checked || ops.epochOf(i) === store.epoch));
    const column = COLUMNS.find(c => c.id === this.sort.id);
    if (column) {
      const sign = this.sort.down ? -1 : 1;
      const keys = new Map(this.filteredOps.map(i => [i, column.value(ops, i)]));
      this.filteredOps.sort((a, b) => {
        const [x, y] = [keys.get(a)!, keys.get(b)!];
        return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
      });
    }
    const plain = !this.grouped.checked && !this.cores.checked;
    this.layers.checked = plain && (this.fold.value() ?? ops.count > FOLD_FROM);
    this.layers.disabled = !plain;
    this.shown = this.layers.checked ? foldedRows(ops, this.filteredOps, this.unfolded) : rowsOf(ops, this.filteredOps, this.grouped.checked, this.cores.checked);
    this.count.textContent = this.filteredOps.length === ops.count ? quantity(ops.count, 'op') : `${this.filteredOps.length} of ${quantity(ops.count, 'op')}`;
    this.render();
  }

  private follow(scroll: boolean): void {
    const { ops } = this;
    if (ops && scroll && preferences().follow) this.reveal(ops.matcher.find(this.store.selection.names));
    if (this.layers.checked) this.render(); // a row may stand for another layer now
    else this.mark();
  }

  private reveal(chosen: number[]): void {
    const wanted = new Set(chosen);
    const exact = this.shown.findIndex(row => wanted.has(row.op));
    const at = exact >= 0 ? exact : this.shown.findIndex(row => row.alike?.some(op => wanted.has(op)));
    if (at < 0) return;
    const { scrollTop, clientHeight } = this.scroller;
    const visible = clientHeight - ROW;
    if (at * ROW < scrollTop) this.scroller.scrollTop = at * ROW;
    else if ((at + 1) * ROW > scrollTop + visible) this.scroller.scrollTop = (at + 1) * ROW - visible + (visible > 4 * ROW ? 2 * ROW : 0);
  }

  private render(): void {
    const { ops } = this;
    if (this.element.hidden) return; // the observer of its size calls again
    if (!ops) {
      this.body.style.height = '';
      this.body.replaceChildren(h('div', { class: 'tb-empty' }, 'Ops appear here once the model is placed.'));
      return;
    }
    const dark = isDark();
    const columns = this.columnsShown;
    // Asked for, both would make the browser lay out the whole page at once.
    const first = Math.max(0, Math.floor((this.visible?.top ?? this.scroller.scrollTop) / ROW) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil((this.visible?.height ?? this.scroller.clientHeight) / ROW) + 8);
    const rows: HTMLElement[] = [];
    const chosen = new Set(ops.matcher.find(this.store.selection.names));
    for (let k = first; k < last; k++) {
      const folded = this.shown[k]!;
      const picked = folded.alike?.find(op => chosen.has(op)); // of the layers of a row, the one that is selected
      const row = picked === undefined || this.unfolded.has(stemOf(ops.name[picked]!)) ? folded : { ...folded, op: picked, picked: true };
      const { op } = row;
      if (op < 0) {
        rows.push(h('div', {
          class: 'tb-row tb-total', role: 'row', 'data-tb-epoch': row.epoch, 'aria-rowindex': k + 2, style: `top:${k * ROW}px`
        }, ...totalRow(ops, row.epoch, epoch => this.store.setEpoch(epoch))));
        continue;
      }
      rows.push(h('div', {
        class: k % 2 ? 'tb-row tb-odd' : 'tb-row', role: 'row', 'data-tb-op': ops.name[op]!,
        'data-tb-core': row.core < 0 ? undefined : coreOf(ops, row).join(','), 'aria-rowindex': k + 2, style: `top:${k * ROW}px`
      }, ...columns.map(column => this.cell(column.id, column, row, dark))));
    }
    this.body.style.height = `${this.shown.length * ROW}px`;
    this.scroller.setAttribute('aria-rowcount', String(this.shown.length + 1));
    this.body.replaceChildren(...rows);
    this.mark();
  }

  /** Which of the rows are selected, and under the pointer. */
  private mark(): void {
    const { ops, store } = this;
    if (!ops) return;
    const chosen = new Set(ops.matcher.find(store.selection.names).map(op => ops.name[op]));
    for (const row of this.body.querySelectorAll<HTMLElement>('[data-tb-op]')) {
      const name = row.dataset['tbOp']!;
      row.classList.toggle('tb-selected', chosen.has(name));
      row.classList.toggle('tb-hovered', name === store.hover);
      row.setAttribute('aria-selected', String(chosen.has(name)));
    }
  }

  private cell(id: string, column: (typeof COLUMNS)[number], row: Row, dark: boolean): HTMLElement {
    const ops = this.ops!;
    const { op } = row;
    const shown = id === 'at' && row.core >= 0 ? coreOf(ops, row).join(',') : column.show(ops, op);
    const cell = h('span', {
      role: 'gridcell', style: `width:${column.width}px`,
      class: `tb-cell${column.text ? '' : ' tb-right'}${shown.length * LETTER > column.width - 18 ? ' tb-long' : ''}`,
      title: id === 'name' ? ops.name[op]! : undefined
    });
    if (id === 'load') {
      const load = ops.load(op);
      const paint = loadPaint(load, dark);
      cell.append(h('i', { class: 'tb-load' }, h('b', { style: `width:${100 * load}%;background:${paint.fill};border-color:${paint.edge}` })),
        h('span', {}, ops.isLimiting(op) ? `▲ ${shown}` : shown));
      cell.classList.add('tb-loaded');
    } else if (id === 'name' && row.alike) {
      const stem = stemOf(ops.name[op]!);
      const open = this.unfolded.has(stem);
      cell.append(h('button', {
        class: 'tb-alike', tabindex: -1, 'data-tb-alike': stem, 'aria-expanded': String(open),
        title: open ? 'Fold repeated layers again' : `${row.alike.length} layers have this op; the row shows the first of them. Show all`
      }, h('b', {}, open ? '▾' : '▸'), ` × ${row.alike.length}`), elide(open || row.picked ? ops.name[op]! : stem, 32));
    } else if (id === 'weights' && this.store.edits) cell.append(...this.preload.of(ops, op, false));
    else cell.append(shown);
    if (id === 'pcc' && shown) cell.classList.add(shown.startsWith('✓') ? 'tb-pass' : 'tb-fail');
    return cell;
  }
}
