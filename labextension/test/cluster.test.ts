import { afterEach, describe, expect, it } from 'vitest';
import { ClusterView } from '../src/views/cluster.js';
import { BringUp } from '../src/views/bringup.js';
import type { Host } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { fixture, frame, handFrame } from './fixture.js';
import { Frame } from '../src/views/frame.js';

const names = frame('ops').text('op_name');
const homes = [...frame('ops').column('op_epoch')];

/** The fixture's placement on `chips` chips: even epochs on chip 0, odd ones on chip 1, two to a temporal epoch. */
function placed(chips: number): Frame {
  const { header, data } = fixture.frames.find(f => f.header.key === 'ops')!;
  const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
  const epochs = frame('ops').column('epoch_cycles').length;
  const meta = { ...header.meta, chips: Array.from({ length: chips }, (_, i) => i) };
  const made = new Frame({ ...header, meta }, bytes.buffer);
  for (let e = 0; e < epochs; e++) {
    made.column('epoch_chip')[e] = chips > 1 ? e % 2 : 0;
    made.column('epoch_temporal')[e] = chips > 1 ? Math.floor(e / 2) : e;
  }
  made.column('op_epoch').forEach((e: number, i: number) => (made.column('op_chip')[i] = chips > 1 ? e % 2 : 0));
  return made;
}

function cluster(chips: number): Frame {
  const all = Array.from({ length: chips }, (_, i) => i);
  return handFrame('cluster', { rev: 1, slowest: 100, capacity: 10 }, [
    ['chip_id', 'u2', all], ['chip_stage', 'u2', all], ['chip_mmio', 'u1', all.map(i => Number(i === 0))], ['chip_x', 'u2', all], ['chip_y', 'u2', all.map(() => 0)],
    ['chip_epochs', 'u4', all.map(i => Number(i < 2))], ['chip_cycles', 'f8', all.map(i => (i === 0 ? 100 : i === 1 ? 50 : 0))],
    ['link_a', 'u2', all.slice(1).map(i => i - 1)], ['link_b', 'u2', all.slice(1)], ['link_count', 'u2', all.slice(1).map(() => 4)],
    ['link_forth', 'f8', all.slice(1).map(i => (i === 1 ? 2048 : 0))], ['link_back', 'f8', all.slice(1).map(() => 0)], ['link_load', 'f4', all.slice(1).map(i => (i === 1 ? 0.5 : 0))]
  ]);
}

function view(chips = 3): { store: Store; element: HTMLElement; sent: Record<string, unknown>[] } {
  const sent: Record<string, unknown>[] = [];
  const host: Host = { live: true, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage: () => () => undefined };
  const store = new Store(host);
  store.put(placed(chips));
  store.put(handFrame('edits', { rev: 1, stale: false, busy: false, undo: '', redo: '', overrides: [] }, []));
  store.put(cluster(chips));
  const { element } = new ClusterView(store);
  document.body.append(element);
  element.querySelector<HTMLElement>('.tb-cluster-plane')!.setPointerCapture = () => undefined;
  return { store, element, sent };
}

const card = (element: HTMLElement, chip: number) => element.querySelector<HTMLElement>(`[data-tb-chip="${chip}"]`)!;
const pointer = (type: string, at: Element, x: number) => at.dispatchEvent(new PointerEvent(type, { clientX: x, clientY: x, button: 0, bubbles: true }));

function drag(element: HTMLElement, from: Element, chip: number): string | undefined {
  const plane = element.querySelector<HTMLElement>('.tb-cluster-plane')!;
  pointer('pointerdown', from, 0);
  document.elementFromPoint = () => card(element, chip);
  pointer('pointermove', plane, 40);
  const verdict = element.querySelector<HTMLElement>('.tb-tag')?.dataset['tbVerdict'];
  pointer('pointerup', plane, 40);
  return verdict;
}

afterEach(() => document.body.replaceChildren());

describe('ClusterView', () => {
  it('has a card per chip with the ops of the temporal epoch, and says which is the slowest', () => {
    const { element } = view();
    expect(element.querySelectorAll('[data-tb-chip]')).toHaveLength(3);
    for (const chip of [0, 1]) {
      expect(card(element, chip).querySelectorAll('[data-tb-op]')).toHaveLength(homes.filter(e => e === chip).length);
    }
    expect(card(element, 0).classList.contains('tb-slowest')).toBe(true);
    expect(card(element, 2).classList.contains('tb-idle')).toBe(true);
    expect(element.querySelector('[data-tb-link="0-1"]')!.classList.contains('tb-busy')).toBe(true);
    expect(element.querySelector('[data-tb-link="1-2"]')!.classList.contains('tb-busy')).toBe(false);
  });

  it('follows the epoch of the other views, and leads them', () => {
    const { element, store } = view();
    store.setEpoch(2);
    expect(element.dataset['tbTemporal']).toBe('1');
    element.querySelector<HTMLElement>('[data-tb-action=temporal-previous]')!.click();
    expect(store.epoch).toBe(0);
  });

  it('puts an op on the chip it is dropped on', () => {
    const { element, sent } = view();
    const op = names[homes.indexOf(0)]!;
    expect(drag(element, card(element, 0).querySelector(`[data-tb-op="${op}"]`)!, 2)).toBe('LEGAL');
    expect(sent.at(-1)).toEqual({ type: 'edit', do: 'chip', op, chip: 2 });
    const count = sent.length;
    expect(drag(element, card(element, 0).querySelector(`[data-tb-op="${op}"]`)!, 0)).toBe('OUTSIDE');
    expect(sent).toHaveLength(count);
  });

  it('puts a whole epoch on a chip as one edit', () => {
    const { element, sent } = view();
    drag(element, card(element, 1).querySelector('[data-tb-epoch="1"]')!, 2);
    const said = sent.at(-1) as { do: string; label: string; edits: { op: string; chip: number }[] };
    expect([said.do, said.label]).toEqual(['many', 'epoch 1 to chip 2']);
    expect(said.edits.map(e => e.op)).toEqual(names.filter((_, i) => homes[i] === 1));
    expect(new Set(said.edits.map(e => e.chip))).toEqual(new Set([2]));
  });

  it('has a way without a mouse', () => {
    const { element, sent, store } = view();
    store.select([names[0]!], 'table');
    const select = element.querySelector<HTMLSelectElement>('[data-tb-action=op-chip]')!;
    expect(select.value).toBe('0');
    select.value = '1';
    select.dispatchEvent(new Event('change'));
    expect(sent.at(-1)).toEqual({ type: 'edit', do: 'chip', op: names[0], chip: 1 });
  });

  it('is a tab only where there are several chips', () => {
    const { store } = view(2);
    const tab = (made: BringUp) => made.element.querySelector<HTMLElement>('[data-tb-action=tab-cluster]')!;
    const made = new BringUp(store);
    expect(tab(made).hidden).toBe(false);
    store.put(placed(1));
    expect(tab(made).hidden).toBe(true);
    made.dispose();
  });
});
