import { handFrame } from './fixture.js';
import { errorCard } from '../src/views/trace/checks.js';
import { measuredCard } from '../src/views/inspector.js';
import { goToPlace, placeText } from '../src/views/place.js';
import { describe, expect, it, vi } from 'vitest';
import { BringUp } from '../src/views/bringup.js';
import { GridView } from '../src/views/grid/view.js';
import type { Host } from '../src/views/host.js';
import { NetlistText } from '../src/views/netlisttext.js';
import { ProblemsView } from '../src/views/problems.js';
import { StageBar } from '../src/views/stagebar.js';
import { Store } from '../src/views/store.js';
import { TableView } from '../src/views/table/view.js';
import { filled, fixture, frame } from './fixture.js';

const OP = 'layer.0.intermediate.gelu_0';

/** A host whose messages and values a test can see and make. */
function fakeHost(): Host & { sent: Record<string, unknown>[]; say: (m: Record<string, unknown>, b?: DataView[]) => void } {
  let listener: (m: Record<string, unknown>, b: DataView[]) => void = () => undefined;
  const sent: Record<string, unknown>[] = [];
  return {
    live: true, sent,
    get: () => undefined,
    set: vi.fn(),
    on: () => () => undefined,
    send: m => sent.push(m),
    onMessage(f) {
      listener = f;
      return () => undefined;
    },
    say: (m, b = []) => listener(m, b)
  };
}

describe('Store', () => {
  it('says hello, and asks again when a message went missing', () => {
    const host = fakeHost();
    new Store(host);
    expect(host.sent).toMatchObject([{ type: 'hello', have: {} }]);
    const { header, data } = fixture.frames.find(f => f.header.key === 'ops')!;
    const bytes = new DataView(Uint8Array.from(Buffer.from(data, 'base64')).buffer);
    host.say({ type: 'frame', key: 'ops', rev: 3, chunk: [0, 1], header, seq: 1 }, [bytes]);
    host.say({ type: 'status', status: { stages: [] }, seq: 2 });
    expect(host.sent).toHaveLength(1);
    host.say({ type: 'status', status: { stages: [] }, seq: 4 });
    expect(host.sent[1]).toEqual({ type: 'resync', have: { ops: 3 } });
  });

  it('replaces the selection on a click and toggles on a modified one', () => {
    const { store, host } = filled();
    store.click('a', false, 'x');
    store.click('b', true, 'x');
    expect(store.selection.names).toEqual(['a', 'b']);
    store.click('a', true, 'x');
    expect(store.selection.names).toEqual(['b']);
    expect(host.get('selection')).toEqual({ kind: 'op', names: ['b'], source: 'x' });
    host.set('selection', { kind: 'op', names: ['c'], source: 'kernel' });
    expect(store.selection.names).toEqual(['c']);
  });
});

describe('GridView', () => {
  it('draws every op of the epoch once, marks what is worth enlarging, hatches harvested rows', () => {
    const { store } = filled();
    const { element } = new GridView(store);
    const ops = frame('ops');
    const epochs = [...ops.column('op_epoch')];
    expect(element.querySelectorAll('.tb-tile')).toHaveLength(epochs.filter(e => e === 0).length);
    expect(element.querySelectorAll('[data-tb-action=epoch]')).toHaveLength(ops.column('epoch_cycles').length);
    expect(element.querySelectorAll('.tb-limits')).toHaveLength(0); // filling takes most of the time: nothing is worth it
    expect(element.querySelector('[data-tb-action=select-bottleneck]')!.textContent).toContain('slowest op');
    store.put(ops.patched('ops', [{ column: 'epoch_limiting', at: 0, value: epochs.indexOf(0) }]));
    expect([...element.querySelectorAll<HTMLElement>('.tb-limits')].map(e => e.dataset['tbOp'])).toEqual([ops.text('op_name')[epochs.indexOf(0)]]);
    expect([...element.querySelectorAll('[data-tb-harvested]')].map(e => e.getAttribute('data-tb-harvested'))).toEqual(['3', '8']);
  });

  it('goes to the epoch of an op selected elsewhere, and shows what feeds it', () => {
    const { store } = filled();
    const { element } = new GridView(store);
    const ops = frame('ops');
    const last = ops.column('op_name').length - 1;
    const name = ops.text('op_name')[last]!;
    store.select([name], 'table');
    expect(element.dataset['tbEpoch']).toBe(String(ops.column('op_epoch')[last]));
    expect(element.querySelector('.tb-tile.tb-selected')?.getAttribute('data-tb-op')).toBe(name);
    expect(element.querySelectorAll('.tb-tile.tb-feeds').length).toBeGreaterThan(0);
  });

  it('selects by click and walks epochs by key', () => {
    const { store } = filled();
    const { element } = new GridView(store);
    document.body.append(element);
    const tile = element.querySelector<SVGGElement>('.tb-tile')!;
    tile.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect(store.selection.names).toEqual([tile.getAttribute('data-tb-op')]);
    const plane = element.querySelector('.tb-plane')!;
    plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }));
    expect(store.epoch).toBe(1);
    plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'p', bubbles: true }));
    expect(store.epoch).toBe(0);
    element.remove();
  });
});

describe('TableView', () => {
  function table() {
    const { store } = filled();
    const view = new TableView(store);
    const scroller = view.element.querySelector<HTMLElement>('.tb-table')!;
    Object.defineProperty(scroller, 'clientHeight', { value: 400 });
    return { store, view, rows: () => [...view.element.querySelectorAll<HTMLElement>('.tb-rows .tb-row')] };
  }

  it('makes elements only for the rows in sight', () => {
    const { store, view, rows } = table();
    store.setHover('x');
    expect(rows().length).toBeLessThan(40);
    expect(view.element.querySelector('.tb-found')?.textContent).toBe(`${frame('ops').column('op_name').length} ops`);
  });

  it('sorts by a column, down then up then as scheduled', () => {
    const { view, rows } = table();
    const cycles = () => rows().map(r => Number(r.children[3]!.textContent.replaceAll(',', '')));
    const press = () => view.element.querySelector<HTMLElement>('[data-tb-action=sort-cycles]')!.click();
    const scheduled = rows()[0]!.dataset['tbOp'];
    const scroller = view.element.querySelector<HTMLElement>('.tb-table')!;
    scroller.scrollTop = 300; // where the selection stood
    press();
    expect(scroller.scrollTop).toBe(0);
    expect(cycles()).toEqual(cycles().sort((a, b) => b - a));
    press();
    expect(cycles()).toEqual(cycles().sort((a, b) => a - b));
    press();
    expect(rows()[0]!.dataset['tbOp']).toBe(scheduled);
  });

  it('filters by name and type', () => {
    const { view, rows } = table();
    const input = view.element.querySelector<HTMLInputElement>('[data-tb-action=table-filter]')!;
    input.value = 'GELU';
    input.dispatchEvent(new Event('input'));
    expect(rows().every(r => r.dataset['tbOp']!.includes('gelu'))).toBe(true);
    expect(rows()).toHaveLength(2);
  });
});

describe('NetlistText', () => {
  it('finds the entry of an op and its fields', () => {
    const text = new NetlistText(frame('netlist'));
    const [line] = text.lineOf(OP)!;
    expect(text.lines[line]!.trim().startsWith(`${OP}:`)).toBe(true);
    const fields = Object.fromEntries(text.fields(OP));
    expect(fields['type']).toBe('gelu');
    expect(fields['grid_size']).toMatch(/^\[\d+, \d+\]$/);
    expect(fields['inputs']).toBe('[layer.0.intermediate.dense.matmul]');
    expect(text.fields('nothing')).toEqual([]);
  });
});

describe('ProblemsView', () => {
  it('lists errors first and selects the place', () => {
    const { store } = filled();
    const { element } = new ProblemsView(store);
    element.querySelector<HTMLElement>('[data-tb-action=select-problem]')!.click();
    expect(store.selection.names).toEqual([OP]);
  });
});

describe('StageBar', () => {
  it('asks the kernel to stop, and shows no buttons where there is none', () => {
    const host = fakeHost();
    const store = new Store(host);
    const { element } = new StageBar(store);
    const stage = { name: 'Place', state: 'running', seconds: null, detail: '' };
    host.say({ type: 'status', seq: 1, status: { running: true, message: '', done: 1, total: 4, cancellable: true, failed: false, stages: [stage] } });
    expect(element.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow')).toBe('25');
    element.querySelector<HTMLElement>('[data-tb-action=cancel]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'cancel' });
    expect(new StageBar(filled().store).element.querySelector('button')).toBeNull();
  });
});

describe('BringUp', () => {
  it('carries the hooks that tests and assistive tools rely on', () => {
    const { store } = filled();
    const view = new BringUp(store);
    const { element } = view;
    const views = [...element.querySelectorAll('[data-tb-view]')].map(e => e.getAttribute('data-tb-view'));
    expect(views).toEqual(expect.arrayContaining(['stages', 'metrics', 'graph', 'grid', 'table', 'netlist', 'problems', 'inspector']));
    store.select([OP], 'test');
    expect(element.querySelector('[data-tb-view=inspector]')?.textContent).toContain(OP);
    view.dispose();
  });

  it('never writes a name as markup', () => {
    const { store } = filled();
    const { element } = new BringUp(store);
    store.select(['<img src=x onerror=alert(1)>'], 'test');
    expect(element.querySelector('img')).toBeNull();
  });
});

describe('a place as text', () => {
  it('leads back to epoch, selection and colours, and refuses what is none', () => {
    const { store } = filled();
    const names = frame('ops').text('op_name');
    store.setColour('family');
    store.setEpoch(1);
    store.select([names[0]!], 'test');
    store.setEpoch(1);
    const text = placeText(store);
    const other = filled().store;
    expect(goToPlace(other, `https://example.org/report.html${text}`)).toBe(true);
    expect([other.epoch, other.selection.names, other.colour]).toEqual([1, [names[0]], 'family']);
    expect(new URLSearchParams(text.slice(1)).get('session')).toBe(store.frames.get('summary')!.meta['name']);
    const refusals: string[] = [];
    other.say = (ok, words) => refusals.push(`${String(ok)} ${words}`);
    expect(goToPlace(other, '#session=another&epoch=0')).toBe(true);
    expect([other.epoch, refusals.length, refusals[0]?.includes('another')]).toEqual([1, 1, true]);
    other.host.set('docks', { tab: 'ops', inspector: true });
    expect(goToPlace(other, `${text}&view=memory`)).toBe(true);
    expect([other.host.get('docks'), new URLSearchParams(placeText(other)).get('view')]).toEqual([{ tab: 'memory', inspector: true }, 'memory']);
    for (const wrong of ['', '#', '#epoch=-1', '#epoch=9999', '#epoch=x', '#op=a']) expect(goToPlace(other, wrong)).toBe(false);
    expect(goToPlace(other, '#epoch=0&op=nobody&colour=<script>')).toBe(true);
    expect([other.epoch, other.selection.names, other.colour]).toEqual([0, [names[0]], 'family']);
  });
});

describe('cards of the inspector', () => {
  const frameOf = (key: string, meta: Record<string, unknown>, columns: [string, string, unknown[]][]) => handFrame(key, meta, columns as never);

  it('says what a measured run took for the op, and nothing where it was not matched', () => {
    const { store } = filled();
    store.put(frameOf('measured', { name: 'run.csv' }, [['op_name', 'text', ['a', 'b']], ['op_measured', 'f8', [1200, NaN]], ['op_table', 'f8', [800, 5]],
      ['op_pipelined', 'f8', [NaN, 5]], ['op_lost', 'f8', [400, NaN]], ['op_extrapolated', 'text', ['', 'far']]]));
    expect(measuredCard(store, 'a')!.textContent).toBe('Measured: run.csvmeasured1,200 nsby the table of kernels800 nslost400 nsmeasured / by table1.50');
    expect([measuredCard(store, 'b'), measuredCard(store, 'c')]).toEqual([null, null]);
  });

  it('gives the table its columns, to sort by what is lost, once a run is laid over the placement', () => {
    const { store } = filled();
    const { element } = new TableView(store);
    const heads = () => [...element.querySelectorAll('[role=columnheader]')].map(e => e.textContent);
    expect(heads()).not.toContain('Measured µs');
    store.put(frameOf('measured', { name: 'run.csv' }, [
      ['op_name', 'text', [OP]], ['op_measured', 'f8', [12_300]], ['op_table', 'f8', [6_000]], ['op_lost', 'f8', [9_000]], ['op_extrapolated', 'text', ['far']]
    ]));
    const { element: fresh } = new TableView(store);
    const names = [...fresh.querySelectorAll('[role=columnheader]')].map(e => e.textContent);
    expect(names).toEqual(expect.arrayContaining(['Measured µs', 'By table µs', 'Ratio', 'Lost µs']));
    fresh.querySelector<HTMLElement>('[data-tb-action=sort-lost]')!.click();
    const first = fresh.querySelector('[data-tb-op]')!;
    const cell = (label: string) => first.querySelectorAll('[role=gridcell]')[names.findIndex(n => n.startsWith(label))]!.textContent;
    expect([(first as HTMLElement).dataset['tbOp'], cell('Measured µs'), cell('By table µs'), cell('Ratio'), cell('Lost µs')]).toEqual([OP, '12', '~ 6.00', '~ 2.05', '9.00']);
  });

  it('says which op is wrong, and leads there', () => {
    const { store } = filled();
    store.put(frameOf('errors', { text: 'b: first wrong at `lowered`', stage: 'lowered', op: 'b', error: 0.1, costs: [] }, [['error_op', 'text', ['a', 'b']],
      ['error_isolated', 'f8', [0, 1]], ['error_accumulated', 'f8', [0, 1]], ['error_expected', 'f8', [0, 0.01]], ['error_pcc', 'f8', [1, 0.2]]]));
    expect(errorCard(store, 'b')!.dataset['tbVerdict']).toBe('fail');
    const card = errorCard(store, 'a')!;
    expect(card.dataset['tbVerdict']).toBe('pass');
    card.querySelector<HTMLElement>('[data-tb-action=error-op]')!.click();
    expect(store.selection.names).toEqual(['b']);
  });
});
