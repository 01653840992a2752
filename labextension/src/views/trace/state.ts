/**
 * What the parts of the timeline share (each names what it needs of it by `Pick`), and what Python and the
 * timeline tell each other.
 */
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Cursors, Player } from './cursors.js';
import type { Row, ShownRows, TraceModel } from './model.js';
import type { Tiles } from './tiles.js';
import type { Unit, Window } from './time.js';

/** What is shown, and the ways to show something else. */
export interface TraceState {
  readonly store: Store;
  /** null until there is a trace. */
  readonly model: TraceModel | null;
  readonly tiles: Tiles | null;
  /** The stretch of time in sight. */
  readonly time: Window;
  readonly rows: readonly Row[];
  /** Which rows are open; `layout` makes the rows anew. */
  shown: ShownRows;
  unit: Unit;
  readonly batch: number;
  /** Each epoch works on all inputs before the next begins. */
  readonly whole: boolean;
  /** The canvas in pixels of the page. */
  readonly size: { width: number; height: number; ratio: number };
  /** Indices of the selected ops. */
  selectedOps(): Set<number>;
  /** Indices of the feeders and readers of the selected ops. */
  neighbours(): Set<number>;
  toX(cycle: number): number;
  toCycle(x: number): number;
  /** Shows [start, end) cycles. */
  show(start: number, end: number): void;
  /** `time` has changed. */
  onTimeChange(): void;
  layout(): void;
  repaint(): void;
}

/** The elements that parts read positions from, draw on, or mark. */
export interface TraceElements {
  readonly element: HTMLElement;
  readonly stage: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly scroller: HTMLElement;
  readonly labels: HTMLElement;
  /** The line of the playhead. */
  readonly head: HTMLElement;
}

/** What keys and buttons do. */
export interface TraceActions {
  readonly cursors: Cursors;
  readonly player: Player;
  zoom(factor: number, about?: number): void;
  fitEpoch(): void;
  /** Only the selection, its feeders and readers; again: everything. */
  feeders(): void;
  /** Keeps the rows of these ops on top; those that all are there scroll again. */
  pin(ops: readonly string[]): void;
  /** Another batch or order. */
  choose(batch: number, whole: boolean): void;
  /** Draws the bar and the legend anew. */
  dress(): void;
}

type TraitView = Pick<TraceState, 'store' | 'model' | 'shown' | 'time' | 'show' | 'layout'> & Pick<TraceActions, 'cursors' | 'player' | 'dress'>;

const REST = 150; // ms
type Level = '' | 'epochs' | 'ops' | 'cores';

/** What Python and the timeline tell each other: the stretch of time, what is open, the ops shown, cursors, playing. */
export class TraceTraits {
  private readonly t0: SyncedTrait<number>;
  private readonly t1: SyncedTrait<number | null>;
  private readonly level: SyncedTrait<Level>;
  private readonly lanes: SyncedTrait<string[]>;
  private readonly cursors: SyncedTrait<number[]>;
  private readonly play: SyncedTrait<boolean>;
  private timer = 0;
  /** The ops shown because Python said so. */
  private lanesOfPython: ReadonlySet<number> | null = null;

  constructor(private readonly view: TraitView) {
    const { store } = view;
    const stretch = () => {
      if (view.model) this.stretch();
    };
    const of = 'trace'; // a workbench has none of them
    this.t0 = syncedTrait(store, 't0', 0, stretch, { of });
    this.t1 = syncedTrait<number | null>(store, 't1', null, stretch, { of });
    const rows = () => {
      if (!view.model) return;
      this.rows();
      view.layout();
      view.dress();
    };
    this.level = syncedTrait<Level>(store, 'level', '', rows, { of });
    this.lanes = syncedTrait<string[]>(store, 'lanes', [], rows, { of });
    this.cursors = syncedTrait<number[]>(store, 'cursors', [], at => view.cursors.put(at), { of, rest: REST });
    this.play = syncedTrait(store, 'play', false, on => {
      if (view.model && on !== view.player.playing > 0) view.player.play();
    }, { of });
    view.cursors.put(this.cursors.value());
  }

  dispose(): void {
    clearTimeout(this.timer);
    for (const each of [this.t0, this.t1, this.level, this.lanes, this.cursors, this.play]) each.dispose();
  }

  /** Another trace is there: what was asked for holds of it too. other: it is of another length. */
  onTrace(other: boolean, first: boolean): void {
    this.rows();
    if (first) this.stretch();
    else if (other) this.onTimeChange();
    if (this.play.value() && !this.view.player.playing) this.view.player.play();
  }

  private stretch(): void {
    const { cycles } = this.view.model!;
    const [start, end] = [this.t0.value(), this.t1.value() ?? cycles];
    if (end > start) this.view.show(start, end);
  }

  private rows(): void {
    const { view } = this;
    const model = view.model!;
    const level = this.level.value();
    if (level) {
      view.shown = {
        ...view.shown, epochs: new Set(level === 'epochs' ? [] : model.epochs),
        parts: new Set(level === 'cores' ? model.ops.filter(op => op.end - op.first > 1).map(op => op.name) : [])
      };
    }
    const found = this.lanes.value().map(name => model.opAt.get(name)).filter(op => op !== undefined);
    this.lanesOfPython = found.length ? new Set(found) : null;
    view.shown = { ...view.shown, only: this.lanesOfPython };
  }

  /** Another stretch of time is in sight. The end goes first where the start would pass the end that Python knows. */
  onTimeChange(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const { start, end, cycles } = this.view.time;
      const [from, to] = [Math.floor(start), end >= cycles ? null : Math.ceil(end)];
      const known = this.t1.value();
      if (known !== null && from >= known) this.t1.tell(to);
      this.t0.tell(from);
      this.t1.tell(to);
    }, REST);
  }

  /** Somebody opened or closed rows. */
  onRowsToggled(): void {
    const { shown, model } = this.view;
    if (!model) return;
    const all = model.epochs.every(e => shown.epochs.has(e));
    const split = model.ops.filter(op => op.end - op.first > 1);
    let level: Level = '';
    if (!shown.epochs.size && !shown.parts.size) level = 'epochs';
    else if (all && !shown.parts.size) level = 'ops';
    else if (all && split.every(op => shown.parts.has(op.name))) level = 'cores';
    this.level.tell(level);
  }

  /** The rows are laid out anew. */
  onLayout(): void {
    const { shown, model } = this.view;
    if (!model || shown.only === this.lanesOfPython) return;
    this.lanesOfPython = shown.only;
    this.lanes.tell([...(shown.only ?? [])].sort((a, b) => a - b).map(op => model.ops[op]!.name));
  }

  onCursors(): void {
    this.cursors.tell([...this.view.cursors.all].map(Math.round));
  }

  playing(): void {
    this.play.tell(this.view.player.playing > 0);
  }
}
