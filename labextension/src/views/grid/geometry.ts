/** Cores and pixels of the drawn grid, and which part of it is in view. */
import type { Ops } from '../ops.js';
import { Rows } from './draw.js';

/** A rectangle of cores: first row and column, height and width. */
export interface Cores {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

/** Cores and pixels of the drawn grid. */
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

const MOST = 8;
const STEP = 1.35; // by a key or a button
const EDGE = 0.5; // the middle of what is seen stays on the grid

/** Which part of the grid is seen, and how large: Ctrl and the wheel (or a pinch) zoom, the wheel or the middle button pan. */
export class Viewport {
  zoom = 1;
  /** Upper left corner of what is seen, in units of the drawing. */
  private at: [number, number] = [0, 0];
  private size: [number, number] = [1, 1];
  private drawing: SVGSVGElement | null = null;
  private frame = 0;
  private held: { id: number; x: number; y: number } | null = null;

  /** changed: the size is another one, so that words may be, too. */
  constructor(private readonly plane: HTMLElement, private readonly changed: () => void) {
    plane.addEventListener('wheel', event => this.wheel(event), { passive: false });
    plane.addEventListener('pointerdown', event => {
      if (event.button !== 1 || this.zoom === 1) return;
      event.preventDefault();
      plane.setPointerCapture(event.pointerId);
      this.held = { id: event.pointerId, x: event.clientX, y: event.clientY };
    });
    plane.addEventListener('pointermove', event => {
      if (this.held?.id !== event.pointerId) return;
      this.pan(this.held.x - event.clientX, this.held.y - event.clientY);
      this.held = { ...this.held, x: event.clientX, y: event.clientY };
    });
    for (const end of ['pointerup', 'pointercancel'] as const) plane.addEventListener(end, () => (this.held = null));
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }

  /** The grid was drawn anew, as wide and high as its view box says; null: there is nothing to zoom into. */
  redrawn(drawing: SVGSVGElement | null): void {
    this.drawing = drawing;
    if (!drawing) {
      delete this.plane.dataset['tbZoom'];
      return;
    }
    const [, , width, height] = drawing.getAttribute('viewBox')!.split(' ').map(Number) as [number, number, number, number];
    if (width !== this.size[0] || height !== this.size[1]) this.at = [this.at[0] * (width / this.size[0]), this.at[1] * (height / this.size[1])];
    this.size = [width, height];
    this.look();
  }

  /** Larger or smaller by a step; around a point of the page, else the middle. */
  step(direction: 1 | -1): void {
    this.scale(direction > 0 ? STEP : 1 / STEP);
  }

  fit(): void {
    if (this.zoom === 1) return;
    this.zoom = 1;
    this.at = [0, 0];
    this.later();
  }

  /** Brings a rectangle of the drawing into sight. */
  reveal(x: number, y: number, width: number, height: number): void {
    if (this.zoom === 1) return;
    const [w, h] = this.seen;
    const inside = x >= this.at[0] && y >= this.at[1] && x + width <= this.at[0] + w && y + height <= this.at[1] + h;
    if (inside) return;
    this.at = [x + width / 2 - w / 2, y + height / 2 - h / 2];
    this.look();
  }

  private get seen(): [number, number] {
    return [this.size[0] / this.zoom, this.size[1] / this.zoom];
  }

  private wheel(event: WheelEvent): void {
    if (!this.drawing) return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const m = this.drawing.getScreenCTM();
      this.scale(Math.exp(-event.deltaY * 0.01), m ? [(event.clientX - m.e) / m.a, (event.clientY - m.f) / m.d] : undefined);
    } else if (this.zoom > 1 && this.plane.contains(document.activeElement)) {
      event.preventDefault();
      this.pan(event.deltaX, event.deltaY);
    }
  }

  private scale(by: number, point?: [number, number]): void {
    const next = Math.max(1, Math.min(MOST, this.zoom * by));
    if (next === this.zoom) return;
    const [w, h] = this.seen;
    const [px, py] = point ?? [this.at[0] + w / 2, this.at[1] + h / 2];
    const factor = this.zoom / next;
    this.at = [px - (px - this.at[0]) * factor, py - (py - this.at[1]) * factor];
    this.zoom = next;
    if (next === 1) this.at = [0, 0];
    this.later();
  }

  /** Pixels of the page. */
  private pan(dx: number, dy: number): void {
    const m = this.drawing?.getScreenCTM();
    if (!m || this.zoom === 1) return;
    this.at = [this.at[0] + dx / m.a, this.at[1] + dy / m.d];
    this.look();
  }

  private look(): void {
    const [w, h] = this.seen;
    this.at = [
      Math.max(-EDGE * w, Math.min(this.size[0] - (1 - EDGE) * w, this.at[0])), Math.max(-EDGE * h, Math.min(this.size[1] - (1 - EDGE) * h, this.at[1]))
    ];
    if (this.zoom === 1) this.at = [0, 0];
    this.drawing?.setAttribute('viewBox', `${this.at[0]} ${this.at[1]} ${w} ${h}`);
    this.plane.dataset['tbZoom'] = this.zoom.toFixed(2);
  }

  private later(): void {
    this.look();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.changed());
  }
}
