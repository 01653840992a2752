/** Both ways between Python and the views: a line of the netlist, problems, docks, what is compared, the table, code, groups. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { BringUp } from '../src/views/bringup.js';
import { DiffView } from '../src/views/diff/view.js';
import { openedAs, openedBy } from '../src/views/graph/viewpoint.js';
import { Scene } from '../src/views/graph/scene.js';
import { GraphView } from '../src/views/graph/view.js';
import { GridView } from '../src/views/grid/view.js';
import { NetlistView } from '../src/views/netlist.js';
import { NetlistText } from '../src/views/netlisttext.js';
import { OverridesPanel } from '../src/views/overrides.js';
import { ProblemsView } from '../src/views/problems.js';
import { TableView } from '../src/views/table/view.js';
import { aloneView, frame, frames, handFrame } from './fixture.js';
import { editsFrame } from './live.js';

/** Seen, with room for some lines; the test's page lays nothing out. */
function seen<T extends { element: HTMLElement }>(view: T, height = 180): T {
  document.body.append(view.element);
  const scroller = view.element.querySelector<HTMLElement>('.tb-code');
  if (scroller) Object.defineProperty(scroller, 'clientHeight', { value: height });
  return view;
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  document.body.replaceChildren();
});

describe('a line of the netlist', () => {
  const text = NetlistText.of(frame('netlist'));
  const [name] = frame('netlist').text('entry_name').slice(-1) as [string];
  const [first] = text.lineOf(name)!;

  function shown(line: number | null = null) {
    const { host, store } = aloneView('netlist', { line });
    const view = seen(new NetlistView(store));
    const current = () => [...view.element.querySelectorAll<HTMLElement>('.tb-line[aria-current=true]')].map(l => Number(l.dataset['tbLine']));
    const scroller = view.element.querySelector<HTMLElement>('.tb-code')!;
    const key = (name: string) => scroller.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
    return { host, store, view, current, scroller, key };
  }

  it('is marked and in sight when Python asks, even before there is a text', () => {
    const { host, store, current, scroller, view } = shown(first + 1);
    store.put(frame('netlist'));
    expect([current(), scroller.scrollTop > 0]).toEqual([[first + 1], true]);
    host.ask('line', 1);
    expect([current(), scroller.scrollTop, host.told]).toEqual([[1], 0, []]);
    host.ask('line', null);
    expect(current()).toEqual([]);
    view.dispose();
  });

  it('or an op that was selected before the text, or before the view is in the page, is in sight', () => {
    const { store } = aloneView('netlist', { line: null });
    const sizes: (() => void)[] = [];
    vi.stubGlobal('ResizeObserver', class {
      constructor(changed: () => void) {
        sizes.push(changed);
      }
      observe() {}
      disconnect() {}
    });
    const view = new NetlistView(store);
    vi.unstubAllGlobals();
    store.select([name], 'graph');
    store.put(frame('netlist'));
    const scroller = view.element.querySelector<HTMLElement>('.tb-code')!;
    scroller.scrollTop = 0; // what a browser leaves of it outside the page
    seen(view);
    sizes.forEach(changed => changed());
    const marks = () => [...view.element.querySelectorAll<HTMLElement>('.tb-marked')].map(l => Number(l.dataset['tbLine']));
    expect(marks()).toContain(first + 1);
    scroller.scrollTop = 0;
    sizes.forEach(changed => changed());
    expect(scroller.scrollTop).toBe(0); // only once: then it is the reader's
    view.dispose();
  });

  it('is told when it is clicked, its op is selected; another click takes it away', () => {
    const { host, store, current, scroller, view } = shown();
    store.put(frame('netlist'));
    scroller.scrollTop = first * 18;
    scroller.dispatchEvent(new Event('scroll'));
    const click = () => view.element.querySelector<HTMLElement>(`[data-tb-line="${first + 1}"]`)!.click();
    click();
    expect([host.told, store.selection.names, current(), scroller.scrollTop]).toEqual([[['line', first + 1]], [name], [first + 1], first * 18]);
    const marked = view.element.querySelectorAll('.tb-marked').length;
    expect(marked).toBe(text.lineOf(name)![1]);
    click();
    expect([host.told.at(-1), current(), store.selection.names]).toEqual([['line', null], [], [name]]);
    view.dispose();
  });

  it('goes up and down by keys, within the text', () => {
    const { host, store, key, view } = shown();
    store.put(frame('netlist'));
    key('ArrowUp');
    expect(host.get('line')).toBe(1); // the first in sight
    key('ArrowUp');
    expect(host.get('line')).toBe(1);
    host.ask('line', Number(frame('netlist').meta['lines']));
    key('ArrowDown');
    expect(host.get('line')).toBe(frame('netlist').meta['lines']);
    host.ask('line', first + 1);
    key('Enter');
    expect(store.selection.names).toEqual([name]);
    key('Escape');
    expect(host.get('line')).toBeNull();
    view.dispose();
  });

  it('stays in the page where there is no such trait', () => {
    const { host, store } = aloneView('bringup', {});
    store.put(frame('netlist'));
    const view = seen(new NetlistView(store));
    store.setLine(3);
    expect(view.element.querySelector<HTMLElement>('[aria-current=true]')!.dataset['tbLine']).toBe('3');
    expect(host.told).toEqual([]);
    view.dispose();
  });
});

describe('problems', () => {
  it('are those that the filter keeps; what is typed is told once it rests', () => {
    const { host, store } = aloneView('problems', { filter: 'WARNING' });
    const view = seen(new ProblemsView(store));
    store.put(frame('problems'));
    const kept = () => [...view.element.querySelectorAll('li code')].map(c => c.textContent);
    const found = () => view.element.querySelector('.tb-found')!.textContent;
    const rules = frame('problems').text('rule');
    const warnings = rules.filter((_, i) => frame('problems').text('severity')[i] === 'warning');
    expect(warnings.length).toBeLessThan(rules.length);
    expect([kept(), found()]).toEqual([warnings, `${warnings.length} of ${rules.length} problems and notes`]);
    host.ask('filter', '');
    expect([kept().sort(), found(), host.told]).toEqual([[...rules].sort(), '', []]);
    const listed = (list: string) => [...view.element.querySelectorAll(`ul[aria-label=${list}] li code`)].map(c => c.textContent);
    expect([listed('Problems'), listed('Notes')]).toEqual([warnings, rules.filter(rule => !warnings.includes(rule))]);
    const input = view.element.querySelector<HTMLInputElement>('[data-tb-action=problems-filter]')!;
    expect(input.value).toBe('');
    for (const text of ['p', 'pad']) {
      input.value = text;
      input.dispatchEvent(new Event('input'));
    }
    expect([kept(), host.told]).toEqual([['padded'], []]);
    vi.advanceTimersByTime(1000);
    expect(host.told).toEqual([['filter', 'pad']]);
    view.dispose();
  });

  it('offer no filter where there are none', () => {
    const view = new ProblemsView(aloneView('problems', { filter: '' }).store);
    expect(view.element.querySelector<HTMLElement>('.tb-bar')!.hidden).toBe(true);
    view.dispose();
  });
});

describe('the docks of the workbench', () => {
  function bench(traits: Record<string, unknown> = {}) {
    const { host, store } = aloneView('bringup', { mode: 'split', docks: { tab: 'ops', inspector: true }, ...traits });
    frames().forEach(f => store.put(f));
    const view = seen(new BringUp(store));
    host.told.length = 0;
    const press = (action: string) => view.element.querySelector<HTMLElement>(`[data-tb-action=${action}]`)!.click();
    const front = () => view.element.querySelector('[role=tab][aria-selected=true]')!.getAttribute('data-tb-action');
    const there = (name: string) => !view.element.querySelector<HTMLElement>(`[data-tb-view=${name}]`)!.hidden;
    return { host, store, view, press, front, there };
  }

  it('are as Python says', () => {
    const { host, view, front, there } = bench({ mode: 'graph', docks: { tab: 'problems', inspector: false } });
    expect([front(), there('graph'), there('grid'), there('inspector')]).toEqual(['tab-problems', true, false, false]);
    host.ask('docks', { tab: 'netlist', inspector: true });
    host.ask('mode', 'grid');
    expect([front(), there('graph'), there('grid'), there('inspector'), host.told]).toEqual(['tab-netlist', false, true, true, []]);
    const pressed = [...view.element.querySelectorAll('.tb-docks [aria-pressed=true]')].map(b => b.getAttribute('data-tb-action'));
    expect(pressed).toEqual(['mode-grid', 'dock-inspector']);
    view.dispose();
  });

  it('are told when somebody arranges them', () => {
    const { host, view, press, front, there } = bench();
    press('tab-netlist');
    press('mode-graph');
    press('dock-inspector');
    expect([front(), there('grid'), there('inspector')]).toEqual(['tab-netlist', false, false]);
    expect(host.told).toEqual([['docks', { tab: 'netlist', inspector: true }], ['mode', 'graph'], ['docks', { tab: 'netlist', inspector: false }]]);
    view.dispose();
  });

  it('are saved under a name, put back by it, and forgotten; what is kept but not ours is passed over', () => {
    localStorage.setItem('tbuda-lab:layouts', '{"broken": {"mode": 1}, "older": null}');
    const { host, view, press, front, there } = bench();
    const names = () => [...view.element.querySelectorAll<HTMLElement>('[data-tb-layout]')].map(e => e.dataset['tbLayout']);
    const bar = view.element.querySelector<HTMLElement>('[data-tb-splitter=graph]')!;
    press('mode-grid');
    press('tab-netlist');
    bar.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
    press('layouts');
    expect(names()).toEqual([]);
    view.element.querySelector<HTMLInputElement>('[data-tb-action=layout-name]')!.value = ' reading ';
    press('layout-save');
    expect(names()).toEqual(['reading']);
    press('layout-usual');
    expect([front(), there('graph'), bar.getAttribute('aria-valuenow')]).toEqual(['tab-ops', true, '47']);
    press('layouts');
    press('layout-put');
    expect([front(), there('graph'), bar.getAttribute('aria-valuenow')]).toEqual(['tab-netlist', false, '49']);
    expect(host.get('docks')).toMatchObject({ tab: 'netlist' });
    press('layouts');
    press('layout-forget');
    expect(names()).toEqual([]);
    view.dispose();
    localStorage.clear();
  });

  it('show two stages of the graph, with selection in step both ways', () => {
    const { host, store, view, press, there } = bench();
    expect(view.element.querySelector('[data-tb-view=secondgraph]')).toBeNull();
    store.put(frame('graph:lowered').as('graph:traced'));
    press('mode-graphs');
    const second = view.element.querySelector<HTMLElement>('[data-tb-view=secondgraph]')!;
    expect([there('graph'), there('secondgraph'), there('grid'), host.get('mode')]).toEqual([true, true, false, 'graphs']);
    const pressed = (graph: Element) => [...graph.querySelectorAll('.tb-segmented [aria-pressed=true]')].map(b => b.textContent);
    expect([pressed(second), pressed(view.element.querySelector('[data-tb-view=graph]')!)]).toEqual([['Traced'], ['Lowered']]);
    const [name] = frame('ops').text('op_name') as [string];
    const search = second.querySelector<HTMLInputElement>('[data-tb-action=graph-search]')!;
    store.select([name], 'table');
    expect(host.get('depth')).toBeUndefined();
    search.value = '^layer.0.intermediate.dense.matmul$';
    search.dispatchEvent(new Event('input'));
    search.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' }));
    expect(store.selection.names).toEqual(['layer.0.intermediate.dense.matmul']);
    press('mode-split');
    expect([there('secondgraph'), there('grid')]).toEqual([false, true]);
    view.dispose();
  });

  it('work without Python', () => {
    const { store } = aloneView('bringup', {});
    frames().forEach(f => store.put(f));
    const view = new BringUp(store);
    const inspector = view.element.querySelector<HTMLElement>('[data-tb-view=inspector]')!;
    const press = () => view.element.querySelector<HTMLElement>('[data-tb-action=dock-inspector]')!.click();
    press();
    expect(inspector.hidden).toBe(true);
    press();
    expect(inspector.hidden).toBe(false);
    view.dispose();
  });

  it('have the tab of chips in front once there are several, and else say that it is not there', () => {
    const { host, store } = aloneView('bringup', { docks: { tab: 'cluster', inspector: true } });
    const view = new BringUp(store);
    const front = () => view.element.querySelector('[role=tab][aria-selected=true]')!.getAttribute('data-tb-action');
    expect([front(), host.told]).toEqual(['tab-cluster', []]); // nobody knows yet
    store.put(frame('ops')); // one chip
    expect([front(), host.told.at(-1)]).toEqual(['tab-ops', ['docks', { tab: 'ops', inspector: true }]]);
    view.dispose();
  });
});

describe('the table', () => {
  it('tells how it is sorted and what it is filtered by', () => {
    const { host, store } = aloneView('table', { sort: '', filter: 'gelu', columns: [], group: 'none', per_core: false });
    store.put(frame('ops'));
    const view = seen(new TableView(store));
    const press = () => view.element.querySelector<HTMLElement>('[data-tb-action=sort-cycles]')!.click();
    press();
    press();
    press();
    expect(host.told).toEqual([['sort', '-cycles'], ['sort', 'cycles'], ['sort', '']]);
    const input = view.element.querySelector<HTMLInputElement>('[data-tb-action=table-filter]')!;
    expect(input.value).toBe('gelu');
    input.value = 'matmul';
    input.dispatchEvent(new Event('input'));
    expect(host.get('filter')).toBe('gelu');
    vi.advanceTimersByTime(1000);
    expect(host.told.at(-1)).toEqual(['filter', 'matmul']);
    host.ask('sort', '-cycles');
    expect(view.element.querySelector('[aria-sort=descending]')!.textContent).toContain('Kernel');
    view.dispose();
  });
});

describe('the columns of the table', () => {
  it('are chosen by boxes, told, and as Python says', () => {
    const { host, store } = aloneView('table', { columns: [] });
    store.put(frame('ops'));
    const view = seen(new TableView(store));
    const heads = () => [...view.element.querySelectorAll('.tb-headrow [data-tb-action]')].map(b => b.getAttribute('data-tb-action')!.slice(5));
    const box = (id: string) => view.element.querySelector<HTMLInputElement>(`[data-tb-action=column-${id}]`)!;
    const all = heads();
    const open = () => view.element.querySelector<HTMLElement>('[data-tb-action=table-columns]')!.click();
    open();
    expect(all.every(id => box(id).checked)).toBe(true);
    box('type').click();
    const less = all.filter(id => id !== 'type');
    expect([heads(), host.told]).toEqual([less, [['columns', less]]]);
    box('type').click(); // all of them again: none are named
    expect([heads(), host.told.at(-1)]).toEqual([all, ['columns', []]]);
    host.ask('columns', ['cycles', 'name']);
    expect([heads(), box('name').checked, box('type').checked]).toEqual([['cycles', 'name'], true, false]);
    box('type').click(); // before the first that stands behind it
    expect(heads()).toEqual(['type', 'cycles', 'name']);
    for (const id of ['type', 'cycles']) box(id).click();
    expect([heads(), box('name').disabled, host.told.at(-1)]).toEqual([['name'], true, ['columns', ['name']]]);
    view.dispose();
  });
});

describe('overrides', () => {
  it('tell whether they are shown as code', () => {
    const { host, store } = aloneView('overrides', { show_code: 'json' });
    const record = {
      target: 'a', field: 'op_size', requested: '1x1', obtained: '1x1', state: 'obtained' as const, because: '', python: 'x', matches: 1, names: ['a'], removable: true
    };
    store.put(editsFrame({ overrides: [record] }));
    const view = seen(new OverridesPanel(store));
    const press = (way: string) => view.element.querySelector<HTMLElement>(`[data-tb-action=overrides-${way}]`)!.click();
    expect(view.element.querySelector<HTMLElement>('[data-tb-code]')!.dataset['tbCode']).toBe('json');
    press('list');
    press('python');
    expect(host.told).toEqual([['show_code', ''], ['show_code', 'python']]);
    host.ask('show_code', '');
    expect(view.element.querySelector('[data-tb-override]')).not.toBeNull();
    view.dispose();
  });
});

describe('what is compared', () => {
  const grid = { device: 'd', rows: 2, cols: 2, physical: [0, 1], harvested: [] };
  const compared = (a: string, b: string) => {
    const sides = ['a', 'b'].flatMap((s): [string, string, number[]][] => [
      ...['epoch', 'chip', 'row', 'col', 'rows', 'cols'].map((c): [string, string, number[]] => [`op_${s}_${c}`, 'i4', []]),
      [`op_${s}_cycles`, 'f8', []], [`op_${s}_limit`, 'f8', []], [`${s}_epoch_temporal`, 'u4', [0]], [`${s}_epoch_chip`, 'u2', [0]], [`${s}_epoch_cycles`, 'f8', [1]]
    ]);
    return handFrame('diff', {
      a, b, names: ['start', 'A', 'now'], classes: [], counts: {}, verdict: 'same', totals: [['cycles', 1, 1]], notes: [], grid_a: grid, grid_b: grid
    }, [['op_name', 'text', []], ['op_classes', 'u1', []], ...sides, ['pair_a', 'i4', [0]], ['pair_b', 'i4', [0]],
      ...['name', 'what', 'a', 'b'].map((c): [string, string, string[]] => [`queue_${c}`, 'text', []])]);
  };

  it('is asked for as Python says, and told when somebody chooses, here or in another view', () => {
    const { host, store } = aloneView('diff', { mode: 'split', a: 'A', b: 'now' });
    store.put(frame('ops'));
    const view = seen(new DiffView(store));
    const wants = () => host.sent.filter(m => m['type'] === 'want').map(m => [m['a'], m['b']]);
    host.ask('b', 'start');
    expect(wants().at(-1)).toEqual(['A', 'start']);
    store.put(compared('A', 'start'));
    vi.advanceTimersByTime(100);
    expect(host.told).toEqual([]);
    const choice = view.element.querySelector<HTMLSelectElement>('[data-tb-action=diff-b]')!;
    choice.value = 'now';
    choice.dispatchEvent(new Event('change'));
    expect(wants().at(-1)).toEqual(['A', 'now']);
    store.put(compared('A', 'now'));
    vi.advanceTimersByTime(100);
    expect(host.told).toEqual([['b', 'now']]);
    const count = wants().length;
    store.put(compared('start', 'A')); // another view asked for it
    vi.advanceTimersByTime(100);
    expect([host.told.slice(1), wants().length]).toEqual([[['a', 'start'], ['b', 'A']], count]);
    host.ask('a', 'start'); // Python says so too
    expect(wants()).toHaveLength(count);
    view.dispose();
  });
});

describe('a grid that Python lets edit, or not', () => {
  it('offers its tools at once, or takes them away', () => {
    const { host, store } = aloneView('grid', { edit: false, epoch: 0 });
    frames().forEach(f => store.put(f));
    store.put(editsFrame({ undo: 'x' }));
    const view = seen(new GridView(store));
    const offered = () => ['export', 'undo'].map(action => {
      const button = view.element.querySelector<HTMLElement>(`[data-tb-action=${action}]`);
      return button !== null && !button.closest('[hidden]');
    });
    expect(offered()).toEqual([false, false]);
    host.ask('edit', true);
    expect(offered()).toEqual([true, true]);
    host.ask('edit', false);
    expect(offered()).toEqual([false, false]);
    view.dispose();
  });
});

describe('groups of the graph', () => {
  const visible = (scene: Scene, open: ReadonlySet<number>) => {
    const inside = (g: number): boolean => g === 0 || (open.has(scene.groupParent[g]!) && inside(scene.groupParent[g]!));
    return scene.groupPaths.map((_, g) => g).filter(g => g > 0 && inside(g) && open.has(g));
  };

  it('are told so that Python opens what is seen', () => {
    const scene = new Scene(frame('graph:lowered'));
    const count = scene.groupPaths.length;
    expect(openedAs(scene, null, [])).toBeNull();
    let seed = 7;
    for (let turn = 0; turn < 40; turn++) {
      scene.opened.clear();
      scene.opened.add(0);
      for (let g = 1; g < count; g++) if ((seed = (seed * 1103515245 + 12345) % 2 ** 31) % 3) scene.opened.add(g);
      const told = openedAs(scene, null, []) ?? [null, []];
      expect(visible(scene, openedBy(scene, ...told))).toEqual(visible(scene, scene.opened));
      expect(openedAs(scene, ...told)).toBeNull();
    }
    scene.closeAll();
    expect(openedAs(scene, 3, [])).toEqual([null, [scene.groupPaths[1]]]);
    scene.openAll();
    expect(openedAs(scene, null, [])![1]).toEqual([]);
  });

  it('are told when somebody opens and closes them, once the picture rests', () => {
    const { host, store } = aloneView('graph', { depth: null, collapsed: [] });
    store.put(frame('graph:lowered'));
    const view = new GraphView(store);
    view.toggle(1);
    (view as unknown as { tellOpen(): void }).tellOpen();
    expect(host.told).toEqual([['collapsed', [view.scene!.groupPaths[1]]]]);
    expect(view.scene!.opened.has(1)).toBe(false);
    host.ask('collapsed', []);
    expect(view.scene!.opened.has(1)).toBe(true);
    view.dispose();
  });
});
