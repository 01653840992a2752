/** A page that was sent: what an edit does is read from the tables, one edit at a time, and taken back. */
import { expect, test } from 'vitest';
import { Frame, type FrameHeader } from '../src/views/frame.js';
import { Legal } from '../src/views/grid/legal.js';
import { SharedHost } from '../src/views/sharedhost.js';
import { Store } from '../src/views/store.js';

type Columns = Record<string, [dtype: 'u1' | 'u2' | 'u4' | 'f8', values: number[]]>;

function frame(key: string, meta: Record<string, unknown>, columns: Columns, strings: string[] = ['']): Frame {
  const bytes = { u1: 1, u2: 2, u4: 4, f8: 8 };
  const header: FrameHeader = { key, meta, strings, columns: [] };
  let offset = 0;
  for (const [name, [dtype, values]] of Object.entries(columns)) {
    header.columns.push({ name, dtype, offset, length: values.length });
    offset += Math.ceil((values.length * bytes[dtype]) / 8) * 8;
  }
  const made = new Frame(header, new ArrayBuffer(offset));
  for (const [name, [, values]] of Object.entries(columns)) values.forEach((v, i) => (made.column(name)[i] = v));
  return made;
}

const ops = () => frame('ops', { time: 100, total_cycles: 90, batch: 1 }, {
  op_name: ['u4', [1, 2]], op_epoch: ['u4', [0, 0]], op_row: ['u2', [0, 1]], op_col: ['u2', [0, 0]], op_rows: ['u2', [1, 1]], op_cols: ['u2', [1, 1]],
  op_cycles: ['f8', [50, 20]], op_limiter_cycles: ['f8', [50, 20]], op_cores: ['u4', [1, 1]], op_l1_total: ['f8', [1, 1]], epoch_cycles: ['f8', [50]],
  epoch_limiter_cycles: ['f8', [50]], epoch_time: ['f8', [100]], epoch_ops: ['u4', [2]], epoch_chip: ['u2', [0]]
}, ['', 'a', 'b']);

// two rows, two columns: 1x2 is legal and twice as fast, 2x1 has a reason against it; bit x of a mask: free to start there
const legal = () => frame('legal', { op: 'a', seq: 0, rows: 2, cols: 2, transposed: false, start: [0, 0], grid: [1, 1], reasons: { 7: { name: 'L1', meaning: 'does not fit', fix: '' } } }, {
  verdict: ['u1', [0, 0, 7, 7]], cycles: ['f8', [50, 25, 25, 12]], limiter_cycles: ['f8', [50, 25, 25, 12]], epoch_kernel_cycles: ['f8', [50, 25, 25, 20]],
  epoch_cycles: ['f8', [50, 25, 25, 20]], time: ['f8', [100, 75, 75, 60]], l1_bytes: ['f8', [1, 2, 2, 4]], cores: ['u4', [1, 2, 2, 4]],
  anchors: ['u2', [3, 2, 1, 0, 1, 0, 0, 0]]
});

function open() {
  const hint = { label: 'b larger', edits: [{ do: 'resize' as const, op: 'b', size: [1, 2] as [number, number] }], spots: [['b', 0, 1, 0, 1, 2] as [string, number, number, number, number, number]], time: [100, 80] as [number, number] };
  const host = new SharedHost(new Map([['a', legal()]]), { suggest: [hint], why: { a: { ok: true, text: 'so' } }, count: 1 });
  const store = new Store(host);
  store.put(ops());
  host.attach(store);
  return store;
}

test('an edit within the table changes op, epoch and time, and is taken back', async () => {
  const store = open();
  expect(store.edits?.undo).toBe('');
  store.edit({ do: 'resize', op: 'a', size: [1, 2] });
  await Promise.resolve();
  const now = store.frames.get('ops')!;
  expect([now.column('op_cols')[0], now.column('op_cycles')[0], now.column('epoch_cycles')[0], now.meta['time']]).toEqual([2, 25, 25, 75]);
  expect(store.answer).toEqual({ ok: true, text: expect.stringContaining('100 → 75 cycles per input (−25.0 %)') as string });
  expect(store.edits?.undo).toContain('a 1×2');
  store.ask({ type: 'undo' });
  await Promise.resolve();
  expect(store.frames.get('ops')!.column('op_cols')[0]).toBe(1);
  store.ask({ type: 'redo' });
  await Promise.resolve();
  expect(store.frames.get('ops')!.column('op_cols')[0]).toBe(2);
});

test('what the table refuses, or does not have, is said and changes nothing', async () => {
  const store = open();
  const before = store.frames.get('ops');
  store.edit({ do: 'resize', op: 'a', size: [2, 1] });
  await Promise.resolve();
  expect(store.answer).toEqual({ ok: false, text: 'does not fit' });
  store.edit({ do: 'resize', op: 'c', size: [1, 1] });
  await Promise.resolve();
  expect(store.answer.text).toContain('c is not among them');
  store.edit({ do: 'break', op: 'a' });
  await Promise.resolve();
  expect(store.answer.ok).toBe(false);
  expect(store.frames.get('ops')).toBe(before);
});

test('a suggestion has the time that was simulated, and holds instead of the edit before', async () => {
  const store = open();
  store.edit({ do: 'resize', op: 'a', size: [1, 2] });
  await Promise.resolve();
  store.edit({ do: 'resize', op: 'b', size: [1, 2] });
  await Promise.resolve();
  const now = store.frames.get('ops')!;
  expect([now.column('op_cols')[0], now.column('op_cols')[1], now.meta['time']]).toEqual([1, 2, 80]);
  expect(store.answer.text).toBe('75 → 80 cycles per input (+6.7 %), simulated before the page was sent; a 1×2 at 0,0 is taken back: this page holds one edit at a time');
});

test('a second drag of an op begins from what the first one made', async () => {
  const store = open();
  store.edit({ do: 'resize', op: 'a', size: [1, 2] });
  await Promise.resolve();
  store.host.send({ type: 'probe_begin', op: 'a', seq: 5 });
  const table = new Legal(store.frames.get('legal')!);
  expect([table.now, table.name(table.now)]).toEqual([[1, 2], '1×2']);
  store.edit({ do: 'move', op: 'a', start: [0, 0] });
  await Promise.resolve();
  expect(store.frames.get('ops')!.column('op_cols')[0]).toBe(2);
  store.edit({ do: 'resize', op: 'a', size: [1, 1] });
  await Promise.resolve();
  expect(store.answer.text).toContain('75 → 100 cycles per input');
  expect(store.frames.get('ops')!.column('op_cols')[0]).toBe(1);
  store.host.send({ type: 'probe_begin', op: 'a', seq: 6 });
  expect(new Legal(store.frames.get('legal')!).now).toEqual([1, 1]);
});

test('questions are answered from the page', async () => {
  const store = open();
  const heard: Record<string, unknown>[] = [];
  store.listen('why', m => heard.push(m));
  store.host.send({ type: 'why', op: 'a' });
  store.host.send({ type: 'why', op: 'b' });
  store.host.send({ type: 'probe_begin', op: 'a', seq: 4 });
  await Promise.resolve();
  expect(heard.map(m => m['ok'])).toEqual([true, false]);
  expect(store.frames.get('legal')?.meta['seq']).toBe(4);
});
