/** The placement frame, unpacked once and shared by grid, table and inspector. */
import type { Column, Frame } from './frame.js';
import { Matcher } from './names.js';
import type { Checks } from './trace/checks.js';

const KNOWN = new WeakMap<Frame, Ops>();

export class Ops {
  readonly name: string[];
  readonly type: string[];
  readonly module: string[];
  readonly location: string[];
  readonly df: string[];
  readonly fidelity: string[];
  readonly stream: string[];
  readonly indexOf = new Map<string, number>();
  readonly matcher: Matcher;
  readonly count: number;
  readonly rows: number;
  readonly cols: number;
  readonly device: string;
  readonly harvested: number[];
  readonly physical: number[];
  readonly l1: number;
  readonly clock: number;
  readonly total: number;
  readonly epochs: number;
  readonly byEpoch: number[][];
  readonly slowest: Float64Array;
  /** How ops compare with torch, once they were compared. */
  checks: Checks | null = null;
  /** Fields that overrides ask for, by op. */
  overridden: ReadonlyMap<string, readonly string[]> = new Map();
  private readonly columns = new Map<string, Column>();
  private readonly producers: number[][];
  private readonly consumers: number[][];

  /** The frame unpacked: once, however many views ask. */
  static of(frame: Frame): Ops {
    const ops = KNOWN.get(frame) ?? new Ops(frame);
    KNOWN.set(frame, ops);
    return ops;
  }

  constructor(readonly frame: Frame) {
    this.name = frame.text('op_name');
    this.type = frame.text('op_type');
    this.module = frame.text('op_module');
    this.location = frame.text('op_location');
    this.df = frame.text('op_df');
    this.fidelity = frame.text('op_fidelity');
    this.stream = frame.text('op_stream');
    this.count = this.name.length;
    this.name.forEach((n, i) => this.indexOf.set(n, i));
    this.matcher = new Matcher(this.name);
    const meta = frame.meta;
    this.rows = Number(meta['rows']);
    this.cols = Number(meta['cols']);
    this.device = String(meta['device']);
    this.harvested = meta['harvested'] as number[];
    this.physical = meta['physical'] as number[];
    this.l1 = Number(meta['l1']);
    this.clock = Number(meta['clock_hz']);
    this.total = Number(meta['total_cycles']);
    const cycles = frame.column('epoch_cycles');
    this.epochs = cycles.length;
    this.slowest = Float64Array.from(cycles);
    this.byEpoch = Array.from({ length: this.epochs }, () => []);
    frame.column('op_epoch').forEach((e: number, i: number) => this.byEpoch[e]!.push(i));
    this.producers = this.name.map(() => []);
    this.consumers = this.name.map(() => []);
    const target = frame.column('edge_target');
    frame.column('edge_source').forEach((s: number, k: number) => {
      this.consumers[s]!.push(target[k]!);
      this.producers[target[k]!]!.push(s);
    });
  }

  get(column: string, op: number): number {
    let found = this.columns.get(column); // asked for some ten thousand times a picture
    if (!found) this.columns.set(column, (found = this.frame.column(`op_${column}`)));
    return found[op]!;
  }

  ofEpoch(column: string, epoch: number): number {
    return this.frame.column(`epoch_${column}`)[epoch]!;
  }

  epochOf(op: number): number {
    return this.get('epoch', op);
  }

  /** Cycles of the op over cycles of its epoch: 1 for the bottleneck. */
  load(op: number): number {
    const slowest = this.slowest[this.epochOf(op)]!;
    return slowest > 0 ? this.get('cycles', op) / slowest : 0;
  }

  isBottleneck(op: number): boolean {
    return this.load(op) >= 1;
  }

  into(op: number): number[] {
    return this.producers[op]!;
  }

  outOf(op: number): number[] {
    return this.consumers[op]!;
  }

  /** "rows 0-3, columns 2-5" */
  where(op: number): string {
    const [r, c, h, w] = [this.get('row', op), this.get('col', op), this.get('rows', op), this.get('cols', op)];
    const span = (what: string, from: number, n: number) => (n === 1 ? `${what} ${from}` : `${what}s ${from}-${from + n - 1}`);
    return `${span('row', r, h)}, ${span('column', c, w)}`;
  }
}
