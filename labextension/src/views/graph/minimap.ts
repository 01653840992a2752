/** The whole graph in small, with a frame around what is in view; dragging it moves the view. */
import { h } from '../dom.js';
import type { Camera, Colours } from './draw.js';
import { GROUP, NODE } from './layout.js';
import type { Scene } from './scene.js';

const WIDE = 120;
const TALL = 190;
const LEAST = 44; // px of the shorter side

export class Minimap {
  readonly element = h('canvas', { class: 'tb-minimap', 'aria-hidden': 'true', 'data-tb-action': 'graph-minimap', hidden: true });
  /** Pixels of the map per unit of the graph, across and down: a long graph is drawn wider than it is. */
  private scale: [number, number] = [1, 1];
  /** The boxes as drawn last, and what they were drawn of. */
  private readonly boxes = h('canvas');
  private drawn: unknown[] = [];

  /** `go` is told the world point that the view shall be centred on. */
  constructor(go: (x: number, y: number) => void) {
    const at = (event: PointerEvent) => {
      const rect = this.element.getBoundingClientRect();
      go((event.clientX - rect.left) / this.scale[0], (event.clientY - rect.top) / this.scale[1]);
    };
    this.element.addEventListener('pointerdown', event => {
      event.stopPropagation();
      this.element.setPointerCapture(event.pointerId);
      at(event);
    });
    this.element.addEventListener('pointermove', event => {
      event.stopPropagation();
      if (event.buttons & 1) at(event);
    });
    this.element.addEventListener('pointerup', event => event.stopPropagation());
  }

  /**
   * Draws the map; hides it while all of the graph is in view.
   *
   * @param by what the colours of `fill` follow from: the boxes are drawn anew when one of it changes.
   */
  draw(
    scene: Scene, camera: Camera, colours: Colours, fill: (node: number) => string, by: unknown[], width: number, height: number
  ): void {
    const { layout } = scene;
    const whole =
      camera.x >= -1 && camera.y >= -1 && camera.x + layout.width * camera.scale <= width + 1 &&
      camera.y + layout.height * camera.scale <= height + 1;
    this.element.hidden = whole;
    if (whole) return;
    const ratio = devicePixelRatio || 1;
    const room = Math.min(TALL, height - 24);
    const even = Math.min(Math.min(WIDE, width / 6) / layout.width, room / layout.height);
    const [w, t] = [Math.max(LEAST, layout.width * even), Math.max(LEAST, layout.height * even)];
    this.scale = [w / layout.width, t / layout.height];
    const [kx, ky] = [this.scale[0] * ratio, this.scale[1] * ratio];
    const now = [layout, colours, kx, ky, ...by];
    if (now.length !== this.drawn.length || now.some((v, i) => v !== this.drawn[i])) {
      this.drawn = now;
      for (const canvas of [this.element, this.boxes]) {
        canvas.width = Math.round(w * ratio);
        canvas.height = Math.round(t * ratio);
      }
      this.element.style.width = `${w}px`;
      this.element.style.height = `${t}px`;
      this.paint(scene, colours, fill, kx, ky);
    }
    const ctx = this.element.getContext('2d');
    if (!ctx) return;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.element.width, this.element.height);
    ctx.drawImage(this.boxes, 0, 0);
    const view = [-camera.x, -camera.y, width, height].map(v => v / camera.scale) as [number, number, number, number];
    const [left, top] = [Math.max(0, view[0]) * kx + ratio, Math.max(0, view[1]) * ky + ratio];
    const right = Math.min(layout.width, view[0] + view[2]) * kx - ratio;
    const bottom = Math.max(top + 3 * ratio, Math.min(layout.height, view[1] + view[3]) * ky - ratio);
    ctx.strokeStyle = colours.accent;
    ctx.lineWidth = 1.5 * ratio;
    if (right > left) ctx.strokeRect(left, top, right - left, bottom - top);
  }

  private paint(scene: Scene, colours: Colours, fill: (node: number) => string, kx: number, ky: number): void {
    const { layout, structure } = scene;
    const ctx = this.boxes.getContext('2d');
    if (!ctx) return;
    ctx.setTransform(kx, 0, 0, ky, 0, 0);
    for (let item = 0; item < structure.count; item++) {
      const kind = structure.kind[item];
      if (!layout.visible[item] || (kind !== NODE && kind !== GROUP)) continue;
      const [x, y, bw, bh] = scene.box(item);
      const ref = structure.ref[item]!;
      if (kind === NODE) ctx.fillStyle = fill(ref);
      else ctx.fillStyle = scene.opened.has(ref) ? colours.group : colours.groupEdge;
      ctx.fillRect(x, y, Math.max(bw, 1 / kx), Math.max(bh, 1 / ky));
    }
  }
}
