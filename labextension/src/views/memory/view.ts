/** Memory: the L1 of every core of an epoch, and the queues in the channels of DRAM. */
import { h } from '../dom.js';
import { undoKey } from '../editbar.js';
import type { Frame } from '../frame.js';
import { Ops } from '../ops.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, onTheme } from '../theme.js';
import { LazyFrames } from '../lazyframes.js';
import { MemoryData } from './data.js';
import { QueueDrag } from './drag.js';
import { lanes, legend, queueCard } from './dram.js';
import { core, drawHeat } from './l1.js';

type Mode = 'l1' | 'dram';

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
  private readonly told: { mode: SyncedTrait<Mode>; core: SyncedTrait<number[]>; channel: SyncedTrait<number | null> };
  private fresh = true;

  constructor(private readonly store: Store) {
    this.element = h('section', {
      class: 'tb-view tb-memory', 'data-tb-view': 'memory', 'aria-label': 'Memory', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
    }, this.bar, this.body);
    this.drag = new QueueDrag(this.element, () => this.data, () => store.edits !== null && !store.edits.busy, (queue, channel) => this.put(queue, channel));
    this.told = {
      mode: syncedTrait<Mode>(store, 'mode', 'l1', mode => this.show(mode), { of: 'memory' }),
      core: syncedTrait<number[]>(store, 'core', [], at => this.choose(at), { of: 'memory' }),
      channel: syncedTrait<number | null>(store, 'channel', null, channel => this.pick(channel), { of: 'memory' })
    };
    this.mode = this.told.mode.value();
    this.core = this.told.core.value();
    this.channel = this.told.channel.value();
    this.lazyFrames = new LazyFrames(store, this.element, {
      keys: ['memory'], ready: () => this.ops !== null, question: () => ({ type: 'want', key: 'memory' }), paint: () => this.render()
    });
    const draw = () => this.lazyFrames.draw();
    this.stops.push(
      () => this.lazyFrames.dispose(), () => Object.values(this.told).forEach(t => t.dispose()),
      store.on('frame', key => {
        if (key === 'ops') {
          this.ops = Ops.of(store.frames.get('ops')!);
          this.lazyFrames.outdated();
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
    this.told.mode.tell(mode);
    this.lazyFrames.draw();
  }

  private pick(channel: number | null): void {
    this.channel = channel;
    this.told.channel.tell(channel);
    this.lazyFrames.draw();
  }

  /** Another core of the epoch shown: its op is selected. */
  private choose(at: number[]): void {
    this.core = at;
    this.told.core.tell(at);
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
    this.told.core.tell(this.core);
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

  private get chosen(): string {
    return this.store.selection.names[0] ?? '';
  }

  private render(): void {
    this.take();
    const { data, ops, store } = this;
    const { refused } = this.lazyFrames;
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
      const wanted = data.indexOf.has(this.chosen) ? this.chosen : (data.names[fullest] ?? '');
      this.body.replaceChildren(h('div', { class: 'tb-heat-box' }, drawHeat(ops, data, epoch, isDark(), this.core)), h('div', { class: 'tb-core-box', tabindex: 0 }, core(data, wanted)));
    } else {
      const live = store.edits !== null && !store.edits.busy;
      this.body.replaceChildren(
        h('div', { class: 'tb-lane-box' }, lanes(data, this.chip, epoch, this.channel), legend()),
        h('div', { class: 'tb-core-box', tabindex: 0 }, queueCard(data, this.chosen, epoch, live ? channel => this.put(this.chosen, channel) : null)));
    }
    this.mark();
  }

  private header(): void {
    const { data, ops, store } = this;
    const mode = (id: Mode, label: string, title: string) => h('button', {
      type: 'button', 'data-tb-action': `memory-${id}`, 'aria-pressed': String(this.mode === id), title,
      onclick: () => this.show(id)
    }, label);
    this.bar.replaceChildren(h('h3', {}, 'Memory'),
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Memory shown' },
        mode('l1', 'L1 of cores', 'buffers of the ops of an epoch'), mode('dram', 'DRAM channels', 'queues by channel and address')),
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
    const op = ops?.indexOf.get(this.chosen);
    const queue = data?.queueOf.get(this.chosen);
    if (ops && op !== undefined && !this.covers(op)) {
      this.core = [ops.get('row', op), ops.get('col', op)];
      this.told.core.tell(this.core);
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
