/** Where the graph is looked at from: fits, zooms, pans, goes to nodes; Python may say it, and is told. */
import type { Store } from '../store.js';
import type { Camera } from './draw.js';
import type { Scene } from './scene.js';

const MARGIN = 24;

export class Eye {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  fitted = false;
  /** Somebody moved the camera: where it looks is told to Python. */
  private moved = false;
  private readonly viewport: () => number[];

  /** changed: `anew` where more than the camera is another. */
  constructor(
    private readonly store: Store, private readonly stage: HTMLElement, private readonly scene: () => Scene | undefined,
    private readonly changed: (anew: boolean) => void
  ) {
    this.viewport = store.trait<number[]>('viewport', [], at => this.lookAt(at));
  }

  /** The whole graph when it stays readable, else its top at a readable size. */
  fit(): void {
    const scene = this.scene();
    const { clientWidth: w, clientHeight: hgt } = this.stage;
    if (!scene || !w || !hgt) return;
    const { width, height } = scene.layout;
    const whole = Math.min((w - MARGIN) / width, (hgt - MARGIN) / height);
    const first = !this.fitted;
    const readable = Math.min(0.8, scene.turned ? (hgt - MARGIN) / height : (w - MARGIN) / width);
    const scale = Math.min(1.15, first ? Math.max(whole, readable) : whole);
    this.camera = {
      scale,
      x: width * scale > w ? MARGIN / 2 : (w - width * scale) / 2,
      y: height * scale > hgt ? MARGIN / 2 : (hgt - height * scale) / 2
    };
    this.fitted = true;
    this.moved = false;
    if (first) this.lookAt(this.viewport());
    this.changed(true);
  }

  zoom(factor: number, cx = this.stage.clientWidth / 2, cy = this.stage.clientHeight / 2): void {
    const scale = Math.max(0.02, Math.min(4, this.camera.scale * factor));
    const real = scale / this.camera.scale;
    this.camera = { scale, x: cx - (cx - this.camera.x) * real, y: cy - (cy - this.camera.y) * real };
    this.moved = true;
    this.changed(false);
  }

  pan(dx: number, dy: number): void {
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
    this.moved = true;
    this.changed(false);
  }

  /** Puts a point of the graph into the middle. */
  centre(x: number, y: number, scale = this.camera.scale): void {
    this.camera = { scale, x: this.stage.clientWidth / 2 - x * scale, y: this.stage.clientHeight / 2 - y * scale };
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
    const zoomed = Math.max(scale, 0.75);
    this.camera = { scale: zoomed, x: clientWidth / 2 - (x + w / 2) * zoomed, y: clientHeight / 2 - (y + hgt / 2) * zoomed };
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
    const { host } = this.store;
    const was = host.get('viewport') as number[] | undefined;
    const now = this.moved ? this.sight() : [];
    if (was && (was.length !== now.length || now.some((v, k) => Math.abs(v - was[k]!) >= 0.01))) host.set('viewport', now);
  }

  /** Looks at a point of the graph at a scale, as Python says it; without one all of it is fitted. */
  private lookAt(at: readonly number[]): void {
    if (at.length === 3) {
      const { clientWidth, clientHeight } = this.stage;
      if (!this.scene() || !clientWidth || this.sight().every((v, k) => Math.abs(v - at[k]!) < 0.01)) return;
      const [x, y, scale] = at as [number, number, number];
      this.camera = { scale, x: clientWidth / 2 - x * scale, y: clientHeight / 2 - y * scale };
      this.moved = true;
      this.changed(true);
    } else if (this.moved) this.fit();
  }

  /** The point of the graph in the middle, and the scale. */
  private sight(): [number, number, number] {
    const { x, y, scale } = this.camera;
    const round = (v: number) => Math.round(v * 1000) / 1000;
    return [round((this.stage.clientWidth / 2 - x) / scale), round((this.stage.clientHeight / 2 - y) / scale), round(scale)];
  }
}
