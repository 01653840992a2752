/**
 * The picture of the graph on the screen: the canvas while the camera moves, elements over the nodes in view, and
 * the whole graph in small.
 */
import { h } from '../dom.js';
import { type Camera, type Colours, draw, drawing, type Look, type Part } from './draw.js';
import { GROUP, NODE } from './layout.js';
import type { Scene } from './scene.js';

const HOOKS = 400;

/** Elements over the nodes in view, under the camera's transform: named targets for tests, readers and the Tab key. */
export function placeFocusTargets(
  layer: HTMLElement, scene: Scene, { scale, x, y }: Camera, width: number, height: number, selected: ReadonlySet<number>
): void {
  const made: HTMLElement[] = [];
  for (let item = 0; item < scene.structure.count && made.length < HOOKS; item++) {
    const kind = scene.structure.kind[item];
    if (!scene.layout.visible[item] || (kind !== NODE && kind !== GROUP)) continue;
    const [bx, by, bw, bh] = scene.box(item);
    if ((bx + bw) * scale + x < 0 || (by + bh) * scale + y < 0) continue;
    if (bx * scale + x > width || by * scale + y > height) continue;
    const ref = scene.structure.ref[item]!;
    const open = kind === GROUP && scene.opened.has(ref);
    const attributes =
      kind === NODE
        ? { 'data-tb-op': scene.names[ref]!, 'aria-label': scene.names[ref]!, 'aria-pressed': String(selected.has(ref)) }
        : {
            'data-tb-group': scene.groupPaths[ref]!,
            'aria-label': `group ${scene.groupPaths[ref]!}`,
            'aria-expanded': String(open)
          };
    made.push(h('button', {
      class: 'tb-hook', tabindex: -1, ...attributes,
      style: `left:${bx}px;top:${by}px;width:${bw}px;height:${open ? 22 : bh}px`
    }));
  }
  layer.replaceChildren(...made);
}

const WIDE = 120;
const TALL = 190;
const LEAST = 44; // px of the shorter side

/** The whole graph in small, with a frame around what is in view; dragging it moves the view. */
export class Minimap {
  readonly element = h('canvas', { class: 'tb-minimap', 'aria-hidden': 'true', 'data-tb-action': 'graph-minimap', hidden: true });
  /** Pixels of the map per unit of the graph, across and down: a long graph is drawn wider than it is. */
  private scale: [number, number] = [1, 1];
  /** The boxes as drawn last, and what they were drawn of. */
  private readonly boxes = h('canvas');
  private lastDrawn: unknown[] = [];

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
    if (now.length !== this.lastDrawn.length || now.some((v, i) => v !== this.lastDrawn[i])) {
      this.lastDrawn = now;
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

const ROOM = 160; // CSS pixels around the view that a picture is drawn for
const SLICE = 4; // ms of drawing in one frame
const FEW = 500; // boxes and edges in view, those with a label five times, that are drawn anew in every frame
const LABELLED = 5;
const EDGE = 8; // CSS pixels beyond a box that its ring, shadow or badge takes

/** A canvas with a picture: `camera` is the one that it was drawn with, `part` what it covers, in device pixels. */
interface Plate {
  canvas: HTMLCanvasElement;
  camera: Camera;
  part: Part;
}

/**
 * The picture of the graph while the camera moves. Drawing thousands of boxes and edges takes longer than a frame, so a
 * move shows the last picture shifted or scaled, draws only the stripes it does not reach, and meanwhile draws a new one
 * with room around it, a few milliseconds in each frame. At rest the picture is exact again.
 */
export class Picture {
  private front: Plate | null = null;
  private back: { plate: Plate; work: Generator<void> } | null = null;
  private spare: HTMLCanvasElement[] = [];
  private lastCamera: Camera | null = null;
  /** Whether what is shown was drawn under this very scale. */
  private exact = false;

  /** Draws everything now. What was kept of an older picture is void. */
  renew(ctx: CanvasRenderingContext2D, scene: Scene, camera: Camera, look: Look, ratio: number): void {
    this.forget();
    draw(ctx, scene, camera, look, ratio);
    this.lastCamera = camera;
    this.exact = true;
  }

  /** Draws some boxes of the scene anew where they are; the rest of the picture stays. False where it has to be drawn. */
  mend(ctx: CanvasRenderingContext2D, scene: Scene, items: readonly number[], look: Look, ratio: number): boolean {
    const camera = this.lastCamera;
    if (!camera || !this.exact) return false;
    this.forget();
    for (const item of items) {
      const [x, y, w, t] = scene.box(item);
      const at = (v: number, shift: number, by: number) => (v * camera.scale + shift + by) * ratio;
      const reach = EDGE * Math.max(1, camera.scale);
      const part = within([at(x, camera.x, -reach), at(y, camera.y, -reach), at(x + w, camera.x, reach), at(y + t, camera.y, reach)], ctx.canvas);
      if (part) draw(ctx, scene, camera, look, ratio, part);
    }
    return true;
  }

  /** Shows the scene under another camera. Returns whether there is more to draw: then call it again in the next frame. */
  move(ctx: CanvasRenderingContext2D, scene: Scene, camera: Camera, look: Look, ratio: number): boolean {
    if (!this.lastCamera || weight(scene, camera, ctx.canvas, ratio) < FEW) {
      this.renew(ctx, scene, camera, look, ratio);
      return false;
    }
    this.front ??= this.copy(ctx, this.lastCamera);
    const { front } = this;
    const factor = camera.scale / front.camera.scale;
    // Whole pixels while only the place changes: a picture between them would be blurred.
    const snap = (v: number) => (factor === 1 ? Math.round(v) : v);
    const [px, py, pw, ph] = front.part;
    const dx = snap((camera.x - front.camera.x * factor) * ratio);
    const dy = snap((camera.y - front.camera.y * factor) * ratio);
    const under = { scale: camera.scale, x: front.camera.x * factor + dx / ratio, y: front.camera.y * factor + dy / ratio };
    const { width, height } = ctx.canvas;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, width, height);
    const at: Part = [px * factor + dx, py * factor + dy, pw * factor, ph * factor];
    ctx.drawImage(front.canvas, 0, 0, pw, ph, ...at);
    // What the picture doesn't reach, as far as there is anything of the graph.
    const clamp = (v: number, least: number, most: number) => Math.max(least, Math.min(most, v));
    const [left, top] = [clamp(Math.ceil(at[0]), 0, width), clamp(Math.ceil(at[1]), 0, height)];
    const [right, bottom] = [clamp(Math.floor(at[0] + at[2]), left, width), clamp(Math.floor(at[1] + at[3]), top, height)];
    const all = extent(scene, under, ratio);
    for (const bare of [[0, 0, width, top], [0, bottom, width, height], [0, top, left, bottom], [right, top, width, bottom]]) {
      const part = within([0, 1, 2, 3].map(i => (i < 2 ? Math.max : Math.min)(bare[i]!, all[i]!)), ctx.canvas);
      if (part) draw(ctx, scene, under, look, ratio, part);
    }
    this.lastCamera = under;
    this.exact = factor === 1;
    return this.ahead(ctx, scene, under, look, ratio, factor, at, all); // whole pixels from the last, so that they agree
  }

  /** Nothing is kept. */
  forget(): void {
    for (const plate of [this.front, this.back?.plate]) if (plate) this.spare.push(plate.canvas);
    this.front = this.back = null;
  }

  /** Goes on with the next picture, or begins one where the last is blurred or nearly left. */
  private ahead(
    ctx: CanvasRenderingContext2D, scene: Scene, camera: Camera, look: Look, ratio: number, factor: number, at: Part, all: number[]
  ): boolean {
    const { width, height } = ctx.canvas;
    const near = (ROOM / 2) * ratio;
    const scarce = at[0] > Math.max(-near, all[0]!) || at[1] > Math.max(-near, all[1]!) ||
      at[0] + at[2] < Math.min(width + near, all[2]!) || at[1] + at[3] < Math.min(height + near, all[3]!);
    if (!this.back && factor === 1 && !scarce) return false;
    if (!this.back) {
      const room = Math.round(ROOM * ratio);
      const [x0, y0] = [Math.max(-room, all[0]!), Math.max(-room, all[1]!)];
      const part: Part = [x0, y0, Math.max(1, Math.min(width + room, all[2]!) - x0), Math.max(1, Math.min(height + room, all[3]!) - y0)];
      const plate = { canvas: this.canvas(part[2], part[3]), camera, part };
      const own = plate.canvas.getContext('2d')!;
      const shifted = { scale: camera.scale, x: camera.x - x0 / ratio, y: camera.y - y0 / ratio };
      this.back = { plate, work: drawing(own, scene, shifted, look, ratio) };
    }
    const until = performance.now() + SLICE;
    while (performance.now() < until) {
      if (this.back.work.next().done) {
        this.swap();
        break;
      }
    }
    return true;
  }

  private swap(): void {
    if (this.front) this.spare.push(this.front.canvas);
    this.front = this.back!.plate;
    this.back = null;
  }

  /** What is on the screen now, as a plate. */
  private copy(ctx: CanvasRenderingContext2D, camera: Camera): Plate {
    const { width, height } = ctx.canvas;
    const canvas = this.canvas(width, height);
    canvas.getContext('2d')?.drawImage(ctx.canvas, 0, 0);
    return { canvas, camera, part: [0, 0, width, height] };
  }

  private canvas(width: number, height: number): HTMLCanvasElement {
    const canvas = this.spare.pop() ?? h('canvas');
    canvas.width = width; // also clears it
    canvas.height = height;
    return canvas;
  }
}

/** Where the graph lies on the canvas, with what stands out of its boxes: left, top, right, bottom in whole pixels. */
function extent({ layout }: Scene, camera: Camera, ratio: number): number[] {
  const out = EDGE * Math.max(1, camera.scale);
  return [
    Math.floor((camera.x - out) * ratio), Math.floor((camera.y - out) * ratio),
    Math.ceil((camera.x + layout.width * camera.scale + out) * ratio), Math.ceil((camera.y + layout.height * camera.scale + out) * ratio)
  ];
}

/** The whole pixels of a canvas that a box (left, top, right, bottom) touches; null for none. */
function within(box: readonly number[], canvas: HTMLCanvasElement): Part | null {
  const [x0, y0] = [Math.max(0, Math.floor(box[0]!)), Math.max(0, Math.floor(box[1]!))];
  const [x1, y1] = [Math.min(canvas.width, Math.ceil(box[2]!)), Math.min(canvas.height, Math.ceil(box[3]!))];
  return x1 > x0 && y1 > y0 ? [x0, y0, x1 - x0, y1 - y0] : null;
}

/** How much there is to draw in view. */
function weight(scene: Scene, { scale, x, y }: Camera, canvas: HTMLCanvasElement, ratio: number): number {
  const { structure, layout } = scene;
  if (structure.count + scene.segments.size < FEW) return 0;
  const each = scale * 11 > 4.5 ? LABELLED : 1;
  const [left, top] = [-x / scale, -y / scale];
  const [right, bottom] = [left + canvas.width / ratio / scale, top + canvas.height / ratio / scale];
  const b = layout.boxes;
  let sum = 0;
  for (let i = 0; i < structure.count; i++) {
    if (!layout.visible[i] || b[4 * i]! > right || b[4 * i + 1]! > bottom) continue;
    if (b[4 * i]! + b[4 * i + 2]! < left || b[4 * i + 1]! + b[4 * i + 3]! < top) continue;
    const kind = structure.kind[i];
    sum += kind === NODE || kind === GROUP ? each : 1;
  }
  return sum;
}
