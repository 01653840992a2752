import { describe, expect, it } from 'vitest';
import { BringUp } from '../src/views/bringup.js';
import { nearestOf, siblingOf, usualPerRow } from '../src/views/grid/strip.js';
import { drawEpoch, Rows } from '../src/views/grid/draw.js';
import { drawLinks, linkList, linkName, usersOf } from '../src/views/grid/links.js';
import { Geometry } from '../src/views/grid/geometry.js';
import { GridView } from '../src/views/grid/view.js';
import { GraphView } from '../src/views/graph/view.js';
import { Ops } from '../src/views/ops.js';
import { rowsOf } from '../src/views/table/rows.js';
import { TableView } from '../src/views/table/view.js';
import { filled, frame, handFrame } from './fixture.js';
import { live } from './live.js';

const ops = Ops.of(frame('ops'));
const rows = ops.physical;

/** Three links of an epoch: one of NoC 0 to the right, one of NoC 1 that goes round upwards, one too busy. */
function links(ask?: number) {
  const columns = Array.from({ length: ops.cols }, (_, c) => c + 1);
  return handFrame('links:0:both', {
    ask, epoch: 0, chip: 0, noc: 'both', cycles: 1000, capacity: 32, left_out: 2048, size: [ops.cols + 2, Math.max(...rows) + 2], columns, rows, harvested: [], users: 2
  }, [
    ['link_noc', 'u1', [0, 0, 1]], ['link_axis', 'u1', [0, 0, 1]], ['link_x', 'u2', [1, 2, 3]], ['link_y', 'u2', [rows[0]!, rows[0]!, 0]],
    ['link_bytes', 'f8', [64000, 16000, 3200]], ['link_load', 'f4', [2, 0.5, 0.1]], ['link_flows', 'u2', [2, 1, 5]],
    ['use_flow', 'i2', [0, 1, 0, -1, 1, 0]], ['use_bytes', 'f4', [60000, 4000, 16000, 0, 2000, 1200]],
    ['flow_producer', 'text', [ops.name[0]!, 'weights']], ['flow_consumer', 'text', [ops.name[1]!, ops.name[2]!]], ['flow_bytes', 'f8', [60000, 4000]]
  ]);
}

describe('links of the NoC', () => {
  it('are named by their ends, round the torus too', () => {
    expect([0, 1, 2].map(k => linkName(links(), k))).toEqual([
      `NoC 0 1,${rows[0]!} → 2,${rows[0]!}`, `NoC 0 2,${rows[0]!} → 3,${rows[0]!}`, `NoC 1 3,0 → 3,${Math.max(...rows) + 1}`]);
    expect(usersOf(links(), 1)).toEqual([[ops.name[0], ops.name[1], 16000]]);
  });

  it('are drawn from the threshold on, the busiest last; those over their measure otherwise', () => {
    const paths = (threshold: number) => [...drawLinks(links(), new Geometry(ops, 74), threshold).querySelectorAll('path')];
    expect([0, 4, 20, 100].map(t => paths(t).length)).toEqual([3, 2, 1, 0]);
    expect(paths(0).at(-1)!.dataset['tbLoad']).toBe('2.000');
    expect(paths(0).map(p => p.getAttribute('class'))).toEqual(['tb-link-back', '', 'tb-link-over']);
    expect(paths(0)[2]!.getAttribute('d')).toMatch(/^M37 [\d.]+H111$/);
    expect(paths(0)[0]!.getAttribute('d')!.match(/M/g)).toHaveLength(2); // round the torus: two stubs
  });

  it('are asked for once an epoch, shown, listed, and gone again; answers to older questions are void', () => {
    const { store, host } = live();
    const view = new GridView(store);
    host.set('noc', 'both');
    const asked = () => host.sent.filter(m => m['type'] === 'need_links');
    expect(asked()).toEqual([{ type: 'need_links', epoch: 0, noc: 'both', ask: 1 }]);
    store.put(links(99));
    expect(view.element.querySelectorAll('[data-tb-noc-link]')).toHaveLength(0);
    store.put(links(1));
    expect(view.plane.querySelectorAll('[data-tb-noc-link]')).toHaveLength(3);
    expect(view.element.dataset['tbNoc']).toBe('0:both');
    const listed = view.element.querySelectorAll('[data-tb-links] [data-tb-noc-link]');
    expect([...listed].map(l => l.textContent.includes('▲'))).toEqual([true, false, false]);
    store.select(['weights'], 'test');
    expect(linkList(store).find(e => e.matches('[data-tb-links]'))!.childElementCount).toBe(2);
    host.set('link_threshold', 10);
    expect(view.element.querySelector<HTMLInputElement>('[data-tb-action=link_threshold]')!.value).toBe('10');
    expect(view.plane.querySelectorAll('[data-tb-noc-link]')).toHaveLength(2);
    store.setEpoch(1);
    expect(asked()).toHaveLength(2);
    expect(view.plane.querySelectorAll('[data-tb-noc-link]')).toHaveLength(0);
    store.put(frame('ops')); // another placement: asked anew
    expect(asked()).toHaveLength(3);
    host.set('noc', 'none');
    expect([store.frames.has('links'), view.element.querySelectorAll('[data-tb-links]').length]).toEqual([false, 0]);
    view.dispose();
  });

  it('say why there are none', () => {
    const { store, host } = live();
    const view = new GridView(store);
    host.set('noc', '0');
    host.say({ type: 'refused', key: 'links', text: 'nothing is placed yet', ask: 1 });
    expect(view.element.textContent).toContain('nothing is placed yet');
    view.dispose();
  });
});

describe('chips', () => {
  const made = (more: Record<string, unknown> = {}) => handFrame('ops', {
    rows: 2, cols: 2, device: 'x', harvested: [], physical: [1, 2], l1: 1, clock_hz: 1, total_cycles: 1, chips: [0, 1, 2], ...more
  }, [
    ...['name', 'type', 'module', 'location', 'df', 'fidelity', 'stream'].map((c): [string, string, string[]] => [`op_${c}`, 'text', ['a', 'b', 'c', 'd']]),
    ['op_epoch', 'u4', [0, 1, 2, 3]], ['op_chip', 'u2', [0, 1, 0, 1]],
    ...['row', 'col'].map((c): [string, string, number[]] => [`op_${c}`, 'u2', [0, 0, 0, 0]]), ...['rows', 'cols'].map((c): [string, string, number[]] => [`op_${c}`, 'u2', [2, 1, 1, 1]]),
    ['op_cycles', 'f8', [10, 20, 5, 5]], ['op_cores', 'i4', [2, 1, 1, 1]], ['edge_source', 'u4', []], ['edge_target', 'u4', []],
    ['epoch_temporal', 'u4', [0, 0, 1, 2]], ['epoch_chip', 'u2', [0, 1, 0, 1]], ['epoch_cycles', 'f8', [10, 20, 5, 5]], ['epoch_ops', 'u4', [1, 1, 1, 1]],
    ['epoch_cores', 'u4', [2, 1, 1, 1]], ['epoch_busy', 'f4', [0.5, 0.25, 0.25, 0.25]]
  ]);
  const chips = made();

  it('know who works at the same time, and how many go in a row', () => {
    const own = Ops.of(chips);
    expect([siblingOf(own, 0, 1), siblingOf(own, 2, 1), siblingOf(own, 3, 1), nearestOf(own, 2, 1), nearestOf(own, 0, 2)]).toEqual([1, -1, 3, 1, -1]);
    expect([2, 4, 8, 32].map(usualPerRow)).toEqual([2, 2, 4, 8]);
  });

  it('have each its own harvested rows', () => {
    const meta = { chips: [4, 5], chip_rows: [[[1, 3], [2]], [[1, 2], [3]]], physical: [1, 3], harvested: [2] };
    expect([4, 5].map(chip => Rows.of(meta, chip, 10, 4).strips)).toEqual([[{ y: 10, row: 2 }], [{ y: 20, row: 3 }]]);
    expect(Rows.of({ physical: [1, 3], harvested: [2] }, 5, 10, 4).top).toEqual([0, 14]);
    const own = new Ops(made({ harvested: [3], chip_rows: [[[1, 2], [3]], [[1, 3], [2]], [[1, 2], [3]]] }));
    const drawn = (e: number) => drawEpoch(own, e, 'load', false).querySelector('[data-tb-harvested]')!.getAttribute('data-tb-harvested');
    expect([drawn(0), drawn(1)]).toEqual(['3', '2']);
    expect([0, 1].map(e => new Geometry(own, 74, e).rows.strips[0]!.row)).toEqual([3, 2]);
  });

  it('stand beside each other, or one goes through its own epochs alone', () => {
    const { store, host } = filled();
    store.put(chips);
    host.set('chip', null);
    host.set('chips_per_row', 3);
    const view = new GridView(store);
    const figures = [...view.plane.querySelectorAll<HTMLElement>('[data-tb-figure]')];
    expect(figures.map(f => f.textContent.includes('rests'))).toEqual([false, false, true]);
    expect(figures.map(f => f.dataset['tbChip'])).toEqual([undefined, '1', '2']); // an op is dropped on another chip
    figures[1]!.querySelector<HTMLElement>('[data-tb-op]')!.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect([store.epoch, store.selection.names]).toEqual([1, ['b']]);
    host.set('chips_per_row', 0);
    host.set('chip', 0);
    expect(store.epoch).toBe(0);
    store.stepEpoch(1);
    expect(store.epoch).toBe(2);
    store.stepEpoch(1);
    expect(store.epoch).toBe(2);
    const shown = [...view.element.querySelectorAll<HTMLElement>('.tb-frame')].map(f => !f.hidden);
    expect(shown).toEqual([true, false, true, false]);
    store.setEpoch(3); // from elsewhere: the chip follows
    expect([store.chip, host.get('chip')]).toEqual([1, 1]);
    host.set('chip', null);
    store.stepEpoch(-1);
    expect(store.epoch).toBe(2);
    view.dispose();
  });
});

describe('the workbench', () => {
  it('shows graph or grid alone, and the tab that Python names', () => {
    const { store, host } = live();
    host.set('mode', 'grid');
    const view = new BringUp(store);
    const hidden = () => ['graph', 'grid'].map(name => view.element.querySelector<HTMLElement>(`.tb-upper > [data-tb-view=${name}]`)!.hidden);
    expect(hidden()).toEqual([true, false]);
    host.set('mode', 'split');
    expect(hidden()).toEqual([false, false]);
    const front = () => view.element.querySelector('[role=tab][aria-selected=true]')!.getAttribute('data-tb-action');
    host.set('docks', { tab: 'netlist', inspector: true });
    expect(front()).toBe('tab-netlist');
    host.set('docks', { tab: 'kitchen', inspector: true });
    expect(front()).toBe('tab-netlist');
    view.dispose();
  });
});

describe('the table', () => {
  it('has a line per epoch and a row per core', () => {
    const all = ops.name.map((_, i) => i);
    const plain = rowsOf(ops, all, false, false);
    expect(plain).toHaveLength(ops.count);
    const cores = rowsOf(ops, all, false, true);
    expect(cores).toHaveLength(all.reduce((n, i) => n + ops.get('rows', i) * ops.get('cols', i), 0));
    const grouped = rowsOf(ops, [...all].reverse(), true, false);
    expect(grouped.filter(r => r.op < 0).map(r => r.epoch)).toEqual(ops.byEpoch.map((_, e) => e));
    expect(grouped).toHaveLength(ops.count + ops.epochs);
    grouped.forEach((row, k) => expect(row.epoch).toBe(grouped.slice(0, k + 1).filter(r => r.op < 0).at(-1)!.epoch));
  });

  it('follows the traits and tells of its boxes', () => {
    const { store, host } = filled();
    host.set('group', 'epoch');
    host.set('per_core', false);
    const { element } = new TableView(store);
    document.body.append(element); // a box outside the page tells nobody
    const total = element.querySelector<HTMLElement>('.tb-total')!;
    expect([total.dataset['tbEpoch'], total.textContent.includes('busy')]).toEqual(['0', true]);
    const box = element.querySelector<HTMLInputElement>('[data-tb-action=table-per-core]')!;
    box.click();
    expect([host.get('per_core'), element.querySelector<HTMLElement>('[data-tb-core]')!.dataset['tbOp']]).toEqual([true, ops.name[ops.byEpoch[0]![0]!]]);
    host.set('group', 'none');
    expect(element.querySelector('.tb-total')).toBeNull();
    element.remove();
  });
});

describe('the graph after a pass', () => {
  const passed = (label: string, ask: number) => {
    const plain = frame('graph:lowered');
    const names = plain.text('node_name');
    const bytes = Uint8Array.from(names, (_, n) => (n === 3 ? 1 : 0));
    const { header, buffer } = plain as unknown as { header: { columns: unknown[] }; buffer: ArrayBuffer };
    const whole = new Uint8Array(Math.ceil(buffer.byteLength / 8) * 8 + bytes.length);
    whole.set(new Uint8Array(buffer));
    whole.set(bytes, whole.length - bytes.length);
    return new (plain.constructor as new (h: unknown, b: ArrayBuffer) => typeof plain)({
      ...header, key: 'graph:pass', meta: { ...plain.meta, label, ask, doc: 'does things' },
      columns: [...header.columns, { name: 'node_change', dtype: 'u1', offset: whole.length - bytes.length, length: bytes.length }]
    }, whole.buffer);
  };
  const list = handFrame('passlist', {}, [
    ['step_label', 'text', ['one', 'two', 'one#2']], ...['added', 'removed', 'changed'].map((c, k): [string, string, number[]] => [`step_${c}`, 'u4', [k === 0 ? 1 : 0, 0, 2]])
  ]);

  it('is asked for by name, stepped over what changed nothing, and left again', () => {
    const { store, host } = live();
    store.put(frame('graph:lowered').as('graph:traced'));
    host.set('pass_name', '');
    const view = new GraphView(store);
    const wanted = () => host.sent.filter(m => m['type'] === 'need_pass');
    host.set('pass_name', 'one');
    expect(wanted()).toEqual([{ type: 'need_pass', pass: 'one', ask: 1 }]);
    store.put(list);
    store.put(passed('one', 0)); // an answer to something older
    expect(view.scene!.frame.key).toBe('graph:lowered');
    store.put(passed('one', 1));
    expect(view.scene!.frame.key).toBe('graph:pass');
    expect(view.element.querySelector('.tb-pass-bar .tb-found')!.textContent).toBe('1 of 3: 1 added');
    view.stepPass(1);
    expect(wanted().at(-1)).toEqual({ type: 'need_pass', pass: 'one#2', ask: 2 });
    store.put(passed('one#2', 2));
    expect(host.get('pass_name')).toBe('one#2');
    view.show('lowered');
    expect([view.scene!.frame.key, host.get('pass_name')]).toEqual(['graph:lowered', '']);
    view.dispose();
  });
});
