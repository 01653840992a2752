/** The timeline: what every op does when, what it waits for, how full buffers are. Its cursor drives the core grid. */
import { withThousands, h, short } from '../dom.js';
import { FORMULAS } from '../numbers.js';
import { Ops } from '../ops.js';
import { Visibility } from '../lazyframes.js';
import type { Store } from '../store.js';
import { onTheme } from '../theme.js';
import { Tiles, TraceRequests } from './tiles.js';
import { dress, Find, sliceTable, stallList } from './bar.js';
import { Cursors, Player } from './cursors.js';
import { HEAD } from './draw.js';
import { key, press, rowAt, wheel } from './gestures.js';
import { pinnedHeight, type Row, rowsOf, type ShownRows, type Stall, TraceModel } from './model.js';
import { LABELS, TracePicture } from './picture.js';
import { type TraceActions, type TraceElements, type TraceState, TraceTraits } from './state.js';
import { length, type Unit, Window } from './time.js';

const MANY = 40; // rows up to which all epochs are open at first
const TALL = 420; // px from which stalls are listed below the lanes at once

export class TraceView implements TraceState, TraceElements, TraceActions {
  readonly element: HTMLElement;
  readonly bar = h('header', { class: 'tb-bar' });
  readonly facts = h('span', { class: 'tb-found', 'aria-live': 'polite', 'data-tb-metric': 'trace' });
  readonly stage: HTMLElement;
  readonly canvas = h('canvas', { class: 'tb-trace-canvas', 'aria-hidden': 'true' });
  readonly scroller = h('div', { class: 'tb-trace-scroll', tabindex: -1 });
  readonly labels = h('div', { class: 'tb-trace-labels', role: 'group', 'aria-label': 'Rows' });
  readonly head = h('div', { class: 'tb-playhead', hidden: true, 'data-tb-playhead': '' });
  private readonly empty = h('div', { class: 'tb-empty' }, 'The timeline appears here once the model is placed.');
  readonly legend = h('div', { class: 'tb-legend' });
  private readonly stalls = h('div', { class: 'tb-stall-box' });
  readonly cursors: Cursors;
  readonly find: Find;
  private readonly slice = h('div', { class: 'tb-slice-box', hidden: true });
  readonly asking: TraceRequests;
  readonly player: Player;
  readonly traits: TraceTraits;
  private readonly picture: TracePicture;
  private readonly visibility: Visibility;
  private readonly stops: (() => void)[] = [];
  model: TraceModel | null = null;
  tiles: Tiles | null = null;
  time = new Window(1);
  rows: Row[] = [];
  shown: ShownRows = { epochs: new Set(), parts: new Set(), only: null, levels: -1, fills: 0 };
  private ops: Ops | null = null;
  unit: Unit = 'cycles';
  batch = 8;
  whole = true;
  private painted = 0;
  size = { width: 0, height: 0, ratio: 1 };
  private began = 0;
  private requested = false;
  private stalledOps = new Set<string>();
  private layouts = 0;

  constructor(readonly store: Store) {
    this.asking = new TraceRequests(store);
    this.player = new Player(this, this.asking, () => {
      this.traits.playing();
      this.dress();
    });
    this.picture = new TracePicture(this, this.asking, { phaseOf: epoch => this.ops?.phaseOf(epoch) ?? '', toggle: row => this.toggle(row) });
    this.cursors = new Cursors({ toX: c => this.toX(c), toCycle: x => this.toCycle(x), width: () => this.size.width }, c => this.words(c), () => {
      this.traits.onCursors();
      this.measure();
    });
    this.find = new Find(this);
    this.traits = new TraceTraits(this);
    this.scroller.append(this.labels);
    this.stage = h('div', {
      class: 'tb-trace-stage', tabindex: 0, role: 'group', 'data-lm-suppress-shortcuts': 'true', 'data-jp-suppress-context-menu': '',
      'aria-label': 'Timeline. W and S or plus and minus zoom, A and D or arrows pan, 0 shows all, F the epoch of the selection, Space plays, C puts a ' +
        'cursor at the playhead, X removes cursors, Q shows only the feeders and readers of the selection, K keeps its rows on top.'
    }, this.scroller, this.canvas, this.cursors.element, this.head, this.empty);
    this.element = h('section', { class: 'tb-view tb-trace', 'data-tb-view': 'trace', 'aria-label': 'Timeline' },
      this.bar, this.stage, this.slice, this.stalls, this.legend);
    this.visibility = new Visibility(this.element, () => this.load());
    this.listen();
    this.dress();
    this.visibility.draw();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.visibility.dispose();
    this.asking.dispose();
    this.player.dispose();
    this.traits.dispose();
    cancelAnimationFrame(this.painted);
  }

  // -- what comes in ---------------------------------------------------------------------------------------------
  private listen(): void {
    const { store, stage } = this;
    this.stops.push(
      store.on('frame', key => this.onFrame(key)),
      store.on('selection', source => this.follow(source !== 'trace')),
      store.on('hover', () => this.repaint()),
      store.on('epoch', () => this.repaint()),
      store.listen('trace_state', m => this.say(String(m['state']), String(m['text']))),
      store.listen('trace_show', m => this.player.seek(Number(m['cycle']), true)),
      onTheme(() => {
        this.picture.forget();
        this.dress();
        this.repaint();
      })
    );
    const resize = new ResizeObserver(() => this.onResize());
    resize.observe(stage);
    this.stops.push(() => resize.disconnect());
    this.scroller.addEventListener('scroll', () => this.repaint());
    stage.addEventListener('wheel', event => wheel(this, event), { passive: false });
    stage.addEventListener('keydown', event => key(this, event));
    this.canvas.addEventListener('pointerdown', event => press(this, event));
    this.canvas.addEventListener('pointermove', event => {
      if (event.buttons) return;
      const row = rowAt(this, event);
      store.setHover(row && row.op >= 0 ? this.model!.ops[row.op]!.name : '');
    });
    this.canvas.addEventListener('pointerleave', () => store.setHover(''));
  }

  private onFrame(key: string): void {
    if (key === 'ops') {
      this.ops = Ops.of(this.store.frames.get('ops')!);
      this.requested = false; // the trace is of another placement
    }
    if (key === 'ops' || key === 'edits') this.want();
    if (key === 'trace') this.visibility.draw();
    if (key === 'tracetile' && this.tiles?.put(this.store.frames.get(key)!)) this.repaint();
    if (key === 'fills') this.layout();
    if (key === 'slice') this.onSlice();
    if (key === 'flows' || key === 'measured') this.repaint();
    if (key === 'moment') this.player.came();
  }

  /** Asks for the trace of the newest placement while somebody looks; what is being compiled is not the newest yet. */
  private want(): void {
    const { store } = this;
    if (!store.host.live || this.requested || !this.size.width || !store.frames.has('ops') || store.edits?.busy) return;
    this.requested = true;
    this.began = performance.now();
    this.asking.trace(this.model ? this.batch : null, this.whole);
  }

  choose(batch: number, whole: boolean): void {
    [this.batch, this.whole] = [batch, whole];
    this.began = performance.now();
    this.asking.trace(batch, whole);
    this.dress();
  }

  private say(state: string, text: string): void {
    this.element.dataset['tbState'] = state;
    this.facts.textContent = text;
    if (!this.model) this.empty.textContent = text;
  }

  private load(): void {
    const frame = this.store.frames.get('trace');
    const ops = this.store.frames.get('ops');
    if (ops && !this.ops) this.ops = Ops.of(ops);
    if (!frame) return;
    const before = this.model;
    const model = (this.model = new TraceModel(frame));
    this.tiles = new Tiles(model);
    for (const [key, tile] of this.store.frames) if (key.startsWith('tracetile:')) this.tiles.put(tile);
    [this.batch, this.whole] = [model.batch, model.whole];
    const same = before?.cycles === model.cycles;
    if (!same) this.time = new Window(model.cycles);
    this.stalledOps = new Set(model.stalls.filter(s => s.critical).map(s => s.fork));
    const all = model.ops.length + model.epochs.length <= MANY;
    const longest = [...model.epochs].sort((a, b) => model.span(b)[1] - model.span(b)[0] - (model.span(a)[1] - model.span(a)[0]))[0];
    const epochs = before ? new Set([...this.shown.epochs].filter(e => model.opsOf.has(e))) : new Set(all ? model.epochs : longest === undefined ? [] : [longest]);
    this.shown = { epochs, parts: new Set(), only: null, pinned: this.shown.pinned ?? new Set(), levels: -1, fills: 0 };
    this.traits.onTrace(!same, !before);
    this.empty.hidden = true;
    this.element.dataset['tbState'] = 'ready';
    this.element.dataset['tbEvents'] = String(model.events);
    this.facts.title = FORMULAS.trace;
    this.facts.textContent = `${short(model.cycles)} cycles, ${short(model.cycles / model.batch)} cycles / input, batch of ${model.batch}${model.whole || model.batch === 1 ? '' : ', as emitted'} · ${withThousands(model.events)} events`;
    this.stalls.replaceChildren(stallList(this.store, model.stalls, model.batch, this.element.clientHeight >= TALL, stall => this.showStall(stall)));
    this.dress();
    this.follow(true);
    this.layout();
    const { cycle } = this.player;
    if (cycle !== null) this.player.seek(Math.min(cycle, model.cycles - 1), false);
  }

  private follow(travel: boolean): void {
    const { model } = this;
    if (!model || this.visibility.hidden) return; // brought into sight when it is seen
    const chosen = this.selectedOps();
    const one = chosen.size === 1 ? [...chosen][0]! : -1;
    this.shown = { ...this.shown, levels: this.store.host.live ? one : -1, fills: 0 };
    if (one >= 0 && this.store.host.live) this.asking.flows(model.ops[one]!.name);
    if (travel && chosen.size) {
      const first = [...chosen][0]!;
      const { epoch } = model.ops[first]!;
      if (!this.shown.epochs.has(epoch)) {
        this.shown = { ...this.shown, epochs: new Set([...this.shown.epochs, epoch]) };
        this.traits.onRowsToggled();
      }
      if (this.shown.only && ![...chosen].some(op => this.shown.only!.has(op))) this.shown = { ...this.shown, only: null };
      this.layout();
      const row = this.rows.find(r => r.op === first);
      const room = this.size.height - HEAD;
      const above = pinnedHeight(this.rows);
      if (row && !row.pinned && (row.top < this.scroller.scrollTop + above || row.top + row.height > this.scroller.scrollTop + room)) {
        this.scroller.scrollTop = Math.max(0, row.top - above - room / 3);
      }
      const round = model.roundsOf.get(epoch)?.[0];
      if (round && this.size.width && this.time.width < model.cycles && this.time.reveal(round.start, round.end)) this.traits.onTimeChange();
    }
    this.askFills();
    this.layout();
  }

  /** Indices of the selected ops. */
  selectedOps(): Set<number> {
    const { model, store, ops } = this;
    const names = ops ? ops.matcher.find(store.selection.names).map(i => ops.name[i]!) : store.selection.names;
    return new Set(names.map(n => model?.opAt.get(n)).filter((i): i is number => i !== undefined));
  }

  neighbours(): Set<number> {
    const { ops, model } = this;
    const found = new Set<number>();
    if (!ops || !model) return found;
    for (const op of this.selectedOps()) {
      const index = ops.indexOf.get(model.ops[op]!.name);
      for (const i of index === undefined ? [] : [...ops.into(index), ...ops.outOf(index)]) {
        const at = model.opAt.get(ops.name[i]!);
        if (at !== undefined) found.add(at);
      }
    }
    return found;
  }

  /** Asks what the ops do between two cursors; with fewer there is nothing to say. */
  private measure(): void {
    const [a, b] = [...this.cursors.all].sort((p, q) => p - q);
    if (a === undefined || b === undefined || b - a < 1 || !this.store.host.live) this.slice.hidden = true;
    else this.asking.slice(a, b);
  }

  private onSlice(): void {
    const frame = this.store.frames.get('slice');
    if (!frame || this.cursors.all.length < 2 || Number(frame.meta['rev']) !== this.model?.rev) return;
    this.slice.replaceChildren(sliceTable(this.store, frame, c => this.words(c)));
    this.slice.hidden = false;
  }

  private askFills(): void {
    const { model, shown } = this;
    if (model && shown.levels >= 0) this.asking.fills(model.ops[shown.levels]!.name, this.time.start, this.time.end);
  }

  // -- rows and pixels -------------------------------------------------------------------------------------------
  layout(): void {
    const { model } = this;
    if (!model) return;
    const fills = this.store.frames.get('fills');
    const fresh = fills && this.shown.levels >= 0 && fills.meta['op'] === model.ops[this.shown.levels]!.name;
    this.shown = { ...this.shown, fills: fresh ? fills.column('fill_points').length : 0 };
    this.rows = rowsOf(model, this.shown);
    this.traits.onLayout();
    this.layouts++;
    const last = this.rows.at(-1);
    this.labels.style.height = `${last ? last.top + last.height : 0}px`;
    this.repaint();
  }

  private onResize(): void {
    const width = Math.max(0, this.stage.clientWidth - LABELS);
    const height = this.stage.clientHeight;
    const came = this.size.width === 0 && width > 0;
    this.size = { width, height, ratio: Math.min(2, window.devicePixelRatio || 1) };
    this.canvas.width = Math.round(width * this.size.ratio);
    this.canvas.height = Math.round(height * this.size.ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.cursors.element.style.width = `${width}px`;
    if (width > 0) this.want();
    if (came) this.follow(true);
    this.repaint();
  }

  toX(cycle: number): number {
    return ((cycle - this.time.start) / this.time.width) * this.size.width;
  }

  toCycle(x: number): number {
    return Math.max(0, Math.min(this.time.cycles, this.time.start + (x / Math.max(1, this.size.width)) * this.time.width));
  }

  private words(cycles: number): string {
    return length(cycles, this.unit, this.model?.clock ?? 1e9);
  }

  repaint(): void {
    if (!this.painted) this.painted = requestAnimationFrame(() => {
      this.painted = 0;
      this.picture.paint(this.stalledOps, this.layouts);
      if (!this.began || this.tiles?.waiting !== 0) return;
      this.element.dataset['tbShownMs'] = (performance.now() - this.began).toFixed(0);
      this.began = 0;
    });
  }

  // -- moving about ----------------------------------------------------------------------------------------------
  onTimeChange(): void {
    if (!this.began) this.began = performance.now();
    this.tiles?.forget();
    this.askFills();
    this.repaint();
    this.traits.onTimeChange();
  }

  zoom(factor: number, about = this.player.cycle ?? (this.time.start + this.time.end) / 2): void {
    this.time.zoom(factor, Math.max(this.time.start, Math.min(this.time.end, about)));
    this.onTimeChange();
  }

  /** Shows [start, end) cycles. */
  show(start: number, end: number): void {
    this.time.show(start, end);
    this.onTimeChange();
  }

  fitEpoch(): void {
    const { model } = this;
    if (!model) return;
    const op = [...this.selectedOps()][0];
    const epoch = op === undefined ? this.store.epoch : model.ops[op]!.epoch;
    const round = model.roundsOf.get(epoch)?.[0];
    if (!round) return;
    this.shown = { ...this.shown, epochs: new Set([...this.shown.epochs, epoch]) };
    const room = 0.03 * (round.end - round.start);
    this.layout();
    const row = this.rows.find(r => r.kind === 'epoch' && r.epoch === epoch);
    if (row) this.scroller.scrollTop = row.top - pinnedHeight(this.rows);
    this.show(round.start - room, round.end + room);
  }

  toggle(row: Row): void {
    const flip = <T>(set: ReadonlySet<T>, item: T) => new Set(set.has(item) ? [...set].filter(i => i !== item) : [...set, item]);
    if (row.kind === 'epoch') this.shown = { ...this.shown, epochs: flip(this.shown.epochs, row.epoch) };
    else this.shown = { ...this.shown, parts: flip(this.shown.parts, this.model!.ops[row.op]!.name) };
    this.traits.onRowsToggled();
    this.layout();
    this.stage.focus({ preventScroll: true });
  }

  /** Only the selection and what feeds and drains it, from whatever epoch; pressed again: everything. */
  feeders(): void {
    const { model, shown } = this;
    if (!model) return;
    const chosen = this.selectedOps();
    if (shown.only || !chosen.size) this.shown = { ...shown, only: null };
    else {
      const only = new Set([...chosen, ...this.neighbours()]);
      this.shown = { ...shown, only };
      const rounds = [...only].map(op => model.roundsOf.get(model.ops[op]!.epoch)?.[0]).filter(r => r !== undefined);
      this.time.show(Math.min(...rounds.map(r => r.start)), Math.max(...rounds.map(r => r.end)));
    }
    this.scroller.scrollTop = 0;
    this.layout();
    this.onTimeChange();
    this.dress();
  }

  pin(ops: readonly string[]): void {
    const pinned = new Set(this.shown.pinned);
    const all = ops.every(op => pinned.has(op));
    for (const op of ops) {
      if (all) pinned.delete(op);
      else pinned.add(op);
    }
    this.shown = { ...this.shown, pinned };
    this.layout();
    this.stage.focus({ preventScroll: true }); // the pressed element is made anew
  }

  private showStall(stall: Stall): void {
    this.store.select([stall.fork, stall.join], 'trace');
    this.follow(true);
  }

  dress(): void {
    dress(this, this);
  }
}
