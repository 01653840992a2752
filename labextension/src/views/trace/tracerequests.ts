/** What the timeline asks of the kernel: the trace, tiles, moments, levels; each at a bounded rate. */
import type { Store } from '../store.js';

const MOMENT = 100; // ms between two questions for a moment
const FILLS = 180; // ms of rest before levels are asked for

export class TraceRequests {
  private momentDue = 0;
  private momentTimer = 0;
  private next: number | null = null;
  private fillsTimer = 0;
  private sliceTimer = 0;

  constructor(private readonly store: Store) {}

  dispose(): void {
    clearTimeout(this.momentTimer);
    clearTimeout(this.fillsTimer);
    clearTimeout(this.sliceTimer);
  }

  /** batch: null for what the view was made for. */
  trace(batch: number | null, whole: boolean): void {
    this.store.host.send({ type: 'need_trace', batch, whole });
  }

  tiles(list: [number, number, number][]): void {
    for (let i = 0; i < list.length; i += 24) this.store.host.send({ type: 'need_tile', tiles: list.slice(i, i + 24) });
  }

  /** The newest cycle wins; at most one question in `MOMENT` ms. */
  moment(cycle: number): void {
    this.next = cycle;
    if (this.momentTimer) return;
    const ask = () => {
      this.momentTimer = 0;
      if (this.next === null) return;
      this.store.host.send({ type: 'need_moment', cycle: Math.round(this.next) });
      this.next = null;
      this.momentDue = performance.now() + MOMENT;
    };
    const wait = this.momentDue - performance.now();
    if (wait <= 0) ask();
    else this.momentTimer = window.setTimeout(ask, wait);
  }

  /** What the ops do between two cycles, once the cursors have come to rest. */
  slice(start: number, end: number): void {
    clearTimeout(this.sliceTimer);
    this.sliceTimer = window.setTimeout(() => this.store.host.send({ type: 'need_slice', start: Math.floor(start), end: Math.ceil(end) }), FILLS);
  }

  /** The inputs that an op gets and hands on. */
  flows(op: string): void {
    this.store.host.send({ type: 'need_flows', op });
  }

  /** Levels around an op, once the window has come to rest. */
  fills(op: string, start: number, end: number): void {
    clearTimeout(this.fillsTimer);
    this.fillsTimer = window.setTimeout(
      () => this.store.host.send({ type: 'need_fills', op, start: Math.floor(start), end: Math.ceil(end) }), FILLS);
  }
}
