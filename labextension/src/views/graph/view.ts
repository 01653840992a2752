/** The graph of a stage: canvas for the picture, a thin layer of elements over it for keyboards, readers and tests. */
import { h } from '../dom.js';
import { Matcher } from '../names.js';
import { Ops } from '../ops.js';
import type { ColourBy, Store } from '../store.js';
import { epochPaint, FAMILY_NAMES, familyPaint, isDark, loadPaint, onTheme, type Paint } from '../theme.js';
import { draw, type Camera, type Colours } from './draw.js';
import { GROUP, NODE } from './layout.js';
import { Minimap } from './minimap.js';
import { Scene } from './scene.js';

const STAGES: [string, string, string][] = [
  ['traced', 'Traced', 'the model as traced'],
  ['passed', 'Passes', 'after the passes on nD ops'],
  ['lowered', 'Lowered', 'hardware ops, as placed']
];
const FILE: [string, string, string][] = [['netlist', 'Ops and queues', 'the netlist of a file']];
const HOOKS = 400;
const MARGIN = 24;

export class GraphView {
  readonly element: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly stage: HTMLElement;
  private readonly hooks: HTMLElement;
  private readonly search: HTMLInputElement;
  private readonly found: HTMLElement;
  private readonly tabs: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly empty: HTMLElement;
  private readonly map = new Minimap((x, y) => this.centre(x, y));
  private readonly stops: (() => void)[] = [];
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
  private ops: Ops | null = null;
  private painted = 0;
  private hookTimer = 0;
  private colours: Colours | null = null;

  constructor(private readonly store: Store) {
    this.canvas = h('canvas', { class: 'tb-canvas', 'aria-hidden': 'true' });
    this.hooks = h('div', { class: 'tb-hooks' });
    this.empty = h('div', { class: 'tb-empty' }, 'The graph appears here once the model is traced.');
    this.stage = h('div', {
      class: 'tb-stage', tabindex: 0, role: 'group', 'data-lm-suppress-shortcuts': 'true',
      'data-jp-suppress-context-menu': '',
      'aria-label': 'Graph. Arrows pan, plus and minus zoom, 0 fits, slash searches.'
    }, this.canvas, this.hooks, this.map.element, this.empty);
    this.search = h('input', {
      type: 'search', class: 'tb-search', placeholder: 'Search nodes', 'aria-label': 'Search nodes', spellcheck: 'false',
      'data-tb-action': 'graph-search', 'data-lm-suppress-shortcuts': 'true'
    });
    this.found = h('span', { class: 'tb-found', 'aria-live': 'polite' });
    this.tabs = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Stage' });
    this.legend = h('div', { class: 'tb-legend' });
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { type: 'button', class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
    this.element = h('section', { class: 'tb-view tb-graph', 'data-tb-view': 'graph', 'aria-label': 'Graph' },
      h('header', { class: 'tb-bar' }, h('h3', {}, 'Graph'), this.tabs, this.search, this.found,
        h('span', { class: 'tb-spring' }),
        button('graph-expand', '⊞', 'Open all groups', () => this.openAll()),
        button('graph-collapse', '⊟', 'Close all groups', () => this.closeAll()),
        button('graph-out', '−', 'Zoom out', () => this.zoom(1 / 1.3)),
        button('graph-in', '+', 'Zoom in', () => this.zoom(1.3)),
        button('graph-fit', 'Fit', 'Fit the graph into the view', () => this.fit())),
      this.stage, this.legend);
    this.listen();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    cancelAnimationFrame(this.painted);
    clearTimeout(this.hookTimer);
  }

  /** Shows a stage and keeps to it. */
  show(stage: string): void {
    this.pinned = stage;
    this.choose();
  }

  private get scene(): Scene | undefined {
    return this.scenes.get(this.shown);
  }

  private listen(): void {
    const { store } = this;
    this.stops.push(
      store.on('frame', key => this.arrived(key)),
      store.on('selection', source => this.followSelection(source !== 'graph')),
      store.on('hover', () => this.followHover()),
      store.on('colour', () => this.repaint()),
      onTheme(() => {
        this.colours = null;
        this.repaint();
      })
    );
    const resize = new ResizeObserver(() => this.resized());
    resize.observe(this.stage);
    this.stops.push(() => resize.disconnect());
    this.search.addEventListener('input', () => this.searched());
    this.search.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        this.search.value = '';
        this.searched();
        this.stage.focus();
      }
    });
    this.pointer();
    this.keys();
    for (const key of store.frames.keys()) this.arrived(key);
    this.choose();
  }

  private arrived(key: string): void {
    if (key === 'ops') {
      this.ops = new Ops(this.store.frames.get('ops')!);
      this.repaint();
      return;
    }
    if (!key.startsWith('graph:')) return;
    const stage = key.slice(6);
    const before = this.scenes.get(stage);
    const scene = new Scene(this.store.frames.get(key)!);
    if (before) {
      const paths = new Set([...before.opened].map(g => before.groupPaths[g]!));
      scene.opened.clear();
      scene.groupPaths.forEach((path, g) => {
        if (g === 0 || paths.has(path)) scene.opened.add(g);
      });
      scene.update();
    }
    this.scenes.set(stage, scene);
    this.choose();
  }

  /** The stage asked for, else the furthest one there is. */
  private choose(): void {
    const stages = this.scenes.has('netlist') ? FILE : STAGES;
    const there = stages.map(([name]) => name).filter(name => this.scenes.has(name));
    const next = there.includes(this.pinned) ? this.pinned : (there.at(-1) ?? '');
    this.tabs.replaceChildren(...stages.map(([name, label, title]) =>
      h('button', {
        type: 'button', title, 'data-tb-action': `graph-stage-${name}`, 'aria-pressed': String(name === next),
        disabled: !there.includes(name), onclick: () => this.show(name)
      }, label)));
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
    const scale = Math.min(1.15, first ? Math.max(whole, Math.min(0.8, (w - MARGIN) / width)) : whole);
    this.camera = {
      scale,
      x: (w - width * scale) / 2,
      y: height * scale > hgt ? MARGIN / 2 : (hgt - height * scale) / 2
    };
    this.fitted = true;
    this.repaint();
  }

  private zoom(factor: number, cx = this.stage.clientWidth / 2, cy = this.stage.clientHeight / 2): void {
    const scale = Math.max(0.02, Math.min(4, this.camera.scale * factor));
    const real = scale / this.camera.scale;
    this.camera = { scale, x: cx - (cx - this.camera.x) * real, y: cy - (cy - this.camera.y) * real };
    this.repaint();
  }

  private pan(dx: number, dy: number): void {
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
    this.repaint();
  }

  private centre(x: number, y: number): void {
    const { scale } = this.camera;
    this.camera = { scale, x: this.stage.clientWidth / 2 - x * scale, y: this.stage.clientHeight / 2 - y * scale };
    this.repaint();
  }

  private world(event: MouseEvent): [number, number] {
    const rect = this.stage.getBoundingClientRect();
    return [
      (event.clientX - rect.left - this.camera.x) / this.camera.scale,
      (event.clientY - rect.top - this.camera.y) / this.camera.scale
    ];
  }

  // -- pointer and keys -----------------------------------------------------------------------------------------
  private pointer(): void {
    const stage = this.stage;
    let from: { x: number; y: number; moved: boolean } | null = null;
    stage.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      from = { x: event.clientX, y: event.clientY, moved: false };
      stage.setPointerCapture(event.pointerId);
      stage.focus({ preventScroll: true });
    });
    stage.addEventListener('pointermove', event => {
      if (from) {
        const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
        if (!from.moved && Math.hypot(dx, dy) < 4) return;
        from = { x: event.clientX, y: event.clientY, moved: true };
        stage.classList.add('tb-panning');
        this.pan(dx, dy);
        return;
      }
      const hit = this.scene?.hit(...this.world(event));
      stage.style.cursor = hit && (hit.kind === 'node' || hit.header) ? 'pointer' : 'grab';
      this.store.setHover(hit?.kind === 'node' ? this.scene!.names[hit.ref]! : '');
    });
    stage.addEventListener('pointerup', event => {
      const moved = from?.moved;
      from = null;
      stage.classList.remove('tb-panning');
      if (moved === false) this.clicked(event);
    });
    stage.addEventListener('pointercancel', () => (from = null));
    stage.addEventListener('pointerleave', () => this.store.setHover(''));
    stage.addEventListener('dblclick', event => {
      const hit = this.scene?.hit(...this.world(event));
      if (hit?.kind === 'group' && hit.header) this.toggle(hit.ref);
    });
    stage.addEventListener('wheel', event => {
      // The wheel scrolls the page until the view is in focus, or a modifier says zoom.
      const focused = stage.contains(document.activeElement);
      if (!focused && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const rect = stage.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - rect.left, event.clientY - rect.top);
    }, { passive: false });
  }

  private clicked(event: PointerEvent): void {
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

  private keys(): void {
    this.stage.addEventListener('keydown', event => {
      if (event.target !== this.stage && event.key !== 'Escape') return;
      const step = 60;
      const actions: Record<string, () => void> = {
        ArrowLeft: () => this.pan(step, 0),
        ArrowRight: () => this.pan(-step, 0),
        ArrowUp: () => this.pan(0, step),
        ArrowDown: () => this.pan(0, -step),
        '+': () => this.zoom(1.25),
        '=': () => this.zoom(1.25),
        '-': () => this.zoom(1 / 1.25),
        '0': () => this.fit(),
        '/': () => this.search.focus(),
        Escape: () => this.store.select([], 'graph')
      };
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    });
  }

  // -- groups ---------------------------------------------------------------------------------------------------
  /** Opens or closes a group and keeps its head where it is on the screen. */
  private toggle(group: number): void {
    const scene = this.scene;
    if (!scene) return;
    const item = scene.itemOfGroup[group]!;
    const [x0, y0, w0] = scene.box(item);
    scene.toggle(group);
    const [x1, y1, w1] = scene.box(item);
    this.pan((x0 + w0 / 2 - x1 - w1 / 2) * this.camera.scale, (y0 - y1) * this.camera.scale);
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
  private searched(): void {
    const scene = this.scene;
    const text = this.search.value.trim();
    this.matchAt = -1;
    if (!scene || !text) {
      this.matches = null;
      this.found.textContent = '';
    } else {
      const wanted = pattern(text);
      const hits = scene.names.flatMap((name, i) => (wanted(name) || wanted(scene.types[i]!) ? [i] : []));
      this.matches = new Set(hits);
      this.found.textContent = `${hits.length} found`;
    }
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
    if (scroll && first !== undefined && this.selected.size <= 8) this.reveal(first, false);
    this.repaint();
  }

  private followHover(): void {
    this.hover = this.scene?.indexOf.get(this.store.hover) ?? -1;
    this.repaint();
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
    cancelAnimationFrame(this.painted);
    this.painted = requestAnimationFrame(() => this.paintNow());
  }

  private paintNow(): void {
    const scene = this.scene;
    const ctx = this.canvas.getContext('2d');
    if (!scene || !ctx || !this.canvas.width) return;
    this.colours ??= readColours(this.element);
    const dark = isDark();
    draw(ctx, scene, this.camera, {
      colours: this.colours,
      paint: node => this.paint(node, dark),
      selected: this.selected,
      hover: this.hover,
      matches: this.matches
    }, devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.stage;
    this.map.draw(scene, this.camera, this.colours, node => this.paint(node, dark).edge, clientWidth, clientHeight);
    this.hooks.style.transform = `translate(${this.camera.x}px, ${this.camera.y}px) scale(${this.camera.scale})`;
    clearTimeout(this.hookTimer);
    this.hookTimer = window.setTimeout(() => this.placeHooks(), 60);
    this.paintLegend(dark);
    this.element.dataset['tbStage'] = this.shown;
  }

  private colourBy(): ColourBy {
    return this.ops ? this.store.colour : 'family';
  }

  private paint(node: number, dark: boolean): Paint {
    const scene = this.scene!;
    const by = this.colourBy();
    if (by !== 'family' && scene.kinds[node] === 3) {
      const op = this.ops!.indexOf.get(scene.names[node]!);
      if (op !== undefined) return by === 'epoch' ? epochPaint(this.ops!.epochOf(op), dark) : loadPaint(this.ops!.load(op), dark);
    }
    return familyPaint(scene.kinds[node] === 3 ? scene.types[node]! : 'io', dark);
  }

  private paintLegend(dark: boolean): void {
    const by = this.colourBy();
    const key = `${by}${dark ? 'd' : 'l'}${this.shown}`;
    if (this.legend.dataset['key'] === key) return;
    this.legend.dataset['key'] = key;
    const swatch = (paint: Paint, label: string) =>
      h('span', { class: 'tb-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }), label);
    const placed = this.shown === 'lowered';
    const items =
      by === 'load' && placed
        ? [h('span', {}, 'cycles against the slowest op'),
            ...[0.1, 0.4, 0.7, 1].map(v => swatch(loadPaint(v, dark), v === 1 ? 'limits its epoch' : `${100 * v} %`))]
        : by === 'epoch' && placed
          ? [h('span', { class: 'tb-key' }, 'one colour per epoch')]
          : FAMILY_NAMES.map(name => swatch(familyPaint(name, dark), name));
    this.legend.replaceChildren(...items);
  }

  /** Elements over the nodes in view, under the camera's transform: named targets for tests, readers and the Tab key. */
  private placeHooks(): void {
    const scene = this.scene;
    if (!scene) return;
    const { scale, x, y } = this.camera;
    const made: HTMLElement[] = [];
    for (let item = 0; item < scene.structure.count && made.length < HOOKS; item++) {
      const kind = scene.structure.kind[item];
      if (!scene.layout.visible[item] || (kind !== NODE && kind !== GROUP)) continue;
      const [bx, by, bw, bh] = scene.box(item);
      if ((bx + bw) * scale + x < 0 || (by + bh) * scale + y < 0) continue;
      if (bx * scale + x > this.stage.clientWidth || by * scale + y > this.stage.clientHeight) continue;
      const ref = scene.structure.ref[item]!;
      const open = kind === GROUP && scene.opened.has(ref);
      const attributes =
        kind === NODE
          ? { 'data-tb-op': scene.names[ref]!, 'aria-label': scene.names[ref]!, 'aria-pressed': String(this.selected.has(ref)) }
          : {
              'data-tb-group': scene.groupPaths[ref]!,
              'aria-label': `group ${scene.groupPaths[ref]!}`,
              'aria-expanded': String(open)
            };
      const hook = h('button', {
        type: 'button', class: 'tb-hook', tabindex: -1, ...attributes,
        style: `left:${bx}px;top:${by}px;width:${bw}px;height:${open ? 22 : bh}px`
      });
      made.push(hook);
    }
    this.hooks.replaceChildren(...made);
  }
}

function pattern(text: string): (name: string) => boolean {
  try {
    const expression = new RegExp(text, 'i');
    return name => expression.test(name);
  } catch {
    const lower = text.toLowerCase();
    return name => name.toLowerCase().includes(lower);
  }
}

function readColours(element: HTMLElement): Colours {
  const style = getComputedStyle(element);
  const read = (name: string) => style.getPropertyValue(name).trim() || '#888';
  return {
    text: read('--tb-text'),
    muted: read('--tb-muted'),
    line: read('--tb-edge'),
    surface: read('--tb-surface'),
    group: read('--tb-group'),
    groupEdge: read('--tb-group-edge'),
    accent: read('--tb-accent'),
    incoming: read('--tb-incoming'),
    outgoing: read('--tb-outgoing'),
    font: read('--tb-font')
  };
}
