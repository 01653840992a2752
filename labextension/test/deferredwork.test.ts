import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DeferredWork } from '../src/views/drawtimes.js';
import { arrange } from '../src/views/dom.js';
import { GridView } from '../src/views/grid/view.js';
import { drawStrip } from '../src/views/grid/strip.js';
import { Ops } from '../src/views/ops.js';
import { Frame } from '../src/views/frame.js';
import { TableView } from '../src/views/table/view.js';
import { fixture, frame } from './fixture.js';
import { editsFrame, live } from './live.js';

/** The fixture's placement with a first epoch that takes less time; it is not the longest, so other bars stay. */
function changed(): Frame {
  const { header, data } = fixture.frames.find(f => f.header.key === 'ops')!;
  const buffer = Uint8Array.from(Buffer.from(data, 'base64')).buffer;
  const column = header.columns.find(c => c.name === 'epoch_time')!;
  const values = new Float64Array(buffer, column.offset, column.length);
  values[0] = values[0]! * 0.9;
  return new Frame(header, buffer);
}

describe('Afterwards', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('does it once, behind the next frame, also where there are no frames', () => {
    const frames: FrameRequestCallback[] = [];
    vi.stubGlobal('requestAnimationFrame', (f: FrameRequestCallback) => frames.push(f));
    const f = vi.fn();
    const later = new DeferredWork(f);
    later.soon();
    later.soon();
    expect([f.mock.calls.length, frames.length]).toEqual([0, 1]);
    frames[0]!(0);
    expect(f).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(f).toHaveBeenCalledTimes(1);
    later.soon(); // nobody draws
    vi.advanceTimersByTime(1000);
    expect(f).toHaveBeenCalledTimes(2);
    later.soon();
    later.dispose();
    vi.advanceTimersByTime(1000);
    expect(f).toHaveBeenCalledTimes(2);
    vi.unstubAllGlobals();
  });
});

describe('what looks as it did', () => {
  it('stays the same element', () => {
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map(id => Object.assign(document.createElement('i'), { id })) as [HTMLElement, HTMLElement, HTMLElement, HTMLElement];
    const parent = document.createElement('div');
    for (const wanted of [[a, b, c], [a, d, c], [c, a], [], [b, a, d, c]]) {
      arrange(parent, wanted);
      expect([...parent.children].map(e => e.id)).toEqual(wanted.map(e => e.id));
    }
    const moved = vi.spyOn(a, 'replaceWith');
    arrange(parent, [b, a, c]);
    expect(moved).not.toHaveBeenCalled();
  });

  it('of the film strip only the epochs that differ are drawn', () => {
    const known = new Map<string, HTMLElement>();
    const draw = (of: Frame) => drawStrip(new Ops(of), 'load', false, () => undefined, known);
    const before = draw(frame('ops'));
    const same = draw(frame('ops'));
    expect(same).toEqual(before);
    const after = draw(changed());
    const kept = after.map((element, k) => element === before[k]);
    expect(kept[0]).toBe(false);
    expect(kept.filter(k => !k).length).toBeLessThan(kept.length);
    expect(after[0]!.getAttribute('aria-label')).not.toBe(before[0]!.getAttribute('aria-label'));
    expect(known.size).toBe(after.length);
  });
});

describe('the grid during an edit', () => {
  it('is grey until the new placement is there, not until its netlist is', () => {
    const { store } = live();
    const grid = new GridView(store);
    const grey = () => grid.plane.classList.contains('tb-old');
    expect(grey()).toBe(false);
    store.ask({ type: 'edit', do: 'clear', op: 'x' });
    store.put(editsFrame({ busy: true }));
    expect(grey()).toBe(true);
    store.put(frame('ops'));
    expect(grey()).toBe(false);
    store.put(editsFrame({ busy: true, stale: true }));
    expect(grey()).toBe(false);
    store.put(editsFrame());
    expect(grey()).toBe(false);
    store.put(editsFrame({ stale: true })); // edits that nobody compiles
    expect(grey()).toBe(true);
    store.put(editsFrame());
    store.put(editsFrame({ busy: true })); // an edit from elsewhere
    expect(grey()).toBe(true);
    grid.dispose();
  });
});

describe('the table during an edit', () => {
  it('keeps its rows unless there is something else to say', async () => {
    const { store } = live();
    const table = new TableView(store);
    const rows = () => [...table.element.querySelectorAll<HTMLElement>('[data-tb-op]')];
    const settled = () => new Promise(done => setTimeout(done, 300));
    const before = rows();
    const op = before[0]!.dataset['tbOp']!;
    expect(before.length).toBeGreaterThan(1);
    store.put(editsFrame({ busy: true }));
    store.setHover(op);
    store.select([op], 'elsewhere');
    store.setHover('');
    await settled();
    expect(before[0]!.classList.contains('tb-selected')).toBe(true);
    store.put(editsFrame());
    await settled();
    expect(rows().every((row, k) => row === before[k])).toBe(true);
    store.put(editsFrame({ overrides: [{
      target: op, field: 'op_size', requested: '1x1', obtained: '1x1', state: 'obtained', because: '', python: 'x', matches: 1,
      names: [op], removable: true
    }] }));
    await settled();
    expect(rows()[0]!.textContent).toContain('op_size');
    table.dispose();
  });
});
