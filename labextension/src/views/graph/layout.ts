/**
 * Positions of a graph frame for a set of open groups: the mirror of `tbuda_lab/core/frames/layout.py`.
 * The kernel has settled ranks and order; sizes depend on what is open, so x and y are worked out here, with no message.
 */
import type { Frame } from '../frame.js';

export const NODE = 0;
export const GROUP = 1;
export const LANE = 2;
export const ENTRY = 3;
export const EXIT = 4;

const CHAR = 6.6;
export const LABEL_CHARS = 26;
const NODE_HEIGHT = 34;
const GROUP_HEIGHT = 40;
const GROUP_EXTRA = 12;
export const HEADER = 22;
const PADDING = 12;
const GAP_ACROSS = 16;
/** Between ranks: from top to bottom and from left to right, without and with words on the edges. */
const GAP_ALONG = { TB: [22, 34], LR: [44, 128] } as const;
const LANE_WIDTH = 6;
const LANE_WEIGHT = 8;
const PASSES = 6;

export type Direction = 'TB' | 'LR';

/** How the graph lies: ranks below each other, or beside each other; and how far apart. */
interface Lie {
  turned: boolean;
  gap: number;
}

export interface Layout {
  /** x, y, w, h per item, absolute; meaningful where `visible`. */
  boxes: Float64Array;
  visible: Uint8Array;
  width: number;
  height: number;
}

function labelWidth(characters: number): number {
  return Math.max(64, CHAR * Math.min(characters, LABEL_CHARS) + 26);
}

/** Columns of a graph frame, unpacked once. */
export class Structure {
  readonly kind: ArrayLike<number>;
  readonly ref: ArrayLike<number>;
  readonly rank: ArrayLike<number>;
  readonly order: ArrayLike<number>;
  readonly count: number;
  readonly members: number[][];
  readonly segments: [number, number][][];
  readonly nodeChars: ArrayLike<number>;
  readonly groupChars: ArrayLike<number>;
  /** Letters of the label alone, for the head of an open group. */
  readonly labelChars: number[];

  constructor(frame: Frame) {
    this.kind = frame.column('item_kind');
    this.ref = frame.column('item_ref');
    this.rank = frame.column('item_rank');
    this.order = frame.column('item_order');
    this.count = this.kind.length;
    this.nodeChars = frame.column('node_chars');
    this.groupChars = frame.column('group_chars');
    this.labelChars = frame.text('group_label').map(label => Array.from(label).length);
    this.members = this.labelChars.map(() => []);
    this.segments = this.labelChars.map(() => []);
    frame.column('item_group').forEach((g: number, i: number) => this.members[g]!.push(i));
    const source = frame.column('seg_source');
    const target = frame.column('seg_target');
    frame.column('seg_group').forEach((g: number, s: number) => this.segments[g]!.push([source[s]!, target[s]!]));
  }
}

/** @param words edges carry some, so ranks stand further apart. */
export function place(structure: Structure, opened: ReadonlySet<number>, direction: Direction = 'TB', words = false): Layout {
  const lie = { turned: direction === 'LR', gap: GAP_ALONG[direction][words ? 1 : 0] };
  const local = new Float64Array(4 * structure.count);
  const boxes = new Float64Array(4 * structure.count);
  const visible = new Uint8Array(structure.count);
  const [width, height] = measure(structure, opened, local, lie, 0);
  const stack: [number, number, number][] = [[0, 0, 0]];
  for (let top = stack.pop(); top; top = stack.pop()) {
    const [group, left, y] = top;
    for (const i of structure.members[group]!) {
      boxes[4 * i] = left + local[4 * i]!;
      boxes[4 * i + 1] = y + local[4 * i + 1]!;
      boxes[4 * i + 2] = local[4 * i + 2]!;
      boxes[4 * i + 3] = local[4 * i + 3]!;
      visible[i] = 1;
      const ref = structure.ref[i]!;
      if (structure.kind[i] === GROUP && opened.has(ref)) stack.push([ref, boxes[4 * i]!, boxes[4 * i + 1]!]);
    }
  }
  return { boxes, visible, width, height };
}

function measure(
  structure: Structure,
  opened: ReadonlySet<number>,
  local: Float64Array,
  lie: Lie,
  group: number
): [number, number] {
  const members = structure.members[group]!;
  const sizes = new Map<number, [number, number]>();
  const rows = new Map<number, number[]>();
  for (const i of members) {
    sizes.set(i, size(structure, opened, local, lie, i));
    const rank = structure.rank[i]!;
    const row = rows.get(rank);
    if (row) row.push(i);
    else rows.set(rank, [i]);
  }
  const { turned } = lie;
  const across = (i: number): number => sizes.get(i)![turned ? 1 : 0];
  const along = (i: number): number => sizes.get(i)![turned ? 0 : 1];
  const ranks = [...rows.keys()].sort((a, b) => a - b);
  const ordered = ranks.map(r => rows.get(r)!.sort((a, b) => structure.order[a]! - structure.order[b]!));
  const at = columns(structure, ordered, across, structure.segments[group]!);
  let low = Infinity;
  let high = -Infinity;
  for (const i of members) {
    low = Math.min(low, at.get(i)! - across(i) / 2);
    high = Math.max(high, at.get(i)! + across(i) / 2);
  }
  if (!members.length) low = high = 0;
  const header = group ? HEADER : 0;
  const label = group ? labelWidth(structure.labelChars[group]!) : 0;
  const wide = turned ? high - low : Math.max(high - low, label);
  const shift = PADDING - low + (wide - (high - low)) / 2 + (turned ? header : 0);
  let run = turned ? PADDING : header + PADDING;
  ordered.forEach((row, k) => {
    const deep = Math.max(...row.map(along));
    if (k && deep !== 0) run += lie.gap;
    for (const i of row) {
      let length = along(i);
      let begin = run + (deep - length) / 2;
      if (structure.kind[i] === ENTRY) begin = group ? 0 : header;
      else if (structure.kind[i] === EXIT) begin = run + PADDING;
      else if (structure.kind[i] === LANE) {
        begin = run;
        length = deep;
      }
      const beside = at.get(i)! - across(i) / 2 + shift;
      local.set(turned ? [begin, beside, length, across(i)] : [beside, begin, across(i), length], 4 * i);
    }
    run += deep;
  });
  if (turned) return [Math.max(run + PADDING, label + 2 * PADDING), header + wide + 2 * PADDING];
  return [wide + 2 * PADDING, run + PADDING];
}

function size(structure: Structure, opened: ReadonlySet<number>, local: Float64Array, lie: Lie, i: number): [number, number] {
  const ref = structure.ref[i]!;
  switch (structure.kind[i]) {
    case NODE:
      return [labelWidth(structure.nodeChars[ref]!), NODE_HEIGHT];
    case GROUP:
      if (opened.has(ref)) return measure(structure, opened, local, lie, ref);
      return [labelWidth(structure.groupChars[ref]!) + GROUP_EXTRA, GROUP_HEIGHT];
    default:
      return lie.turned ? [0, LANE_WIDTH] : [LANE_WIDTH, 0];
  }
}

/** Centres: alternate passes pull every item towards its neighbours of the rank before or after. */
function columns(
  structure: Structure,
  rows: number[][],
  across: (item: number) => number,
  segments: [number, number][]
): Map<number, number> {
  const above = new Map<number, number[]>();
  const below = new Map<number, number[]>();
  for (const row of rows) {
    for (const i of row) {
      above.set(i, []);
      below.set(i, []);
    }
  }
  for (const [s, t] of segments) {
    if (structure.rank[t]! > structure.rank[s]!) {
      above.get(t)!.push(s);
      below.get(s)!.push(t);
    }
  }
  const x = new Map<number, number>();
  for (const row of rows) {
    let cursor = 0;
    for (const i of row) {
      const w = across(i);
      x.set(i, cursor + w / 2);
      cursor += w + GAP_ACROSS;
    }
    const middle = (cursor - GAP_ACROSS) / 2;
    for (const i of row) x.set(i, x.get(i)! - middle);
  }
  const backwards = [...rows].reverse();
  for (let turn = 0; turn < PASSES; turn++) {
    const near = turn % 2 === 0 ? above : below;
    for (const row of turn % 2 === 0 ? rows : backwards) {
      const wish = row.map(i => {
        const others = near.get(i)!;
        return others.length ? others.reduce((sum, n) => sum + x.get(n)!, 0) / others.length : x.get(i)!;
      });
      const weight = row.map(i => (structure.kind[i]! >= LANE ? LANE_WEIGHT : near.get(i)!.length ? 1 : 0.1));
      const width = row.map(across);
      separate(wish, weight, width).forEach((value, k) => x.set(row[k]!, value));
    }
  }
  return x;
}

/** Centres nearest to `wish` (weighted squares) that keep the order and do not overlap: pool adjacent violators. */
export function separate(wish: number[], weight: number[], width: number[]): number[] {
  const offsets = [0];
  for (let k = 1; k < wish.length; k++) offsets.push(offsets[k - 1]! + (width[k - 1]! + width[k]!) / 2 + GAP_ACROSS);
  const pools: { mean: number; weight: number; members: number }[] = [];
  for (let k = 0; k < wish.length; k++) {
    const pool = { mean: wish[k]! - offsets[k]!, weight: weight[k]!, members: 1 };
    for (let last = pools.at(-1); last && last.mean > pool.mean; last = pools.at(-1)) {
      pools.pop();
      pool.mean = (pool.mean * pool.weight + last.mean * last.weight) / (pool.weight + last.weight);
      pool.weight += last.weight;
      pool.members += last.members;
    }
    pools.push(pool);
  }
  const placed: number[] = [];
  for (const pool of pools) {
    for (let n = 0; n < pool.members; n++) placed.push(pool.mean + offsets[placed.length]!);
  }
  return placed;
}
