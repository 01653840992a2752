/** A trace without its spans: lanes, epochs, stalls; and the rows in which they are shown. */
import type { Frame } from '../frame.js';
import { KIND_KEYS } from './paint.js';

/** An op: neighbouring lanes, one for each group of cores that go in step. */
interface TraceOp {
  name: string;
  epoch: number;
  first: number;
  end: number;
}

/** One round of an epoch, in cycles. */
interface Round {
  epoch: number;
  chip: number;
  round: number;
  start: number;
  end: number;
}

export interface Stall {
  epoch: number;
  fork: string;
  join: string;
  /** The edge on which a buffer would help. */
  source: string;
  target: string;
  cycles: number;
  critical: boolean;
  short: string;
  long: string;
}

export class TraceModel {
  readonly cycles: number;
  readonly batch: number;
  readonly events: number;
  readonly clock: number;
  readonly rev: number;
  readonly whole: boolean;
  readonly ops: TraceOp[] = [];
  readonly rounds: Round[] = [];
  readonly stalls: Stall[] = [];
  readonly opAt = new Map<string, number>();
  readonly opOfLane: Int32Array;
  readonly blockOf: Int32Array;
  readonly blockFirst: number[];
  readonly blockEnd: number[];
  readonly roundsOf = new Map<number, Round[]>();
  readonly opsOf = new Map<number, number[]>();
  readonly epochs: number[];
  /** (lanes) [row, column, rows, columns] of each lane. */
  readonly cores: [number, number, number, number][];

  constructor(readonly frame: Frame) {
    const { meta } = frame;
    this.cycles = Math.max(1, Number(meta['cycles']));
    this.batch = Number(meta['batch']);
    this.whole = Number(meta['per_run']) >= this.batch;
    this.events = Number(meta['events']);
    this.clock = Number(meta['clock_hz']);
    this.rev = Number(meta['rev']);
    const names = frame.text('lane_name');
    const epoch = frame.column('lane_epoch');
    this.opOfLane = new Int32Array(names.length);
    names.forEach((name, lane) => {
      const last = this.ops.at(-1);
      if (last?.name === name) last.end = lane + 1;
      else {
        this.opAt.set(name, this.ops.length);
        this.ops.push({ name, epoch: epoch[lane]!, first: lane, end: lane + 1 });
      }
      this.opOfLane[lane] = this.ops.length - 1;
    });
    const [row, col, rows, cols] = ['row', 'col', 'rows', 'cols'].map(c => frame.column(`lane_${c}`));
    this.cores = names.map((_, i) => [row![i]!, col![i]!, rows![i]!, cols![i]!]);
    this.blockFirst = Array.from(frame.column('block_first'));
    this.blockEnd = Array.from(frame.column('block_end'));
    this.blockOf = new Int32Array(names.length);
    this.blockFirst.forEach((low, block) => this.blockOf.fill(block, low, this.blockEnd[block]));
    const run = ['epoch', 'chip', 'round', 'start', 'end'].map(c => frame.column(`run_${c}`));
    for (let i = 0; i < run[0]!.length; i++) {
      const [e, chip, round, start, end] = run.map(c => c[i]!) as [number, number, number, number, number];
      const made = { epoch: e, chip, round, start, end };
      this.rounds.push(made);
      this.roundsOf.set(e, [...(this.roundsOf.get(e) ?? []), made]);
    }
    this.ops.forEach((op, i) => this.opsOf.set(op.epoch, [...(this.opsOf.get(op.epoch) ?? []), i]));
    this.epochs = [...this.opsOf.keys()].sort((a, b) => a - b);
    const text = new Map(['fork', 'join', 'source', 'target', 'short', 'long'].map(c => [c, frame.text(`stall_${c}`)]));
    const [at, lost, critical] = ['epoch', 'cycles', 'critical'].map(c => frame.column(`stall_${c}`));
    for (let i = 0; i < at!.length; i++) {
      const read = (name: string) => text.get(name)![i]!;
      this.stalls.push({
        epoch: at![i]!, cycles: lost![i]!, critical: critical![i] === 1, fork: read('fork'), join: read('join'),
        source: read('source'), target: read('target'), short: read('short'), long: read('long')
      });
    }
  }

  /** [first cycle, last cycle] of an epoch over all its rounds. */
  span(epoch: number): [number, number] {
    const rounds = this.roundsOf.get(epoch) ?? [];
    return [Math.min(...rounds.map(r => r.start)), Math.max(...rounds.map(r => r.end))];
  }

  /** The epoch that runs at a cycle; of several (on several chips) the preferred one if it is among them. */
  epochAt(cycle: number, preferred: number): number | null {
    const now = this.rounds.filter(r => r.start <= cycle && cycle < r.end).map(r => r.epoch);
    return now.includes(preferred) ? preferred : (now[0] ?? null);
  }

  /** Cycles of an op's time by kind over the batch: as `KIND_KEYS`. */
  cyclesByKind(op: string): number[] | null {
    const at = this.frame.text('op_name').indexOf(op);
    if (at < 0) return null;
    return KIND_KEYS.map(k => this.frame.column(`op_${k}`)[at]!);
  }
}

export interface Row {
  kind: 'epoch' | 'op' | 'part' | 'fill';
  epoch: number;
  op: number;
  lanes: [number, number];
  /** Number of the buffer in the fills frame, for rows of kind fill. */
  fill: number;
  top: number;
  height: number;
  /** It stands above the rows that scroll. */
  pinned?: boolean;
}

const EPOCH_ROW = 22;
const OP_ROW = 20;
const FILL_ROW = 34;

export interface ShownRows {
  epochs: ReadonlySet<number>;
  parts: ReadonlySet<string>;
  /** Only these ops, whatever their epoch; null: all epochs. */
  only: ReadonlySet<number> | null;
  /** Names of ops whose rows stay on top, in the order in which they were pinned. */
  pinned?: ReadonlySet<string>;
  /** The op under which levels of buffers stand, and how many there are. */
  levels: number;
  fills: number;
}

/** The rows from top to bottom. */
export function rowsOf(model: TraceModel, shown: ShownRows): Row[] {
  const rows: Row[] = [];
  let top = 0;
  const add = (kind: Row['kind'], epoch: number, op: number, lanes: [number, number], height: number, fill = -1) => {
    rows.push({ kind, epoch, op, lanes, fill, top, height });
    top += height;
  };
  for (const name of shown.pinned ?? []) {
    const op = model.opAt.get(name);
    if (op === undefined) continue; // a placement of before had it
    const { epoch, first, end } = model.ops[op]!;
    add('op', epoch, op, [first, end], OP_ROW);
    rows.at(-1)!.pinned = true;
  }
  for (const epoch of model.epochs) {
    const ops = (model.opsOf.get(epoch) ?? []).filter(op => !shown.only || shown.only.has(op));
    if (!ops.length) continue;
    add('epoch', epoch, -1, [0, 0], EPOCH_ROW);
    if (!shown.only && !shown.epochs.has(epoch)) continue;
    for (const op of ops) {
      const { name, first, end } = model.ops[op]!;
      add('op', epoch, op, [first, end], OP_ROW);
      if (op === shown.levels) for (let k = 0; k < shown.fills; k++) add('fill', epoch, op, [first, end], FILL_ROW, k);
      if (end - first > 1 && shown.parts.has(name)) for (let lane = first; lane < end; lane++) add('part', epoch, op, [lane, lane + 1], OP_ROW);
    }
  }
  return rows;
}

/** Pixels that rows take which do not scroll: they come first. */
export function pinnedHeight(rows: readonly Row[]): number {
  const last = rows.filter(row => row.pinned).at(-1);
  return last ? last.top + last.height : 0;
}

/** The rows between two heights: [first, end) by binary search. */
export function inSight(rows: readonly Row[], top: number, bottom: number): [number, number] {
  const find = (y: number) => {
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle]!.top + rows[middle]!.height <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return [find(top), Math.min(rows.length, find(bottom) + 1)];
}
