import { afterEach, describe, expect, it } from 'vitest';
import { type Host, StaticHost } from '../src/views/host.js';
import { changePaint } from '../src/views/graph/paints.js';
import { PassStepper } from '../src/views/passes.js';
import { Frame } from '../src/views/frame.js';
import { Store } from '../src/views/store.js';
import { fixture, frame, handFrame } from './fixture.js';

function passes(): Frame {
  return handFrame('passes', { error: '', rev: 1, name: 'x' }, [
    ...['name', 'label'].map((c): [string, string, string[]] => [`step_${c}`, 'text', ['fold', 'nothing', 'split']]), ['step_doc', 'text', ['folds', 'does nothing', 'splits']],
    ['step_before', 'u4', [9, 7, 7]], ['step_after', 'u4', [7, 7, 8]], ['step_rewrites', 'u4', [2, 0, 1]], ['step_seconds', 'f4', [0.01, 0.001, 0.002]],
    ['step_added', 'u4', [0, 0, 1]], ['step_removed', 'u4', [2, 0, 0]], ['step_changed', 'u4', [1, 0, 0]]
  ]);
}

/** The fixture's lowered graph with its first node changed and the second one added. */
function graph(index: number, side = 'after'): Frame {
  const { header, data } = fixture.frames.find(f => f.header.key === 'graph:lowered')!;
  const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
  const count = frame('graph:lowered').column('node_name').length;
  const names = frame('graph:lowered').text('node_name');
  const change = new Uint8Array(count);
  [change[0], change[1]] = [2, 1];
  const padded = new Uint8Array(bytes.length + change.length + 16);
  padded.set(bytes);
  padded.set(change, bytes.length);
  const columns = [...header.columns, { name: 'node_change', dtype: 'u1', offset: bytes.length, length: count },
    { name: 'change_what', dtype: 'u1', offset: bytes.length, length: 1 }, // 2: changed
    { name: 'change_name', dtype: 'u4', offset: header.columns.find(c => c.name === 'node_name')!.offset, length: 1 },
    { name: 'change_text', dtype: 'u4', offset: header.columns.find(c => c.name === 'node_name')!.offset, length: 1 }];
  expect(names.length).toBe(count);
  const meta = { ...header.meta, index, side, pass: ['fold', 'nothing', 'split'][index], doc: '', changes: 3 };
  return new Frame({ ...header, key: 'passgraph', meta, columns }, padded.buffer);
}

function view(live = true): { store: Store; element: HTMLElement; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const host: Host = { live, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage: () => () => undefined };
  const store = new Store(host);
  const { element } = new PassStepper(store);
  document.body.append(element);
  store.put(passes());
  store.put(graph(0));
  return { store, element, sent };
}

const press = (element: HTMLElement, action: string) => element.querySelector<HTMLElement>(`[data-tb-action="${action}"]`)!.click();
const listed = (element: HTMLElement) => [...element.querySelectorAll<HTMLElement>('[data-tb-action=pass]')].map(b => b.dataset['tbStep']);

afterEach(() => document.body.replaceChildren());

describe('PassStepper', () => {
  it('lists the passes that changed something, and all of them on request', () => {
    const { element } = view();
    expect(listed(element)).toEqual(['0', '2']);
    expect(element.querySelector('[data-tb-step="0"]')!.textContent).toContain('−2~1');
    const box = element.querySelector<HTMLInputElement>('[data-tb-action=pass-idle]')!;
    box.checked = true;
    box.dispatchEvent(new Event('change'));
    expect(listed(element)).toEqual(['0', '1', '2']);
  });

  it('steps on and back, and to the other side of a pass', () => {
    const { element, sent, store } = view();
    press(element, 'pass-next');
    expect(sent.at(-1)).toEqual({ type: 'want', key: 'passgraph', index: 2, side: 'after' });
    store.put(graph(2));
    expect(element.dataset['tbPass']).toBe('2');
    press(element, 'pass-next'); // there is none behind
    expect(sent.at(-1)).toMatchObject({ index: 2 });
    press(element, 'pass-before');
    expect(sent.at(-1)).toEqual({ type: 'want', key: 'passgraph', index: 2, side: 'before' });
    press(element, 'pass-previous');
    expect(sent.at(-1)).toMatchObject({ index: 0, side: 'before' });
  });

  it('says what changed and selects it everywhere', () => {
    const { element, store } = view();
    const name = frame('graph:lowered').text('node_name')[0]!;
    expect(element.querySelector('.tb-passes-notes')!.textContent).toContain('3 nodes differ');
    expect(element.querySelector('.tb-passes-notes')!.textContent).toContain('and 2 more');
    press(element, 'select-node');
    expect(store.selection.names).toEqual([name]);
  });

  it('tells apart what a pass did by colour, in both themes', () => {
    for (const dark of [false, true]) expect(new Set([0, 1, 2, 3].map(k => changePaint(k, dark).fill)).size).toBe(4);
  });

  it('goes to the pass that Python named before there was a list, and tells of another', () => {
    const host = new StaticHost({ view: 'passes', pass_name: 'split' });
    const store = new Store(host);
    const { element } = new PassStepper(store);
    document.body.append(element);
    [0, 2].forEach(k => store.put(graph(k).as(`passgraph:${k}:after`)));
    store.put(passes());
    expect(element.dataset['tbPass']).toBe('2');
    press(element, 'pass-previous');
    expect([element.dataset['tbPass'], host.get('pass_name')]).toEqual(['0', 'fold']);
  });

  it('says why there is nothing', () => {
    const store = new Store({ live: true, get: () => undefined, set: () => undefined, on: () => () => undefined, send: () => undefined, onMessage: () => () => undefined });
    const { element } = new PassStepper(store);
    expect(element.textContent).toContain('once the model is traced');
  });

  it('shows in a page without a kernel the graphs that are in it, and offers no others', () => {
    const { store, element, sent } = view(false);
    store.put(graph(2).as('passgraph:2:after'));
    press(element, 'pass-idle');
    const step = (k: number) => element.querySelector<HTMLButtonElement>(`[data-tb-step="${k}"]`)!;
    expect([step(1).disabled, step(2).disabled]).toEqual([true, false]);
    step(2).click();
    expect(element.dataset['tbPass']).toBe('2');
    expect(element.querySelector<HTMLButtonElement>('[data-tb-action=pass-before]')!.disabled).toBe(true);
    expect(sent.filter(m => m['type'] === 'want')).toEqual([]);
  });
});
