/** Queues as blocks in the lanes of their channels. A block can be dragged to another channel. */
import { bytes, withThousands, h, percent } from '../dom.js';
import { hex, type Lane, type MemoryData } from './data.js';

const KINDS = ['input', 'parameter', 'constant', 'output', 'e2e', 'sparse tiles', 'sparse encoding'];

function kindClass(kind: string): string {
  return `tb-q-${KINDS.includes(kind) ? kind.replace(' ', '-') : 'other'}`;
}

/** One lane per channel: the blocks of a chip by address; what the epoch does not need is faint. */
export function lanes(data: MemoryData, chip: number, epoch: number, chosen: number | null = null): HTMLElement {
  const shown = data.lanes.filter(lane => !lane.host || data.bytesIn(chip, lane) > 0);
  return h('div', { class: 'tb-lanes', role: 'list', 'aria-label': `DRAM channels of chip ${chip}` },
    ...shown.map(lane => laneRow(data, lane, chip, epoch, !lane.host && lane.channel === chosen)));
}

function laneRow(data: MemoryData, lane: Lane, chip: number, epoch: number, chosen: boolean): HTMLElement {
  const load = lane.host ? 0 : data.load(epoch, lane.channel);
  const share = Number.isNaN(load) ? '–' : percent(load);
  const held = data.bytesIn(chip, lane);
  const percentOf = (value: number) => `${(100 * value).toFixed(4)}%`;
  const bar = h('div', { class: 'tb-lane-bar' },
    ...data.gaps(chip, lane.host).map(([x, w, size]) =>
      h('i', { class: 'tb-lane-gap', style: `left:${percentOf(x)};width:${percentOf(w)}`, title: `${bytes(size)} that no channel uses` })));
  for (const block of data.blocks) {
    const queue = data.queues[block.queue]!;
    if (queue.chip !== chip || queue.host !== lane.host || block.channel !== lane.channel) continue;
    const alive = data.alive(block.queue, epoch);
    bar.append(h('button', {
      class: `tb-block ${kindClass(queue.kind)}${alive ? '' : ' tb-idle'}`, 'data-tb-queue': queue.name, 'data-tb-action': 'select-queue',
      'data-tb-address': block.address, style: `left:${percentOf(block.x)};width:${percentOf(block.w)}`,
      'aria-label': `${queue.name}, ${queue.kind}, ${bytes(queue.bytes)} at ${hex(block.address)}`,
      title: `${queue.name}\n${queue.kind}, ${bytes(queue.bytes)} at ${hex(block.address)}${alive ? '' : '\nnot needed in this epoch'}`
    }));
  }
  const label = lane.host ? `host ${lane.channel}` : `ch ${lane.channel}`;
  return h('div', {
    class: chosen ? 'tb-lane tb-chosen' : 'tb-lane', role: 'listitem', 'data-tb-channel': lane.channel, 'data-tb-location': lane.host ? 'host' : 'dram',
    'aria-label': `${label}: ${bytes(held)} in queues${lane.host ? '' : `, ${share} of its bandwidth used in epoch ${epoch}`}`
  },
  lane.host ? h('span', { class: 'tb-lane-name' }, label) : h('button', {
    class: 'tb-lane-name', 'data-tb-action': 'memory-lane', 'data-tb-lane': lane.channel, 'aria-pressed': String(chosen), title: 'Mark or unmark this channel'
  }, label), bar, h('span', { class: 'tb-lane-held' }, bytes(held)),
  lane.host ? h('span', { class: 'tb-lane-load' }) : h('span', {
    class: `tb-lane-load${load > 1 ? ' tb-worse' : ''}`, 'data-tb-metric': 'channel-load',
    title: `${withThousands(data.bytesPerInput(epoch, lane.channel))} bytes per input in epoch ${epoch}, of ${data.capacity.toFixed(1)} bytes per cycle`
  }, h('i', {}, h('b', { style: `width:${Math.min(100, 100 * load || 0)}%` })), share));
}

/** What is known of a queue, with the channel as a choice where it can be edited. */
export function queueCard(data: MemoryData, name: string, epoch: number, move: ((channel: number) => void) | null): HTMLElement {
  const at = data.queueOf.get(name);
  if (at === undefined) {
    return h('p', { class: 'tb-diff-same' }, move ? 'Choose a queue; drag its blocks to another channel to put all of it there.' : 'Choose a queue to see its details.');
  }
  const queue = data.queues[at]!;
  const mine = data.blocks.filter(b => b.queue === at);
  const channels = [...new Set(mine.map(b => b.channel))].sort((a, b) => a - b);
  const [read, written] = data.traffic(at, epoch);
  const life = queue.shares ? `epochs ${queue.first} to ${queue.last}, then its memory is reused` :
    queue.kind === 'e2e' ? `used in epochs ${queue.first} to ${queue.last}` : 'used in the whole run';
  const facts: [string, string | HTMLElement][] = [
    ['queue', queue.name], ['kind', `${queue.kind}${queue.prologue ? ', preloaded' : ''}`],
    ['size', `${queue.buffers} buffer${queue.buffers > 1 ? 's' : ''} of ${bytes(queue.bytes)}, ${queue.entries} entr${queue.entries === 1 ? 'y' : 'ies'}, ${queue.df}`],
    ['writer', queue.writer || 'host'], ['readers', queue.readers || 'host'], ['needed', life],
    ['this epoch', `${bytes(read)} read, ${bytes(written)} written per input`],
    ['address', mine.length ? `${hex(mine[0]!.address)}${mine.length > 1 ? ' and more' : ''}` : '–']
  ];
  const choice = move && !queue.host ? h('select', {
    class: 'tb-select', 'aria-label': `channel of ${queue.name}`, 'data-tb-action': 'queue-channel',
    onchange: (event: Event) => {
      const value = (event.target as HTMLSelectElement).value;
      if (value !== '') move(Number(value));
    }
  }, ...(channels.length > 1 ? [h('option', { value: '', selected: true }, channels.join(', '))] : []),
  ...data.lanes.filter(l => !l.host).map(l =>
    h('option', { value: String(l.channel), selected: channels.length === 1 && channels[0] === l.channel }, `channel ${l.channel}`))) :
    `${queue.host ? 'host ' : ''}${channels.join(', ')}`;
  facts.push(['channel', choice]);
  return h('dl', { class: 'tb-facts tb-queue-card', 'data-tb-queue-card': queue.name },
    ...facts.flatMap(([term, text]) => [h('dt', {}, term), h('dd', {}, text)]));
}

export function legend(): HTMLElement {
  return h('div', { class: 'tb-legend' }, ...KINDS.map(kind =>
    h('span', { class: 'tb-key' }, h('i', { class: `tb-block-key ${kindClass(kind)}` }), kind)),
    h('span', { class: 'tb-key' }, h('i', { class: 'tb-lane-gap tb-block-key' }), 'address range not drawn'),
    h('span', { class: 'tb-key' }, 'faint: not needed in this epoch'));
}

const SLOP = 4; // px before a press is a drag

/** Dragging a queue's block to another channel: the lane under the pointer is the target, Escape gives up. */
export class QueueDrag {
  private tag: HTMLElement | null = null;
  private from: { x: number; y: number; queue: number; channel: number } | null = null;
  private target = -1;

  /** @param drop called with the queue and the channel it is let go over */
  constructor(private readonly host: HTMLElement, private readonly data: () => MemoryData | null,
    private readonly allowed: () => boolean, private readonly drop: (queue: string, channel: number) => void) {
    host.addEventListener('pointerdown', event => this.down(event));
    host.addEventListener('pointermove', event => this.move(event));
    host.addEventListener('pointerup', () => this.up());
    host.addEventListener('pointercancel', () => this.end());
    host.addEventListener('keydown', event => {
      if (event.key !== 'Escape' || !this.tag) return;
      event.stopPropagation();
      this.end();
    });
  }

  get dragging(): boolean {
    return this.tag !== null;
  }

  private down(event: PointerEvent): void {
    const block = (event.target as Element).closest<HTMLElement>('[data-tb-action=select-queue]');
    const data = this.data();
    if (!block || !data || event.button !== 0 || event.shiftKey || event.ctrlKey) return;
    const queue = data.queueOf.get(block.dataset['tbQueue']!);
    const lane = block.closest<HTMLElement>('[data-tb-channel]');
    if (queue === undefined || !lane || data.queues[queue]!.host || !this.allowed()) return;
    this.from = { x: event.clientX, y: event.clientY, queue, channel: Number(lane.dataset['tbChannel']) };
  }

  private move(event: PointerEvent): void {
    const data = this.data();
    if (!this.from || !data) return;
    if (!this.tag) {
      if (Math.hypot(event.clientX - this.from.x, event.clientY - this.from.y) < SLOP) return;
      this.tag = h('div', { class: 'tb-tag tb-queue-tag' });
      this.host.append(this.tag);
      this.host.setPointerCapture(event.pointerId);
      this.host.dataset['tbDragging'] = 'queue';
      this.host.focus({ preventScroll: true });
    }
    const under = document.elementFromPoint(event.clientX, event.clientY)?.closest<HTMLElement>('[data-tb-channel]') ?? null;
    const lane = under && this.host.contains(under) && under.dataset['tbLocation'] === 'dram' ? under : null;
    this.target = lane ? Number(lane.dataset['tbChannel']) : -1;
    for (const row of this.host.querySelectorAll('[data-tb-channel]')) row.classList.toggle('tb-over', row === lane);
    const queue = data.queues[this.from.queue]!;
    const all = bytes(queue.bytes * queue.buffers);
    const verdict = this.target < 0 ? 'OUTSIDE' : this.fits(data, this.target) ? 'LEGAL' : 'FULL';
    this.tag.dataset['tbVerdict'] = verdict;
    this.tag.classList.toggle('tb-refused', verdict !== 'LEGAL');
    const text = verdict === 'OUTSIDE' ? 'drop it on a DRAM channel' : verdict === 'FULL' ? `channel ${this.target} has no room for ${all}` :
      `${queue.buffers} buffer${queue.buffers > 1 ? 's' : ''}, ${all} → channel ${this.target}`;
    this.tag.replaceChildren(h('b', {}, queue.name), h('span', {}, text));
    const box = this.host.getBoundingClientRect();
    this.tag.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 260)}px`;
    this.tag.style.top = `${Math.min(event.clientY - box.top + 16, box.height - 50)}px`;
  }

  /** Whether a channel has room for all of the queue, apart from what it has there already. The kernel decides. */
  private fits(data: MemoryData, channel: number): boolean {
    const queue = data.queues[this.from!.queue]!;
    const lane = data.lanes.find(l => !l.host && l.channel === channel)!;
    const there = data.blocks.filter(b => b.queue === this.from!.queue && b.channel === channel).length;
    return data.bytesIn(queue.chip, lane) + queue.bytes * (queue.buffers - there) <= lane.end - lane.start;
  }

  private up(): void {
    const { from, target } = this;
    const data = this.data();
    const legal = this.tag?.dataset['tbVerdict'] === 'LEGAL';
    this.end();
    if (from && data && legal && target >= 0) this.drop(data.queues[from.queue]!.name, target);
  }

  private end(): void {
    this.from = null;
    this.target = -1;
    this.tag?.remove();
    this.tag = null;
    delete this.host.dataset['tbDragging'];
    for (const row of this.host.querySelectorAll('.tb-over')) row.classList.remove('tb-over');
  }
}
