/** Cores and pixels of the drawn grid. */
import type { Ops } from '../ops.js';
import { Rows } from './draw.js';

/** A rectangle of cores: first row and column, height and width. */
export interface Cores {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

export class Geometry {
  readonly rows: Rows;
  readonly height: number;
  readonly width: number;

  constructor(ops: Ops, readonly cell: number, epoch = 0) {
    this.rows = Rows.of(ops.frame.meta, ops.ofEpoch('chip', epoch));
    this.height = ops.rows;
    this.width = ops.cols;
  }

  /** [x, y, width, height] of a rectangle of cores; parts outside the grid are cut off. */
  box(at: Cores): [number, number, number, number] {
    const [row, col] = [clamp(at.row, 0, this.height - 1), clamp(at.col, 0, this.width - 1)];
    const rows = Math.max(1, Math.min(at.row + at.rows, this.height) - row);
    const cols = Math.max(1, Math.min(at.col + at.cols, this.width) - col);
    const [y, h] = this.rows.span(row, rows);
    return [col * this.cell + 1.5, y + 1.5, cols * this.cell - 3, h - 3];
  }

  /** Whole columns from `col` to the one whose right edge is nearest to x. */
  columnsTo(x: number, col: number): number {
    return clamp(Math.round(x / this.cell) - col, 1, this.width - col);
  }

  /** Whole rows from `row` to the one whose lower edge is nearest to y. */
  rowsTo(y: number, row: number): number {
    let best = 1;
    let least = Infinity;
    for (let n = 1; n <= this.height - row; n++) {
      const [top, high] = this.rows.span(row, n);
      const off = Math.abs(top + high - y);
      if (off < least) [least, best] = [off, n];
    }
    return best;
  }

  /** The row and column whose upper left corner is nearest to a point. */
  corner(x: number, y: number): [number, number] {
    let row = 0;
    this.rows.top.forEach((top, r) => {
      if (Math.abs(top - y) < Math.abs(this.rows.top[row]! - y)) row = r;
    });
    return [row, clamp(Math.round(x / this.cell), 0, this.width - 1)];
  }

}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, value));
}
