/** What a drag means where the pointer is: pure functions from the drag and the table of legal shapes to a picture. */
import type { Edit, SingleEdit } from '../editmessages.js';
import type { Ops } from '../ops.js';
import type { Cores, Geometry } from './geometry.js';
import type { Handle, Picture } from './ghost.js';
import type { Legal, Size } from './legal.js';

export interface Scene {
  ops: Ops;
  geometry: Geometry;
  legal: Legal | null;
  displacement?: Displacement;
}

/** An op that is dragged by a handle or by its body. */
export interface DragGesture {
  op: number;
  from: Cores;
  handle: Handle;
  /** From the tile's corner to the press, in the drawing. */
  grip: [number, number];
  alt: boolean;
  /** Turned on the way. */
  turned: boolean;
}

export function resizePicture({ ops, geometry, legal }: Scene, { op, from, handle, alt }: DragGesture, [x, y]: [number, number]): Picture {
  const [north, south, west, east] = ['n', 's', 'w', 'e'].map(side => handle.includes(side)) as [boolean, boolean, boolean, boolean];
  const [low, right] = [from.row + from.rows, from.col + from.cols];
  const corner = geometry.corner(x, y);
  const size: Size = [
    north ? low - Math.min(corner[0], low - 1) : south ? geometry.rowsTo(y, from.row) : from.rows,
    west ? right - Math.min(corner[1], right - 1) : east ? geometry.columnsTo(x, from.col) : from.cols
  ];
  /** The side that is not dragged stays. */
  const at = ([rows, cols]: Size): Cores => ({ row: north ? low - rows : from.row, col: west ? right - cols : from.col, rows, cols });
  const wanted = at(size);
  const moves = north || west;
  const name = ops.name[op]!;
  if (!legal) return waitingFor(wanted, name);
  const good = legal.isLegal(size, moves);
  const why = good ? null : legal.reason(size);
  const because = why ? `${legal.name(size)}: ${why.meaning}${why.fix ? `; ${why.fix}` : ''}` : '';
  const snapped = good || alt
    ? good ? size : null
    : legal.nearest(size, s => s[0] <= (north ? low : geometry.height - from.row) && s[1] <= (west ? right : geometry.width - from.col) &&
        (north || south || s[0] === from.rows) && (east || west || s[1] === from.cols), moves);
  if (!snapped) {
    return {
      wanted, good, lands: null, crowded: false, verdict: why?.name ?? 'NONE', title: `${legal.said(size)} is not legal`,
      lines: [], note: because, edit: null
    };
  }
  const lands = at(snapped);
  const crowded = !legal.free(snapped, lands.row, lands.col);
  const same = snapped[0] === from.rows && snapped[1] === from.cols;
  const own: SingleEdit = { do: 'resize', op: name, size: legal.turn(snapped) };
  const start: Size = [lands.row, lands.col];
  const note = [
    good ? '' : `${legal.name(size)} is not legal; hold Alt to see why`, crowded ? 'no room there: it moves, or its neighbours do' : '',
    moves && !same ? `starts at row ${start[0]}, column ${start[1]}, and is pinned there` : ''
  ].filter(Boolean).join('; ');
  return {
    wanted, good, lands, crowded, verdict: good ? 'LEGAL' : why?.name ?? 'NONE',
    title: same ? legal.said(snapped) : `${legal.name(legal.now)} → ${legal.said(snapped)}`, lines: legal.tag(snapped, ops), note,
    refusal: because,
    edit: same ? null : moves ? {
      do: 'many', label: `resize ${name} to ${legal.turn(snapped).join('x')} from ${start.join(',')}`,
      edits: [own, { do: 'move', op: name, start, transposed: ops.get('transposed', op) === 1 }]
    } : own
  };
}

/** The size of the rectangle of an op on its way, turned or not. */
export function sizeOf({ from, turned }: Pick<DragGesture, 'from' | 'turned'>): Size {
  return turned ? [from.cols, from.rows] : [from.rows, from.cols];
}

export function movePicture(scene: Scene, drag: DragGesture, [x, y]: [number, number]): Picture {
  const [row, col] = scene.geometry.corner(x - drag.grip[0], y - drag.grip[1]);
  return placePicture(scene, drag, Math.min(row, scene.geometry.height - 1), col);
}

/** What becomes of ops where another is dropped; see `GridTraits` in Python. */
export type Displacement = 'free' | 'push' | 'swap' | 'evict';

/** A move to a row and column. */
export function placePicture({ ops, geometry, legal, displacement = 'free' }: Scene, drag: DragGesture, row: number, col: number): Picture {
  const { from, alt, turned, op } = drag;
  const size = sizeOf(drag);
  const wanted = { row, col, rows: size[0], cols: size[1] };
  const name = ops.name[op]!;
  if (!legal) return waitingFor(wanted, name);
  const good = legal.free(size, row, col);
  const inside = col + size[1] <= geometry.width && row + size[0] <= geometry.height;
  const lies = (ops.get('transposed', op) === 1) !== turned;
  const move = (which: number, start: Size, transposed: boolean): SingleEdit => ({ do: 'move', op: ops.name[which]!, start, transposed });
  const lines: [string, string][] = [['size', legal.said([from.rows, from.cols], turned)], ['T', 'turns it']];
  if (!good && inside && !alt && displacement !== 'free') {
    const under = (ops.byEpoch[ops.epochOf(op)] ?? []).filter(i => i !== op && meet(coresOf(ops, i), wanted));
    const said = makeRoom(under);
    if (said) {
      return {
        wanted, good: true, lands: said.at, crowded: true, verdict: 'LEGAL', title: `row ${said.at.row}, column ${said.at.col}`,
        lines, note: said.note, edit: said.edit
      };
    }
  }
  const spot: Size | null = good ? [row, col] : alt ? null : legal.nearestStart(size, row, col);
  const title = (spot ? `row ${spot[0]}, column ${spot[1]}` : `row ${row}, column ${col}`);
  const why = inside ? 'other ops are there' : `${size.join('×')} cores extend beyond the grid`;
  const same = spot !== null && spot[0] === from.row && spot[1] === from.col && !turned;
  return {
    wanted, good, lands: spot ? { ...wanted, row: spot[0], col: spot[1] } : null, crowded: false,
    verdict: good ? 'LEGAL' : 'TAKEN', title, lines,
    note: good ? '' : !spot ? why : same ? `${why}; it stays where it is` : `${why}; lands on the nearest free place`,
    edit: spot && !same ? move(op, spot, lies) : null
  };

  function makeRoom(under: number[]): { at: Cores; note: string; edit: Edit } | null {
    if (displacement === 'push') return { at: wanted, note: 'neighbours will move', edit: move(op, [row, col], lies) };
    const names = under.map(i => ops.name[i]!).join(', ');
    if (displacement === 'evict') {
      const next = ops.epochOf(op) + 1;
      if (next >= ops.epochs || !under.length) return null;
      return { at: wanted, note: `${names} to epoch ${next}`, edit: {
        do: 'many', label: `move ${name} to ${row},${col}, ${names} to epoch ${next}`,
        edits: [...under.map((i): SingleEdit => ({ do: 'epoch', op: ops.name[i]!, epoch: next })), move(op, [row, col], lies)]
      } };
    }
    const other = under.map(i => coresOf(ops, i))[0];
    if (under.length !== 1 || !other || other.rows !== size[0] || other.cols !== size[1]) return null;
    const start: Size = [other.row, other.col];
    return { at: other, note: `swaps places with ${names}`, edit: {
      do: 'many', label: `swap ${name} and ${names}`,
      edits: [move(op, start, lies), move(under[0]!, [from.row, from.col], ops.get('transposed', under[0]!) === 1)]
    } };
  }
}

function meet(a: Cores, b: Cores): boolean {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.col < b.col + b.cols && b.col < a.col + a.cols;
}

/** The epochs that an op may go to alone: not before the last of its operands, not behind the first of its readers. */
export function epochsFor(ops: Ops, op: number): [first: number, last: number] {
  return [
    Math.max(0, ...ops.into(op).map(i => ops.epochOf(i))), Math.min(ops.epochs - 1, ...ops.outOf(op).map(i => ops.epochOf(i)))
  ];
}

/** Over an epoch of the film strip, or a chip: the op goes there, its place is chosen anew. */
export function dropPicture({ ops }: Scene, { op, from }: DragGesture, kind: 'epoch' | 'chip', number: number): Picture {
  const now = kind === 'epoch' ? ops.epochOf(op) : ops.get('chip', op);
  const same = number === now;
  const name = ops.name[op]!;
  const base = { wanted: from, crowded: false, hidden: true, lines: [] };
  if (same) return { ...base, good: false, lands: null, verdict: 'SAME', title: `it is in ${kind} ${number} already`, note: '', edit: null };
  const edit: Edit = kind === 'epoch' ? { do: kind, op: name, epoch: number } : { do: kind, op: name, chip: number };
  if (kind === 'chip') {
    return { ...base, good: true, lands: from, verdict: 'LEGAL', title: `to chip ${number}`, note: 'pins it to that chip; the placer chooses its position', edit };
  }
  const [first, last] = epochsFor(ops, op);
  const alone = number >= first && number <= last;
  if (!alone && Math.abs(number - now) > 1) {
    const [by, verb] = number < first ? [ops.into(op).find(i => ops.epochOf(i) === first)!, 'feeds'] : [ops.outOf(op).find(i => ops.epochOf(i) === last)!, 'reads'];
    const legal = Array.from({ length: last - first + 1 }, (_, i) => first + i).filter(e => e !== now);
    return {
      ...base, good: false, lands: null, verdict: 'SCHEDULE', title: `not to epoch ${number}`, edit: null,
      note: `${ops.name[by]!} ${verb} it in epoch ${ops.epochOf(by)}; legal for it alone: ${legal.length ? `epoch ${legal.join(', ')}` : 'no other epoch'}`
    };
  }
  const note = Math.abs(number - now) > 1 ? 'only this op moves; neighbours there will move' : 'ops between it and that epoch move too';
  return { ...base, good: true, lands: from, verdict: 'LEGAL', title: `to epoch ${number}`, note, edit };
}

/** Rectangles that move together, and the cores that other ops of the epoch hold. */
export class Group {
  private readonly busy: Uint8Array;

  constructor(private readonly ops: Ops, readonly members: readonly number[], epoch: number) {
    this.busy = new Uint8Array(ops.rows * ops.cols);
    const inside = new Set(members);
    for (const op of ops.byEpoch[epoch] ?? []) {
      if (inside.has(op)) continue;
      const { row, col, rows, cols } = coresOf(ops, op);
      for (let r = row; r < Math.min(row + rows, ops.rows); r++) this.busy.fill(1, r * ops.cols + col, r * ops.cols + Math.min(col + cols, ops.cols));
    }
  }

  at(down: number, right: number): Cores[] {
    return this.members.map(op => {
      const c = coresOf(this.ops, op);
      return { ...c, row: c.row + down, col: c.col + right };
    });
  }

  /** Whether all of them may stand there: inside the grid, on no other op. */
  legal(down: number, right: number): boolean {
    const { rows: high, cols: wide } = this.ops;
    return this.at(down, right).every(({ row, col, rows, cols }) => {
      if (row < 0 || col < 0 || row + rows > high || col + cols > wide) return false;
      for (let r = row; r < row + rows; r++) for (let c = col; c < col + cols; c++) if (this.busy[r * wide + c]) return false;
      return true;
    });
  }

  /** The legal shift nearest to a wanted one, in cells. */
  nearest(down: number, right: number): [number, number] {
    let best: [number, number] = [0, 0];
    let least = Math.abs(down) + Math.abs(right);
    for (let d = 1 - this.ops.rows; d < this.ops.rows; d++) {
      for (let r = 1 - this.ops.cols; r < this.ops.cols; r++) {
        const off = Math.abs(d - down) + Math.abs(r - right);
        if (off < least && this.legal(d, r)) [best, least] = [[d, r], off];
      }
    }
    return best;
  }
}

export function coresOf(ops: Ops, op: number): Cores {
  return { row: ops.get('row', op), col: ops.get('col', op), rows: ops.get('rows', op), cols: ops.get('cols', op) };
}

export function groupMoved(scene: Scene, group: Group, drag: DragGesture, [x, y]: [number, number]): Picture {
  const [row, col] = scene.geometry.corner(x - drag.grip[0], y - drag.grip[1]);
  return groupPlaced(scene.ops, group, drag.from, row - drag.from.row, col - drag.from.col);
}

/** A group shifted by rows and columns; `from`: where the op stands by which it is held. */
export function groupPlaced(ops: Ops, group: Group, from: Cores, down: number, right: number): Picture {
  const good = group.legal(down, right);
  const [d, r] = good ? [down, right] : group.nearest(down, right);
  const lands = group.at(d, r);
  const count = group.members.length;
  const edits = group.members.map((op, i): SingleEdit => ({
    do: 'move', op: ops.name[op]!, start: [lands[i]!.row, lands[i]!.col], transposed: ops.get('transposed', op) === 1
  }));
  const by = (n: number, one: string, other: string) => (n ? `${Math.abs(n)} ${n > 0 ? one : other}` : '');
  const way = [by(d, 'down', 'up'), by(r, 'right', 'left')].filter(Boolean).join(', ');
  const label = `move ${count} ops ${way}`;
  return {
    wanted: { ...from, row: from.row + down, col: from.col + right }, good, lands: { ...from, row: from.row + d, col: from.col + r },
    crowded: false, verdict: good ? 'LEGAL' : 'TAKEN', title: way ? label : `${count} ops`, lines: [],
    note: good ? '' : d || r ? 'not enough room there; they land on the nearest place where all fit' : 'not enough room there; they stay where they are',
    edit: d || r ? { do: 'many', label, edits } : null,
    more: { wanted: group.at(down, right), lands }
  };
}

function waitingFor(wanted: Cores, name: string): Picture {
  return {
    wanted, good: true, lands: null, crowded: false, verdict: 'WAITING', title: name, lines: [], note: 'loading legal shapes', edit: null
  };
}
