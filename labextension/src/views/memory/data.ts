/** The memory frame, unpacked once. */
import type { Frame } from '../frame.js';

export interface Part {
  kind: string;
  operand: number;
  source: string;
  bytes: number;
  start: number;
}

interface Queue {
  name: string;
  kind: string;
  writer: string;
  readers: string;
  df: string;
  chip: number;
  host: boolean;
  entries: number;
  bytes: number;
  buffers: number;
  first: number;
  last: number;
  shares: boolean;
  prologue: boolean;
}

interface Block {
  queue: number;
  channel: number;
  address: number;
  x: number;
  w: number;
}

export interface Lane {
  host: boolean;
  channel: number;
  start: number;
  end: number;
}

export class MemoryData {
  readonly names: string[];
  readonly indexOf = new Map<string, number>();
  readonly queues: Queue[];
  readonly queueOf = new Map<string, number>();
  readonly blocks: Block[];
  readonly lanes: Lane[];
  readonly chips: number[];
  readonly size: number;
  readonly reserved: number;
  readonly capacity: number;
  readonly cycles: number[];
  private readonly parts: Part[][];

  constructor(readonly frame: Frame) {
    const meta = frame.meta;
    this.names = frame.text('op_name');
    this.names.forEach((name, i) => this.indexOf.set(name, i));
    this.size = Number(meta['l1_size']);
    this.reserved = Number(meta['l1_reserved']);
    this.capacity = Number(meta['capacity']);
    this.cycles = meta['cycles'] as number[];
    this.chips = meta['chips'] as number[];
    this.lanes = (meta['channels'] as [string, number, number, number][]).map(([location, channel, start, end]) =>
      ({ host: location === 'host', channel, start, end }));
    this.parts = this.names.map(() => []);
    const kinds = meta['kinds'] as string[];
    const source = frame.text('part_source');
    const c = (name: string) => frame.column(name);
    c('part_op').forEach((op: number, k: number) => this.parts[op]!.push({
      kind: kinds[c('part_kind')[k]!]!, operand: c('part_operand')[k]!, source: source[k]!, bytes: c('part_bytes')[k]!, start: c('part_start')[k]!
    }));
    const [kind, writer, readers, df] = ['kind', 'writer', 'readers', 'df'].map(name => frame.text(`queue_${name}`));
    this.queues = frame.text('queue_name').map((name, i) => ({
      name, kind: kind![i]!, writer: writer![i]!, readers: readers![i]!, df: df![i]!,
      chip: c('queue_chip')[i]!, host: c('queue_location')[i] === 1, entries: c('queue_entries')[i]!, bytes: c('queue_bytes')[i]!,
      buffers: c('queue_buffers')[i]!, first: c('queue_first')[i]!, last: c('queue_last')[i]!,
      shares: c('queue_shares')[i] === 1, prologue: c('queue_prologue')[i] === 1
    }));
    this.queues.forEach((queue, i) => this.queueOf.set(queue.name, i));
    this.blocks = Array.from(c('block_queue'), (queue, k) => ({
      queue, channel: c('block_channel')[k]!, address: c('block_address')[k]!, x: c('block_x')[k]!, w: c('block_w')[k]!
    }));
  }

  partsOf(op: number): Part[] {
    return this.parts[op]!;
  }

  used(op: number): number {
    return this.frame.column('op_used')[op]!;
  }

  free(op: number): number {
    return this.frame.column('op_free')[op]!;
  }

  hole(op: number): number {
    return this.frame.column('op_hole')[op]!;
  }

  /** Share of what buffers may use. */
  fill(op: number): number {
    return this.used(op) / Math.max(1, this.size - this.reserved);
  }

  /** [x, width, bytes] of what the lanes of a chip leave out. */
  gaps(chip: number, host: boolean): [number, number, number][] {
    const { frame } = this;
    return Array.from(frame.column('gap_chip'), (_, k) => k)
      .filter(k => frame.column('gap_chip')[k] === chip && (frame.column('gap_location')[k] === 1) === host)
      .map(k => [frame.column('gap_x')[k]!, frame.column('gap_w')[k]!, frame.column('gap_bytes')[k]!]);
  }

  /** Bytes per input that an epoch asks of a DRAM channel. */
  bytesPerInput(epoch: number, channel: number): number {
    const { frame } = this;
    let sum = 0;
    frame.column('load_epoch').forEach((e: number, k: number) => {
      if (e === epoch && frame.column('load_channel')[k] === channel) sum += frame.column('load_bytes')[k]!;
    });
    return sum;
  }

  /** The share of a channel's bandwidth that an epoch asks for; not a number where its cycles are not known. */
  load(epoch: number, channel: number): number {
    return this.bytesPerInput(epoch, channel) / (this.cycles[epoch] || NaN) / this.capacity;
  }

  /** [read, written] bytes per input of a queue, in an epoch. */
  traffic(queue: number, epoch: number): [number, number] {
    const { frame } = this;
    let [read, written] = [0, 0];
    frame.column('use_queue').forEach((q: number, k: number) => {
      if (q !== queue || frame.column('use_epoch')[k] !== epoch) return;
      read += frame.column('use_read')[k]!;
      written += frame.column('use_written')[k]!;
    });
    return [read, written];
  }

  /** Whether an epoch needs what the queue holds. */
  alive(queue: number, epoch: number): boolean {
    const { first, last } = this.queues[queue]!;
    return first <= epoch && epoch <= last;
  }

  /** Bytes that lie in a channel of a chip. */
  bytesIn(chip: number, lane: Lane): number {
    return this.blocks.reduce((sum, b) => {
      const q = this.queues[b.queue]!;
      return sum + (q.chip === chip && q.host === lane.host && b.channel === lane.channel ? q.bytes : 0);
    }, 0);
  }
}

export function hex(value: number): string {
  return `0x${value.toString(16)}`;
}
