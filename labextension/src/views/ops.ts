/** The placement frame, unpacked once and shared by grid, table and inspector. */
import type { Column, Frame } from './frame.js';
import { percent } from './dom.js';
import { cutName, distinctNames, layerOf, layersOf, Matcher } from './names.js';
import type { OpTimes } from './optimes.js';
import { preferences } from './preferences.js';
import type { Overlay } from './graph/paints.js';
import type { Checks } from './trace/checks.js';

/** Bounds of an epoch that a word alone does not explain. */
const BOUNDS: Record<string, string> = { fill: 'filling the pipeline', switch: 'the epoch switch', stall: 'full buffers' };
const PHASES: Record<string, string> = { fwd: 'forward', bwd: 'backward', opt: 'optimizer' };
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
  /** Inputs of the batch that the times are simulated for; 0: a file, of which the kernels alone are known. */
  readonly batch: number;
  readonly epochs: number;
  readonly byEpoch: number[][];
  private readonly kernels: Float64Array;
  private readonly simulated: Float64Array | null;
  /** How ops compare with torch, once they were compared. */
  checks: Checks | null = null;
  /** Times of the measured run that is loaded. */
  measured: ReadonlyMap<string, OpTimes> | null = null;
  /** Values that the grid is painted by instead of the usual colours. */
  overlay: Overlay | null = null;
  /** Fields that overrides ask for, by op. */
  overridden: ReadonlyMap<string, readonly string[]> = new Map();
  private bounds: string[] | null = null;
  private labels: string[] | null = null;
  private alone: boolean[] | null = null;
  private layerLists: Map<number, number[]> | null = null;
  private layered: Set<number> | null = null;
  private readonly cuts = new Map<string, string | null>();
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
    this.batch = Number(meta['batch'] ?? 0);
    const cycles = frame.column('epoch_cycles');
    this.epochs = cycles.length;
    this.kernels = Float64Array.from(cycles);
    this.simulated = frame.has('epoch_time') ? Float64Array.from(frame.column('epoch_time')) : null;
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

  /** Bytes of L1 on the fullest core of an op. Marked where they are the estimate of a shape that is not placed. */
  l1Text(op: number, text: (size: number) => string): string {
    const size = this.get('l1_total', op);
    const estimate = this.frame.has('op_l1_bound') && this.get('l1_bound', op) > 0;
    return `${estimate ? '≈ ' : ''}${text(size)} ${percent(size / this.l1)}`;
  }

  ofEpoch(column: string, epoch: number): number {
    return this.frame.column(`epoch_${column}`)[epoch]!;
  }

  epochOf(op: number): number {
    return this.get('epoch', op);
  }

  /** Whether times are of the kernels alone: asked for, or all that is known. */
  get kernelsOnly(): boolean {
    return !this.simulated || preferences().clock === 'kernel';
  }

  /** Cycles per input of every epoch: simulated, with filling and the switch to it, or of its slowest kernel. */
  get epochTimes(): Float64Array {
    return this.kernelsOnly ? this.kernels : this.simulated!;
  }

  /** Cycles per input of the whole model. */
  get total(): number {
    return Number(this.frame.meta[this.kernelsOnly ? 'total_cycles' : 'time']);
  }

  /** Cycles per input of an op: of its kernel or its slowest transfer, or of its kernel alone. */
  time(op: number): number {
    return this.get(this.kernelsOnly ? 'cycles' : 'limiter_cycles', op);
  }

  /** Time of the op over that of the slowest op of its epoch. */
  load(op: number): number {
    const slowest = (this.kernelsOnly ? this.kernels : this.frame.column('epoch_limiter_cycles'))[this.epochOf(op)]!;
    return slowest > 0 ? this.time(op) / slowest : 0;
  }

  /** Ops of each layer, where layers repeat. */
  get layers(): ReadonlyMap<number, readonly number[]> {
    return (this.layerLists ??= layersOf(this.name));
  }

  /** The layer of an op; -1 for one that belongs to none. */
  layer(op: number): number {
    this.layered ??= new Set([...this.layers.values()].flat());
    return this.layered.has(op) ? layerOf(this.name[op]!) : -1;
  }

  /** Rows and columns of an op's own grid, as overrides and tags count them: those of its rectangle are the other way
   *  round where it is turned. */
  shapeText(op: number): string {
    const size = [this.get('rows', op), this.get('cols', op)];
    return this.frame.has('op_transposed') && this.get('transposed', op) ? `${size.reverse().join('×')}, turned` : size.join('×');
  }

  /** Whether it is worth enlarging: its epoch is faster then. A file does not tell. */
  isLimiting(op: number): boolean {
    return this.limitingOf(this.epochOf(op)) === op;
  }

  /** The op of an epoch that is worth enlarging, -1 for none. */
  limitingOf(epoch: number): number {
    return this.kernelsOnly ? -1 : this.frame.column('epoch_limiting')[epoch]!;
  }

  /** The slowest op of an epoch, -1 where it has none: with its data, or by kernel where that is all that is known. */
  slowestOf(epoch: number): number {
    if (!this.kernelsOnly) return this.frame.column('epoch_slowest')[epoch]!;
    return (this.byEpoch[epoch] ?? []).find(op => this.load(op) >= 1) ?? -1;
  }

  /** What limits an epoch, in a sentence; "" where only kernels are known. */
  limitsText(epoch: number): string {
    return this.kernelsOnly ? '' : this.frame.text('epoch_limits')[epoch]!;
  }

  /** The slowest op as a line says it: with ▲ where it is worth enlarging. */
  slowestText(epoch: number): string {
    const op = this.slowestOf(epoch);
    if (op < 0) return '';
    return this.limitingOf(epoch) === op ? `▲ ${this.short(op)} limits it` : `slowest ${this.kernelsOnly ? 'kernel' : 'op'} ${this.short(op)}`;
  }

  /** Share of the core cycles of an epoch in which kernels work. */
  busy(epoch: number): number {
    if (!this.kernelsOnly || !this.frame.has('epoch_kernel_work')) return this.ofEpoch('busy', epoch);
    return this.ofEpoch('kernel_work', epoch) / Math.max(1, this.kernels[epoch]! * this.rows * this.cols);
  }

  /**
   * "forward", "backward" or "optimizer" of an epoch, where a model is trained; "subgraph 1" where a device holds several,
   * each a program of its own; "" where all are one.
   */
  phaseOf(epoch: number): string {
    const phases = (this.frame.meta['directions'] as string[] | undefined) ?? [];
    if (phases.every(phase => phase === phases[0])) return '';
    const own = phases[epoch]!;
    if (!phases.some(phase => /^fwd_\d+$/.test(phase))) return PHASES[own] ?? '';
    return `subgraph ${own.split('_')[1] ?? 0}`;
  }

  /** Whether the time of an input counts an update of the weights: a run of several inputs makes one for all of them. */
  get updates(): boolean {
    return ((this.frame.meta['directions'] as string[] | undefined) ?? []).includes('opt');
  }

  /** What an epoch is bounded by: the largest part of its time. */
  boundOf(epoch: number): string {
    return this.kernelsOnly ? '' : this.frame.text('epoch_bound')[epoch]!;
  }

  /** The same in words; "" where it is not known. */
  boundText(epoch: number): string {
    const bound = this.boundOf(epoch);
    return bound && `bound by ${BOUNDS[bound] ?? bound}`;
  }

  /** Whether the op is on the chain of work and waits that decides when its epoch ends. */
  isCritical(op: number): boolean {
    return this.simulated !== null && this.get('critical', op) > 0;
  }

  bound(op: number): string {
    return (this.bounds ??= this.frame.text('op_bound'))[op]!;
  }

  /** The name of an op in few parts, as many as tell it from the others of its epoch. */
  short(op: number): string {
    if (!this.labels) {
      this.labels = [...this.name];
      for (const members of this.byEpoch) distinctNames(members.map(i => this.name[i]!)).forEach((label, k) => (this.labels![members[k]!] = label));
    }
    return this.labels[op]!;
  }

  /** Whether the last part of its name is enough to tell an op from the others of its epoch. */
  told(op: number): boolean {
    if (!this.alone) {
      this.alone = this.name.map(() => true);
      for (const members of this.byEpoch) {
        const last = members.map(i => this.short(i).split('.').at(-1)!);
        members.forEach((i, k) => (this.alone![i] = last.indexOf(last[k]!) === last.lastIndexOf(last[k]!)));
      }
    }
    return this.alone[op]!;
  }

  /** What a tile of `room` letters says of an op: as much as tells it from the others of its epoch; null: zoom in. */
  cut(op: number, room: number): string | null {
    const key = `${op} ${room}`;
    let cut = this.cuts.get(key);
    if (cut === undefined) {
      const others = this.byEpoch[this.epochOf(op)]!.filter(other => other !== op).map(other => this.short(other));
      this.cuts.set(key, (cut = cutName(this.short(op), room, others)));
    }
    return cut;
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
