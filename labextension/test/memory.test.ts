import { afterEach, describe, expect, it } from 'vitest';
import { bytes } from '../src/views/dom.js';
import { MemoryData } from '../src/views/memory/data.js';
import { MemoryView } from '../src/views/memory/view.js';
import { overTime, peak } from '../src/views/memory/time.js';
import { Ops } from '../src/views/ops.js';
import type { Host } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { frame, handFrame } from './fixture.js';

const ops = frame('ops');
const NAMES = ops.text('op_name');
const OP = NAMES[0]!;

/** Memory of the fixture's ops: 1000 bytes each, the first with two buffers; three queues in two channels. */
function memory() {
  const parts: [number, number, number, string, number, number][] = NAMES.map((name, i) => [i, 0, -1, name, i ? 1000 : 600, 100]);
  parts.push([0, 3, 1, 'weight', 400, 700]);
  return handFrame('memory', {
    rev: 1, l1_size: 10_100, l1_reserved: 100, kinds: ['output', 'intermediate', 'parameter', 'input'], locations: ['dram', 'host'],
    capacity: 10, cycles: [100, 100], chips: [0], channels: [['dram', 0, 0, 5000], ['dram', 1, 0, 5000], ['host', 0, 0, 9000]]
  }, [
    ['op_name', 'text', NAMES], ['op_used', 'f8', NAMES.map(() => 1000)], ['op_free', 'f8', NAMES.map(() => 9000)], ['op_hole', 'f8', NAMES.map(() => 9000)],
    ['part_op', 'u4', parts.map(p => p[0])], ['part_kind', 'u1', parts.map(p => p[1])], ['part_operand', 'i2', parts.map(p => p[2])],
    ['part_source', 'text', parts.map(p => p[3])], ['part_bytes', 'f8', parts.map(p => p[4])], ['part_start', 'f8', parts.map(p => p[5])],
    ['queue_name', 'text', ['x', 'weight', 'e2e_a_0']], ['queue_kind', 'text', ['input', 'parameter', 'e2e']],
    ['queue_writer', 'text', ['', '', OP]], ['queue_readers', 'text', [OP, OP, NAMES[1]!]], ['queue_df', 'text', ['Float16_b', 'Bfp8_b', 'Float16_b']],
    ['queue_chip', 'u2', [0, 0, 0]], ['queue_location', 'u1', [1, 0, 0]], ['queue_entries', 'u4', [2, 1, 1]], ['queue_bytes', 'f8', [64, 2000, 800]],
    ['queue_buffers', 'u2', [1, 2, 1]], ['queue_first', 'i4', [0, 0, 1]], ['queue_last', 'i4', [9, 9, 1]], ['queue_shares', 'u1', [0, 0, 0]],
    ['queue_prologue', 'u1', [0, 1, 0]],
    ['block_queue', 'u4', [0, 1, 1, 2]], ['block_channel', 'u2', [0, 0, 1, 1]], ['block_address', 'f8', [0, 0, 0, 2000]],
    ['block_x', 'f8', [0, 0, 0, 0.5]], ['block_w', 'f8', [0.9, 0.5, 0.5, 0.2]],
    ['gap_chip', 'u2', [0]], ['gap_location', 'u1', [0]], ['gap_x', 'f8', [0.7]], ['gap_w', 'f8', [0.3]], ['gap_bytes', 'f8', [2200]],
    ['use_queue', 'u4', [2, 2]], ['use_epoch', 'u4', [0, 1]], ['use_read', 'f8', [0, 300]], ['use_written', 'f8', [500, 0]],
    ['load_epoch', 'u4', [0, 1]], ['load_channel', 'u2', [1, 1]], ['load_bytes', 'f8', [500, 300]]
  ]);
}

function view(live = false): { store: Store; element: HTMLElement; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const host: Host = { live, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage: () => () => undefined };
  const store = new Store(host);
  store.put(ops);
  if (live) store.put(handFrame('edits', { rev: 1, stale: false, busy: false, undo: '', redo: '', overrides: [] }, []));
  store.put(memory());
  const { element } = new MemoryView(store);
  document.body.append(element);
  return { store, element, sent };
}

const press = (element: HTMLElement, action: string) => element.querySelector<HTMLElement>(`[data-tb-action="${action}"]`)!.click();

afterEach(() => document.body.replaceChildren());

describe('MemoryData', () => {
  const data = new MemoryData(memory());

  it('knows what an epoch asks of a channel', () => {
    expect([data.load(0, 0), data.load(0, 1), data.load(1, 1)]).toEqual([0, 0.5, 0.3]);
    expect(data.traffic(2, 0)).toEqual([0, 500]);
    expect([data.alive(2, 0), data.alive(2, 1), data.alive(0, 0)]).toEqual([false, true, true]);
  });

  it('counts what lies in a channel', () => {
    expect(data.lanes.map(lane => data.bytesIn(0, lane))).toEqual([2000, 2800, 64]);
    expect([bytes(64), bytes(2048), bytes(3 * 2 ** 20)]).toEqual(['64 B', '2.00 KiB', '3.00 MiB']);
  });
});

describe('memory over time', () => {
  const placed = Ops.of(ops);
  const [l1, dram] = overTime(placed, new MemoryData(memory()));

  it('has 1000 bytes on every core of every op in its epoch, and nothing elsewhere', () => {
    const covered = NAMES.reduce((sum, _, i) => sum + placed.get('rows', i) * placed.get('cols', i), 0);
    const bytes = l1.rows.map(({ used }) => used.reduce((a, b) => a + b, 0)).reduce((a, b) => a + b, 0);
    expect(bytes).toBe(1000 * covered);
    const [row, col, epoch] = [placed.get('row', 0), placed.get('col', 0), placed.epochOf(0)];
    expect(l1.rows[row * placed.cols + col]!.used[epoch]).toBe(1000);
    expect(peak(l1)).toBeCloseTo(0.1);
  });

  it('counts queues in the channels that they lie in, while they are needed', () => {
    expect(dram.rows.map(({ used }) => [used[0], used[1]])).toEqual([[2000, 2000], [2000, 2800]]);
    expect([dram.fullest, peak(dram)]).toEqual([[1, 1], 0.56]);
  });

  it('is a picture with the fullest marked', () => {
    const { element } = view();
    press(element, 'memory-time');
    const marks = [...element.querySelectorAll<SVGElement>('[data-tb-fullest]')].map(m => [m.dataset['tbFullest'], m.dataset['tbShare']]);
    expect(marks).toEqual([['L1', '0.1000'], ['DRAM', '0.5600']]);
    expect(element.querySelectorAll('.tb-memory-time')[1]!.getAttribute('aria-label')).toContain('Fullest DRAM: channel 1 in epoch 1, 2.73 KiB of 4.88 KiB');
  });
});

describe('MemoryView', () => {
  it('draws every op of the epoch by its fill, and the buffers of the fullest', () => {
    const { store, element } = view();
    const here = [...ops.column('op_epoch')].filter(e => e === 0).length;
    expect(element.querySelectorAll('.tb-heat [data-tb-op]')).toHaveLength(here);
    expect(element.querySelector<HTMLElement>('.tb-heat [data-tb-op]')!.dataset['tbFill']).toBe('0.1000');
    store.select([OP], 'table');
    const rows = [...element.querySelectorAll<HTMLElement>('.tb-core tbody tr')].map(r => [r.dataset['tbPart'], r.dataset['tbBytes']]);
    expect(rows).toEqual([['reserved', '100'], ['output', '600'], ['input', '400'], ['free', '9000']]);
    const widths = [...element.querySelectorAll<HTMLElement>('.tb-l1bar i')].map(i => parseFloat(i.style.width));
    expect(widths.reduce((a, b) => a + b)).toBeCloseTo(100, 1);
  });

  it('shows queues in their channels, and what the epoch does not need as faint', () => {
    const { element } = view();
    press(element, 'memory-dram');
    const blocks = (channel: number, location = 'dram') =>
      [...element.querySelectorAll<HTMLElement>(`[data-tb-channel="${channel}"][data-tb-location=${location}] [data-tb-queue]`)].map(b => b.dataset['tbQueue']);
    expect([blocks(0), blocks(1), blocks(0, 'host')]).toEqual([['weight'], ['weight', 'e2e_a_0'], ['x']]);
    expect(element.querySelector('[data-tb-queue=e2e_a_0]')!.classList.contains('tb-idle')).toBe(true);
    expect(element.querySelector('[data-tb-channel="1"] [data-tb-metric=channel-load]')!.textContent).toContain('50 %');
    expect(element.querySelector('[data-tb-action=queue-channel]')).toBeNull();
  });

  it('puts the chosen queue into another channel', () => {
    const { element, sent } = view(true);
    press(element, 'memory-dram');
    element.querySelector<HTMLElement>('[data-tb-queue=e2e_a_0]')!.click();
    const select = element.querySelector<HTMLSelectElement>('[data-tb-action=queue-channel]')!;
    expect(select.value).toBe('1');
    select.value = '0';
    select.dispatchEvent(new Event('change'));
    expect(sent.at(-1)).toEqual({ type: 'edit', do: 'queue', queue: 'e2e_a_0', channel: 0 });
  });

  it('drags a queue to the lane under the pointer, and not into a full one', () => {
    const { element, sent } = view(true);
    press(element, 'memory-dram');
    element.setPointerCapture = () => undefined;
    const over = (channel: number) => {
      document.elementFromPoint = () => element.querySelector(`[data-tb-channel="${channel}"][data-tb-location=dram]`);
    };
    const pointer = (type: string, at: Element, x: number) => at.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: x, button: 0, bubbles: true }));
    const grab = (queue: string) => pointer('pointerdown', element.querySelector(`[data-tb-queue=${queue}]`)!, 0);
    grab('e2e_a_0');
    over(0);
    pointer('pointermove', element, 30);
    const tag = () => element.querySelector<HTMLElement>('.tb-queue-tag');
    expect(tag()!.dataset['tbVerdict']).toBe('LEGAL');
    pointer('pointerup', element, 30);
    expect(sent.at(-1)).toEqual({ type: 'edit', do: 'queue', queue: 'e2e_a_0', channel: 0 });
    const count = sent.length;
    grab('weight');
    over(1);
    pointer('pointermove', element, 30);
    expect(tag()!.dataset['tbVerdict']).toBe('LEGAL');
    element.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
    expect(tag()).toBeNull();
    pointer('pointerup', element, 30);
    expect(sent).toHaveLength(count);
  });
});
