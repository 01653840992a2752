/** Chips as cards with their links: what each runs in a temporal epoch; ops and epochs are dragged to other chips. */
import { bytes, h, percent, short, svg } from './dom.js';
import { undoKey } from './editbar.js';
import type { SingleEdit } from './editmessages.js';
import type { Frame } from './frame.js';
import { paintOf, Rows } from './grid/draw.js';
import { shortName } from './names.js';
import { Ops } from './ops.js';
import type { Store } from './store.js';
import { isDark, loadPaint, onTheme } from './theme.js';
import { LazyFrames } from './lazyframes.js';

const CARD_W = 188;
const CARD_H = 176;
const GAP_X = 66;
const GAP_Y = 40;
const CELL_W = 9;
const CELL_H = 6;
const SLOP = 4; // px before a press is a drag

export class ClusterView {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar' });
  private readonly plane = h('div', { class: 'tb-cluster-plane', tabindex: 0 });
  private readonly stops: (() => void)[] = [];
  private ops: Ops | null = null;
  private frame: Frame | null = null;
  private temporal = 0;
  private readonly lazyFrames: LazyFrames;
  private tag: HTMLElement | null = null;
  private from: { x: number; y: number; op: string; epoch: number; chip: number } | null = null;
  private target = -1;
  private dragged = false;

  constructor(private readonly store: Store) {
    this.element = h('section', {
      class: 'tb-view tb-cluster', 'data-tb-view': 'cluster', 'aria-label': 'Cluster', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
    }, this.bar, this.plane);
    this.lazyFrames = new LazyFrames(store, this.element, {
      keys: ['cluster'], ready: () => this.ops !== null, question: () => ({ type: 'want', key: 'cluster' }), paint: () => this.render(),
      onSize: () => this.scale()
    });
    const draw = () => this.lazyFrames.draw();
    this.stops.push(
      () => this.lazyFrames.dispose(),
      store.on('frame', key => {
        if (key === 'cluster') this.load();
        else if (key === 'ops') {
          this.ops = Ops.of(store.frames.get('ops')!);
          this.lazyFrames.onOutdated();
          draw();
        } else if (key === 'edits' && !this.tag) draw();
      }),
      store.on('epoch', () => this.follow()),
      store.on('colour', draw),
      store.on('selection', draw),
      onTheme(draw));
    this.element.addEventListener('keydown', event => {
      if (event.key === 'Escape' && this.tag) {
        event.stopPropagation();
        this.end();
      } else void undoKey(event, store);
    });
    this.gestures();
    const ops = store.frames.get('ops');
    if (ops) this.ops = Ops.of(ops);
    this.load();
    this.lazyFrames.ask();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private load(): void {
    this.frame = this.store.frames.get('cluster') ?? null;
    this.follow();
  }

  /** Shows the temporal epoch of the epoch that the other views show. */
  private follow(): void {
    if (this.ops && this.store.epoch < this.ops.epochs) this.temporal = this.ops.ofEpoch('temporal', this.store.epoch);
    this.lazyFrames.draw();
  }

  /** Numbers of epochs of a chip; only that of the temporal epoch shown if `now`. */
  private epochsOf(chip: number, now: boolean): number[] {
    const { ops } = this;
    if (!ops) return [];
    return ops.byEpoch.map((_, e) => e).filter(e => ops.ofEpoch('chip', e) === chip && (!now || ops.ofEpoch('temporal', e) === this.temporal));
  }

  private render(): void {
    const { ops, frame } = this;
    const { refusal: refused } = this.lazyFrames;
    if (!ops || !frame || refused) {
      this.bar.replaceChildren(h('h3', {}, 'Cluster'));
      this.plane.replaceChildren(h('div', { class: 'tb-empty' }, this.lazyFrames.waiting('Reading what crosses the links …', 'Chips appear here once the model is placed.')));
      return;
    }
    const chips = Array.from(frame.column('chip_id'));
    const last = Math.max(0, ...Array.from({ length: ops.epochs }, (_, e) => ops.ofEpoch('temporal', e)));
    this.temporal = Math.min(this.temporal, last);
    this.element.dataset['tbTemporal'] = String(this.temporal);
    this.header(chips, last);
    const slowest = Number(frame.meta['slowest']);
    const spots = chips.map((_, k): [number, number] => [frame.column('chip_x')[k]! * (CARD_W + GAP_X), frame.column('chip_y')[k]! * (CARD_H + GAP_Y)]);
    const width = Math.max(...spots.map(([x]) => x)) + CARD_W;
    const height = Math.max(...spots.map(([, y]) => y)) + CARD_H;
    const board = h('div', { class: 'tb-cluster-board', style: `width:${width}px;height:${height}px` }, this.links(chips, spots, width, height) as unknown as HTMLElement,
      ...chips.map((chip, k) => this.card(ops, frame, chip, k, spots[k]!, slowest)));
    board.dataset['width'] = String(width);
    board.dataset['height'] = String(height);
    this.plane.replaceChildren(board);
    this.scale();
  }

  private header(chips: number[], last: number): void {
    const { ops, store } = this;
    const go = (to: number) => {
      this.temporal = Math.max(0, Math.min(last, to));
      const first = ops!.byEpoch.findIndex((_, e) => ops!.ofEpoch('temporal', e) === this.temporal);
      if (first >= 0) store.setEpoch(first);
      this.render();
    };
    const button = (action: string, label: string, title: string, to: number) =>
      h('button', { class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, disabled: to < 0 || to > last, onclick: () => go(to) }, label);
    const name = store.selection.names[0] ?? '';
    const op = ops?.indexOf.get(name);
    const choice = op !== undefined && store.edits !== null && !store.edits.busy ? h('label', { class: 'tb-check' }, `${shortName(name)} on`, h('select', {
      class: 'tb-select', 'aria-label': `chip of ${name}`, 'data-tb-action': 'op-chip',
      onchange: (event: Event) => this.put(name, Number((event.target as HTMLSelectElement).value))
    }, ...chips.map(chip => h('option', { value: String(chip), selected: ops!.get('chip', op) === chip }, `chip ${chip}`)))) : '';
    this.bar.replaceChildren(h('h3', {}, 'Cluster'), button('temporal-previous', '‹', 'Previous temporal epoch', this.temporal - 1),
      h('b', {}, `temporal epoch ${this.temporal}`), h('span', { class: 'tb-found' }, `of ${last + 1}`), button('temporal-next', '›', 'Next temporal epoch', this.temporal + 1),
      h('span', { class: 'tb-spring' }), choice,
      h('span', { class: 'tb-found' }, `${chips.length} chips; epochs of the busiest: ${short(Number(this.frame!.meta['slowest']))} cycles per input`));
  }

  private card(ops: Ops, frame: Frame, chip: number, k: number, [x, y]: [number, number], slowest: number): HTMLElement {
    const here = this.epochsOf(chip, true);
    const all = this.epochsOf(chip, false);
    const cycles = frame.column('chip_cycles')[k]!;
    const cores = here.reduce((sum, e) => sum + ops.ofEpoch('cores', e), 0) / (ops.rows * ops.cols);
    const chosen = new Set(this.store.selection.names);
    const rows = Rows.of(ops.frame.meta, chip, CELL_H, 2);
    const mini = svg('svg', { class: 'tb-cluster-mini', viewBox: `0 0 ${ops.cols * CELL_W} ${rows.height}`, role: 'list', 'aria-label': `cores of chip ${chip}` },
      svg('rect', { class: 'tb-mini-ground', width: ops.cols * CELL_W, height: rows.height, rx: 2 }));
    for (const epoch of here) {
      for (const op of ops.byEpoch[epoch]!) {
        if (!ops.get('rows', op)) continue;
        const [top, tall] = rows.span(ops.get('row', op), ops.get('rows', op), CELL_H);
        const paint = paintOf(ops, op, this.store.colour, isDark());
        mini.append(svg('rect', {
          x: ops.get('col', op) * CELL_W + 0.4, y: top + 0.4, width: ops.get('cols', op) * CELL_W - 0.8, height: tall - 0.8, rx: 1.2, role: 'listitem',
          fill: paint.fill, stroke: paint.edge, 'stroke-width': 0.5, class: chosen.has(ops.name[op]!) ? 'tb-chip-op tb-selected' : 'tb-chip-op',
          'data-tb-op': ops.name[op]!, 'aria-label': ops.name[op]!
        }, svg('title', {}, ops.name[op])));
      }
    }
    const share = cycles / Math.max(1, slowest);
    const paint = loadPaint(share, isDark());
    const said = all.length ? `${all.length} epoch${all.length > 1 ? 's' : ''}, ${short(cycles)} cycles` : 'idle';
    return h('div', {
      class: `tb-chip-card${all.length ? '' : ' tb-idle'}${share >= 1 && all.length ? ' tb-slowest' : ''}`, 'data-tb-chip': chip, role: 'group',
      'aria-label': `chip ${chip}: ${said}`, style: `left:${x}px;top:${y}px;width:${CARD_W}px;height:${CARD_H}px`
    },
    h('header', {}, h('b', {}, `chip ${chip}`), frame.column('chip_mmio')[k] ? h('span', { class: 'tb-mmio', title: 'Connected directly to the host' }, 'host') : '',
      h('span', { class: 'tb-spring' }), h('span', { class: 'tb-found' }, `stage ${frame.column('chip_stage')[k]!}`)),
    mini as unknown as HTMLElement,
    h('div', { class: 'tb-chip-now' }, here.length ? `epoch ${here.join(', ')}: ${percent(cores)} of cores` : 'idle'),
    h('div', { class: 'tb-chip-epochs' }, ...all.map(e => h('button', {
      class: `tb-chip-epoch${here.includes(e) ? ' tb-now' : ''}`, 'data-tb-epoch': e, 'data-tb-action': 'cluster-epoch',
      'aria-label': `epoch ${e}, ${short(ops.epochTimes[e]!)} cycles`, title: `epoch ${e}: ${ops.byEpoch[e]!.length} ops, ${short(ops.epochTimes[e]!)} cycles`
    }, String(e)))),
    h('div', { class: 'tb-chip-load', title: said }, h('i', { style: `width:${Math.min(100, 100 * share)}%;background:${paint.edge}` })),
    h('div', { class: 'tb-chip-cycles' }, said));
  }

  private links(chips: number[], spots: [number, number][], width: number, height: number): SVGSVGElement {
    const { frame } = this;
    const root = svg('svg', { class: 'tb-cluster-links', width, height, 'aria-hidden': 'true' });
    const centre = (chip: number): [number, number] => {
      const [x, y] = spots[chips.indexOf(chip)]!;
      return [x + CARD_W / 2, y + CARD_H / 2];
    };
    frame!.column('link_a').forEach((a: number, k: number) => {
      const get = (name: string) => frame!.column(`link_${name}`)[k]!;
      const [[x0, y0], [x1, y1]] = [centre(a), centre(get('b'))];
      const moved = get('forth') + get('back');
      const load = get('load');
      const line = svg('line', {
        class: `tb-eth${moved ? ' tb-busy' : ''}${load > 1 ? ' tb-full' : ''}`, x1: x0, y1: y0, x2: x1, y2: y1, 'data-tb-link': `${a}-${get('b')}`,
        'stroke-width': moved ? 3 + 5 * Math.min(1, load) : 2
      }, svg('title', {}, `${get('count')} links; ${bytes(get('forth'))} forth, ${bytes(get('back'))} back per input`));
      root.append(line);
      if (!moved) return;
      const text = svg('text', { class: 'tb-eth-text', x: (x0 + x1) / 2, y: (y0 + y1) / 2 - (y0 === y1 ? 8 : -4), 'text-anchor': 'middle' });
      text.append(svg('tspan', {}, bytes(moved)), svg('tspan', { x: (x0 + x1) / 2, dy: y0 === y1 ? 20 : 0, dx: y0 === y1 ? 0 : 60 }, percent(load)));
      root.append(text);
    });
    return root;
  }

  /** Fits the board to the width there is; it scrolls when it would get too small to read. */
  private scale(): void {
    const board = this.plane.firstElementChild as HTMLElement | null;
    if (!board?.dataset['width'] || !this.plane.clientWidth) return;
    const [width, height] = [Number(board.dataset['width']), Number(board.dataset['height'])];
    const scale = Math.max(0.42, Math.min(1, (this.plane.clientWidth - 24) / width));
    board.style.transform = `scale(${scale})`;
    board.style.marginRight = `${(scale - 1) * width}px`;
    board.style.marginBottom = `${(scale - 1) * height}px`;
  }

  // -- dragging ----------------------------------------------------------------------------------------------------
  private gestures(): void {
    const { plane, store } = this;
    plane.addEventListener('click', event => {
      if (this.dragged) {
        this.dragged = false;
        return;
      }
      const at = (event.target as Element).closest<HTMLElement | SVGElement>('[data-tb-op], [data-tb-epoch]');
      if (at?.dataset['tbOp']) store.click(at.dataset['tbOp'], event.ctrlKey || event.metaKey, 'cluster');
      else if (at?.dataset['tbEpoch']) store.setEpoch(Number(at.dataset['tbEpoch']));
    });
    plane.addEventListener('pointerdown', event => {
      const at = (event.target as Element).closest<HTMLElement | SVGElement>('[data-tb-op], [data-tb-epoch]');
      const card = at?.closest<HTMLElement>('[data-tb-chip]');
      this.dragged = false;
      if (!at || !card || event.button !== 0 || event.shiftKey || event.ctrlKey || !store.edits || store.edits.busy) return;
      this.from = {
        x: event.clientX, y: event.clientY, op: at.dataset['tbOp'] ?? '', epoch: Number(at.dataset['tbEpoch'] ?? -1), chip: Number(card.dataset['tbChip'])
      };
    });
    plane.addEventListener('pointermove', event => this.move(event));
    plane.addEventListener('pointerup', () => this.drop());
    plane.addEventListener('pointercancel', () => this.end());
  }

  private move(event: PointerEvent): void {
    const { from, plane } = this;
    if (!from) return;
    if (!this.tag) {
      if (Math.hypot(event.clientX - from.x, event.clientY - from.y) < SLOP) return;
      this.tag = h('div', { class: 'tb-tag' });
      this.element.append(this.tag);
      plane.setPointerCapture(event.pointerId);
      this.element.dataset['tbDragging'] = from.op ? 'op' : 'epoch';
      plane.focus({ preventScroll: true });
    }
    const under = document.elementFromPoint(event.clientX, event.clientY)?.closest<HTMLElement>('[data-tb-chip]') ?? null;
    const card = under && plane.contains(under) ? under : null;
    this.target = card ? Number(card.dataset['tbChip']) : -1;
    for (const other of plane.querySelectorAll('[data-tb-chip]')) other.classList.toggle('tb-over', other === card);
    const elsewhere = this.target >= 0 && this.target !== from.chip;
    this.tag.dataset['tbVerdict'] = elsewhere ? 'LEGAL' : 'OUTSIDE';
    const what = from.op ? shortName(from.op) : `epoch ${from.epoch}, ${this.ops!.byEpoch[from.epoch]!.length} ops`;
    this.tag.replaceChildren(h('b', {}, what), h('span', {}, elsewhere ? `chip ${from.chip} → chip ${this.target}` : 'drop it on another chip'));
    const box = this.element.getBoundingClientRect();
    this.tag.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 200)}px`;
    this.tag.style.top = `${Math.min(event.clientY - box.top + 16, box.height - 50)}px`;
  }

  private drop(): void {
    const { from, target } = this;
    const legal = this.tag?.dataset['tbVerdict'] === 'LEGAL';
    this.dragged = this.tag !== null;
    this.end();
    if (!from || !legal) return;
    if (from.op) this.put(from.op, target);
    else this.putEpoch(from.epoch, target);
  }

  private end(): void {
    this.from = null;
    this.target = -1;
    this.tag?.remove();
    this.tag = null;
    delete this.element.dataset['tbDragging'];
    this.plane.querySelectorAll('.tb-over').forEach(card => card.classList.remove('tb-over'));
  }

  private put(op: string, chip: number): void {
    this.store.edit({ do: 'chip', op, chip });
  }

  /** All ops of an epoch to a chip, as one step. */
  private putEpoch(epoch: number, chip: number): void {
    const edits = this.ops!.byEpoch[epoch]!.map((op): SingleEdit => ({ do: 'chip', op: this.ops!.name[op]!, chip }));
    this.store.edit({ do: 'many', edits, label: `epoch ${epoch} to chip ${chip}` });
  }
}
