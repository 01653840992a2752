/**
 * Tiles of a trace: which are needed for a window, which are there, which are on their way, what they say of one
 * cycle; and what the timeline asks of the kernel, each at a bounded rate.
 */
import type { Store } from '../store.js';
import type { Frame } from '../frame.js';
import type { TraceModel } from './model.js';
import type { Doing } from './activity.js';

const MOMENT = 100; // ms between two questions for a moment
const FILLS = 180; // ms of rest before levels are asked for

/** What the timeline asks of the kernel: the trace, tiles, moments, levels; each at a bounded rate. */
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

// Tiles of a trace: which are needed for a window, which are there, which are on their way; what they say of one cycle.
const KEPT = 500;
const PATIENCE = 4000; // ms after which an unanswered question is asked again

/** Spans of one block of lanes over one stretch of time. */
export class Tile {
  readonly level: number;
  readonly index: number;
  readonly block: number;
  readonly exact: boolean;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly kind: ArrayLike<number>;
  readonly input: ArrayLike<number>;
  readonly share: ArrayLike<number> | null;
  /** Where each lane's spans begin; one more at the end. */
  readonly offsets: Int32Array;
  readonly from: number;
  readonly to: number;

  constructor(frame: Frame, model: TraceModel) {
    const { meta } = frame;
    this.level = Number(meta['level']);
    this.index = Number(meta['index']);
    this.block = Number(meta['block']);
    this.exact = meta['exact'] === true;
    const origin = Number(meta['origin']);
    this.start = Float64Array.from(frame.column('start'), v => v + origin);
    this.end = Float64Array.from(frame.column('end'), v => v + origin);
    this.kind = frame.column('kind');
    this.input = frame.column('input');
    this.share = this.exact ? null : frame.column('share');
    const [low, high] = [model.blockFirst[this.block]!, model.blockEnd[this.block]!];
    const lanes = frame.column('lane');
    this.offsets = new Int32Array(high - low + 1);
    let at = 0;
    for (let lane = low; lane <= high; lane++) {
      while (at < lanes.length && lanes[at]! < lane) at++;
      this.offsets[lane - low] = at;
    }
    this.offsets[high - low] = lanes.length;
    if (this.level < 0) [this.from, this.to] = [-Infinity, Infinity];
    else [this.from, this.to] = [edge(model.cycles, this.level, this.index), edge(model.cycles, this.level, this.index + 1)];
  }
}

function edge(cycles: number, level: number, index: number): number {
  return Math.floor((cycles * index) / 2 ** level);
}

/** Half a window or a little more per tile: at most three lie side by side. */
export function levelFor(cycles: number, width: number): number {
  return Math.max(0, Math.min(40, Math.floor(Math.log2(cycles / Math.max(1, width))) + 1));
}

export class Tiles {
  private readonly tiles = new Map<string, Tile>();
  /** What is on its way: since when, and whether somebody waits for it now. */
  private readonly requests = new Map<string, { since: number; waited: boolean }>();

  constructor(private readonly model: TraceModel) {}

  /** Takes in a tile; false for one of another trace. */
  put(frame: Frame): boolean {
    if (Number(frame.meta['rev']) !== this.model.rev && Number(frame.meta['level']) >= 0) return false;
    if (Number(frame.meta['block']) >= this.model.blockFirst.length) return false;
    const tile = new Tile(frame, this.model);
    const key = name(tile.level, tile.index, tile.block);
    this.requests.delete(key);
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    if (this.tiles.size > KEPT) for (const old of this.tiles.keys()) {
      if (!old.startsWith('-1/')) this.tiles.delete(old);
      if (this.tiles.size <= KEPT) break;
    }
    return true;
  }

  get waiting(): number {
    let count = 0;
    for (const { waited } of this.requests.values()) if (waited) count++;
    return count;
  }

  /** The best tiles there are for a block between two cycles, each with the stretch it stands for. */
  best(block: number, low: number, high: number): [Tile, number, number][] {
    const { cycles } = this.model;
    const wanted = levelFor(cycles, high - low);
    const made: [Tile, number, number][] = [];
    for (let i = indexOf(cycles, wanted, low); i <= indexOf(cycles, wanted, high); i++) {
      const tile = this.above(block, wanted, i);
      const [from, to] = [edge(cycles, wanted, i), edge(cycles, wanted, i + 1)];
      const last = made.at(-1);
      if (tile && last?.[0] === tile) last[2] = to;
      else if (tile) made.push([tile, from, to]);
    }
    return made;
  }

  /** [level, index, block] of the tiles that are wanted for some blocks and neither there nor on their way. */
  missing(blocks: Iterable<number>, low: number, high: number, now: number): [number, number, number][] {
    return this.absent(blocks, levelFor(this.model.cycles, high - low), low, high, now, true);
  }

  /** The same for what may be wanted next: the window one level finer, and beside it on both sides. */
  next(blocks: Iterable<number>, low: number, high: number, now: number): [number, number, number][] {
    const level = levelFor(this.model.cycles, high - low);
    const by = (high - low) / 2;
    return [
      ...(level < 40 ? this.absent(blocks, level + 1, low, high, now, false) : []),
      ...this.absent(blocks, level, low - by, high + by, now, false)
    ];
  }

  private absent(
    blocks: Iterable<number>, level: number, low: number, high: number, now: number, waited: boolean
  ): [number, number, number][] {
    const { cycles, blockFirst, ops, opOfLane, roundsOf } = this.model;
    const list: [number, number, number][] = [];
    for (const block of blocks) {
      const rounds = roundsOf.get(ops[opOfLane[blockFirst[block]!]!]!.epoch) ?? [];
      for (let i = indexOf(cycles, level, low); i <= indexOf(cycles, level, high); i++) {
        const [from, to] = [edge(cycles, level, i), edge(cycles, level, i + 1)];
        if (!rounds.some(r => r.start < to && r.end >= from)) continue;
        const there = this.above(block, level, i);
        if (there && (there.level === level || there.exact)) continue;
        const key = name(level, i, block);
        const coming = this.requests.get(key);
        if (coming && now - coming.since < PATIENCE) {
          coming.waited ||= waited;
          continue;
        }
        this.requests.set(key, { since: now, waited });
        list.push([level, i, block]);
      }
    }
    return list;
  }

  /** What was asked for is no longer waited for. It comes all the same. */
  forget(): void {
    this.requests.forEach(coming => (coming.waited = false));
  }

  private above(block: number, level: number, index: number): Tile | null {
    for (let l = level; l >= 0; l--) {
      const tile = this.tiles.get(name(l, Math.floor(index / 2 ** (level - l)), block));
      if (tile) {
        this.tiles.delete(name(l, tile.index, block));
        this.tiles.set(name(l, tile.index, block), tile); // the youngest again
        return tile;
      }
    }
    return this.tiles.get(name(-1, 0, block)) ?? null;
  }
}

function name(level: number, index: number, block: number): string {
  return `${level}/${index}/${block}`;
}

function indexOf(cycles: number, level: number, cycle: number): number {
  const count = 2 ** level;
  return Math.max(0, Math.min(count - 1, Math.floor((cycle / cycles) * count)));
}

function doingOf(model: TraceModel, lane: number, kind: number, input: number): Doing {
  return { op: model.ops[model.opOfLane[lane]!]!.name, cores: model.cores[lane]!, kind, input };
}

/** What the lanes do at one cycle, as far as the tiles know: for a page without a kernel. */
export function fromTiles(model: TraceModel, tiles: Tiles, cycle: number): Doing[] {
  const found: Doing[] = [];
  model.blockFirst.forEach((low, block) => {
    for (const [tile] of tiles.best(block, cycle, cycle + 1)) {
      for (let lane = low; lane < model.blockEnd[block]!; lane++) {
        for (let i = tile.offsets[lane - low]!; i < tile.offsets[lane - low + 1]!; i++) {
          if (tile.start[i]! <= cycle && cycle < tile.end[i]!) found.push(doingOf(model, lane, tile.kind[i]!, tile.input[i]!));
        }
      }
    }
  });
  return found;
}
