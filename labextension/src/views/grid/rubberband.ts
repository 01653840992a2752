/** The rubber band: a drag over empty ground selects the ops that it touches. */
import { svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Geometry } from './geometry.js';
import { coresOf } from './pictures.js';

export class RubberBand {
  private readonly rect = svg('rect', { class: 'tb-band', rx: 3, 'data-tb-band': '' });

  constructor(private readonly plane: SVGGElement, private readonly from: [number, number]) {
    plane.append(this.rect);
  }

  to([x, y]: [number, number]): void {
    const [x0, y0] = this.from;
    this.rect.setAttribute('x', String(Math.min(x, x0)));
    this.rect.setAttribute('y', String(Math.min(y, y0)));
    this.rect.setAttribute('width', String(Math.abs(x - x0)));
    this.rect.setAttribute('height', String(Math.abs(y - y0)));
  }

  /** Ops of an epoch that a band to a point touches. */
  inside(ops: Ops, epoch: number, geometry: Geometry, [x, y]: [number, number]): number[] {
    const [left, right] = [Math.min(x, this.from[0]), Math.max(x, this.from[0])];
    const [top, bottom] = [Math.min(y, this.from[1]), Math.max(y, this.from[1])];
    return (ops.byEpoch[epoch] ?? []).filter(op => {
      const [bx, by, bw, bh] = geometry.box(coresOf(ops, op));
      return bx < right && by < bottom && bx + bw > left && by + bh > top;
    });
  }

  remove(): void {
    if (this.rect.parentNode === this.plane) this.rect.remove();
  }
}
