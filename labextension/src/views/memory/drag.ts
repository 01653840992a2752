/** Dragging a queue's block to another channel: the lane under the pointer is the target, Escape gives up. */
import { bytes, h } from '../dom.js';
import type { MemoryData } from './data.js';

const SLOP = 4; // px before a press is a drag

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
    return data.held(queue.chip, lane) + queue.bytes * (queue.buffers - there) <= lane.end - lane.start;
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
