import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ClusterView } from '../src/views/cluster.js';
import { DiffView } from '../src/views/diff/view.js';
import { GridView } from '../src/views/grid/view.js';
import { MemoryView } from '../src/views/memory/view.js';
import { Ops } from '../src/views/ops.js';
import { syncedTrait } from '../src/views/store.js';
import { TraceView } from '../src/views/trace/view.js';
import { aloneView, frame, handFrame } from './fixture.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('a state told', () => {
  it('goes once it rests, without an echo, and gives way to Python', () => {
    const { host, store } = aloneView('x', { n: 1 });
    const taken: number[] = [];
    const n = syncedTrait(store, 'n', 0, value => taken.push(value), { rest: 100 });
    n.tell(2);
    n.tell(3);
    expect(host.told).toEqual([]);
    vi.advanceTimersByTime(100);
    expect([host.told, taken]).toEqual([[['n', 3]], []]);
    n.tell(4);
    host.ask('n', 9);
    vi.advanceTimersByTime(1000);
    expect([host.told.length, taken, n.value()]).toEqual([1, [9], 9]);
    n.tell(9);
    vi.advanceTimersByTime(1000);
    expect(host.told).toHaveLength(1);
    n.tell(5);
    n.dispose();
    vi.advanceTimersByTime(1000);
    host.ask('n', 8);
    expect([host.told.length, taken]).toEqual([1, [9]]);
  });

  it('is of that view alone: a workbench has other traits of these names', () => {
    const { host, store } = aloneView('bringup', { mode: 'split' });
    const mode = syncedTrait(store, 'mode', 'l1', () => expect.fail('not for it'), { of: 'memory' });
    host.ask('mode', 'grid');
    mode.tell('dram');
    expect([host.told, mode.value()]).toEqual([[], 'l1']);
  });

  it('is kept in the page where Python has no such trait', () => {
    const { host, store } = aloneView('netlistfile', {});
    const pipes = syncedTrait(store, 'show_pipes', 'none');
    expect(pipes.value()).toBe('none');
    pipes.tell('all');
    expect([host.told, pipes.value()]).toEqual([[], 'all']);
  });
});

const TRACE = { t0: 0, t1: null, level: '', lanes: [], cursors: [], play: false };

function trace(cycles = 1000) {
  return handFrame('trace', { rev: 5, batch: 1, per_run: 1, cycles, events: 9, clock_hz: 1e9, batches: [1, 8] }, [
    ['lane_name', 'text', ['a', 'a', 'b', 'c']], ['lane_epoch', 'u4', [0, 0, 0, 1]], ['lane_chip', 'u2', [0, 0, 0, 0]],
    ['lane_row', 'u2', [0, 1, 2, 0]], ['lane_col', 'u2', [0, 0, 0, 0]], ['lane_rows', 'u2', [1, 1, 1, 2]], ['lane_cols', 'u2', [2, 2, 1, 2]],
    ['block_first', 'u4', [0, 3]], ['block_end', 'u4', [3, 4]],
    ['run_epoch', 'u4', [0, 1]], ['run_chip', 'u2', [0, 0]], ['run_round', 'u4', [0, 0]], ['run_start', 'f8', [100, 600]], ['run_end', 'f8', [500, cycles]],
    ['op_name', 'text', ['a', 'b', 'c']], ...['compute', 'input', 'space', 'dram', 'host'].map((c): [string, string, number[]] => [`op_${c}`, 'f8', [1, 2, 3]]),
    ['op_input_from', 'text', ['', 'a', 'b']], ['op_space_to', 'text', ['b', '', '']],
    ...['fork', 'join', 'source', 'target', 'short', 'long'].map((c): [string, string, string[]] => [`stall_${c}`, 'text', []]),
    ['stall_epoch', 'u4', []], ['stall_cycles', 'f8', []], ['stall_critical', 'u1', []]
  ]);
}

describe('the timeline', () => {
  function shown(traits: Record<string, unknown> = {}) {
    const { host, store } = aloneView('trace', { ...TRACE, ...traits });
    const view = new TraceView(store);
    store.put(trace());
    vi.advanceTimersByTime(1000);
    const kinds = () => view.rows.map(row => (row.op < 0 ? `${row.epoch}` : view.model!.ops[row.op]!.name)).join(' ');
    return { host, store, view, kinds };
  }

  it('shows what Python asked for before there was a trace', () => {
    const { host, view, kinds } = shown({ t0: 200, t1: 400, level: 'cores', cursors: [250, 300] });
    expect([view.time.start, view.time.end]).toEqual([200, 400]);
    expect(kinds()).toBe('0 a a a b 1 c');
    expect(view.element.querySelector<HTMLElement>('[data-tb-difference]')!.dataset['tbDifference']).toBe('50');
    expect(host.told).toEqual([]);
    view.dispose();
  });

  it('shows another stretch, and tells of the one somebody went to, the end first where it must', () => {
    const { host, view } = shown();
    host.ask('t1', 300);
    host.ask('t0', 200);
    vi.advanceTimersByTime(1000);
    expect([view.time.start, view.time.end, host.told]).toEqual([200, 300, []]);
    view.show(600, 700);
    expect(host.told).toEqual([]);
    vi.advanceTimersByTime(1000);
    expect(host.told).toEqual([['t1', 700], ['t0', 600]]);
    view.show(100, 200);
    vi.advanceTimersByTime(1000);
    expect(host.told.slice(2)).toEqual([['t0', 100], ['t1', 200]]);
    view.show(0, 1000);
    vi.advanceTimersByTime(1000);
    expect(host.told.slice(4)).toEqual([['t0', 0], ['t1', null]]);
    host.ask('t0', 990); // nearer than the view can go: it says where it is
    host.ask('t1', 995);
    vi.advanceTimersByTime(1000);
    expect(Object.fromEntries(host.told.slice(6))).toEqual({ t0: 984, t1: null });
    view.dispose();
  });

  it('opens rows, and tells which are open', () => {
    const { host, view, kinds } = shown();
    host.ask('level', 'epochs');
    expect(kinds()).toBe('0 1');
    view.toggle(view.rows[0]!);
    expect([kinds(), host.told]).toEqual(['0 a b 1', [['level', '']]]);
    view.toggle(view.rows[3]!);
    expect(host.told.at(-1)).toEqual(['level', 'ops']);
    view.toggle(view.rows[1]!); // the cores of a
    expect([kinds(), host.told.at(-1)]).toEqual(['0 a a a b 1 c', ['level', 'cores']]);
    view.dispose();
  });

  it('shows some ops alone, and tells when all are back', () => {
    const { host, store, view, kinds } = shown();
    host.ask('lanes', ['c', 'a', 'gone']);
    expect(kinds()).toBe('0 a 1 c');
    expect(host.told).toEqual([]);
    store.put(trace(2000)); // another placement has them too
    vi.advanceTimersByTime(1000);
    expect(kinds()).toBe('0 a 1 c');
    view.feeders();
    expect([kinds(), host.told]).toEqual(['0 a b 1 c', [['lanes', []]]]);
    view.dispose();
  });

  it('tells of cursors once they rest, and of playing', () => {
    const { host, view } = shown();
    view.cursors.add(100.4);
    view.cursors.add(300);
    vi.advanceTimersByTime(1000);
    expect(host.told).toEqual([['cursors', [100, 300]]]);
    host.ask('cursors', [7]);
    expect([...view.cursors.all]).toEqual([7]);
    host.ask('play', true);
    expect(view.player.playing).toBeGreaterThan(0);
    view.player.play();
    expect([view.player.playing, host.told.at(-1)]).toEqual([0, ['play', false]]);
    view.dispose();
  });
});

describe('memory', () => {
  it('shows cores or channels, and the op of the core asked for; tells of the core of another op', () => {
    const ops = Ops.of(frame('ops'));
    const last = ops.byEpoch[0]!.at(-1)!;
    const corner = (op: number) => [ops.get('row', op) + ops.get('rows', op) - 1, ops.get('col', op) + ops.get('cols', op) - 1];
    const { host, store } = aloneView('memory', { mode: 'l1', core: [], channel: null, epoch: 0 });
    store.put(frame('ops'));
    const view = new MemoryView(store);
    host.told.length = 0;
    host.ask('core', corner(last));
    expect(store.selection.names).toEqual([ops.name[last]]);
    const told = () => host.told.filter(([name]) => name !== 'selection');
    expect(told()).toEqual([]);
    const first = ops.byEpoch[0]![0]!;
    store.select([ops.name[first]!], 'test');
    expect(told()).toEqual([['core', [ops.get('row', first), ops.get('col', first)]]]);
    host.ask('mode', 'dram');
    expect(view.element.dataset['tbMode']).toBe('dram');
    view.element.querySelector<HTMLElement>('[data-tb-action=memory-l1]')!.click();
    expect(told().at(-1)).toEqual(['mode', 'l1']);
    view.dispose();
  });
});

describe('the cluster', () => {
  it('shows the epoch that Python asked for before it was there, and tells of another', () => {
    const { host, store } = aloneView('cluster', { epoch: 1 });
    store.put(frame('ops'));
    const view = new ClusterView(store);
    expect([store.epoch, host.told]).toEqual([1, []]);
    store.setEpoch(0);
    expect(host.told).toEqual([['epoch', 0]]);
    host.ask('epoch', 1);
    expect([store.epoch, host.told.length]).toEqual([1, 1]);
    view.dispose();
  });
});

describe('the grid', () => {
  it('shows the epoch that Python asked for before it was there; one that there is not gives way, and Python hears of it', () => {
    const last = Ops.of(frame('ops')).epochs - 1;
    for (const [asked, shown] of [[1, 1], [99, last]] as const) {
      const { host, store } = aloneView('grid', { epoch: asked });
      const view = new GridView(store);
      store.put(frame('ops'));
      expect([view.element.dataset['tbEpoch'], host.get('epoch')]).toEqual([String(shown), shown]);
      view.dispose();
    }
  });
});

describe('a comparison', () => {
  it('is drawn as Python says from the start, and tells no workbench', () => {
    const { host, store } = aloneView('diff', { mode: 'delta' });
    const view = new DiffView(store);
    vi.advanceTimersByTime(100);
    expect(view.element.dataset['tbMode']).toBe('delta');
    host.ask('mode', 'blink');
    vi.advanceTimersByTime(100);
    expect([view.element.dataset['tbMode'], host.told]).toEqual(['blink', []]);
    view.dispose();
    const other = aloneView('bringup', { mode: 'grid' });
    const inside = new DiffView(other.store);
    vi.advanceTimersByTime(100);
    expect(inside.element.dataset['tbMode']).toBe('split');
    inside.dispose();
  });
});
