/** Two placements compared: grids side by side, blinking or by change of cycles; a table of all that differs. */
import { withThousands, h } from '../dom.js';
import { type Class, CLASSES, DiffData, drawSide, GLYPHS, type Side, percent } from './side.js';
import { drawRuns } from './runs.js';
import type { Frame } from '../frame.js';
import { byTable, type OpTimes, opTimes, us } from '../optimes.js';
import { onPreferences } from '../preferences.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, onTheme } from '../theme.js';
import { LazyFrames } from '../lazyframes.js';

// The ops and queues that differ, one per row, with absolute and relative columns.
const COLUMNS: [string, string, string][] = [
  ['op', 'Op', 'Name of the op'],
  ['what', 'Differs', 'Classes of the difference'],
  ['from', 'Cycles / input before', ''],
  ['to', 'after', ''],
  ['delta', 'Δ', 'Cycles after minus cycles before'],
  ['share', 'Δ %', 'Change as a share of the cycles before'],
  ['before', 'Placed before', 'Grid, first row and column, epoch'],
  ['after', 'after', 'Grid, first row and column, epoch']
];
const SIDES = ['a', 'b'] as const;
const COUNTED = (data: DiffData) => (data.measured ? 'Time of its kernel' : `Cycles per input, ${data.counts}: the time of the model that the op decides`);
const RIGHT = new Set(['from', 'to', 'delta', 'share']);

interface Sorting {
  by: string;
  down: boolean;
}

/** Ops that differ in one of the wanted classes, in the order given. */
function orderedOps(data: DiffData, wanted: ReadonlySet<Class>, { by, down }: Sorting): number[] {
  const ops = data.changed.filter(op => data.classes(op).some(c => wanted.has(c)));
  const value = (op: number): number | string => {
    if (by === 'op') return data.names[op]!;
    if (by === 'what') return data.classes(op).join(' ');
    if (by === 'before' || by === 'after') return data.get(by === 'before' ? 'a' : 'b', 'epoch', op);
    if (by === 'from' || by === 'to') return data.cycles(by === 'from' ? 'a' : 'b', op);
    if (by === 'share') return Math.abs(data.ratio(op) ?? Infinity);
    return Math.abs(data.delta(op));
  };
  const keys = new Map(ops.map(op => [op, value(op)]));
  return ops.sort((x, y) => {
    const [a, b] = [keys.get(x)!, keys.get(y)!];
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1) || x - y;
  });
}

/** "Cycles / input before" of placements, "ns before" of measured runs; those stand nowhere and have cores. */
function titled(data: DiffData, text: string): string {
  if (!data.measured) return text;
  const unit = String(data.frame.meta['unit']);
  return text.replace('Cycles / input', unit).replace(/^Cycles/, unit).replace('cycles', unit).replace(/^Placed/, 'Cores').replace(/^Grid, .*/, 'Cores that it ran on');
}

/** Of a measured run that is laid over the second side; null without one. */
type Times = ReadonlyMap<string, OpTimes> | null;

const OWN = [
  ['Measured µs', 'In the profile that is loaded, one op at a time'],
  ['By table µs', 'What the table of kernels says; ~ is an extrapolation'],
  ['Ratio', 'Measured over the table of kernels; ~ where that is an extrapolation']
] as const;

function head(data: DiffData, times: Times, sorting: Sorting, sort: (by: string) => void): HTMLElement {
  const own = OWN.map(([text, title]) => h('th', { scope: 'col', class: 'tb-right', title }, h('span', { class: 'tb-cell' }, text)));
  return h('tr', {}, ...COLUMNS.map(([id, plain, about]) => {
    const [label, title] = [titled(data, plain), titled(data, about)];
    const active = sorting.by === id;
    return h('th', {
      scope: 'col', title: title || COUNTED(data), class: RIGHT.has(id) ? 'tb-right' : '', 'aria-sort': active ? (sorting.down ? 'descending' : 'ascending') : 'none'
    }, h('button', { 'data-tb-action': `diff-sort-${id}`, onclick: () => sort(id) }, label,
      active ? h('i', { class: 'tb-arrow' }, sorting.down ? '▼' : '▲') : ''));
  }), ...(times ? own : []));
}

function row(data: DiffData, times: Times, op: number): HTMLElement {
  const took = times?.get(data.names[op]!);
  const ratio = took && took.table > 0 && took.measured > 0 ? `${took.guess && '~ '}${(took.measured / took.table).toFixed(2)}` : '';
  const own = took ? [us(took.measured), byTable(took), ratio] : OWN.map(() => '');
  const kinds = data.classes(op);
  const cycles = (side: 'a' | 'b') => (data.has(side, op) ? withThousands(data.cycles(side, op)) : '–');
  const delta = data.delta(op);
  const tone = delta > 0 ? ' tb-worse' : delta < 0 ? ' tb-better' : '';
  const alone = data.measured ? '' : SIDES.filter(side => data.has(side, op)).map(side => withThousands(data.get(side, 'limit', op))).join(' → ');
  const number = (text: string, extra = '') => h('td', { class: `tb-right${extra}`, title: alone ? `Own kernel or slowest transfer: ${alone} cycles per input` : undefined }, text);
  return h('tr', { 'data-tb-op': data.names[op], 'data-tb-change': kinds.join(' ') },
    h('td', { title: data.names[op]! }, data.names[op]),
    h('td', {}, ...kinds.map(k => h('span', { class: `tb-class tb-mini tb-d-${k}`, title: k, role: 'img', 'aria-label': k }, GLYPHS[k]))),
    number(cycles('a')), number(cycles('b')),
    number(change(delta), tone),
    number(percent(data.ratio(op)), tone),
    h('td', { class: 'tb-diff-place' }, data.text('a', op)), h('td', { class: 'tb-diff-place' }, data.text('b', op)), ...(times ? own.map(text => h('td', { class: 'tb-right' }, text)) : []));
}

/** What the model takes more or less beyond the rows: with it they add up to the change of the model. */
function rest(data: DiffData, times: Times): HTMLElement | string {
  const [of, cycles] = data.rest;
  if (!cycles) return '';
  const tone = cycles > 0 ? ' tb-worse' : ' tb-better';
  return h('tr', { 'data-tb-rest': cycles }, h('td', {}, of), ...['', '', ''].map(() => h('td', {})), h('td', { class: `tb-right${tone}` }, change(cycles)),
    ...['', '', '', ...(times ? OWN : [])].map(() => h('td', {})));
}

function change(delta: number): string {
  const whole = Math.round(delta);
  return whole ? `${whole > 0 ? '+' : '−'}${withThousands(Math.abs(whole))}` : '0';
}

/** Queues that are new, gone or elsewhere. */
function queues(data: DiffData): HTMLElement | null {
  const names = data.frame.text('queue_name');
  if (!names.length) return null;
  const [what, a, b] = ['queue_what', 'queue_a', 'queue_b'].map(c => data.frame.text(c));
  return h('table', { class: 'tb-list tb-diff-queues' },
    h('thead', {}, h('tr', {}, ...['Queue', 'Differs', 'Before', 'After'].map(t => h('th', { scope: 'col', class: 'tb-title' }, t)))),
    h('tbody', {}, ...names.map((name, i) => h('tr', { 'data-tb-queue': name, 'data-tb-change': what![i] },
      h('td', { title: name }, name), h('td', {}, h('span', { class: `tb-class tb-d-${what![i]!}` }, what![i])),
      h('td', {}, a![i] || '–'), h('td', {}, b![i] || '–')))));
}

type Mode = 'split' | 'blink' | 'delta';

const MODES: [Mode, string, string][] = [
  ['split', 'Split', 'both sides next to each other'],
  ['blink', 'Blink', 'one after the other in the same place'],
  ['delta', 'Δ cycles', 'the second side coloured by change of cycles; outlines show where ops stood before']
];
const BLINK = 900; // ms per side
const ROWS = 400; // of the table at once

/** Two placements compared: grids side by side, blinking or by change of cycles; a table of all that differs. Of two
 *  measured runs strips of time in place of grids. */
export class DiffView {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar tb-diff-bar' });
  private readonly summary = h('div', { class: 'tb-diff-summary', 'aria-live': 'polite' });
  private readonly grids = h('div', { class: 'tb-diff-grids' });
  private readonly list = h('div', { class: 'tb-scroll tb-diff-list', tabindex: 0 });
  private readonly stops: (() => void)[] = [];
  private readonly frames: LazyFrames;
  private frame: Frame | null = null;
  private data: DiffData | null = null;
  private mode: Mode = 'split';
  private readonly synced: { mode: SyncedTrait<Mode>; a: SyncedTrait<string>; b: SyncedTrait<string> };
  private pair = 0;
  private side: Side = 'b';
  private playing = !still();
  private timer = 0;
  private classes = new Set<Class>(CLASSES);
  private sorting: Sorting = { by: 'delta', down: true };
  /** Something was selected while nobody looked. */
  private selectionMissed = false;
  private requested: { a?: string; b?: string } = {}; // what is not said is as it was shown last

  constructor(private readonly store: Store) {
    this.element = h('section', { class: 'tb-view tb-diff', 'data-tb-view': 'diff', 'aria-label': 'Comparison' },
      this.bar, this.summary, h('div', { class: 'tb-diff-body' }, this.grids, this.list));
    const side = (at: Side) => syncedTrait(store, at, '', name => this.compare(at, name), { of: 'diff' });
    this.synced = { mode: syncedTrait<Mode>(store, 'mode', 'split', mode => this.show(mode), { of: 'diff' }), a: side('a'), b: side('b') };
    this.mode = this.synced.mode.value();
    if (this.synced.a.value()) this.requested = { a: this.synced.a.value(), b: this.synced.b.value() };
    this.frames = new LazyFrames(store, this.element, {
      keys: ['diff'], ready: () => store.frames.has('ops'), question: () => ({ type: 'want', key: 'diff', ...this.requested }), paint: () => this.render()
    });
    const draw = () => this.frames.draw();
    this.stops.push(
      () => this.frames.dispose(), () => Object.values(this.synced).forEach(t => t.dispose()),
      store.on('frame', key => {
        if (key === 'diff' || key === 'measured') draw();
        if (key === 'ops') this.frames.onOutdated();
      }),
      store.on('selection', source => this.follow(source !== 'diff')),
      onTheme(draw), onPreferences(draw));
    this.element.addEventListener('click', event => {
      const target = (event.target as Element).closest<HTMLElement | SVGElement>('[data-tb-op], [data-tb-queue]');
      const name = target?.dataset['tbOp'] ?? target?.dataset['tbQueue'];
      if (name) store.click(name, (event as MouseEvent).ctrlKey || (event as MouseEvent).metaKey, 'diff');
    });
    draw();
    this.frames.ask();
  }

  dispose(): void {
    clearInterval(this.timer);
    this.stops.forEach(stop => stop());
  }

  /** The newest frame, taken apart when somebody looks; true if there is another one. */
  private take(): boolean {
    const frame = this.store.frames.get('diff') ?? null;
    if (!frame || frame === this.frame) return false;
    this.frame = frame;
    this.data = new DiffData(frame);
    for (const at of ['a', 'b'] as const) {
      this.requested[at] = this.data.name(at);
      this.synced[at].tell(this.data.name(at));
    }
    const first = this.data.changed[0];
    if (this.pair >= this.data.pairs.length || !this.differs(this.pair)) this.pair = first === undefined ? 0 : Math.max(0, this.data.pairOf(first));
    return true;
  }

  private show(mode: Mode): void {
    this.mode = mode;
    this.synced.mode.tell(mode);
    this.frames.draw();
  }

  /** Another state on a side. */
  private compare(side: Side, name: string): void {
    if (this.requested[side] === name) return;
    this.requested[side] = name;
    this.frames.ask(true);
  }

  private differs(pair: number): boolean {
    const [a, b] = this.data!.pairs[pair] ?? [-1, -1];
    return this.data!.changed.some(op => this.data!.get('a', 'epoch', op) === a || this.data!.get('b', 'epoch', op) === b);
  }

  private render(): void {
    const fresh = this.take();
    this.picture();
    if (fresh || this.selectionMissed) this.follow(true);
    this.selectionMissed = false;
  }

  private picture(): void {
    const { data } = this;
    const { refusal: refused } = this.frames;
    this.element.dataset['tbMode'] = this.mode;
    this.header();
    this.summary.replaceChildren();
    if (!data || refused) {
      this.grids.replaceChildren();
      this.list.replaceChildren(h('div', { class: 'tb-empty' }, this.frames.waiting('Comparing with the earlier placement …',
        this.store.host.live ? 'The comparison with an earlier placement appears here once the model is placed.' : 'Nothing to compare.')));
      return;
    }
    const totals = data.frame.meta['totals'] as [string, number, number][];
    const kernels = totals.find(([label]) => label === 'kernels alone');
    const first = data.kernelsOnly && kernels ? `Kernels only: ${withThousands(kernels[1])} → ${withThousands(kernels[2])} cycles per input.` : String(data.frame.meta['verdict']);
    this.summary.append(h('b', { 'data-tb-metric': 'verdict' }, first),
      ...totals.slice(1).map(([label, a, b]) => h('span', {}, `${label} ${withThousands(a)} → ${withThousands(b)} ${a && a !== b ? percent(b / a - 1) : ''}`)),
      ...(data.frame.meta['notes'] as string[]).map(note => h('span', { class: 'tb-note' }, note)));
    this.draw();
    this.fill();
  }

  private header(): void {
    const { data } = this;
    const choose = (side: Side, label: string) => {
      const known = data?.known ?? [];
      if (!known.length) return h('b', {}, data?.name(side) ?? '');
      const select = h('select', {
        class: 'tb-select', 'aria-label': label, 'data-tb-action': `diff-${side}`,
        onchange: (event: Event) => this.compare(side, (event.target as HTMLSelectElement).value)
      }, ...known.map(name => h('option', { value: name, selected: name === this.requested[side] }, name)));
      return select;
    };
    const button = (action: string, pressed: boolean, label: string, title: string, f: () => void) =>
      h('button', { 'data-tb-action': action, 'aria-pressed': String(pressed), title, onclick: f }, label);
    const live = this.store.edits !== null;
    const placed = data && !data.measured ? data : null;
    this.bar.replaceChildren(
      h('h3', {}, 'Compare'), choose('a', 'before'), h('span', { 'aria-hidden': 'true' }, '→'), choose('b', 'after'),
      live ? h('button', {
        class: 'tb-button', 'data-tb-action': 'checkpoint', title: 'Save this placement under a name to compare with later',
        onclick: () => this.store.host.send({ type: 'checkpoint' })
      }, 'Checkpoint') : '',
      placed ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Grid' }, ...MODES.map(([mode, label, title]) =>
        button(`diff-mode-${mode}`, this.mode === mode, label, title, () => this.show(mode)))) : '',
      placed ? this.epochs(placed) : '',
      placed && this.mode === 'blink' ? h('button', {
        class: 'tb-button', 'data-tb-action': 'diff-play', 'aria-pressed': String(this.playing),
        onclick: () => {
          this.playing = !this.playing;
          if (!this.playing) this.side = this.side === 'a' ? 'b' : 'a';
          this.render();
        }
      }, this.playing ? 'Pause' : 'Other side') : '',
      h('span', { class: 'tb-spring' }),
      data ? h('div', { class: 'tb-classes', role: 'group', 'aria-label': 'Classes shown' }, ...CLASSES.filter(c => data.count(c)).map(c =>
        h('button', {
          class: `tb-class tb-d-${c}`, 'data-tb-action': `diff-class-${c}`, 'aria-pressed': String(this.classes.has(c)),
          onclick: () => {
            if (!this.classes.delete(c)) this.classes.add(c);
            this.render();
          }
        }, `${GLYPHS[c]} ${data.count(c)} ${c}`))) : '');
  }

  private epochs(data: DiffData): HTMLElement {
    const label = ([a, b]: [number, number]) => (a < 0 ? `new epoch ${b}` : b < 0 ? `epoch ${a} is gone` : a === b ? `epoch ${a}` : `epoch ${a} → ${b}`);
    return h('select', {
      class: 'tb-select', 'aria-label': 'Epoch', 'data-tb-action': 'diff-epoch',
      onchange: (event: Event) => {
        this.pair = Number((event.target as HTMLSelectElement).value);
        this.draw();
      }
    }, ...data.pairs.map((pair, k) =>
      h('option', { value: String(k), selected: k === this.pair }, `${label(pair)}${this.differs(k) ? ' ●' : ''}`)));
  }

  /** The grids of the chosen pair of epochs, or two measured runs. */
  private draw(): void {
    const { data } = this;
    clearInterval(this.timer);
    if (!data || this.frames.refusal) return;
    if (data.measured) {
      this.grids.replaceChildren(drawRuns(data));
      this.mark(false);
      return;
    }
    const [a, b] = data.pairs[this.pair] ?? [-1, -1];
    const one = (side: Side, delta = false) => {
      const epoch = side === 'a' ? a : b;
      const title = `${data.name(side)} · ${epoch < 0 ? 'no such epoch' : `epoch ${epoch} · ${withThousands(data.epochCycles(side, epoch))} cycles / input, ${data.counts}`}`;
      return h('figure', { 'data-tb-side': side }, h('figcaption', { title }, title),
        epoch < 0 ? h('div', { class: 'tb-diff-none' }, side === 'a' ? 'added' : 'removed') : drawSide(data, { side, epoch, delta, dark: isDark() }));
    };
    if (this.mode === 'split') this.grids.replaceChildren(one('a'), one('b'));
    else if (this.mode === 'delta') this.grids.replaceChildren(one(b < 0 ? 'a' : 'b', true));
    else {
      this.grids.replaceChildren(one(this.side));
      if (this.playing) {
        this.timer = window.setInterval(() => {
          if (!this.element.isConnected || !this.element.clientWidth) return;
          this.side = this.side === 'a' ? 'b' : 'a';
          this.grids.replaceChildren(one(this.side));
          this.mark(false);
        }, BLINK);
      }
    }
    this.mark(false);
  }

  private fill(): void {
    const { data } = this;
    if (!data) return;
    const ops = orderedOps(data, this.classes, this.sorting);
    const sort = (by: string) => {
      this.sorting = { by, down: this.sorting.by === by ? !this.sorting.down : by !== 'op' };
      this.fill();
    };
    const times = opTimes(this.store.frames.get('measured'));
    const none = h('p', { class: 'tb-diff-same' }, data.changed.length ? 'No op of the classes shown differs.' : 'No op differs.');
    this.list.replaceChildren(
      ops.length ? h('table', { class: 'tb-list' }, h('thead', {}, head(data, times, this.sorting, sort)), h('tbody', {}, ...ops.slice(0, ROWS).map(op => row(data, times, op)), rest(data, times))) : none,
      ops.length > ROWS ? h('p', { class: 'tb-diff-same' }, `and ${ops.length - ROWS} more`) : '',
      queues(data) ?? '');
    this.mark(false);
  }

  /** Goes to the epoch of what was selected elsewhere. */
  private follow(travel: boolean): void {
    if (this.frames.hidden) {
      this.selectionMissed ||= travel;
      this.frames.draw();
      return;
    }
    const { data } = this;
    const op = data?.indexOf.get(this.store.selection.names[0] ?? '');
    if (data && op !== undefined) {
      const pair = data.pairOf(op);
      if (pair >= 0 && pair !== this.pair) {
        this.pair = pair;
        this.header();
        this.draw();
      }
    }
    this.mark(travel);
  }

  private mark(scroll: boolean): void {
    const chosen = new Set(this.store.selection.names);
    for (const item of this.element.querySelectorAll<HTMLElement | SVGElement>('[data-tb-op], [data-tb-queue]')) {
      const on = chosen.has(item.dataset['tbOp'] ?? item.dataset['tbQueue']!);
      item.classList.toggle('tb-selected', on);
      item.setAttribute('aria-selected', String(on));
      if (on && scroll && item instanceof HTMLElement && this.list.clientHeight) {
        this.list.scrollTop = Math.max(0, item.offsetTop - this.list.clientHeight / 2);
        scroll = false;
      }
    }
  }
}

function still(): boolean {
  return typeof matchMedia === 'function' && matchMedia('(prefers-reduced-motion: reduce)').matches;
}
