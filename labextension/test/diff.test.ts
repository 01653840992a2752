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

function view(): { store: Store; view: DiffView } {
  const store = new Store(new StaticHost());
  store.put(frame());
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
