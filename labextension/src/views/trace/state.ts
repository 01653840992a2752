/** What the parts of the timeline share. Each part names what it needs of it by `Pick`. */
import type { Store } from '../store.js';
import type { Cursors } from './cursors.js';
import type { Row, Shown, TraceModel } from './model.js';
import type { Player } from './player.js';
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
  shown: Shown;
  unit: Unit;
  readonly batch: number;
  /** Each epoch works on all inputs before the next begins. */
  readonly whole: boolean;
  /** The canvas in pixels of the page. */
  readonly size: { width: number; height: number; ratio: number };
  /** Indices of the selected ops. */
  chosen(): Set<number>;
  /** Indices of the feeders and readers of the selected ops. */
  related(): Set<number>;
  toX(cycle: number): number;
  toCycle(x: number): number;
  /** Shows [start, end) cycles. */
  show(start: number, end: number): void;
  /** `time` has changed. */
  moved(): void;
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
  /** Another batch or order. */
  choose(batch: number, whole: boolean): void;
  /** Draws the bar and the legend anew. */
  dress(): void;
}
