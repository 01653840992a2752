/**
 * A measured run: its ops with the time that was beside the time that a table of kernels says, what is lost against the
 * roofline, and totals. Laid over a placement, its rows select the ops, and graph and grid take its colours.
 */
import { elide, h, percent, quantity, short, svg, withThousands } from './dom.js';
import { Frame } from './frame.js';
import { opTimes, us } from './optimes.js';
import { Roof, type Size } from './roof.js';
import type { Store } from './store.js';

const SHOWN = 400; // rows; the filter finds the others
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 10, 10, 20];

interface Row {
  name: string;
  op: string;
  kind: string;
  shape: string;
  section: string;
  /** The part of the model that it is of: "encoder.layers.3"; "" for none. */
  layer: string;
  count: number;
  time: number;
  /** How many of the ops have a time. */
  timed: number;
  table: number;
  /** Of `time`, what the table says something about; an op that it does not know is in no ratio. */
  told: number;
  floor: number;
  /** Beyond the roofline, summed over the ops that have one; NaN where none has. */
  lost: number;
  bound: string;
  guess: string;
  cores: number;
  line: number;
  outlier: boolean;
}

const ratioOf = (row: Row) => (row.table > 0 && row.told > 0 ? row.told / row.table : NaN);
const plus = (a: number, b: number) => (Number.isFinite(a) ? a + (Number.isFinite(b) ? b : 0) : b);

type By = 'op' | 'kind' | 'layer' | 'section';
type Paint = '' | 'measured' | 'table' | 'ratio' | 'lost';

export class MeasuredView {
  readonly element: HTMLElement;
  private readonly facts = h('span', { class: 'tb-found', 'aria-live': 'polite', 'data-tb-metric': 'measured' });
  private readonly list = h('div', { class: 'tb-profile-list', role: 'region', tabindex: 0, 'aria-label': 'Measured ops' });
  private readonly roof = new Roof('measured-roofline', 'Roofline: one dot per op', '; upwards: µs measured', 'µs at best (compute, DRAM or NoC); on the line it is as fast as that', () => this.mark());
  private readonly filter = h('input', {
    type: 'search', class: 'tb-search', placeholder: 'Filter ops', 'aria-label': 'Filter measured ops', spellcheck: 'false',
    'data-tb-action': 'measured-filter', 'data-lm-suppress-shortcuts': 'true', oninput: () => this.draw()
  });
  private readonly by = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Rows' });
  private readonly paints = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Colour graph and grid by' });
  private readonly stops: (() => void)[] = [];
  private rows: Row[] = [];
  private frame: Frame | null = null;
  private group: By = 'op';
  private paint: Paint = '';
  private sort: { key: 'time' | 'lost' | 'ratio' | 'order'; down: boolean } = { key: 'lost', down: true };

  constructor(private readonly store: Store) {
    const choice = <T extends string>(box: HTMLElement, prefix: string, all: [T, string, string][], take: (id: T) => void) =>
      box.append(...all.map(([id, label, title]) => h('button', { 'data-tb-action': `${prefix}-${id || 'none'}`, title, onclick: () => take(id) }, label)));
    choice<By>(this.by, 'measured-by', [['op', 'Ops', 'One row per op'], ['kind', 'Kinds', 'One row per kind of op'], ['layer', 'Layers', 'One row per layer of the model'], ['section', 'Sections', 'One row per mark of the profile']], id => {
      this.group = id;
      this.draw();
    });
    choice<Paint>(this.paints, 'measured-paint', [['', 'No colours', 'Graph and grid keep their own colours'], ['measured', 'Measured', 'Measured time'], ['table', 'By table', 'Time by the table of kernels'], ['ratio', 'Ratio', 'Measured over the table'], ['lost', 'Lost', 'Measured beyond the roofline']], id => {
      this.paint = id;
      this.tint();
      this.draw();
    });
    this.element = h('section', { class: 'tb-view tb-profile tb-measured', 'data-tb-view': 'measured', 'aria-label': 'Measured' },
      h('header', { class: 'tb-bar' }, this.by, this.filter, this.paints, this.facts),
      h('div', { class: 'tb-profile-body' }, this.list, this.roof.element));
    this.stops.push(
      store.on('frame', key => {
        if (key === 'measured') this.load();
      }),
      store.on('selection', () => this.mark()));
    this.load();
  }

  dispose(): void {
    this.roof.dispose();
    this.stops.forEach(stop => stop());
  }

  private load(): void {
    const frame = (this.frame = this.store.frames.get('measured') ?? null);
    this.roof.element.hidden = !frame;
    if (!frame) {
      this.element.dataset['tbState'] = 'empty';
      this.list.replaceChildren(h('div', { class: 'tb-empty' }, 'No measured run is loaded: session.load_profile("ops_perf_results.csv").'));
      return;
    }
    this.element.dataset['tbState'] = 'ready';
    const text = (column: string) => frame.text(`row_${column}`);
    const at = (column: string) => frame.column(`row_${column}`);
    const [op, kind, shape, section, layer, guess] = [text('op'), text('kind'), text('shape'), text('section'), text('layer'), text('extrapolated')];
    const [time, table, cores, line, outlier] = [at('time'), at('table'), at('cores'), at('line'), at('outlier')];
    const [compute, dram, noc] = [at('compute'), at('dram'), at('noc')];
    this.rows = text('name').map((name, i) => {
      const bounds: [string, number][] = [['compute', compute[i]!], ['DRAM', dram[i]!], ['NoC', noc[i]!]];
      const worst = bounds.reduce((a, b) => (b[1] > a[1] ? b : a));
      const counted = outlier[i] ? 0 : time[i]! || 0;
      return {
        name, op: op[i]!, kind: kind[i]!, shape: shape[i]!, section: section[i]!, layer: layer[i]!, count: 1, time: counted, timed: +(counted > 0), table: table[i]!,
        told: Number.isFinite(table[i]!) ? counted : 0, floor: worst[1], lost: counted ? Math.max(0, counted - worst[1]) : NaN, bound: Number.isFinite(worst[1]) ? worst[0] : '', guess: guess[i]!, cores: cores[i]!, line: line[i]!, outlier: outlier[i] === 1
      };
    });
    const matched = frame.meta['matched'] === true;
    this.paints.hidden = !matched;
    for (const [id, names] of [['section', section], ['layer', layer]] as const) {
      this.by.querySelector<HTMLElement>(`[data-tb-action="measured-by-${id}"]`)!.hidden = !names.some(Boolean);
    }
    this.tint();
    this.draw();
  }

  /** Rows of one name as one. */
  private joined(key: 'kind' | 'layer' | 'section'): Row[] {
    const groups = new Map<string, Row>();
    const guessed = new Map<string, number>();
    for (const row of this.rows) {
      if (row.guess) guessed.set(row[key], (guessed.get(row[key]) ?? 0) + 1);
      const sum = groups.get(row[key]);
      const table = row.told > 0 ? row.table : NaN;
      if (!sum) groups.set(row[key], { ...row, table, name: row[key] || (key === 'layer' ? 'no layer' : 'no mark'), op: '', shape: '', guess: '' });
      else {
        sum.count++;
        sum.time += row.time;
        sum.timed += row.timed;
        sum.told += row.told;
        sum.table = plus(sum.table, table);
        sum.lost = plus(sum.lost, row.lost);
      }
    }
    for (const [name, count] of guessed) groups.get(name)!.guess = `${count} of ${quantity(groups.get(name)!.count, 'op')} extrapolated`;
    return [...groups.values()];
  }

  private draw(): void {
    const { frame } = this;
    if (!frame) return;
    const meta = frame.meta as Record<string, unknown> & { total: number; errors: [string, number, number][] };
    for (const [box, id] of [[this.by, `measured-by-${this.group}`], [this.paints, `measured-paint-${this.paint || 'none'}`]] as const) {
      for (const button of box.querySelectorAll('button')) button.setAttribute('aria-pressed', String(button.dataset['tbAction'] === id));
    }
    const wanted = this.filter.value.trim().toLowerCase();
    const every = this.group === 'op' ? [...this.rows] : this.joined(this.group);
    const rows = every.filter(r => !wanted || `${r.name} ${r.op} ${r.kind} ${r.section} ${r.layer} ${r.shape}`.toLowerCase().includes(wanted));
    const { key, down } = this.sort;
    const value = (r: Row) => (key === 'order' ? 0 : key === 'time' ? r.time : key === 'lost' ? r.lost : ratioOf(r));
    if (key !== 'order') rows.sort((a, b) => ((value(b) || 0) - (value(a) || 0)) * (down ? 1 : -1));
    this.facts.textContent = this.words(meta);
    const head = (label: string, id: typeof key | '', title: string, kind = '') => h('th', { scope: 'col', class: kind, 'aria-sort': id && id === key ? (down ? 'descending' : 'ascending') : undefined },
      id ? h('button', { class: 'tb-link', title, 'data-tb-action': `measured-sort-${id}`, onclick: () => this.sortBy(id) }, label, id === key ? (down ? ' ▼' : ' ▲') : '')
        : h('span', { class: 'tb-cell', title }, label));
    this.list.replaceChildren(this.findings(meta),
      h('table', { class: 'tb-list' }, h('thead', {}, h('tr', {},
        head('Measured op', 'order', 'In the order of the run'), head(meta['matched'] ? 'Op of the model' : 'Shapes', '', '', 'tb-wide'), head('Measured µs', 'time', 'Time of its kernel', 'tb-right'),
        head('By table µs', '', `What the table “${String(meta['kernels'])}” says; ~ is an extrapolation`, 'tb-right'), head('Ratio', 'ratio', 'Measured over the table', 'tb-right'),
        head('Lost µs', 'lost', 'Beyond the roofline of its cores, DRAM and NoC', 'tb-right'), head('Bound by', '', 'The highest of the three roofs', 'tb-bound'))),
      h('tbody', {}, ...rows.slice(0, SHOWN).map(row => this.line(row, meta.total)))),
      rows.length > SHOWN ? h('p', { class: 'tb-note' }, `${withThousands(rows.length - SHOWN)} more rows: filter to find them.`) : '', this.notes(meta));
    this.roof.draw(size => roofline(this.rows, size, row => this.choose(row)));
    this.mark();
  }

  private words(meta: Record<string, unknown>): string {
    const parts = [`${String(meta['name'])}: ${quantity(this.rows.length, 'op')}, ${(Number(meta['total']) / 1e6).toFixed(3)} ms`];
    if (typeof meta['arch'] === 'string' && meta['arch']) parts.push(meta['arch']);
    if (Number(meta['devices']) > 1) parts.push(`${String(meta['devices'])} devices; of copies of an op the slowest counts`);
    if (meta['matched']) parts.push(`${withThousands(this.rows.filter(r => r.op).length)} matched, ${String(meta['unmatched_count'])} only here, ${String(meta['missing_count'])} only in the model`);
    else parts.push(`${percent(Number(meta['typed']))} of a known kind`);
    return parts.join(' · ');
  }

  private sortBy(key: 'time' | 'lost' | 'ratio' | 'order'): void {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : true };
    this.draw();
  }

  private choose(row: Row): void {
    if (row.op) this.store.select([row.op], 'measured');
  }

  private line(row: Row, total: number): HTMLElement {
    const one = this.group === 'op';
    const ratio = ratioOf(row);
    const guess = row.guess ? { title: row.guess, 'data-tb-extrapolated': 'true' } : {};
    return h('tr', { ...(one && row.op ? { 'data-tb-op': row.op } : {}), 'data-tb-row': row.name, onclick: () => this.choose(row) },
      h('td', { title: `${row.name}\n${row.shape}\nline ${row.line}, ${quantity(row.cores, 'core')}` }, h('span', { class: 'tb-name' },
        row.count > 1 ? h('span', { class: 'tb-times' }, `× ${row.count}`) : '', one && row.op ? h('button', { class: 'tb-link' }, elide(row.name, 34)) : elide(row.name, 34),
        row.outlier ? h('span', { class: 'tb-outlier', title: 'Two time bases are mixed: it is left out of the sums' }, ' outlier') : '')),
      h('td', { class: 'tb-wide', title: row.op || row.shape }, elide(row.op || row.shape, 40)),
      h('td', { class: 'tb-right' }, h('span', { class: 'tb-share' }, h('i', { style: `width:${Math.min(100, (100 * row.time) / Math.max(1, total)) }%` })), us(row.timed ? row.time : NaN)),
      h('td', { class: 'tb-right', ...guess }, row.guess ? `~ ${us(row.table)}` : us(row.table)),
      h('td', { class: 'tb-right', ...guess }, Number.isFinite(ratio) ? `${row.guess && '~ '}${ratio.toFixed(2)}` : ''),
      h('td', { class: 'tb-right' }, us(row.lost)), h('td', { class: `tb-bound tb-b-${row.bound}` }, one ? row.bound : ''));
  }

  private notes(meta: Record<string, unknown>): HTMLElement {
    const lists = [['Only in the profile', meta['unmatched']], ['Only in the model', meta['missing']]] as [string, string[] | undefined][];
    const errors = (meta['errors'] as [string, number, number][]).map(([group, , error]) => `${group} ${percent(error)}`).join(', ');
    return h('div', { class: 'tb-measured-notes' },
      h('p', { class: 'tb-note' }, `By table: kernels “${String(meta['kernels'])}”, that run one op at a time from and to DRAM.${meta['matched'] ? ' Buda\'s pipelined placement is another stack, and its cycles stand in the other views.' : ''}`,
        errors ? ` Median errors on profiles left out of its fit: ${errors}.` : ''),
      ...lists.filter(([, names]) => names?.length).map(([title, names]) => h('details', {}, h('summary', {}, `${title} (${names!.length})`), h('p', {}, names!.join(', ')))));
  }

  /** Above the rows, so that nobody reads times of which some are lost without a word; the first is told at once. */
  private findings(meta: Record<string, unknown>): HTMLElement | '' {
    const lines = meta['findings'] as string[];
    return lines.length ? h('details', { class: 'tb-note' }, h('summary', {}, `${quantity(Number(meta['finding_count']), 'finding')} of the file: ${lines[0]}`), h('ul', {}, ...lines.map(line => h('li', {}, line)))) : '';
  }

  /** The colours that graph and grid take. */
  private tint(): void {
    const { frame, store } = this;
    if (!frame?.has('op_name')) return;
    const names = frame.text('op_name');
    const [measured, table, lost] = [frame.column('op_measured'), frame.column('op_table'), frame.column('op_lost')];
    const pick = (i: number) => (this.paint === 'ratio' ? measured[i]! / table[i]! : this.paint === 'table' ? table[i]! / 1000 : this.paint === 'lost' ? lost[i]! / 1000 : measured[i]! / 1000);
    const chosen = this.paint ? names.map((name, i) => [name, pick(i)] as const).filter(([, v]) => Number.isFinite(v)) : [];
    if (!this.paint && !store.frames.has('overlay')) return;
    const titles = { '': '', measured: 'measured µs', table: 'by table µs', ratio: 'measured / table', lost: 'lost µs' };
    const told = this.paint === 'table' || this.paint === 'ratio' ? opTimes(frame) : null;
    store.put(overlayFrame(titles[this.paint], chosen, chosen.filter(([name]) => told?.get(name)?.guess).length));
  }

  private mark(): void {
    const chosen = new Set(this.store.selection.names);
    for (const row of this.element.querySelectorAll('[data-tb-op]')) row.classList.toggle('tb-selected', chosen.has((row as HTMLElement).dataset['tbOp']!));
  }
}

/** Values by op as graph and grid paint them. guessed: how many of them the table of kernels had to extrapolate. */
function overlayFrame(name: string, values: readonly (readonly [string, number])[], guessed: number): Frame {
  const numbers = Float64Array.from(values, ([, v]) => v);
  const places = Uint32Array.from(values, (_, i) => i + 1);
  const buffer = new Uint8Array(8 * numbers.length + 4 * places.length);
  buffer.set(new Uint8Array(numbers.buffer), 0);
  buffer.set(new Uint8Array(places.buffer), 8 * numbers.length);
  return new Frame({
    key: 'overlay', meta: { name, guessed, low: numbers.reduce((a, b) => Math.min(a, b), Infinity), high: numbers.reduce((a, b) => Math.max(a, b), -Infinity) }, strings: ['', ...values.map(([op]) => op)],
    columns: [
      { name: 'overlay_value', dtype: 'f8', offset: 0, length: numbers.length }, { name: 'overlay_name', dtype: 'u4', offset: 8 * numbers.length, length: places.length }
    ]
  }, buffer.buffer);
}

/** Ops by what they need at best and by what they took, both in µs. */
function roofline(rows: readonly Row[], [W, H]: Size, choose: (row: Row) => void): SVGSVGElement {
  const points = rows.filter(r => r.time > 0 && r.floor > 0);
  let [low, high] = [1e3, 1e4];  // of many ops: as arguments of Math.min they would not fit the stack
  for (const { time, floor } of points) [low, high] = [Math.min(low, time, floor), Math.max(high, time, floor)];
  [low, high] = [low / 1.5, high * 1.5];
  const part = (v: number) => (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low));
  const x = (v: number) => LEFT + part(v) * (W - LEFT - RIGHT);
  const y = (v: number) => H - BOTTOM - part(v) * (H - TOP - BOTTOM);
  const root = svg('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `Roofline of ${points.length} ops: time at best, and time measured` },
    svg('path', { class: 'tb-limit', d: `M${x(low)} ${y(low)}L${x(high)} ${y(high)}` }, svg('title', {}, 'As fast as compute, DRAM and NoC allow')));
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
    const label = short(10 ** power / 1000);
    root.append(svg('path', { class: 'tb-axis', 'stroke-opacity': 0.3, d: `M${x(10 ** power)} ${H - BOTTOM}V${TOP}M${LEFT} ${y(10 ** power)}H${W - RIGHT}` }),
      svg('text', { x: x(10 ** power), y: H - BOTTOM + 14, 'text-anchor': 'middle' }, label), svg('text', { x: LEFT - 5, y: y(10 ** power) + 3, 'text-anchor': 'end' }, label));
  }
  const seen = new Map<string, [Row, number]>();
  for (const row of points) {
    const key = `${row.kind} ${x(row.floor).toFixed(0)} ${y(row.time).toFixed(0)}`;
    const there = seen.get(key);
    if (there) there[1]++;
    else seen.set(key, [row, 1]);
  }
  for (const [row, count] of seen.values()) {
    root.append(svg('circle', {
      class: `tb-b-${row.bound}`, cx: x(row.floor).toFixed(1), cy: y(row.time).toFixed(1), r: (3 + Math.min(5, Math.log2(count))).toFixed(1), ...(row.op ? { 'data-tb-op': row.op } : {}),
      onclick: () => choose(row)
    }, svg('title', {}, `${row.kind}${count > 1 ? ` × ${count}` : ''}: ${us(row.time)} µs measured, ${us(row.floor)} µs at best (${row.bound})`)));
  }
  return root;
}
