import { afterEach, describe, expect, it, vi } from 'vitest';
import { deltaPaint, DiffData, percent } from '../src/views/diff/side.js';
import { DiffView } from '../src/views/diff/view.js';
import type { Frame } from '../src/views/frame.js';
import { StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { handFrame } from './fixture.js';

type Op = [name: string, classes: number, a: number[] | null, b: number[] | null];

// added 1, removed 2, resized 4, moved 8, retimed 16; sides: epoch, row, col, rows, cols, cycles
const OPS: Op[] = [
  ['same', 0, [0, 0, 0, 1, 1, 100], [0, 0, 0, 1, 1, 100]],
  ['gone', 2, [0, 0, 1, 1, 1, 50], null],
  ['grows', 4 + 16, [1, 0, 0, 1, 2, 400], [1, 0, 0, 2, 2, 200]],
  ['moves', 8, [1, 1, 3, 1, 1, 80], [1, 0, 3, 1, 1, 80]],
  ['new', 1, null, [2, 0, 0, 1, 1, 900]]
];

function frame(): Frame {
  const columns: [string, string, (number | string)[]][] = [
    ['op_name', 'text', OPS.map(([name]) => name)], ['op_classes', 'u1', OPS.map(o => o[1])],
    ['pair_a', 'i4', [0, 1, -1]], ['pair_b', 'i4', [0, 1, 2]],
    ['a_epoch_cycles', 'f8', [100, 400]], ['b_epoch_cycles', 'f8', [100, 200, 900]],
    ['a_epoch_chip', 'u2', [0, 0]], ['b_epoch_chip', 'u2', [0, 0, 0]],
    ['queue_name', 'text', ['q']], ['queue_what', 'text', ['moved']], ['queue_a', 'text', ['dram 0']], ['queue_b', 'text', ['dram 2']]
  ];
  for (const [k, side] of ['a', 'b'].entries()) {
    ['epoch', 'row', 'col', 'rows', 'cols', 'time'].forEach((field, at) =>
      columns.push([`op_${side}_${field}`, 'f8', OPS.map(o => (o[2 + k] as number[] | null)?.[at] ?? -1)]));
    for (const other of ['limit', 'cycles']) columns.push([`op_${side}_${other}`, 'f8', OPS.map(o => (o[2 + k] as number[] | null)?.[5] ?? -1)]);
    columns.push([`op_${side}_chip`, 'f8', OPS.map(() => 0)]);
  }
  const grid = { device: 'small', rows: 2, cols: 4, physical: [0, 1], harvested: [] };
  const meta = {
    a: 'main', b: 'branch', verdict: '200.0 % slower', notes: ['The grids differ.'], names: ['main', 'branch', 'now'], grid_a: grid, grid_b: grid,
    counts: { added: 1, removed: 1, resized: 1, moved: 1, retimed: 1 },
    rest: 100, rest_of: 'other ops', simulated: true, batch: 8,
    totals: [['cycles per input', 500, 1200], ['kernels alone', 500, 1200], ['epochs', 2, 3]]
  };
  return handFrame('diff', meta, columns);
}

/** Two runs in ns: one op as before, one slower, one gone, one new before the others. */
function runs(): Frame {
  const ops: [string, string, number, number, number][] = [['m1', 'matmul', 0, 9000, 9000], ['m2', 'matmul', 16, 4000, 6000], ['r', 'reshape', 2, 500, -1], ['c', 'copy', 1, -1, 250]];
  const side = (name: 'a' | 'b', place: number[]): [string, string, number[]][] => {
    const there = (n: number) => ops.map(o => (o[name === 'a' ? 3 : 4] < 0 ? -1 : n));
    const time = ops.map(o => o[name === 'a' ? 3 : 4]);
    return [...['epoch', 'row', 'col', 'chip'].map((f): [string, string, number[]] => [`op_${name}_${f}`, 'f8', there(0)]), [`op_${name}_rows`, 'f8', there(1)], [`op_${name}_cols`, 'f8', there(name === 'a' ? 8 : 1)],
      ...['time', 'limit', 'cycles'].map((f): [string, string, number[]] => [`op_${name}_${f}`, 'f8', time]), [`op_${name}_place`, 'i4', place], [`${name}_epoch_cycles`, 'f8', [1]], [`${name}_epoch_chip`, 'u2', [0]]];
  };
  const grid = { device: 'blackhole', rows: 1, cols: 8, physical: [0], harvested: [] };
  return handFrame('diff', {
    a: 'before.csv', b: 'after.csv', verdict: '13.0 % more time', notes: [], unit: 'ns', counts: { added: 1, removed: 1, resized: 0, moved: 0, retimed: 1 }, rest: 0, rest_of: '', simulated: true, batch: 1,
    totals: [['ns, measured', 13500, 15250]], grid_a: grid, grid_b: grid
  }, [
    ['op_name', 'text', ops.map(o => o[0])], ['op_kind', 'text', ops.map(o => o[1])], ['op_classes', 'u1', ops.map(o => o[2])], ['pair_a', 'i4', [0]], ['pair_b', 'i4', [0]],
    ...side('a', [0, 1, 2, -1]), ...side('b', [1, 2, -1, 0]), ...['queue_name', 'queue_what', 'queue_a', 'queue_b'].map((c): [string, string, string[]] => [c, 'text', []])
  ]);
}

function view(shown = frame()): { store: Store; view: DiffView } {
  const store = new Store(new StaticHost());
  store.put(shown);
  const made = new DiffView(store);
  document.body.append(made.element);
  return { store, view: made };
}

const names = (element: HTMLElement, selector: string) => [...element.querySelectorAll<HTMLElement>(selector)].map(e => e.dataset['tbOp']);
const press = (element: HTMLElement, action: string) => element.querySelector<HTMLElement>(`[data-tb-action="${action}"]`)!.click();

afterEach(() => {
  document.body.replaceChildren();
  vi.useRealTimers();
});

describe('DiffData', () => {
  const data = new DiffData(frame());

  it('counts what is missing on a side as nothing', () => {
    expect(OPS.map((_, i) => data.delta(i))).toEqual([0, -50, -200, 0, 900]);
    expect(OPS.map((_, i) => data.ratio(i))).toEqual([0, null, -0.5, 0, null]);
    expect(OPS.map((_, i) => data.classes(i).join())).toEqual(['', 'removed', 'resized,retimed', 'moved', 'added']);
  });

  it('finds the epochs of an op on the side where it is', () => {
    expect(OPS.map((_, i) => data.pairOf(i))).toEqual([0, 0, 1, 1, 2]);
  });

  it('signs shares', () => {
    expect([percent(0.125), percent(-0.5), percent(0), percent(null)]).toEqual(['+12.5 %', '−50.0 %', '0.0 %', '']);
  });
});

describe('DiffView', () => {
  it('lists what differs, the largest change first, and sorts', () => {
    const { view: { element } } = view();
    expect(names(element, 'tbody [data-tb-op]')).toEqual(['new', 'grows', 'gone', 'moves']);
    press(element, 'diff-sort-op');
    expect(names(element, 'tbody [data-tb-op]')).toEqual(['gone', 'grows', 'moves', 'new']);
    expect(element.querySelector('[data-tb-queue=q]')!.textContent).toContain('dram 2');
    expect(element.querySelector('.tb-note')!.textContent).toBe('The grids differ.');
  });

  it('leaves classes out', () => {
    const { view: { element } } = view();
    press(element, 'diff-class-moved');
    press(element, 'diff-class-resized');
    expect(names(element, 'tbody [data-tb-op]')).toEqual(['new', 'grows', 'gone']); // it is retimed, too
    press(element, 'diff-class-retimed');
    expect(names(element, 'tbody [data-tb-op]')).toEqual(['new', 'gone']);
  });

  it('shows both sides of a pair of epochs, marks what differs, and goes to what is selected', () => {
    const { store, view: { element } } = view();
    expect(names(element, 'svg[data-tb-side=a] [data-tb-op]')).toEqual(['same', 'gone']);
    expect(names(element, 'svg[data-tb-side=b] [data-tb-op]')).toEqual(['same']);
    expect(element.querySelector('svg [data-tb-op=gone]')!.getAttribute('data-tb-change')).toBe('removed');
    store.select(['moves'], 'graph');
    expect(names(element, 'svg[data-tb-side=b] [data-tb-op]')).toEqual(['grows', 'moves']);
    expect(element.querySelectorAll('.tb-selected')).toHaveLength(3);
    store.select(['new'], 'graph');
    expect(element.querySelector('figure[data-tb-side=a]')!.textContent).toContain('no such epoch');
  });

  it('colours by change of cycles, with the places before as outlines', () => {
    const { store, view: { element } } = view();
    press(element, 'diff-mode-delta');
    store.select(['grows'], 'graph');
    expect(element.querySelectorAll('svg[data-tb-side]')).toHaveLength(1);
    expect(element.querySelectorAll('.tb-diff-ghost')).toHaveLength(2);
    expect(deltaPaint(0.5, false).fill).not.toBe(deltaPaint(-0.5, false).fill);
    expect(deltaPaint(null, true)).toEqual(deltaPaint(0, true));
  });

  it('blinks, and stops', () => {
    vi.useFakeTimers();
    const { view: made } = view();
    const { element } = made;
    Object.defineProperty(element, 'clientWidth', { value: 500 });
    press(element, 'diff-mode-blink');
    const side = () => element.querySelector<HTMLElement>('figure')!.dataset['tbSide'];
    expect(side()).toBe('b');
    vi.advanceTimersByTime(1000);
    expect(side()).toBe('a');
    press(element, 'diff-play');
    const there = side();
    vi.advanceTimersByTime(3000);
    expect(side()).toBe(there);
    made.dispose();
  });
});

describe('two measured runs', () => {
  it('are strips of time and sums by kind, without grid, epochs and cycles', () => {
    const { element } = view(runs()).view;
    expect(element.querySelector('[data-tb-action^=diff-mode], [data-tb-action=diff-epoch], .tb-cores')).toBeNull();
    expect(element.textContent).not.toMatch(/cycles|epoch/i);
    const strip = (side: string) => names(element, `.tb-run[data-tb-side=${side}] [data-tb-op]`);
    expect([strip('a'), strip('b')]).toEqual([['m1', 'm2', 'r'], ['c', 'm1', 'm2']]);
    const widths = [...element.querySelectorAll('.tb-run[data-tb-side=b] rect')].map(r => Number(r.getAttribute('width')));
    expect(widths.map(w => Math.round((w * 15250) / 3000 / 10) * 10)).toEqual([250, 9000, 6000]);
    const rows = [...element.querySelectorAll('[data-tb-kind]')].map(r => [...r.children].map(c => c.textContent));
    expect(rows).toEqual([['matmul', '2', '', '13', '15', '+15.4 %'], ['reshape', '1 → 0', '', '0.50', '–', ''], ['copy', '0 → 1', '', '–', '0.25', '']]);
  });

  it('have cores in the table, and a selection in both', () => {
    const { store, view: { element } } = view(runs());
    const row = element.querySelector('.tb-diff-list [data-tb-op=m2]')!;
    expect([...row.children].slice(2).map(c => c.textContent)).toEqual(['4,000', '6,000', '+2,000', '+50.0 %', '8 cores', '1 core']);
    element.querySelector('.tb-run[data-tb-side=b] [data-tb-op=m2]')!.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect(store.selection.names).toEqual(['m2']);
    expect(element.querySelectorAll('.tb-selected[data-tb-op=m2]')).toHaveLength(3);
  });
});
