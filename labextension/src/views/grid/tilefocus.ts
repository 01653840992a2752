/** The focus that goes from tile to tile, and the core that it stands on. */
import { svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Geometry } from './geometry.js';
import { coresOf } from './pictures.js';

/** The nearest tile that way; distance across counts double. The first one where nothing is in focus. */
export function nextTile(plane: HTMLElement, ops: Ops, from: SVGGElement | null, dx: number, dy: number): SVGGElement | null {
  const tiles = [...plane.querySelectorAll<SVGGElement>('.tb-tile')];
  const centre = (tile: SVGGElement): [number, number] => {
    const c = coresOf(ops, ops.indexOf.get(tile.dataset['tbOp']!)!);
    return [c.col + c.cols / 2, c.row + c.rows / 2];
  };
  const current = from ?? plane.querySelector<SVGGElement>('.tb-roving') ?? plane.querySelector<SVGGElement>('.tb-tile.tb-selected');
  if (!current?.isConnected) return tiles[0] ?? null;
  const [x, y] = centre(current);
  let best = Infinity;
  let next = current;
  for (const tile of tiles) {
    const [tx, ty] = centre(tile);
    const along = (tx - x) * dx + (ty - y) * dy;
    const across = Math.abs((tx - x) * dy) + Math.abs((ty - y) * dx);
    if (along > 0.1 && along + 2 * across < best) [best, next] = [along + 2 * across, tile];
  }
  return next;
}

export class CoreCursor {
  private at: [number, number] | null = null;
  private mark: SVGElement | null = null;

  /** Moves by one core; returns what a screen reader says. */
  step(ops: Ops, epoch: number, plane: SVGGElement, geometry: Geometry, down: number, right: number): string {
    const [r, c] = this.at ?? [0, 0];
    const first = this.at === null;
    const row = Math.max(0, Math.min(ops.rows - 1, first ? r : r + down));
    const col = Math.max(0, Math.min(ops.cols - 1, first ? c : c + right));
    this.at = [row, col];
    this.mark?.remove();
    const [x, y, width, height] = geometry.box({ row, col, rows: 1, cols: 1 });
    this.mark = svg('rect', { class: 'tb-core-cursor', x, y, width, height, rx: 4, 'data-tb-core': `${row},${col}` });
    plane.append(this.mark);
    const op = this.under(ops, epoch);
    return `row ${row}, column ${col}: ${op === null ? 'free' : ops.name[op]!}`;
  }

  /** The op on the core. */
  under(ops: Ops, epoch: number): number | null {
    if (!this.at) return null;
    const [row, col] = this.at;
    return (ops.byEpoch[epoch] ?? []).find(op => {
      const c = coresOf(ops, op);
      return row >= c.row && row < c.row + c.rows && col >= c.col && col < c.col + c.cols;
    }) ?? null;
  }

  hide(): void {
    this.mark?.remove();
    this.mark = null;
    this.at = null;
  }
}
