import { describe, expect, it, vi } from 'vitest';
import { Frame } from '../src/views/frame.js';
import { type Host, StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { badgesOf, Checks, compareCard } from '../src/views/trace/checks.js';
import { inSight, pinnedHeight, rowsOf, TraceModel } from '../src/views/trace/model.js';
import { playheadOf } from '../src/views/trace/activity.js';
import { length, ticks, Window } from '../src/views/trace/time.js';
import { levelFor, Tiles } from '../src/views/trace/tiles.js';
import { TraceView } from '../src/views/trace/view.js';
import { StageBar } from '../src/views/stagebar.js';
import { GridView } from '../src/views/grid/view.js';
import { TableView } from '../src/views/table/view.js';
import { filled, frames } from './fixture.js';
import { editsFrame } from './live.js';

type Columns = Record<string, ['u1' | 'u2' | 'u4' | 'i4' | 'f8', number[]] | string[]>;

/** A frame as the kernel would pack it. */
function pack(key: string, meta: Record<string, unknown>, columns: Columns): Frame {
  const strings = [''];
  const types = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };
  const parts = Object.entries(columns).map(([name, column]) => {
    const [dtype, values] = typeof column[0] === 'string' && Array.isArray(column[1])
      ? (column as ['u4', number[]])
      : (['u4', (column as string[]).map(text => (strings.includes(text) ? strings.indexOf(text) : strings.push(text) - 1))] as ['u4', number[]]);
    return { name, dtype, data: types[dtype].from(values) };
  });
  let offset = 0;
  const described = parts.map(({ name, dtype, data }) => {
    const at = offset;
    offset += Math.ceil(data.byteLength / 8) * 8;
    return { name, dtype, offset: at, length: data.length };
  });
  const buffer = new ArrayBuffer(offset);
  parts.forEach(({ data }, i) => new Uint8Array(buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), described[i]!.offset));
  return new Frame({ key, meta, strings, columns: described }, buffer);
}

/** Two epochs: a (two groups of cores) and b in the first, c in the second. */
function head(): Frame {
  return pack('trace', { rev: 5, batch: 4, per_run: 4, cycles: 1000, events: 9, clock_hz: 1e9, batches: [1, 8, 64] }, {
    lane_name: ['a', 'a', 'b', 'c'], lane_epoch: ['u4', [0, 0, 0, 1]], lane_chip: ['u2', [0, 0, 0, 0]],
    lane_row: ['u2', [0, 1, 2, 0]], lane_col: ['u2', [0, 0, 0, 0]], lane_rows: ['u2', [1, 1, 1, 2]], lane_cols: ['u2', [2, 2, 1, 2]],
    block_first: ['u4', [0, 3]], block_end: ['u4', [3, 4]],
    run_epoch: ['u4', [0, 1]], run_chip: ['u2', [0, 0]], run_round: ['u4', [0, 0]], run_start: ['f8', [100, 600]], run_end: ['f8', [500, 1000]],
    op_name: ['a', 'b', 'c'], op_compute: ['f8', [50, 60, 70]], op_input: ['f8', [10, 0, 0]], op_space: ['f8', [5, 0, 0]],
    op_dram: ['f8', [0, 3, 0]], op_input_from: ['', 'a', 'b'], op_space_to: ['b', '', ''],
    stall_epoch: ['u4', [0]], stall_fork: ['a'], stall_join: ['c'], stall_source: ['a'], stall_target: ['b'],
    stall_cycles: ['f8', [40]], stall_critical: ['u1', [1]], stall_short: [''], stall_long: ['b']
  });
}

function tile(level: number, index: number, block: number, lanes: number[], spans: [number, number, number][], exact = true): Frame {
  const columns: Columns = {
    lane: ['u2', lanes], input: ['i4', lanes.map((_, i) => i)], start: ['u4', spans.map(s => s[0])], end: ['u4', spans.map(s => s[1])],
    kind: ['u1', spans.map(s => s[2])]
  };
  if (!exact) columns['share'] = ['u1', spans.flatMap(() => [255, 0, 0, 0])];
  return pack('tracetile', { level, index, block, rev: 5, origin: 0, exact }, columns);
}

const model = () => new TraceModel(head());
const EVERYTHING = { epochs: new Set([0, 1]), parts: new Set<string>(), only: null, levels: -1, fills: 0 };

describe('rows of a trace', () => {
  it('joins the lanes of an op and opens them on demand', () => {
    const m = model();
    expect(m.ops.map(op => [op.name, op.first, op.end])).toEqual([['a', 0, 2], ['b', 2, 3], ['c', 3, 4]]);
    const kinds = (shown: typeof EVERYTHING) => rowsOf(m, shown).map(r => (r.kind === 'epoch' ? `E${r.epoch}` : `${r.kind}:${m.ops[r.op]!.name}`));
    expect(kinds(EVERYTHING)).toEqual(['E0', 'op:a', 'op:b', 'E1', 'op:c']);
    expect(kinds({ ...EVERYTHING, epochs: new Set([1]) })).toEqual(['E0', 'E1', 'op:c']);
    expect(kinds({ ...EVERYTHING, parts: new Set(['a', 'b']) })).toEqual(['E0', 'op:a', 'part:a', 'part:a', 'op:b', 'E1', 'op:c']);
    expect(kinds({ ...EVERYTHING, levels: 1, fills: 2 })).toEqual(['E0', 'op:a', 'op:b', 'fill:b', 'fill:b', 'E1', 'op:c']);
    expect(kinds({ ...EVERYTHING, epochs: new Set(), only: new Set([2]) } as never)).toEqual(['E1', 'op:c']);
  });

  it('has pinned rows first, which keep their place as well', () => {
    const rows = rowsOf(model(), { ...EVERYTHING, pinned: new Set(['c', 'gone', 'a']) });
    expect(rows.map(r => [r.kind, r.op, r.pinned ?? false])).toEqual([
      ['op', 2, true], ['op', 0, true], ['epoch', -1, false], ['op', 0, false], ['op', 1, false], ['epoch', -1, false], ['op', 2, false]]);
    expect([pinnedHeight(rows), rows[2]!.top, pinnedHeight(rowsOf(model(), EVERYTHING))]).toEqual([40, 40, 0]);
  });

  it('finds the rows between two heights as a search through all would', () => {
    const rows = rowsOf(model(), { ...EVERYTHING, parts: new Set(['a']) });
    const all = rows.at(-1)!.top + rows.at(-1)!.height;
    for (let top = 0; top < all; top += 7) {
      const [first, last] = inSight(rows, top, top + 30);
      rows.forEach((r, i) => {
        if (r.top + r.height > top && r.top < top + 30) expect(i >= first && i < last).toBe(true);
      });
    }
  });

  it('knows which epoch runs', () => {
    expect([50, 100, 499, 550, 600].map(c => model().epochAt(c, 0))).toEqual([null, 0, 0, null, 1]);
  });
});

describe('tiles', () => {
  it('asks only for what is in sight, once, and not where nothing runs', () => {
    const m = model();
    const tiles = new Tiles(m);
    const level = levelFor(1000, 200);
    expect(level).toBe(3);
    const first = tiles.missing([0, 1], 100, 300, 0);
    expect(first.length).toBeGreaterThan(0);
    expect(first.every(([l, , block]) => l === level && block === 0)).toBe(true);
    expect(tiles.missing([0, 1], 100, 300, 1)).toEqual([]);
    expect(tiles.missing([0, 1], 100, 300, 1e6)).toEqual(first); // no answer came: again
  });

  it('asks ahead for what the next zoom needs, without waiting for it, until somebody does', () => {
    const tiles = new Tiles(model());
    const ahead = tiles.next([0], 100, 300, 0);
    expect(new Set(ahead.map(([level]) => level))).toEqual(new Set([3, 4]));
    expect(tiles.waiting).toBe(0);
    expect(tiles.missing([0], 100, 200, 1)).toEqual([]); // on its way
    const waited = tiles.waiting;
    expect(waited).toBeGreaterThan(0);
    tiles.forget();
    expect(tiles.waiting).toBe(0);
    expect(tiles.missing([0], 100, 200, 2)).toEqual([]);
    expect(tiles.waiting).toBe(waited);
  });

  it('takes an exact tile for all its parts, and the finest there is for the others', () => {
    const tiles = new Tiles(model());
    expect(tiles.put(tile(0, 0, 0, [0, 2], [[100, 200, 0], [150, 400, 1]]))).toBe(true);
    expect(tiles.missing([0], 100, 300, 0)).toEqual([]);
    const best = tiles.best(0, 100, 300);
    expect(best).toHaveLength(1);
    expect([...best[0]![0].offsets]).toEqual([0, 1, 1, 2]);
    tiles.put(tile(0, 0, 0, [0], [[100, 500, 0]], false));
    expect(tiles.missing([0], 100, 300, 0).length).toBeGreaterThan(0);
    const other = tile(0, 0, 0, [0], [[1, 2, 0]]);
    other.meta['rev'] = 4;
    expect(tiles.put(other)).toBe(false);
  });
});

describe('the window', () => {
  it('stays within the trace and keeps the cycle under the pointer', () => {
    const time = new Window(1000);
    time.zoom(4, 250);
    expect([time.start, time.end]).toEqual([187.5, 437.5]);
    expect((250 - time.start) / time.width).toBeCloseTo(0.25);
    time.pan(-9);
    expect(time.start).toBe(0);
    time.zoom(0.001, 100);
    expect([time.start, time.end]).toEqual([0, 1000]);
    time.zoom(1e9, 10);
    expect(time.width).toBe(16);
    expect(time.reveal(500, 600)).toBe(true);
    expect(time.reveal(510, 590)).toBe(false);
  });

  it('has round ticks and says lengths in both units', () => {
    expect(ticks(0, 1000, 1000)).toEqual([0, 200, 400, 600, 800, 1000]);
    expect(length(12345, 'cycles', 1e9)).toBe('12,345 cycles');
    expect(length(12346, 'time', 1e9)).toBe('12.35 µs');
  });
});

function live(): { store: Store; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const still = new StaticHost();
  const host: Host = {
    live: true, get: n => still.get(n), set: (n, v) => still.set(n, v), on: (n, f) => still.on(n, f),
    send: m => sent.push(m), onMessage: () => () => undefined
  };
  const store = new Store(host);
  return { store, sent };
}

describe('TraceView', () => {
  it('shows stalls, and asks for a nop where one would help', () => {
    const { store, sent } = live();
    const view = new TraceView(store);
    store.put(head());
    const { element } = view;
    expect(element.dataset['tbState']).toBe('ready');
    expect(element.querySelectorAll('[data-tb-stall]')).toHaveLength(1);
    element.querySelector<HTMLElement>('[data-tb-action=insert-nop]')!.click();
    expect(sent.at(-1)).toMatchObject({ type: 'edit', do: 'insert-nop', op: 'a', to: ['b'] });
    element.querySelector<HTMLElement>('[data-tb-action=trace-stall]')!.click();
    expect(store.selection.names).toEqual(['a', 'c']);
    view.dispose();
  });

  it('asks for another batch when one is chosen', () => {
    const { store, sent } = live();
    const view = new TraceView(store);
    store.put(head());
    view.element.querySelector<HTMLElement>('[data-tb-action=trace-batch-64]')!.click();
    expect(sent.at(-1)).toEqual({ type: 'need_trace', batch: 64, whole: true });
    view.element.querySelector<HTMLElement>('[data-tb-action=trace-rounds]')!.click();
    expect(sent.at(-1)).toEqual({ type: 'need_trace', batch: 64, whole: false });
    view.dispose();
  });

  it('asks for the trace of another placement once that is compiled, and not while nobody looks', () => {
    const { store, sent } = live();
    const edits = (busy: boolean) => store.put(editsFrame({ busy }));
    const asked = () => sent.filter(m => m['type'] === 'need_trace').length;
    const ops = frames().find(f => f.key === 'ops')!;
    const view = new TraceView(store);
    edits(false);
    store.put(ops);
    expect(asked()).toBe(0);
    view.size = { width: 500, height: 200, ratio: 1 }; // it is seen
    edits(false);
    expect(asked()).toBe(1);
    edits(true);
    store.put(ops);
    expect(asked()).toBe(1);
    edits(false);
    expect(asked()).toBe(2);
    view.size = { width: 0, height: 0, ratio: 1 };
    store.put(ops);
    edits(false);
    expect(asked()).toBe(2);
    view.dispose();
  });

  it('tells the grid what happens at the playhead, without a kernel from its tiles', () => {
    const store = new Store(new StaticHost());
    const whole = tile(-1, 0, 0, [0, 2], [[100, 200, 0], [150, 400, 1]]);
    const frame = head();
    store.put(frame);
    store.put(new Frame({ key: 'tracetile:0', meta: whole.meta, strings: [''], columns: [] }, new ArrayBuffer(0)));
    store.frames.set('tracetile:0', whole);
    const view = new TraceView(store);
    view.player.seek(160, false);
    const { moment } = playheadOf(store);
    expect(moment).toMatchObject({ cycle: 160, epoch: 0 });
    expect(moment!.doing.map(d => [d.op, d.kind])).toEqual([['a', 0], ['b', 1]]);
    view.player.seek(450, false);
    expect(playheadOf(store).moment!.doing).toEqual([]);
    expect(view.element.querySelector('[data-tb-action=insert-nop]')).toBeNull(); // nobody could do it
    const other = new TraceView(store);
    view.dispose();
    expect([playheadOf(store).driven, playheadOf(store).moment === null]).toEqual([true, false]);
    other.dispose(); // the grid goes along with a timeline of another cell again
    expect([playheadOf(store).driven, playheadOf(store).moment]).toEqual([false, null]);
  });
});

describe('what lies over the grid', () => {
  const NAME = (store: Store) => store.frames.get('ops')!.text('op_name')[0]!;

  it('fills tiles with the progress of a run', () => {
    const { store } = filled();
    const view = new GridView(store);
    const ops = store.frames.get('ops')!.column('op_name').length;
    const report = (running: boolean) => pack('live', { running, paused: false, total: 4, input: 1, epoch: 0, op: NAME(store), stalled: [] }, {
      done: ['u4', Array.from({ length: ops }, (_, i) => (i ? 1 : 2))], level: ['u4', []]
    });
    store.put(report(true));
    const tile = view.element.querySelector<SVGGElement>(`.tb-tile[data-tb-op="${NAME(store)}"]`)!;
    expect(tile.getAttribute('data-tb-done')).toBe('50');
    expect(tile.classList.contains('tb-now')).toBe(true);
    expect(view.element.querySelectorAll('.tb-done-share').length).toBeGreaterThan(1);
    store.put(pack('queues', {}, { queue_name: ['q0', 'q1', 'q2'], queue_entries: ['u4', [4, 2, 2]] }));
    store.put(pack('live', { running: true, paused: true, total: 4, input: 1, epoch: 0, op: '', stalled: [] }, {
      done: ['u4', []], level: ['u4', [1, 2, 0]]
    }));
    expect([...view.element.querySelectorAll('[data-tb-queue]')].map(e => e.getAttribute('data-tb-queue'))).toEqual(['q1', 'q0']);
    store.put(report(false));
    expect(view.element.querySelectorAll('.tb-done-share')).toHaveLength(0);
    view.dispose();
  });

  it('goes along with a run, and back to the epoch that was there; not from one that somebody chose', () => {
    const { store } = filled();
    const view = new GridView(store);
    const report = (running: boolean, epoch: number) => store.put(pack('live', { running, paused: false, total: 1, input: 0, epoch, op: '', stalled: [] }, {
      done: ['u4', []], level: ['u4', []]
    }));
    const last = store.frames.get('ops')!.column('epoch_ops').length - 1;
    expect(last).toBeGreaterThan(0);
    store.setEpoch(last);
    report(true, 0);
    expect(store.epoch).toBe(0);
    report(false, 0);
    expect(store.epoch).toBe(last);
    report(true, 0);
    store.setEpoch(1);
    report(false, 0);
    expect(store.epoch).toBe(1);
    view.dispose();
  });

  it('marks ops that fail, the first of them above all, in grid, table and graph', async () => {
    const { store } = filled();
    const names = store.frames.get('ops')!.text('op_name').slice(0, 3);
    const frame = pack('checks', { min_pcc: 0.99, first: names[1], failed: 2, unchecked: [] }, {
      check_op: names, check_pcc: ['f8', [1, 0.2, -0.1]], check_max_abs: ['f8', [0, 3, 4]], check_scale: ['f8', [1, 2, 2]],
      check_tile_z: ['i4', [-1, 0, 1]], check_tile_r: ['i4', [-1, 2, 0]], check_tile_c: ['i4', [-1, 3, 0]],
      check_tiles_z: ['u4', [1, 1, 2]], check_tiles_r: ['u4', [4, 4, 4]], check_tiles_c: ['u4', [4, 4, 4]],
      stage_stage: ['passed'], stage_node: [names[0]!], stage_pcc: ['f8', [0.5]]
    });
    const grid = new GridView(store);
    const table = new TableView(store);
    store.put(frame);
    expect(grid.element.querySelectorAll('.tb-check-bad')).toHaveLength(2);
    expect(grid.element.querySelectorAll('.tb-check-first')).toHaveLength(1);
    expect(new Checks(frame).failures).toEqual([names[1], names[2]]);
    const badge = badgesOf(frame);
    expect([badge('lowered', names[0]!), badge('lowered', names[1]!), badge('passed', names[0]!), badge('traced', 'x')]).toEqual([true, false, false, null]);
    const card = compareCard(store, names[2]!)!;
    expect(card.dataset['tbVerdict']).toBe('fail');
    expect(card.textContent).toContain('slice 1, row 0, column 0');
    card.querySelector<HTMLElement>('[data-tb-action=first-failure]')!.click();
    expect(store.selection.names).toEqual([names[1]]);
    await vi.waitFor(() => expect(table.element.querySelector('[data-tb-action=sort-pcc]')).not.toBeNull(), { timeout: 30_000 });
    grid.dispose();
    table.dispose();
  });
});

describe('StageBar', () => {
  it('offers to pause, then to step and go on; a press outlives reports', () => {
    const { store, sent } = live();
    frames().forEach(f => store.put(f));
    const bar = new StageBar(store);
    const actions = () => [...bar.element.querySelectorAll('[data-tb-action]')].map(e => e.getAttribute('data-tb-action'));
    expect(actions()).toEqual(['run-more', 'run-break', 'run-step-op', 'run-step-input', 'run-step-epoch', 'check-ops', 'find-error', 'run']);
    bar.element.querySelector<HTMLElement>('[data-tb-action=run-step-epoch]')!.click();
    expect(sent.at(-1)).toEqual({ type: 'step', of: 'epoch' });
    store.status = { running: true, message: '', done: 1, total: 9, cancellable: true, failed: false, stages: [] };
    const report = (paused: boolean, input: number) => pack('live', { running: true, paused, total: 4, input, epoch: 0, op: 'x' }, { done: ['u4', []], level: ['u4', []] });
    store.put(report(false, 0));
    expect(actions()).toEqual(['run-pause', 'cancel']);
    const pause = bar.element.querySelector<HTMLElement>('[data-tb-action=run-pause]')!;
    store.put(report(false, 1));
    expect(bar.element.querySelector('[data-tb-action=run-pause]')).toBe(pause);
    pause.click();
    expect(sent.at(-1)).toEqual({ type: 'pause' });
    store.put(report(true, 1));
    expect(bar.element.dataset['tbState']).toBe('paused');
    expect(actions()).toEqual(['run-pause', 'run-step-op', 'run-step-input', 'run-step-epoch', 'cancel']);
    const names = store.frames.get('ops')!.text('op_name').slice(0, 1);
    store.put(pack('checks', { min_pcc: 0.99, first: names[0], failed: 1, unchecked: [] }, {
      check_op: names, check_pcc: ['f8', [0.25]], check_max_abs: ['f8', [3]], check_scale: ['f8', [1]],
      check_tile_z: ['i4', [0]], check_tile_r: ['i4', [0]], check_tile_c: ['i4', [0]],
      check_tiles_z: ['u4', [1]], check_tiles_r: ['u4', [1]], check_tiles_c: ['u4', [1]], stage_stage: [], stage_node: [], stage_pcc: ['f8', []]
    }));
    const failure = bar.element.querySelector<HTMLElement>('[data-tb-action=first-failure]')!;
    expect(failure.textContent).toContain('PCC 0.2500');
    store.put(report(true, 1));
    expect(bar.element.querySelector('[data-tb-action=first-failure]')).toBe(failure);
    failure.click();
    expect(store.selection.names).toEqual(names);
    bar.element.querySelector<HTMLElement>('[data-tb-action=run-pause]')!.click();
    expect(sent.at(-1)).toEqual({ type: 'resume' });
    bar.dispose();
  });
});
