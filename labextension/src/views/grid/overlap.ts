/** Cores that cannot be as a netlist file has them: shared by several ops, or not on the device. */
import { svg } from '../dom.js';
import type { Ops } from '../ops.js';

/** [row, column, ops] of every core that more than one op of the epoch claims. */
export function shared(ops: Ops, epoch: number): [number, number, number[]][] {
  const users = new Map<number, number[]>();
  for (const op of ops.byEpoch[epoch] ?? []) {
    for (let r = 0; r < ops.get('rows', op); r++) {
      for (let c = 0; c < ops.get('cols', op); c++) {
        const key = (ops.get('row', op) + r) * 65536 + ops.get('col', op) + c;
        const there = users.get(key);
        if (there) there.push(op);
        else users.set(key, [op]);
      }
    }
  }
  return [...users].filter(([, list]) => list.length > 1).map(([key, list]) => [Math.floor(key / 65536), key % 65536, list]);
}

/** Marks over the tiles: crossed cores with the number of ops on them. */
export function drawShared(ops: Ops, epoch: number, top: readonly number[], cell: number, high: number): SVGElement[] {
  return shared(ops, epoch).map(([row, col, list]) => {
    const [x, y] = [col * cell + 1.5, top[row]! + 1.5];
    const [w, h] = [cell - 3, high - 3];
    const label = `row ${row}, column ${col} is claimed by ${list.map(op => ops.name[op]!).join(', ')}`;
    return svg('g', { class: 'tb-overlap', role: 'img', 'aria-label': label, 'data-tb-overlap': `${row},${col}` },
      svg('title', {}, label),
      svg('rect', { x, y, width: w, height: h, rx: 4 }),
      svg('path', { d: `M${x + 4} ${y + 4}l${w - 8} ${h - 8}M${x + w - 4} ${y + 4}l${8 - w} ${h - 8}` }),
      svg('text', { x: x + w / 2, y: y + h / 2 + 4, 'text-anchor': 'middle' }, `${list.length} ops`));
  });
}

/** Ground under cores that the device does not have. */
export function drawAbsent(ops: Ops, top: readonly number[], cell: number, high: number): SVGElement | null {
  const meta = ops.frame.meta;
  const rows = Number(meta['device_rows'] ?? ops.rows);
  const cols = Number(meta['device_cols'] ?? ops.cols);
  const d: string[] = [];
  for (let r = 0; r < ops.rows; r++) {
    for (let c = 0; c < ops.cols; c++) {
      if (r >= rows || c >= cols) d.push(`M${c * cell + 4} ${top[r]! + 4}l${cell - 8} ${high - 8}m0 ${8 - high}l${8 - cell} ${high - 8}`);
    }
  }
  return d.length ? svg('path', { class: 'tb-absent', d: d.join('') }, svg('title', {}, 'the device has no core here')) : null;
}
