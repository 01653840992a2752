/** Memory: the L1 of every core of an epoch, and the queues in the channels of DRAM. */
import { bytes, elide, h, percent, svg } from '../dom.js';
import { Rows } from '../grid/draw.js';
import { fitting, shortName } from '../names.js';
import { Ops } from '../ops.js';
import { isDark, loadPaint, onTheme } from '../theme.js';
import { hex, MemoryData, type Part } from './data.js';
import { undoKey } from '../editbar.js';
import type { Frame } from '../frame.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { LazyFrames } from '../lazyframes.js';
import { timePicture } from './time.js';
import { lanes, legend, queueCard, QueueDrag } from './dram.js';

// The L1 of the cores of an epoch: how full each is, and the buffers of the chosen one by address.
const CELL_W = 46;
const CELL_H = 30;
const STRIP = 10;
const LEFT = 20;
const TOP = 16;

/** Every core of an epoch, coloured by how full it is. core: row and column of one that is marked. */
function drawHeat(ops: Ops, data: MemoryData, epoch: number, dark: boolean, core: readonly number[] = []): SVGSVGElement {
  const rows = Rows.of(ops.frame.meta, ops.ofEpoch('chip', epoch), CELL_H, STRIP);
  const w = ops.cols * CELL_W;
  const root = svg('svg', {
    class: 'tb-cores tb-heat', viewBox: `0 0 ${LEFT + w + 4} ${TOP + rows.height + 4}`, role: 'listbox', 'aria-multiselectable': 'true', preserveAspectRatio: 'xMidYMin meet',
    'aria-label': `L1 of epoch ${epoch}: ${ops.rows} rows by ${ops.cols} columns`
  });
  const plane = svg('g', { transform: `translate(${LEFT} ${TOP})` });
  root.append(plane);
  for (let c = 0; c < ops.cols; c++) plane.append(svg('text', { class: 'tb-ruler', x: (c + 0.5) * CELL_W, y: -5, 'text-anchor': 'middle' }, String(c)));
  const cells: string[] = [];
  for (let r = 0; r < ops.rows; r++) {
    plane.append(svg('text', { class: 'tb-ruler', x: -6, y: rows.top[r]! + CELL_H / 2 + 4, 'text-anchor': 'end' }, String(r)));
    for (let c = 0; c < ops.cols; c++) cells.push(`M${c * CELL_W + 1} ${rows.top[r]! + 1}h${CELL_W - 2}v${CELL_H - 2}h${2 - CELL_W}z`);
  }
  plane.append(svg('path', { class: 'tb-lattice', d: cells.join('') }));
  for (const { y } of rows.strips) plane.append(svg('rect', { class: 'tb-diff-strip', x: 0, y: y + 1, width: w, height: STRIP - 2 }));
  for (const op of ops.byEpoch[epoch] ?? []) {
    const at = data.indexOf.get(ops.name[op]!);
    if (at === undefined || !ops.get('rows', op)) continue;
    const [row, col, high, wide] = [ops.get('row', op), ops.get('col', op), ops.get('rows', op), ops.get('cols', op)];
    const [y, tall] = rows.span(row, high, CELL_H);
    const fill = data.fill(at);
    const paint = loadPaint(fill, dark);
    const [width, height] = [wide * CELL_W - 3, tall - 3];
    const group = svg('g', {
      class: 'tb-tile', 'data-tb-op': ops.name[op]!, 'data-tb-fill': fill.toFixed(4), role: 'option', tabindex: -1
    });
    group.style.setProperty('--tile-text', paint.text);
    group.append(svg('title', {}, `${ops.name[op]!}: ${bytes(data.used(at))} of every core, ${percent(fill)} of what buffers may use`),
      svg('rect', { class: 'tb-body', x: col * CELL_W + 1.5, y: y + 1.5, width, height, rx: 4, fill: paint.fill, stroke: paint.edge }));
    const room = Math.floor(width / 6);
    const full = ops.short(op);
    if (height > 44 || width > 60) {
      group.append(svg('text', { class: 'tb-sub', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + 1.5 + height / 2 - 2, 'text-anchor': 'middle' },
        elide(fitting(full, room, ops.told(op)), room)));
      group.append(svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + 1.5 + height / 2 + 10, 'text-anchor': 'middle' }, percent(fill)));
    } else {
      group.append(svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + height / 2 + 5, 'text-anchor': 'middle' }, percent(fill)));
    }
    plane.append(group);
  }
  const [row, col] = core;
  if (row !== undefined && row < ops.rows && col! < ops.cols) plane.append(svg('rect', {
    class: 'tb-core-mark', 'data-tb-core': core.join(','), x: col! * CELL_W + 3.5, y: rows.top[row]! + 3.5, width: CELL_W - 7, height: CELL_H - 7, rx: 3
  }));
  return root;
}

function what(part: Part): string {
  if (part.kind === 'output') return 'output';
  if (part.kind === 'intermediate') return 'intermediates';
  return part.operand < 0 ? part.kind : `${part.kind} ${part.operand}`;
}

/** The core of an op from address 0 to the end, and its buffers one by one. */
function core(data: MemoryData, name: string): HTMLElement {
  const op = data.indexOf.get(name);
  if (op === undefined) return h('div', { class: 'tb-empty' }, 'Choose an op to see the buffers of its cores.');
  const parts = data.partsOf(op), sizes = data.frame.meta['sizes'];
  const share = (value: number) => `${((100 * value) / data.size).toFixed(3)}%`;
  const segment = (kind: string, size: number, title: string) =>
    h('i', { class: `tb-seg tb-seg-${kind}`, style: `width:${share(size)}`, title, 'data-tb-part': kind });
  const free = data.free(op);
  const line = (kind: string, label: string, source: string, size: number, start: number) =>
    h('tr', { 'data-tb-part': kind, 'data-tb-bytes': size },
      h('td', {}, h('i', { class: `tb-seg tb-seg-${kind} tb-seg-key` }), label), h('td', { title: source }, source),
      h('td', { class: 'tb-right' }, bytes(size)), h('td', { class: 'tb-right' }, percent(size / data.size)), h('td', { class: 'tb-right tb-hex' }, hex(start)));
  return h('div', { class: 'tb-core', 'data-tb-core-of': name },
    h('p', { class: 'tb-core-head' }, h('b', { title: name }, shortName(name)), ` · ${typeof sizes === 'string' ? 'fullest core' : 'every core'}: ${bytes(data.used(op))} in buffers, `,
      h('span', { 'data-tb-metric': 'l1-free' }, `${bytes(free)} free`), `, largest hole ${bytes(data.hole(op))}`),
    h('div', { class: 'tb-l1bar', role: 'img', 'aria-label': parts.map(p => `${what(p)} ${bytes(p.bytes)}`).join(', ') },
      segment('reserved', data.reserved, `reserved: firmware, overlay, routing tables, ${bytes(data.reserved)}`),
      ...parts.map(p => segment(p.kind, p.bytes, `${what(p)}, ${p.source}: ${bytes(p.bytes)}`)),
      segment('free', free, `free: ${bytes(free)}`)),
    h('div', { class: 'tb-l1ends' }, h('span', {}, '0x0'), h('span', {}, hex(data.size))),
    h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...['Buffer', 'Of', 'Bytes', 'of L1', 'From'].map((t, k) => h('th', { scope: 'col', class: `tb-title${k > 1 ? ' tb-right' : ''}` }, t)))),
      h('tbody', {}, line('reserved', 'reserved', 'firmware, overlay, routing tables', data.reserved, 0),
        ...parts.map(p => line(p.kind, what(p), p.source, p.bytes, p.start)),
        line('free', 'free', '', free, data.size - free))),
    h('p', { class: 'tb-fix' }, `Sizes are ${typeof sizes === 'string' ? sizes : 'those of the compile'}; the backend assigns the final addresses.`));
}

type Mode = 'l1' | 'dram' | 'time';

/** Memory: the L1 of every core of an epoch, and the queues in the channels of DRAM. */
export class MemoryView {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar' });
  private readonly body = h('div', { class: 'tb-memory-body' });
  private readonly stops: (() => void)[] = [];
  private readonly drag: QueueDrag;
  private readonly lazyFrames: LazyFrames;
  private frame: Frame | null = null;
  private data: MemoryData | null = null;
  private ops: Ops | null = null;
  private mode: Mode = 'l1';
  private chip = 0;
  /** Row and column of the core whose buffers are listed; nothing: of the fullest. */
  private core: number[] = [];
  private channel: number | null = null;
  private readonly synced: { mode: SyncedTrait<Mode>; core: SyncedTrait<number[]>; channel: SyncedTrait<number | null> };
  private fresh = true;

  constructor(private readonly store: Store) {
    this.element = h('section', {
      class: 'tb-view tb-memory', 'data-tb-view': 'memory', 'aria-label': 'Memory', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
    }, this.bar, this.body);
    this.drag = new QueueDrag(this.element, () => this.data, () => store.edits !== null && !store.edits.busy, (queue, channel) => this.put(queue, channel));
    this.synced = {
      mode: syncedTrait<Mode>(store, 'mode', 'l1', mode => this.show(mode), { of: 'memory' }),
      core: syncedTrait<number[]>(store, 'core', [], at => this.choose(at), { of: 'memory' }),
      channel: syncedTrait<number | null>(store, 'channel', null, channel => this.pick(channel), { of: 'memory' })
    };
    this.mode = this.synced.mode.value();
    this.core = this.synced.core.value();
    this.channel = this.synced.channel.value();
    this.lazyFrames = new LazyFrames(store, this.element, {
      keys: ['memory'], ready: () => this.ops !== null, question: () => ({ type: 'want', key: 'memory' }), paint: () => this.render()
    });
    const draw = () => this.lazyFrames.draw();
    this.stops.push(
      () => this.lazyFrames.dispose(), () => Object.values(this.synced).forEach(t => t.dispose()),
      store.on('frame', key => {
        if (key === 'ops') {
          this.ops = Ops.of(store.frames.get('ops')!);
          this.lazyFrames.onOutdated();
        }
        if (key === 'memory' || key === 'ops' || (key === 'edits' && !this.drag.dragging)) draw();
      }),
      store.on('epoch', draw),
      store.on('selection', source => this.follow(source !== 'memory')),
      onTheme(draw));
    this.element.addEventListener('keydown', event => void undoKey(event, store));
    this.element.addEventListener('click', event => {
      const target = (event.target as Element).closest<HTMLElement | SVGElement>('[data-tb-op], [data-tb-queue]');
      const name = target?.dataset['tbOp'] ?? target?.dataset['tbQueue'];
      const lane = (event.target as Element).closest<HTMLElement>('[data-tb-action=memory-lane]');
      if (lane) this.pick(this.channel === Number(lane.dataset['tbLane']) ? null : Number(lane.dataset['tbLane']));
      if (target?.dataset['tbOp'] && this.mode === 'l1') this.hit(target, event);
      if (name) store.click(name, (event as MouseEvent).ctrlKey || (event as MouseEvent).metaKey, 'memory');
    });
    const ops = store.frames.get('ops');
    if (ops) this.ops = Ops.of(ops);
    draw();
    this.lazyFrames.ask();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private show(mode: Mode): void {
    this.mode = mode;
    if (mode !== 'time') this.synced.mode.tell(mode); // the picture over time is one of the page alone
    this.lazyFrames.draw();
  }

  private pick(channel: number | null): void {
    this.channel = channel;
    this.synced.channel.tell(channel);
    this.lazyFrames.draw();
  }

  /** Another core of the epoch shown: its op is selected. */
  private choose(at: number[]): void {
    this.core = at;
    this.synced.core.tell(at);
    const { ops, store } = this;
    const op = ops?.byEpoch[Math.min(store.epoch, ops.epochs - 1)]?.find(k => this.covers(k));
    if (ops && op !== undefined) store.select([ops.name[op]!], 'memory');
    this.lazyFrames.draw();
  }

  /** Whether an op stands on the chosen core. */
  private covers(op: number): boolean {
    const [row, col] = this.core;
    const get = (name: string) => this.ops!.get(name, op);
    return row !== undefined && row >= get('row') && row < get('row') + get('rows') && col! >= get('col') && col! < get('col') + get('cols');
  }

  /** Which core of a tile was clicked. */
  private hit(tile: HTMLElement | SVGElement, event: MouseEvent): void {
    const op = this.ops?.indexOf.get(tile.dataset['tbOp']!);
    if (op === undefined) return;
    const box = tile.getBoundingClientRect();
    const at = (first: string, count: string, place: number, size: number) =>
      this.ops!.get(first, op) + Math.max(0, Math.min(this.ops!.get(count, op) - 1, Math.floor((place / (size || 1)) * this.ops!.get(count, op))));
    this.core = [at('row', 'rows', event.clientY - box.top, box.height), at('col', 'cols', event.clientX - box.left, box.width)];
    this.synced.core.tell(this.core);
    this.lazyFrames.draw();
  }

  private put(queue: string, channel: number): void {
    this.store.edit({ do: 'queue', queue, channel });
  }

  /** The newest frame, taken apart when somebody looks. */
  private take(): void {
    const frame = this.store.frames.get('memory') ?? null;
    if (frame === this.frame) return;
    this.frame = frame;
    this.data = frame && new MemoryData(frame);
    if (this.data && !this.data.chips.includes(this.chip)) this.chip = this.data.chips[0] ?? 0;
  }

  private get selection(): string {
    return this.store.selection.names[0] ?? '';
  }

  private render(): void {
    this.take();
    const { data, ops, store } = this;
    const { refusal: refused } = this.lazyFrames;
    this.element.dataset['tbMode'] = this.mode;
    this.header();
    if (!data || !ops || refused) {
      this.body.replaceChildren(h('div', { class: 'tb-empty' }, this.lazyFrames.waiting('Reading the buffers of every core …', 'Memory appears here once the model is placed.')));
      return;
    }
    const epoch = Math.min(store.epoch, ops.epochs - 1);
    if (this.fresh) {
      this.fresh = false;
      if (this.core.length) this.choose(this.core);
    }
    if (this.mode === 'l1') {
      const members = ops.byEpoch[epoch] ?? [];
      const fullest = members.map(op => data.indexOf.get(ops.name[op]!)).filter(op => op !== undefined)
        .reduce((best, op) => (best < 0 || data.used(op) > data.used(best) ? op : best), -1);
      const wanted = data.indexOf.has(this.selection) ? this.selection : (data.names[fullest] ?? '');
      this.body.replaceChildren(h('div', { class: 'tb-heat-box' }, drawHeat(ops, data, epoch, isDark(), this.core)), h('div', { class: 'tb-core-box', tabindex: 0 }, core(data, wanted)));
    } else if (this.mode === 'time') {
      this.body.replaceChildren(timePicture(ops, data, epoch, isDark(), (at, core) => {
        store.setEpoch(at);
        if (core.length) this.choose(core);
        else this.lazyFrames.draw();
      }));
    } else {
      const live = store.edits !== null && !store.edits.busy;
      this.body.replaceChildren(
        h('div', { class: 'tb-lane-box' }, lanes(data, this.chip, epoch, this.channel), legend()),
        h('div', { class: 'tb-core-box', tabindex: 0 }, queueCard(data, this.selection, epoch, live ? channel => this.put(this.selection, channel) : null)));
    }
    this.mark();
  }

  private header(): void {
    const { data, ops, store } = this;
    const mode = (id: Mode, label: string, title: string) => h('button', {
      'data-tb-action': `memory-${id}`, 'aria-pressed': String(this.mode === id), title,
      onclick: () => this.show(id)
    }, label);
    this.bar.replaceChildren(h('h3', {}, 'Memory'),
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Memory shown' },
        mode('l1', 'L1 of cores', 'buffers of the ops of an epoch'), mode('dram', 'DRAM channels', 'queues by channel and address'),
        mode('time', 'Over time', 'L1 of every core and DRAM by epoch, the fullest marked')),
      ops ? h('select', {
        class: 'tb-select', 'aria-label': 'Epoch', 'data-tb-action': 'memory-epoch',
        onchange: (event: Event) => store.setEpoch(Number((event.target as HTMLSelectElement).value))
      }, ...ops.byEpoch.map((_, k) => h('option', { value: String(k), selected: k === store.epoch }, `epoch ${k}`))) : '',
      data && this.mode === 'dram' && data.chips.length > 1 ? h('select', {
        class: 'tb-select', 'aria-label': 'Chip', 'data-tb-action': 'memory-chip',
        onchange: (event: Event) => {
          this.chip = Number((event.target as HTMLSelectElement).value);
          this.render();
        }
      }, ...data.chips.map(k => h('option', { value: String(k), selected: k === this.chip }, `chip ${k}`))) : '',
      h('span', { class: 'tb-spring' }),
      data && ops && this.mode === 'l1' ? h('span', { class: 'tb-found' }, 'colour: share of L1 that buffers may use') : '');
  }

  private follow(travel: boolean): void {
    const { data, ops, store } = this;
    const op = ops?.indexOf.get(this.selection);
    const queue = data?.queueOf.get(this.selection);
    if (ops && op !== undefined && !this.covers(op)) {
      this.core = [ops.get('row', op), ops.get('col', op)];
      this.synced.core.tell(this.core);
    }
    if (travel && data && queue !== undefined) this.chip = data.queues[queue]!.chip;
    if (travel && !this.lazyFrames.hidden && ops && op !== undefined && ops.epochOf(op) !== store.epoch) store.setEpoch(ops.epochOf(op));
    this.lazyFrames.draw();
  }

  private mark(): void {
    const chosen = new Set(this.store.selection.names);
    for (const item of this.element.querySelectorAll<HTMLElement | SVGElement>('[data-tb-op], [data-tb-queue]')) {
      const on = chosen.has(item.dataset['tbOp'] ?? item.dataset['tbQueue']!);
      item.classList.toggle('tb-selected', on);
      if (item instanceof HTMLElement) item.setAttribute('aria-pressed', String(on));
      else item.setAttribute('aria-selected', String(on));
    }
  }
}
