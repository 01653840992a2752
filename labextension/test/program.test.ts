import { describe, expect, it } from 'vitest';
import type { Host } from '../src/views/host.js';
import { ProgramView } from '../src/views/program.js';
import { Store } from '../src/views/store.js';
import { handFrame } from './fixture.js';

const times = (cycles: number, late: number) => ({ cycles, device: [[0, 0, 40], [1, 40, 80], [2, late, cycles]], link: [['w', 80, late]] });

function view(more: Record<string, unknown> = {}): { element: HTMLElement; store: Store; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const host: Host = { live: true, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage: () => () => undefined };
  const store = new Store(host);
  store.put(handFrame('program', {
    title: 'net (spatial)', graph: 'net', mapping: 'spatial', replicas: 2, mode: 'inorder',
    graphs: [{ title: 'net (spatial)', name: 'net', mapping: 'spatial' }, { title: 'net (section)', name: 'net', mapping: 'section' }],
    sections: ['fwd', 'bckwd', 'opt'].map(kind => ({ kind, cycles: 40, ops: 3 })),
    steps: [{ section: 'fwd', step: 'loop', count: 2, body: [{ step: 'push', tensor: 'x' }, { step: 'store', tensor: 'y', region: 'cache' }] }],
    timelines: { normal: times(140, 100), inorder: times(130, 90) }, ...more
  }, []));
  const { element } = new ProgramView(store);
  document.body.append(element);
  return { element, store, sent };
}

const all = (element: HTMLElement, what: string) => [...element.querySelectorAll<HTMLElement>(what)];

const ir = {
  graphs: [
    { id: 'main graph', inputs: [], outputs: [], ops: [
      { op: 'y', type: 'Call', runs: 'called', why: '', line: 'a.py:3', calls: ['layer(1)'], segments: [] },
      { op: 'n', type: 'TopK', runs: 'host', why: 'order statistics', line: 'a.py:4', calls: [], segments: [] }] },
    { id: 'layer(1)', inputs: ['x'], outputs: ['z'], ops: [{ op: 'z', type: 'Add', runs: 'grid', why: '', line: 'a.py:1', calls: [], segments: [0, 2] }] }
  ],
  segments: [{ number: 0, ops: 1, cut: '', epoch: 0 }, { number: 2, ops: 2, cut: 'TopK', epoch: 2 }],
  streams: [{ name: 's', way: 'from the host', shape: [2, 3], type: 'int32' }],
  buffers: [{ id: 1, entries: 4, shape: [3], type: 'float32' }], variables: [], replicas: 1
};

describe('the graphs of an Ir', () => {
  it('say what runs where and why, and lead from a call to its graph and from an op to its segment', () => {
    const { element, store } = view({ record: ir });
    const text = element.textContent;
    for (const part of ['order statistics', 'int32 (2, 3)', 'TopK', 'the beginning', 'grid, segment']) expect(text).toContain(part);
    const called = [...element.querySelectorAll('details')].at(-1)!;
    called.scrollIntoView = () => undefined;
    expect(called.open).toBe(false);
    element.querySelector<HTMLElement>('[data-tb-action=called-graph]')!.click();
    expect(called.open).toBe(true);
    all(element, '[data-tb-action=segment]')[1]!.click();
    expect(store.epoch).toBe(2);
  });

  it('are drawn with what runs each op; the table leads to the picture, and the picture to the table', () => {
    const { element, store } = view({ record: ir });
    expect(element.querySelector('[data-tb-view=irgraph]')).toBeNull();
    const texts = { node_name: ['y.z', 'y.z (2)', 'n'], node_label: ['z', 'z', 'n'], node_type: ['Add', 'Add', 'TopK'], node_shape: ['', '', ''],
      node_why: ['', '', 'order statistics'], node_segments: ['0 2', '0 2', ''], node_op: ['z', 'z', 'n'], node_graph: ['layer(1)', 'layer(1)', 'main graph'],
      node_calls: ['', '', ''], node_location: ['a.py:1', 'a.py:1', 'a.py:4'], node_module: ['layer(1)', 'layer(1) #2', ''], group_path: [''], group_label: [''], group_class: [''] };
    const numbers = { node_kind: [3, 3, 3], node_group: [0, 0, 0], node_chars: [1, 1, 1], node_place: [0, 0, 1], group_parent: [-1], group_leaves: [3], group_repeats: [0], group_chars: [0],
      item_kind: [0, 0, 0], item_ref: [0, 1, 2], item_rank: [0, 1, 2], item_order: [0, 0, 0], item_group: [0, 0, 0], seg_group: [], seg_source: [], seg_target: [], seg_net: [] };
    store.put(handFrame('irgraph', { places: ['grid', 'host'], open: [0] }, [
      ...Object.entries(numbers).map(([name, values]): [string, string, number[]] => [name, 'i4', values]),
      ...Object.entries(texts).map(([name, values]): [string, string, string[]] => [name, 'text', values])]));
    const buttons = all(element, '[data-tb-action=show-op]');
    expect(buttons.map(b => b.textContent)).toEqual(['y', 'n', 'z']);
    buttons[2]!.click();
    const chosen = element.querySelector<HTMLElement>('.tb-program-chosen')!;
    expect(chosen.textContent).toContain('z (Add)');
    expect(chosen.textContent).toContain('2 calls');
    expect(all(element, 'tr[data-tb-op].tb-now').map(row => row.dataset['tbOp'])).toEqual(['z']);
    all(chosen, '[data-tb-action=segment]')[1]!.click();
    expect(store.epoch).toBe(2);
    buttons[1]!.click();
    expect(chosen.textContent).toContain('order statistics');
    buttons[0]!.click(); // a call has a group and no node
    expect(chosen.textContent).toBe('');
  });

  it('say their steps in words', () => {
    const { element } = view({ record: ir, steps: [
      { step: 'load_stream', stream: 's', slot: 'x' }, { step: 'host_op', kind: 'TopK', ins: ['x'], outs: ['n'] },
      { step: 'branch', condition: 'c', then: [{ step: 'move', pairs: [['a', 'b']] }], otherwise: [] }] });
    expect(all(element, 'li').map(li => li.firstElementChild!.nextSibling!.textContent)).toEqual([' x (stream s)', ' TopK: x to n', ' by c', ' b to a']);
  });
});

describe('the host program', () => {
  it('shows replicas side by side in the mode that was traced', () => {
    const { element } = view();
    expect(all(element, '.tb-program-section')).toHaveLength(6);
    expect(all(element, '.tb-program-link')).toHaveLength(1);
    expect(element.querySelector('header')!.textContent).toContain('130 cycles per run');
  });

  it('shows another mode, and asks for another graph', () => {
    const { element, sent } = view();
    element.querySelector<HTMLElement>('[data-tb-choice=normal]')!.click();
    expect(element.querySelector('header')!.textContent).toContain('140 cycles per run');
    element.querySelector<HTMLElement>('[data-tb-choice="net (section)"]')!.click();
    expect(sent.at(-1)).toEqual({ type: 'graph', title: 'net (section)' });
  });

  it('leads from a section to its epoch, and marks the one that the grid shows', () => {
    const { element, store } = view();
    all(element, '[data-tb-action=section]')[1]!.click();
    expect(store.epoch).toBe(1);
    expect(all(element, 'tr.tb-now').map(row => row.dataset['tbSection'])).toEqual(['1']);
  });

  it('says the steps in words, loops with their bodies', () => {
    const { element } = view();
    expect(all(element, 'li').map(li => li.dataset['tbStep'])).toEqual(['loop', 'push', 'store']);
    expect(element.querySelector('[data-tb-step=store]')!.textContent).toBe('store y (region cache)');
  });
});
