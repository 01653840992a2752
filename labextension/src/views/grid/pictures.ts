/** What a drag means where the pointer is: pure functions from the drag and the table of legal shapes to a picture. */
import type { Ops } from '../ops.js';
import type { Cores, Geometry } from './geometry.js';
import type { Handle, Picture } from './ghost.js';
import type { Legal, Size } from './legal.js';

export interface Scene {
  ops: Ops;
  geometry: Geometry;
  legal: Legal | null;
}

/** An op that is dragged by a handle or by its body. */
export interface Dragged {
  op: number;
  from: Cores;
  handle: Handle;
  /** From the tile's corner to the press, in the drawing. */
  grip: [number, number];
  alt: boolean;
  /** Turned on the way. */
  turned: boolean;
}

export function resized({ ops, geometry, legal }: Scene, { op, from, handle, alt }: Dragged, [x, y]: [number, number]): Picture {
  const size: Size = [
    handle === 'e' ? from.rows : geometry.rowsTo(y, from.row),
    handle === 's' ? from.cols : geometry.columnsTo(x, from.col)
  ];
  const wanted = { ...from, rows: size[0], cols: size[1] };
  const name = ops.name[op]!;
  if (!legal) return waitingFor(wanted, name);
  const good = legal.isLegal(size);
  const why = good ? null : legal.reason(size);
  const because = why ? `${legal.name(size)}: ${why.meaning}${why.fix ? `; ${why.fix}` : ''}` : '';
  const snapped = good || alt
    ? good ? size : null
    : legal.nearest(size, s => s[0] <= geometry.height - from.row && s[1] <= geometry.width - from.col &&
        (handle !== 'e' || s[0] === from.rows) && (handle !== 's' || s[1] === from.cols));
  if (!snapped) {
    return {
      wanted, good, lands: null, crowded: false, verdict: why?.name ?? 'NONE', title: `${legal.name(size)} is not legal`,
      lines: [], note: because, edit: null
    };
  }
  const lands = { ...from, rows: snapped[0], cols: snapped[1] };
  const crowded = !legal.free(snapped, from.row, from.col);
  const same = snapped[0] === from.rows && snapped[1] === from.cols;
  return {
    wanted, good, lands, crowded, verdict: good ? 'LEGAL' : why?.name ?? 'NONE',
    title: same ? legal.name(snapped) : `${legal.name(legal.now)} → ${legal.name(snapped)}`, lines: legal.tag(snapped, ops),
    note: !good ? `${legal.name(size)} is not legal; Alt tells why` : crowded ? 'others make room' : '',
    edit: same ? null : { do: 'resize', op: name, size: legal.turn(snapped) }
  };
}

/** The size of the rectangle of an op on its way, turned or not. */
export function sizeOf({ from, turned }: Pick<Dragged, 'from' | 'turned'>): Size {
  return turned ? [from.cols, from.rows] : [from.rows, from.cols];
}

export function moved(scene: Scene, drag: Dragged, [x, y]: [number, number]): Picture {
  const [row, col] = scene.geometry.corner(x - drag.grip[0], y - drag.grip[1]);
  return placed(scene, drag, Math.min(row, scene.geometry.height - 1), col);
}

/** A move to a row and column. */
export function placed({ ops, geometry, legal }: Scene, drag: Dragged, row: number, col: number): Picture {
  const { from, alt, turned, op } = drag;
  const size = sizeOf(drag);
  const wanted = { row, col, rows: size[0], cols: size[1] };
  const name = ops.name[op]!;
  if (!legal) return waitingFor(wanted, name);
  const good = legal.free(size, row, col);
  const spot = good ? [row, col] : alt ? null : legal.nearestStart(size, row, col);
  const title = (spot ? `row ${spot[0]}, column ${spot[1]}` : `row ${row}, column ${col}`) + (turned ? ', turned' : '');
  const why = col + size[1] > geometry.width || row + size[0] > geometry.height
    ? `${size.join('×')} cores from there reach beyond the grid` : 'other ops stand there';
  const same = spot !== null && spot[0] === from.row && spot[1] === from.col && !turned;
  const lies = (ops.get('transposed', op) === 1) !== turned;
  return {
    wanted, good, lands: spot ? { ...wanted, row: spot[0]!, col: spot[1]! } : null, crowded: false,
    verdict: good ? 'LEGAL' : 'TAKEN', title, lines: [['size', legal.name([from.rows, from.cols])]],
    note: good ? '' : spot ? `${why}; lands on the nearest free place` : why,
    edit: spot && !same ? { do: 'move', op: name, start: spot, transposed: lies } : null
  };
}

/** Over an epoch of the film strip, or a chip: the op goes there, its place is chosen anew. */
export function dropped({ ops }: Scene, { op, from }: Dragged, kind: 'epoch' | 'chip', number: number): Picture {
  const now = kind === 'epoch' ? ops.epochOf(op) : ops.get('chip', op);
  const same = number === now;
  return {
    wanted: from, good: !same, lands: same ? null : from, crowded: false, verdict: same ? 'SAME' : 'LEGAL', hidden: true,
    title: same ? `it is in ${kind} ${number} already` : `to ${kind} ${number}`, lines: [],
    note: same ? '' : kind === 'epoch' ? 'what lies between it and the epoch goes along' : 'pins it to that chip; its place is free there',
    edit: same ? null : { do: kind, op: ops.name[op]!, [kind]: number }
  };
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

export function groupMoved(scene: Scene, group: Group, drag: Dragged, [x, y]: [number, number]): Picture {
  const [row, col] = scene.geometry.corner(x - drag.grip[0], y - drag.grip[1]);
  return groupPlaced(scene.ops, group, drag.from, row - drag.from.row, col - drag.from.col);
}

/** A group shifted by rows and columns; `from`: where the op stands by which it is held. */
export function groupPlaced(ops: Ops, group: Group, from: Cores, down: number, right: number): Picture {
  const good = group.legal(down, right);
  const [d, r] = good ? [down, right] : group.nearest(down, right);
  const lands = group.at(d, r);
  const count = group.members.length;
  const edits = group.members.map((op, i) => ({
    do: 'move', op: ops.name[op]!, start: [lands[i]!.row, lands[i]!.col], transposed: ops.get('transposed', op) === 1
  }));
  const by = (n: number, one: string, other: string) => (n ? `${Math.abs(n)} ${n > 0 ? one : other}` : '');
  const way = [by(d, 'down', 'up'), by(r, 'right', 'left')].filter(Boolean).join(', ');
  const label = `move ${count} ops ${way}`;
  return {
    wanted: { ...from, row: from.row + down, col: from.col + right }, good, lands: { ...from, row: from.row + d, col: from.col + r },
    crowded: false, verdict: good ? 'LEGAL' : 'TAKEN', title: way ? label : `${count} ops`, lines: [],
    note: good ? '' : 'not all of them have room there; they land on the nearest place where all have',
    edit: d || r ? { do: 'many', label, edits } : null,
    more: { wanted: group.at(down, right), lands }
  };
}

function waitingFor(wanted: Cores, name: string): Picture {
  return {
    wanted, good: true, lands: null, crowded: false, verdict: 'WAITING', title: name, lines: [], note: 'asking for legal shapes', edit: null
  };
}
