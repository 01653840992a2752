/** The graph of a stage: canvas for the picture, a thin layer of elements over it for keyboards, readers and tests. */
import { Afterwards } from '../afterwards.js';
import { h } from '../dom.js';
import type { Frame } from '../frame.js';
import { Matcher } from '../names.js';
import { Ops } from '../ops.js';
import { preferences } from '../preferences.js';
import { badgesOf, type Badges } from '../trace/checks.js';
import type { Store } from '../store.js';
import { isDark, onTheme, type Paint } from '../theme.js';
import { Breaks } from './breaks.js';
import { changeLegend, changePaint } from './changes.js';
import type { Camera, Colours, Look } from './draw.js';
import { placeHooks } from './hooks.js';
import { GraphKeys } from './keys.js';
import type { Direction } from './layout.js';
import { NodeMenu } from './menu.js';
import { Minimap } from './minimap.js';
import { openedBy } from './opening.js';
import { Overlay } from './overlay.js';
import { nodePaint, paintLegend, readColours } from './paints.js';
import { Passes } from './passes.js';
import { Picture } from './picture.js';
import { pointer } from './pointer.js';
import { Scene } from './scene.js';
import { matching } from './search.js';

const STAGES: [string, string, string][] = [
  ['traced', 'Traced', 'the model as traced'],
  ['passed', 'Passes', 'after the passes on nD ops'],
  ['lowered', 'Lowered', 'hardware ops, as placed']
];
const EACH: [string, string, string] = ['pass', 'Each pass', 'the graph after any pass, with what the pass changed'];
const FILE: [string, string, string][] = [['netlist', 'Ops and queues', 'the netlist of a file']];
const MARGIN = 24;
const RESTED = 150; // ms without a new picture until the elements over the nodes are put in place: they take a frame or two

/** A graph that is none of the compile's stages. */
export interface Special {
  stage: [name: string, label: string, title: string];
  /** Colours of a node; null for the usual ones. */
  paint(frame: Frame, node: number, dark: boolean): Paint | null;
  legend(dark: boolean): HTMLElement[];
}

export class GraphView {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly breaks: Breaks;
  private readonly keys: GraphKeys;
  private readonly menu: NodeMenu;
  readonly stage: HTMLElement;
  private readonly hooks: HTMLElement;
  readonly search: HTMLInputElement;
  private readonly found: HTMLElement;
  private readonly tabs: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly map = new Minimap((x, y) => this.centre(x, y));
  private readonly stops: (() => void)[] = [];
  /** Colours of a new placement: the grid is drawn before. */
  private readonly recoloured = new Afterwards(() => this.repaint());
  private scenes = new Map<string, Scene>();
  private cameras = new Map<string, Camera>();
  private shown = '';
  private pinned = '';
  private camera: Camera = { x: 0, y: 0, scale: 1 };
  private fitted = false;
  private selected = new Set<number>();
  private matches: Set<number> | null = null;
  private matchAt = -1;
  private hover = -1;
  ops: Ops | null = null;
  private badges: Badges = () => null;
  private overlay: Overlay | null = null;
  private readonly depth: () => number | null;
  private readonly collapsed: () => string[];
  private readonly passes: Passes | null;
  private readonly viewport: () => number[];
  private direction: Direction = 'TB';
  private words = false;
  private readonly turner: HTMLButtonElement;
  private readonly worder: HTMLButtonElement;
  /** Somebody moved the camera: where it looks is told to Python. */
  private moved = false;
  private painted = 0;
  private readonly picture = new Picture();
  /** What the next frame draws: everything, or else these items where they are. */
  private anew = true;
  private touched: number[] = [];
  private drawn: Camera | null = null;
  private unfinished = false;
  private hookTimer = 0;
  private colours: Colours | null = null;

  /** @param special where a graph of its own kind is shown: one stage, other colours. */
  constructor(readonly store: Store, private readonly special: Special | null = null) {
    this.breaks = new Breaks(store, () => this.world0());
    this.keys = new GraphKeys(this);
    this.canvas = h('canvas', { class: 'tb-canvas', 'aria-hidden': 'true' });
    this.hooks = h('div', { class: 'tb-hooks' });
    this.empty = h('div', { class: 'tb-empty' }, 'The graph appears here once the model is traced.');
    this.stage = h('div', {
      class: 'tb-stage', tabindex: 0, role: 'group', 'data-lm-suppress-shortcuts': 'true',
      'data-jp-suppress-context-menu': '',
      'aria-label': 'Graph. Arrows pan, plus and minus zoom, 0 fits, slash searches, H shows all keys.'
    }, this.canvas, this.hooks, this.breaks.element, this.map.element, this.empty);
    this.search = h('input', {
      type: 'search', class: 'tb-search', placeholder: 'Search nodes', 'aria-label': 'Search nodes', spellcheck: 'false',
      'data-tb-action': 'graph-search', 'data-lm-suppress-shortcuts': 'true'
    });
    this.found = h('span', { class: 'tb-found', 'aria-live': 'polite' });
    this.tabs = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Stage' });
    this.legend = h('div', { class: 'tb-legend' });
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { type: 'button', class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
    this.turner = button('graph-direction', '⇄', '', () => this.turn());
    this.worder = button('graph-tms', 'TM', 'Write what edges do to their tensors', () => this.say(!this.words));
    this.element = h('section', { class: 'tb-view tb-graph', 'data-tb-view': 'graph', 'aria-label': special ? 'Graph of the pass' : 'Graph' },
      h('header', { class: 'tb-bar' }, h('h3', {}, 'Graph'), this.tabs, this.search, this.found,
        h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'What is in sight' },
        this.turner, this.worder,
        button('graph-expand', '⊞', 'Open all groups', () => this.openAll()),
        button('graph-collapse', '⊟', 'Close all groups', () => this.closeAll()),
        button('graph-out', '−', 'Zoom out', () => this.zoom(1 / 1.3)),
        button('graph-in', '+', 'Zoom in', () => this.zoom(1.3)),
        button('graph-fit', 'Fit', 'Fit the graph into the view', () => this.fit()))),
      this.stage, this.legend);
    this.passes = special ? null : new Passes(store, frame => this.passCame(frame));
    if (this.passes) this.stage.before(this.passes.element);
    this.menu = new NodeMenu(store, this.element, event => this.edge(event));
    this.depth = store.trait<number | null>('depth', null, () => this.reopen());
    this.collapsed = store.trait<string[]>('collapsed', [], () => this.reopen());
    const query = store.trait('query', '', text => {
      if (text === this.search.value) return;
      this.search.value = text;
      this.searched();
    });
    this.search.value = query();
    this.direction = store.trait<Direction>('direction', 'TB', direction => this.lie(direction, this.words))();
    this.words = store.trait('show_tms', false, words => this.lie(this.direction, words))();
    this.viewport = store.trait<number[]>('viewport', [], at => this.lookAt(at));
    this.dressed();
    this.listen();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.breaks.dispose();
    this.passes?.dispose();
    this.menu.dispose();
    this.recoloured.dispose();
    cancelAnimationFrame(this.painted);
    clearTimeout(this.hookTimer);
  }

  /** Shows a stage and keeps to it. */
  show(stage: string): void {
    this.pinned = stage;
    this.choose();
  }

  get scene(): Scene | undefined {
    return this.scenes.get(this.shown);
  }

  private listen(): void {
    const { store } = this;
    this.stops.push(
      store.on('frame', key => this.arrived(key)),
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
    const resize = new ResizeObserver(() => this.resized());
    resize.observe(this.stage);
    this.stops.push(() => resize.disconnect());
    this.search.addEventListener('input', () => this.typed());
    this.search.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        this.search.value = '';
        this.typed();
        this.stage.focus();
      }
    });
    pointer(this.stage, this);
    this.stage.addEventListener('keydown', event => this.keys.handle(event));
    for (const key of store.frames.keys()) this.arrived(key);
    this.choose();
  }

  private arrived(key: string): void {
    if (key === 'ops') {
      const first = this.ops === null;
      this.ops = Ops.of(this.store.frames.get('ops')!);
      if (first) this.repaint();
      else this.recoloured.soon();
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
    } else if (this.depth() !== null || this.collapsed().length) this.openAs(scene);
    scene.lie(this.direction, this.words);
    this.scenes.set(stage, scene);
    this.choose();
  }

  /** The graph after a pass came, with the groups open that hold a change; null: the stages are wanted again. */
  private passCame(frame: Frame | null): void {
    if (frame) {
      const scene = new Scene(frame);
      scene.lie(this.direction, this.words);
      this.scenes.set('pass', scene);
      this.cameras.delete('pass');
      if (this.shown === 'pass') this.shown = ''; // it is fitted anew
      this.show('pass');
      const first = Array.from(frame.column('node_change')).findIndex((change, n) => change > 0 && scene.standIn(n) === scene.itemOfNode[n]);
      if (first >= 0 && this.stage.clientHeight) this.reveal(first, false);
    } else if (this.pinned === 'pass') this.show('');
  }

  stepPass(by: number): void {
    if (this.shown === 'pass') this.passes?.step(by);
    else if (this.passes?.there) this.passes.open();
  }

  // -- how it lies -----------------------------------------------------------------------------------------------
  turn(): void {
    const { host } = this.store;
    const next = this.direction === 'TB' ? 'LR' : 'TB';
    this.lie(next, this.words);
    if (host.get('direction') !== undefined) host.set('direction', next);
  }

  private say(words: boolean): void {
    const { host } = this.store;
    this.lie(this.direction, words);
    if (host.get('show_tms') !== undefined) host.set('show_tms', words);
  }

  private lie(direction: Direction, words: boolean): void {
    if (direction === this.direction && words === this.words) return;
    [this.direction, this.words] = [direction, words];
    this.scenes.forEach(scene => scene.lie(direction, words));
    this.cameras.clear();
    this.dressed();
    this.fitted = false;
    this.fit();
  }

  private dressed(): void {
    const turned = this.direction === 'LR';
    this.turner.textContent = turned ? '⇅' : '⇄';
    this.turner.title = turned ? 'From top to bottom (L)' : 'From left to right (L)';
    this.turner.setAttribute('aria-label', this.turner.title);
    this.worder.setAttribute('aria-pressed', String(this.words));
    this.element.dataset['tbDirection'] = this.direction;
  }

  /** The stage asked for, else the furthest one there is. */
  private choose(): void {
    const stages = this.special ? [this.special.stage] : this.scenes.has('netlist') ? FILE : STAGES;
    const there = stages.map(([name]) => name).filter(name => this.scenes.has(name));
    const pass = this.passes?.there === true;
    const next = pass && this.pinned === 'pass' && this.scenes.has('pass') ? 'pass' : there.includes(this.pinned) ? this.pinned : (there.at(-1) ?? '');
    const buttons = stages.map(([name, label, title]) =>
      h('button', {
        type: 'button', title, 'data-tb-action': `graph-stage-${name}`, 'aria-pressed': String(name === next),
        disabled: !there.includes(name), onclick: () => this.show(name)
      }, label));
    if (pass) {
      const [, label, title] = EACH;
      buttons.push(h('button', {
        type: 'button', title, 'data-tb-action': 'graph-stage-pass', 'aria-pressed': String(next === 'pass'), onclick: () => this.passes!.open()
      }, label));
    }
    this.tabs.replaceChildren(...buttons);
    if (this.shown === 'pass' && next !== 'pass') this.passes?.close();
    this.empty.hidden = there.length > 0;
    if (this.shown) this.cameras.set(this.shown, this.camera);
    const changed = next !== this.shown;
    this.shown = next;
    if (changed) {
      const camera = this.cameras.get(next);
      this.fitted = camera !== undefined;
      if (camera) this.camera = camera;
    }
    this.searched();
    this.followSelection(false);
    if (!this.fitted) this.fit();
    this.repaint();
  }

  // -- camera ---------------------------------------------------------------------------------------------------
  private resized(): void {
    const ratio = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.stage;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    if (!this.fitted) this.fit();
    this.anew = true;
    this.paintNow();
  }

  /** The whole graph when it stays readable, else its top at a readable size. */
  fit(): void {
    const scene = this.scene;
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
    this.repaint();
  }

  zoom(factor: number, cx = this.stage.clientWidth / 2, cy = this.stage.clientHeight / 2): void {
    const scale = Math.max(0.02, Math.min(4, this.camera.scale * factor));
    const real = scale / this.camera.scale;
    this.camera = { scale, x: cx - (cx - this.camera.x) * real, y: cy - (cy - this.camera.y) * real };
    this.moved = true;
    this.schedule();
  }

  pan(dx: number, dy: number): void {
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
    this.moved = true;
    this.schedule();
  }

  /** Looks at a point of the graph at a scale, as Python says it; without one all of it is fitted. */
  private lookAt(at: readonly number[]): void {
    if (at.length === 3) {
      const { clientWidth, clientHeight } = this.stage;
      if (!this.scene || !clientWidth || this.sight().every((v, k) => Math.abs(v - at[k]!) < 0.01)) return;
      const [x, y, scale] = at as [number, number, number];
      this.camera = { scale, x: clientWidth / 2 - x * scale, y: clientHeight / 2 - y * scale };
      this.moved = true;
      this.repaint();
    } else if (this.moved) this.fit();
  }

  /** The point of the graph in the middle, and the scale. */
  private sight(): [number, number, number] {
    const { x, y, scale } = this.camera;
    const round = (v: number) => Math.round(v * 1000) / 1000;
    return [round((this.stage.clientWidth / 2 - x) / scale), round((this.stage.clientHeight / 2 - y) / scale), round(scale)];
  }

  /** Tells Python where it looks, once the picture rests. */
  private tellSight(): void {
    const { host } = this.store;
    const was = host.get('viewport') as number[] | undefined;
    const now = this.moved ? this.sight() : [];
    if (was && (was.length !== now.length || now.some((v, k) => Math.abs(v - was[k]!) >= 0.01))) host.set('viewport', now);
  }

  /** Where the graph lies on the stage. */
  private world0(): { scene: Scene | undefined; camera: Camera; shown: boolean } {
    return { scene: this.scene, camera: this.camera, shown: this.shown === 'lowered' };
  }

  /** The edge under a pointer, by the names of its ends; "" for an end that is not one node. */
  private edge(event: MouseEvent): { from: string; to: string } | null {
    const scene = this.scene;
    if (!scene || !(event.target as Element).closest('.tb-stage')) return null;
    const found = scene.edgeAt(...this.world(event), 6 / this.camera.scale);
    return found && { from: scene.names[found.source]!, to: scene.names[found.target] ?? '' };
  }

  private keep(digit: string): void {
    const scene = this.scene;
    if (!scene) return;
    const open = [...scene.opened].map(g => scene.groupPaths[g]!);
    Object.assign(this.store.kept.get(digit)!, { graph: { stage: this.shown, camera: this.camera, open } });
  }

  private recall(digit: string): void {
    const view = this.store.kept.get(digit)?.['graph'] as { stage: string; camera: Camera; open: string[] } | undefined;
    const scene = view && this.scenes.get(view.stage);
    if (!view || !scene) return;
    const open = new Set(view.open);
    scene.opened.clear();
    scene.groupPaths.forEach((path, g) => {
      if (g === 0 || open.has(path)) scene.opened.add(g);
    });
    scene.update();
    this.show(view.stage);
    this.camera = view.camera;
    this.repaint();
  }

  private centre(x: number, y: number): void {
    const { scale } = this.camera;
    this.camera = { scale, x: this.stage.clientWidth / 2 - x * scale, y: this.stage.clientHeight / 2 - y * scale };
    this.schedule();
  }

  world(event: MouseEvent): [number, number] {
    const rect = this.stage.getBoundingClientRect();
    return [
      (event.clientX - rect.left - this.camera.x) / this.camera.scale,
      (event.clientY - rect.top - this.camera.y) / this.camera.scale
    ];
  }

  // -- pointer and keys -----------------------------------------------------------------------------------------
  clicked(event: PointerEvent): void {
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
    this.pan((x0 + w0 / 2 - x1 - w1 / 2) * this.camera.scale, (y0 - y1) * this.camera.scale);
    this.repaint();
  }

  /** Opens the groups that the traits name, in every stage. */
  private reopen(): void {
    this.scenes.forEach(scene => this.openAs(scene));
    this.fit();
  }

  private openAs(scene: Scene): void {
    scene.opened.clear();
    openedBy(scene, this.depth(), this.collapsed()).forEach(g => scene.opened.add(g));
    scene.update();
  }

  private openAll(): void {
    this.scene?.openAll();
    this.fit();
  }

  private closeAll(): void {
    this.scene?.closeAll();
    this.fit();
  }

  // -- search, selection, hover ---------------------------------------------------------------------------------
  /** Searched by hand: Python hears of it where the view has such a trait. */
  private typed(): void {
    const { host } = this.store;
    if (host.get('query') !== undefined) host.set('query', this.search.value);
    this.searched();
  }

  private searched(): void {
    this.matchAt = -1;
    this.matches = matching(this.scene, this.search.value.trim());
    this.found.textContent = this.matches ? `${this.matches.size} found` : '';
    this.repaint();
  }

  private nextMatch(step: number): void {
    const scene = this.scene;
    if (!scene || !this.matches?.size) return;
    const list = [...this.matches];
    this.matchAt = (this.matchAt + step + list.length) % list.length;
    const node = list[this.matchAt]!;
    this.found.textContent = `${this.matchAt + 1} of ${list.length}`;
    this.reveal(node, true);
    this.store.select([scene.names[node]!], 'graph');
  }

  private followSelection(scroll: boolean): void {
    const scene = this.scene;
    if (!scene) return;
    this.selected = new Set(new Matcher(scene.names).find(this.store.selection.names));
    const first = [...this.selected][0];
    if (scroll && preferences().follow && first !== undefined && this.selected.size <= 8) this.reveal(first, false);
    this.repaint();
  }

  private followHover(): void {
    const { scene } = this;
    const before = this.hover;
    this.hover = scene?.indexOf.get(this.store.hover) ?? -1;
    if (!scene || before === this.hover) return;
    this.touched.push(...[before, this.hover].filter(n => n >= 0 && n < scene.names.length).map(n => scene.itemOfNode[n]!));
    this.schedule();
  }

  /** Opens the groups around a node and brings it into view if it is outside. */
  private reveal(node: number, always: boolean): void {
    const scene = this.scene!;
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
      matches: this.matches,
      badge: node => this.badges(this.shown, scene.names[node]!)
    };
    const ratio = devicePixelRatio || 1;
    const touched = this.touched.splice(0).filter(item => scene.layout.visible[item]);
    if (!this.anew && touched.length && !this.picture.mend(ctx, scene, touched, look, ratio)) this.anew = true;
    const settled = !this.anew && !this.unfinished && this.camera === this.drawn;
    if (this.anew) this.picture.renew(ctx, scene, this.camera, look, ratio);
    this.unfinished = !this.anew && !settled && this.picture.move(ctx, scene, this.camera, look, ratio);
    if (this.unfinished) this.schedule();
    this.anew = false;
    this.drawn = this.camera;
    if (settled) return; // only boxes were touched
    const { clientWidth, clientHeight } = this.stage;
    this.map.draw(scene, this.camera, this.colours, node => paint(node).edge, [this.ops, by, dark, this.overlay], clientWidth, clientHeight);
    this.hooks.style.transform = `translate(${this.camera.x}px, ${this.camera.y}px) scale(${this.camera.scale})`;
    clearTimeout(this.hookTimer);
    this.hookTimer = window.setTimeout(() => {
      placeHooks(this.hooks, scene, this.camera, clientWidth, clientHeight, this.selected);
      this.tellSight();
    }, RESTED);
    const own = this.special?.legend(dark) ?? (changed ? changeLegend([1, 2, 0], dark) : this.overlay?.legend(dark));
    if (own) {
      this.legend.replaceChildren(...own);
      delete this.legend.dataset['key']; // the usual one is written anew
    } else paintLegend(this.legend, by, this.shown, dark);
    this.breaks.place(scene, this.camera);
    if (this.element.dataset['tbStage'] !== this.shown) this.element.dataset['tbStage'] = this.shown;
  }
}
