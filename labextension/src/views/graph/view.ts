/** The graph of a stage: canvas for the picture, a thin layer of elements over it for keyboards, readers and tests. */
import { DeferredWork } from '../drawtimes.js';
import { h } from '../dom.js';
import type { Frame } from '../frame.js';
import { Matcher } from '../names.js';
import { Ops } from '../ops.js';
import { preferences } from '../preferences.js';
import { type Badges, badgesOf } from '../trace/checks.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, onTheme } from '../theme.js';
import { Breaks } from './breaks.js';
import type { Camera, Colours, Look } from './draw.js';
import { openedAs, openedBy, Viewpoint } from './viewpoint.js';
import { button, Finder, Orientation, type Special, stageButtons, stagesOf, tools } from './bar.js';
import { Minimap, Picture, placeFocusTargets } from './picture.js';
import { GraphKeys, NodeMenu, pointer } from './input.js';
import { changeLegend, changePaint, nodePaint, Overlay, paintLegend, readColours } from './paints.js';
import { Passes } from './passes.js';
import { Scene } from './scene.js';

const RESTED = 150; // ms without a new picture until the elements over the nodes are put in place: they take a frame or two

export class GraphView {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly breaks: Breaks;
  private readonly keys: GraphKeys;
  private readonly menu: NodeMenu;
  readonly surface: HTMLElement;
  private readonly hooks: HTMLElement;
  private readonly tabs: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly map = new Minimap((x, y) => this.eye.centre(x, y));
  private readonly stops: (() => void)[] = [];
  /** Colours of a new placement: the grid is drawn before. */
  private readonly recolour = new DeferredWork(() => this.repaint());
  private scenes = new Map<string, Scene>();
  private cameras = new Map<string, Camera>();
  private shown = '';
  private pinned = '';
  private readonly eye: Viewpoint;
  private readonly finder: Finder;
  private readonly orientation: Orientation;
  private selected = new Set<number>();
  private hover = -1;
  ops: Ops | null = null;
  private badges: Badges = () => null;
  private overlay: Overlay | null = null;
  private readonly depth: SyncedTrait<number | null>;
  private readonly collapsed: SyncedTrait<string[]>;
  private readonly passes: Passes | null;
  private painted = 0;
  private readonly picture = new Picture();
  /** What the next frame draws: everything, or else these items where they are. */
  private anew = true;
  private itemsToDraw: number[] = [];
  private lastCamera: Camera | null = null;
  private unfinished = false;
  private hookTimer = 0;
  /** Something was selected while the graph was hidden: it is brought into sight once the graph is. */
  private missed = false;
  private colours: Colours | null = null;

  /** @param special where a graph of its own kind is shown: one stage, other colours. */
  constructor(readonly store: Store, private readonly special: Special | null = null) {
    this.breaks = new Breaks(store, () => this.world0());
    this.keys = new GraphKeys(this);
    this.canvas = h('canvas', { class: 'tb-canvas', 'aria-hidden': 'true' });
    this.hooks = h('div', { class: 'tb-hooks' });
    this.empty = h('div', { class: 'tb-empty' }, 'The graph appears here once the model is traced.');
    this.surface = h('div', {
      class: 'tb-stage', tabindex: 0, role: 'group', 'data-lm-suppress-shortcuts': 'true',
      'data-jp-suppress-context-menu': '',
      'aria-label': 'Graph. Arrows pan, plus and minus zoom, 0 fits, slash searches, H shows the keyboard shortcuts.'
    }, this.canvas, this.hooks, this.breaks.element, this.map.element, this.empty);
    this.eye = new Viewpoint(store, this.surface, () => this.scene, anew => {
      if (anew) this.repaint();
      else this.schedule();
    });
    this.finder = new Finder(store, () => this.scene, node => this.eye.reveal(node, true), () => this.repaint(), () => this.surface.focus());
    this.orientation = new Orientation(store, () => {
      this.scenes.forEach(scene => this.orientation.lay(scene));
      this.cameras.clear();
      this.eye.fitted = false;
      this.eye.fit();
    }, direction => (this.element.dataset['tbDirection'] = direction));
    this.tabs = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Stage' });
    this.legend = h('div', { class: 'tb-legend' });
    this.element = h('section', { class: 'tb-view tb-graph', 'data-tb-view': 'graph', 'aria-label': special ? 'Graph of the pass' : 'Graph' },
      h('header', { class: 'tb-bar' }, h('h3', {}, 'Graph'), this.tabs, this.finder.input, this.finder.count,
        ...tools(
        this.orientation.turner, this.orientation.worder,
        button('graph-expand', '⊞', 'Expand all groups; press again to expand repeated layers too', () => this.openAll()),
        button('graph-collapse', '⊟', 'Collapse all groups', () => this.closeAll()),
        button('graph-out', '−', 'Zoom out', () => this.zoom(1 / 1.3)),
        button('graph-in', '+', 'Zoom in', () => this.zoom(1.3)),
        button('graph-fit', 'Fit', 'Fit at a readable size (0); press again to fit the whole graph', () => this.fit()))),
      this.surface, this.legend);
    this.orientation.dress();
    this.passes = special ? null : new Passes(store, frame => this.passCame(frame));
    if (this.passes) this.surface.before(this.passes.element);
    this.menu = new NodeMenu(store, this.element, event => this.edge(event));
    this.depth = syncedTrait<number | null>(store, 'depth', null, () => this.reopen());
    this.collapsed = syncedTrait<string[]>(store, 'collapsed', [], () => this.reopen());
    this.listen();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    [this.breaks, this.passes, this.menu, this.recolour, this.eye, this.finder, this.orientation, this.depth, this.collapsed].forEach(part => part?.dispose());
    cancelAnimationFrame(this.painted);
    clearTimeout(this.hookTimer);
  }

  /** Shows a stage and keeps to it. */
  show(stage: string): void {
    this.pinned = stage;
    this.choose();
  }

  get search(): HTMLInputElement {
    return this.finder.input;
  }

  get scene(): Scene | undefined {
    return this.scenes.get(this.shown);
  }

  private listen(): void {
    const { store } = this;
    this.stops.push(
      store.on('frame', key => this.onFrame(key)),
      store.on('selection', source => this.followSelection(source !== 'graph')),
      store.on('hover', () => this.followHover()),
      store.on('colour', () => this.repaint()),
      store.on('keep', digit => this.keep(digit)),
      store.on('recall', digit => this.recall(digit)),
      onTheme(() => {
        this.colours = null;
        this.repaint();
      })
    );
    const resize = new ResizeObserver(() => this.onResize());
    resize.observe(this.surface);
    this.stops.push(() => resize.disconnect());
    pointer(this.surface, this);
    this.surface.addEventListener('keydown', event => this.keys.handle(event));
    for (const key of store.frames.keys()) this.onFrame(key);
    this.choose();
  }

  private onFrame(key: string): void {
    if (key === 'ops') {
      const first = this.ops === null;
      this.ops = Ops.of(this.store.frames.get('ops')!);
      if (first) this.repaint();
      else this.recolour.soon();
      return;
    }
    if (key === 'checks') {
      this.badges = badgesOf(this.store.frames.get(key)!);
      this.repaint();
      return;
    }
    if (key === 'overlay') {
      this.overlay = Overlay.of(this.store.frames.get(key)!);
      this.repaint();
      return;
    }
    if (!key.startsWith('graph:')) return;
    if (key === 'graph:pass' && this.passes) return; // it comes through the passes
    const stage = key.slice(6);
    const before = this.scenes.get(stage);
    const scene = new Scene(this.store.frames.get(key)!);
    if (before && !this.special) {
      const paths = new Set([...before.opened].map(g => before.groupPaths[g]!));
      scene.opened.clear();
      scene.groupPaths.forEach((path, g) => {
        if (g === 0 || paths.has(path)) scene.opened.add(g);
      });
      scene.update();
    } else if (this.depth.value() !== null || this.collapsed.value().length) this.openAs(scene);
    this.orientation.lay(scene);
    this.scenes.set(stage, scene);
    this.choose();
  }

  /** The graph after a pass came, with the groups open that hold a change; null: the stages are wanted again. */
  private passCame(frame: Frame | null): void {
    if (frame) {
      const scene = new Scene(frame);
      this.orientation.lay(scene);
      this.scenes.set('pass', scene);
      this.cameras.delete('pass');
      if (this.shown === 'pass') this.shown = ''; // it is fitted anew
      this.show('pass');
      const first = Array.from(frame.column('node_change')).findIndex((change, n) => change > 0 && scene.standIn(n) === scene.itemOfNode[n]);
      if (first >= 0 && this.surface.clientHeight) this.eye.reveal(first, false);
    } else if (this.pinned === 'pass') this.show('');
  }

  stepPass(by: number): void {
    if (this.shown === 'pass') this.passes?.step(by);
    else if (this.passes?.there) this.passes.open();
  }

  turn(): void {
    this.orientation.turn();
  }

  /** The stage asked for, else the furthest one there is. */
  private choose(): void {
    const stages = stagesOf(this.scenes, this.special);
    const there = stages.map(([name]) => name).filter(name => this.scenes.has(name));
    const pass = this.passes?.there === true;
    const next = pass && this.pinned === 'pass' && this.scenes.has('pass') ? 'pass' : there.includes(this.pinned) ? this.pinned : (there.at(-1) ?? '');
    this.tabs.replaceChildren(...stageButtons(stages, there, next, name => this.show(name), pass ? () => this.passes!.open() : null));
    if (this.shown === 'pass' && next !== 'pass') this.passes?.close();
    this.empty.hidden = there.length > 0;
    if (this.shown) this.cameras.set(this.shown, this.eye.camera);
    const changed = next !== this.shown;
    this.shown = next;
    if (changed) {
      const camera = this.cameras.get(next);
      this.eye.fitted = camera !== undefined;
      if (camera) this.eye.camera = camera;
    }
    this.finder.search();
    this.followSelection(false);
    if (!this.eye.fitted) this.eye.fit();
    this.repaint();
  }

  // -- camera ---------------------------------------------------------------------------------------------------
  private onResize(): void {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.surface;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    if (!this.eye.fitted) this.eye.fit();
    if (this.missed && clientHeight) this.followSelection(true);
    this.anew = true;
    this.paintNow();
  }

  fit(): void {
    this.eye.fitOrAll();
  }

  zoom(factor: number, cx?: number, cy?: number): void {
    this.eye.zoom(factor, cx, cy);
  }

  pan(dx: number, dy: number): void {
    this.eye.pan(dx, dy);
  }

  world(event: MouseEvent): [number, number] {
    return this.eye.world(event);
  }

  /** Where the graph lies on the stage. */
  private world0(): { scene: Scene | undefined; camera: Camera; shown: boolean } {
    return { scene: this.scene, camera: this.eye.camera, shown: this.shown === 'lowered' };
  }

  /** The edge under a pointer, by the names of its ends; "" for an end that is not one node. */
  private edge(event: MouseEvent): { from: string; to: string } | null {
    const scene = this.scene;
    if (!scene || !(event.target as Element).closest('.tb-stage')) return null;
    const found = scene.edgeAt(...this.world(event), 6 / this.eye.camera.scale);
    return found && { from: scene.names[found.source]!, to: scene.names[found.target] ?? '' };
  }

  private keep(digit: string): void {
    const scene = this.scene;
    if (!scene) return;
    const open = [...scene.opened].map(g => scene.groupPaths[g]!);
    Object.assign(this.store.viewStates.get(digit)!, { graph: { stage: this.shown, camera: this.eye.camera, open } });
  }

  private recall(digit: string): void {
    const view = this.store.viewStates.get(digit)?.['graph'] as { stage: string; camera: Camera; open: string[] } | undefined;
    const scene = view && this.scenes.get(view.stage);
    if (!view || !scene) return;
    const open = new Set(view.open);
    scene.opened.clear();
    scene.groupPaths.forEach((path, g) => {
      if (g === 0 || open.has(path)) scene.opened.add(g);
    });
    scene.update();
    this.show(view.stage);
    this.eye.camera = view.camera;
    this.repaint();
  }

  // -- pointer and keys -----------------------------------------------------------------------------------------
  onClick(event: PointerEvent): void {
    const scene = this.scene;
    if (!scene) return;
    const [x, y] = this.world(event);
    const hit = scene.hit(x, y);
    const toggle = event.ctrlKey || event.metaKey;
    if (hit?.kind === 'node') {
      this.store.click(scene.names[hit.ref]!, toggle, 'graph');
    } else if (hit?.header) {
      const [bx] = scene.box(scene.itemOfGroup[hit.ref]!);
      if (x < bx + 20) this.toggle(hit.ref);
      else this.store.select(scene.inside(hit.ref), 'graph');
    } else if (!toggle) {
      this.store.select([], 'graph');
    }
  }

  // -- groups ---------------------------------------------------------------------------------------------------
  /** Opens or closes a group and keeps its head where it is on the screen. */
  toggle(group: number): void {
    const scene = this.scene;
    if (!scene) return;
    const item = scene.itemOfGroup[group]!;
    const [x0, y0, w0] = scene.box(item);
    scene.toggle(group);
    const [x1, y1, w1] = scene.box(item);
    this.pan((x0 + w0 / 2 - x1 - w1 / 2) * this.eye.camera.scale, (y0 - y1) * this.eye.camera.scale);
    this.repaint();
  }

  /** Opens the groups that the traits name, in every stage. */
  private reopen(): void {
    this.scenes.forEach(scene => this.openAs(scene));
    this.eye.fit();
  }

  private openAs(scene: Scene): void {
    scene.opened.clear();
    openedBy(scene, this.depth.value(), this.collapsed.value()).forEach(g => scene.opened.add(g));
    scene.update();
  }

  /** Tells which groups are open; those of a pass follow what it changed. */
  private tellOpen(): void {
    const open = this.scene && !this.special && this.shown !== 'pass' && openedAs(this.scene, this.depth.value(), this.collapsed.value());
    if (!open) return;
    this.depth.tell(open[0]);
    this.collapsed.tell(open[1]);
  }

  private openAll(): void {
    this.scene?.openAll();
    this.eye.fit();
  }

  private closeAll(): void {
    this.scene?.closeAll();
    this.eye.fit();
  }

  // -- search, selection, hover ---------------------------------------------------------------------------------
  private followSelection(scroll: boolean): void {
    const scene = this.scene;
    if (!scene) return;
    this.selected = new Set(new Matcher(scene.names).find(this.store.selection.names));
    const first = [...this.selected][0];
    if (scroll && preferences().follow && first !== undefined && this.selected.size <= 8) {
      this.missed = !this.surface.clientHeight;
      if (!this.missed) this.eye.reveal(first, false);
    }
    this.repaint();
  }

  private followHover(): void {
    const { scene } = this;
    const before = this.hover;
    this.hover = scene?.indexOf.get(this.store.hover) ?? -1;
    if (!scene || before === this.hover) return;
    this.itemsToDraw.push(...[before, this.hover].filter(n => n >= 0 && n < scene.names.length).map(n => scene.itemOfNode[n]!));
    this.schedule();
  }

  // -- painting -------------------------------------------------------------------------------------------------
  private repaint(): void {
    this.anew = true;
    this.schedule();
  }

  private schedule(): void {
    cancelAnimationFrame(this.painted);
    this.painted = requestAnimationFrame(() => this.paintNow());
  }

  private paintNow(): void {
    const scene = this.scene;
    const ctx = this.canvas.getContext('2d');
    if (!scene || !ctx || !this.canvas.width) return;
    this.colours ??= readColours(this.element);
    const dark = isDark();
    const by = this.ops ? this.store.colour : 'family';
    const changed = this.shown === 'pass' && !this.special ? scene.frame.column('node_change') : null;
    const paint = (node: number) => this.special?.paint(scene.frame, node, dark) ?? (changed && changePaint(changed[node]!, dark)) ?? this.overlay?.paint(scene.names[node]!, dark) ??
      nodePaint(scene, this.ops, by, node, dark);
    const look: Look = {
      colours: this.colours,
      paint,
      selected: this.selected,
      hover: this.hover,
      matches: this.finder.matches,
      badge: node => this.badges(this.shown, scene.names[node]!)
    };
    const ratio = devicePixelRatio || 1;
    const touched = this.itemsToDraw.splice(0).filter(item => scene.layout.visible[item]);
    if (!this.anew && touched.length && !this.picture.mend(ctx, scene, touched, look, ratio)) this.anew = true;
    const settled = !this.anew && !this.unfinished && this.eye.camera === this.lastCamera;
    if (this.anew) this.picture.renew(ctx, scene, this.eye.camera, look, ratio);
    this.unfinished = !this.anew && !settled && this.picture.move(ctx, scene, this.eye.camera, look, ratio);
    if (this.unfinished) this.schedule();
    this.anew = false;
    this.lastCamera = this.eye.camera;
    if (settled) return; // only boxes were touched
    const { clientWidth, clientHeight } = this.surface;
    this.map.draw(scene, this.eye.camera, this.colours, node => paint(node).edge, [this.ops, by, dark, this.overlay], clientWidth, clientHeight);
    this.hooks.style.transform = `translate(${this.eye.camera.x}px, ${this.eye.camera.y}px) scale(${this.eye.camera.scale})`;
    clearTimeout(this.hookTimer);
    this.hookTimer = window.setTimeout(() => {
      placeFocusTargets(this.hooks, scene, this.eye.camera, clientWidth, clientHeight, this.selected);
      this.eye.tell();
      this.tellOpen();
    }, RESTED);
    const own = this.special?.legend(dark) ?? (changed ? changeLegend([1, 2, 0], dark) : this.overlay?.legend(dark));
    if (own) {
      this.legend.replaceChildren(...own);
      delete this.legend.dataset['key']; // the usual one is written anew
    } else paintLegend(this.legend, by, this.shown, dark);
    this.breaks.place(scene, this.eye.camera);
    if (this.element.dataset['tbStage'] !== this.shown) this.element.dataset['tbStage'] = this.shown;
  }
}
