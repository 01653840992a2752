/** Where the graph is looked at from: fits, zooms, pans, goes to nodes; Python may say it, and is told. */
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Camera } from './draw.js';
import type { Scene } from './scene.js';

const MARGIN = 24;
const READABLE = 0.82; // letters of 11 px are 9 px high
const CLOSE = 0.01; // views that differ by less are the same

type Viewport = [x: number, y: number, scale: number];

export class Viewpoint {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  fitted = false;
  /** Cameras that fit the graph into the view: nobody chose where they look. */
  private readonly fits = new WeakSet<Camera>([this.camera]);
  /** The camera of a fit that somebody asked for. */
  private asked: Camera | null = null;
  private entire = false;
  private readonly viewport: SyncedTrait<Viewport | []>;
  /** What Python asked for before there was a graph to look at. */
  private wish: Viewport | [];

  /** changed: `anew` where more than the camera is another. */
  constructor(
    store: Store, private readonly stage: HTMLElement, private readonly scene: () => Scene | undefined,
    private readonly changed: (anew: boolean) => void
  ) {
    this.viewport = syncedTrait<Viewport | []>(store, 'viewport', [], at => this.lookAt(at));
    this.wish = this.viewport.value();
  }

  dispose(): void {
    this.viewport.dispose();
  }

  /** The whole graph where it stays readable, else as much of it, from its inputs on, as is. */
  fit(): void {
    const scene = this.scene();
    const { clientWidth: w, clientHeight: hgt } = this.stage;
    if (!scene || !w || !hgt) return;
    const { width, height } = scene.layout;
    const whole = Math.min((w - MARGIN) / width, (hgt - MARGIN) / height);
    const scale = Math.min(1.15, this.entire ? whole : Math.max(whole, READABLE));
    // What does not fit begins at the inputs: with the first box in the middle, along the ranks at the edge.
    const [left, top, across, down] = scene.first();
    const along = (room: number, size: number) => (size * scale > room ? MARGIN / 2 : (room - size * scale) / 2);
    const beside = (room: number, size: number, middle: number) => (size * scale > room ? room / 2 - middle * scale : (room - size * scale) / 2);
    this.camera = {
      scale,
      x: scene.turned ? along(w, width) : beside(w, width, left + across / 2),
      y: scene.turned ? beside(hgt, height, top + down / 2) : along(hgt, height)
    };
    this.fits.add(this.camera);
    this.fitted = true;
    if (this.wish.length) this.lookAt(this.wish);
    this.changed(true);
  }

  /** Fits at a readable size; asked again before anything moved: the whole graph, however small. */
  fitOrAll(): void {
    this.entire = this.asked === this.camera;
    this.fit();
    this.asked = this.entire ? null : this.camera;
    this.entire = false;
  }

  zoom(factor: number, cx = this.stage.clientWidth / 2, cy = this.stage.clientHeight / 2): void {
    const scale = Math.max(0.02, Math.min(4, this.camera.scale * factor));
    const real = scale / this.camera.scale;
    this.camera = { scale, x: cx - (cx - this.camera.x) * real, y: cy - (cy - this.camera.y) * real };
    this.changed(false);
  }

  pan(dx: number, dy: number): void {
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
    this.changed(false);
  }

  /** Puts a point of the graph into the middle. */
  centre(x: number, y: number): void {
    this.look([x, y, this.camera.scale]);
    this.changed(false);
  }

  /** Opens the groups around a node and brings it into view if it is outside. */
  reveal(node: number, always: boolean): void {
    const scene = this.scene()!;
    const changed = scene.reveal(node);
    const [x, y, w, hgt] = scene.box(scene.itemOfNode[node]!);
    const { scale } = this.camera;
    const [sx, sy] = [(x + w / 2) * scale + this.camera.x, (y + hgt / 2) * scale + this.camera.y];
    const { clientWidth, clientHeight } = this.stage;
    const inside = sx > 30 && sy > 20 && sx < clientWidth - 30 && sy < clientHeight - 20;
    if (inside && !changed && !always) return;
    this.look([x + w / 2, y + hgt / 2, Math.max(scale, 0.75)]);
  }

  /** From the page to the graph. */
  world(event: MouseEvent): [number, number] {
    const rect = this.stage.getBoundingClientRect();
    return [
      (event.clientX - rect.left - this.camera.x) / this.camera.scale,
      (event.clientY - rect.top - this.camera.y) / this.camera.scale
    ];
  }

  /** Tells Python where it looks, once the picture rests. */
  tell(): void {
    const now: Viewport | [] = this.fits.has(this.camera) ? [] : this.sight();
    if (!same(now, this.viewport.value())) this.viewport.tell(now);
  }

  /** Looks at a point of the graph at a scale, as Python says it; without one all of it is fitted. */
  private lookAt(at: Viewport | []): void {
    this.wish = at;
    if (!this.scene() || !this.stage.clientWidth) return;
    this.wish = [];
    if (!at.length) {
      if (!this.fits.has(this.camera)) this.fit();
    } else if (!same(this.sight(), at)) {
      this.look(at);
      this.changed(true);
    }
  }

  private look([x, y, scale]: Viewport): void {
    this.camera = { scale, x: this.stage.clientWidth / 2 - x * scale, y: this.stage.clientHeight / 2 - y * scale };
  }

  /** The point of the graph in the middle, and the scale. */
  private sight(): Viewport {
    const { x, y, scale } = this.camera;
    const round = (v: number) => Math.round(v * 1000) / 1000;
    return [round((this.stage.clientWidth / 2 - x) / scale), round((this.stage.clientHeight / 2 - y) / scale), round(scale)];
  }
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((v, k) => Math.abs(v - b[k]!) < CLOSE);
}
