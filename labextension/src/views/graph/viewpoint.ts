/**
 * What Python may say of the picture of the graph, and is told: where it is looked at from, and which groups are
 * open.
 */
import type { Scene } from './scene.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Camera } from './draw.js';

// Which groups are open, as Python says it: the mirror of `opened` in `tbuda_lab/widgets/views/graph.py`.
const level = (scene: Scene, group: number): number => (group > 0 ? 1 + level(scene, scene.groupParent[group]!) : 0);

/** @param depth levels of groups that are open; null for those of a first view. `collapsed`: paths closed besides. */
export function openedBy(scene: Scene, depth: number | null, collapsed: readonly string[]): Set<number> {
  const first = new Set((scene.frame.meta['open'] as number[] | undefined) ?? []);
  const groups = scene.groupPaths.map((_, g) => g).slice(1);
  const wanted = groups.filter(g => (depth === null ? first.has(g) : level(scene, g) <= depth));
  return new Set([0, ...wanted.filter(g => !collapsed.includes(scene.groupPaths[g]!))]);
}

/**
 * What `openedBy` has to be told for the groups that are open now: [depth, collapsed], or null where it is told that
 * already. Groups within a closed one do not count: nobody sees them.
 */
export function openedAs(scene: Scene, depth: number | null, collapsed: readonly string[]): [number | null, string[]] | null {
  const groups = scene.groupPaths.map((_, g) => g).slice(1);
  const seen = (open: ReadonlySet<number>): number[] => {
    const inside = (g: number): boolean => g === 0 || (open.has(scene.groupParent[g]!) && inside(scene.groupParent[g]!));
    return groups.filter(inside);
  };
  const { opened } = scene;
  const now = seen(opened);
  const expected = openedBy(scene, depth, collapsed);
  if (now.every(g => opened.has(g) === expected.has(g))) return null;
  const first = openedBy(scene, null, []);
  const open = now.filter(g => opened.has(g));
  const levels = open.every(g => first.has(g)) ? null : Math.max(...open.map(g => level(scene, g)));
  const base = openedBy(scene, levels, []);
  return [levels, now.filter(g => base.has(g) && !opened.has(g)).map(g => scene.groupPaths[g]!)];
}

const MARGIN = 24;
const READABLE = 0.82; // letters of 11 px are 9 px high
const CLOSE = 0.01; // views that differ by less are the same

type Viewport = [x: number, y: number, scale: number];

/** Where the graph is looked at from: fits, zooms, pans, goes to nodes; Python may say it, and is told. */
export class Viewpoint {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  fitted = false;
  /** Cameras that fit the graph into the view: nobody chose where they look. */
  private readonly fits = new WeakSet<Camera>([this.camera]);
  /** The camera of a fit that somebody asked for. */
  private requestedFit: Camera | null = null;
  private entire = false;
  private readonly viewport: SyncedTrait<Viewport | []>;
  /** What Python asked for before there was a graph to look at. */
  private wish: Viewport | [];

  /** changed: `anew` where more than the camera is another. */
  constructor(
    store: Store, private readonly surface: HTMLElement, private readonly scene: () => Scene | undefined,
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
    const { clientWidth: w, clientHeight: hgt } = this.surface;
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
    this.entire = this.requestedFit === this.camera;
    this.fit();
    this.requestedFit = this.entire ? null : this.camera;
    this.entire = false;
  }

  zoom(factor: number, cx = this.surface.clientWidth / 2, cy = this.surface.clientHeight / 2): void {
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
    const { clientWidth, clientHeight } = this.surface;
    const inside = sx > 30 && sy > 20 && sx < clientWidth - 30 && sy < clientHeight - 20;
    if (inside && !changed && !always) return;
    this.look([x + w / 2, y + hgt / 2, Math.max(scale, 0.75)]);
  }

  /** From the page to the graph. */
  world(event: MouseEvent): [number, number] {
    const rect = this.surface.getBoundingClientRect();
    return [
      (event.clientX - rect.left - this.camera.x) / this.camera.scale,
      (event.clientY - rect.top - this.camera.y) / this.camera.scale
    ];
  }

  /** Tells Python where it looks, once the picture rests. */
  tell(): void {
    const now: Viewport | [] = this.fits.has(this.camera) ? [] : this.shownNow();
    if (!same(now, this.viewport.value())) this.viewport.tell(now);
  }

  /** Looks at a point of the graph at a scale, as Python says it; without one all of it is fitted. */
  private lookAt(at: Viewport | []): void {
    this.wish = at;
    if (!this.scene() || !this.surface.clientWidth) return;
    this.wish = [];
    if (!at.length) {
      if (!this.fits.has(this.camera)) this.fit();
    } else if (!same(this.shownNow(), at)) {
      this.look(at);
      this.changed(true);
    }
  }

  private look([x, y, scale]: Viewport): void {
    this.camera = { scale, x: this.surface.clientWidth / 2 - x * scale, y: this.surface.clientHeight / 2 - y * scale };
  }

  /** The point of the graph in the middle, and the scale. */
  private shownNow(): Viewport {
    const { x, y, scale } = this.camera;
    const round = (v: number) => Math.round(v * 1000) / 1000;
    return [round((this.surface.clientWidth / 2 - x) / scale), round((this.surface.clientHeight / 2 - y) / scale), round(scale)];
  }
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((v, k) => Math.abs(v - b[k]!) < CLOSE);
}
