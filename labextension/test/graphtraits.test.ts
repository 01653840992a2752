import { describe, expect, it, vi } from 'vitest';
import { openedBy } from '../src/views/graph/viewpoint.js';
import { nothing, Overlay } from '../src/views/graph/paints.js';
import { Scene } from '../src/views/graph/scene.js';
import { GraphView } from '../src/views/graph/view.js';
import { loadPaint } from '../src/views/theme.js';
import { filled, frame, handFrame } from './fixture.js';

function overlay(names: string[], values: number[], low: number, high: number) {
  return handFrame('overlay', { name: 'watts', low, high }, [['overlay_name', 'text', names], ['overlay_value', 'f8', values]]);
}

describe('what Python says of the graph', () => {
  it('opens as many levels as asked, without those that are collapsed', () => {
    const scene = new Scene(frame('graph:lowered'));
    const dots = (g: number) => {
      let deep = 0;
      for (let at = g; at > 0; at = scene.groupParent[at]!) deep++;
      return deep;
    };
    expect([...openedBy(scene, 0, [])]).toEqual([0]);
    const two = openedBy(scene, 2, []);
    expect(Math.max(...[...two].map(dots))).toBe(2);
    expect(two.size).toBe(scene.groupPaths.filter((_, g) => dots(g) <= 2).length);
    const less = openedBy(scene, 2, [scene.groupPaths[1]!]);
    expect([two.size - less.size, less.has(1)]).toEqual([1, false]);
    expect(openedBy(scene, null, [])).toEqual(new Set([0, ...(scene.frame.meta['open'] as number[])]));
  });

  it('follows the traits, before and after the graph is there', () => {
    const { store, host } = filled();
    host.set('depth', 0);
    host.set('query', 'gelu');
    const view = new GraphView(store);
    expect([...view.scene!.opened]).toEqual([0]);
    const found = () => view.element.querySelector('.tb-found')!.textContent;
    const count = (pattern: RegExp) => view.scene!.names.filter((n, i) => pattern.test(n) || pattern.test(view.scene!.types[i]!)).length;
    expect(count(/gelu/i)).toBeGreaterThan(0);
    expect(found()).toBe(`${count(/gelu/i)} found`);
    host.set('query', 'matmul');
    expect(found()).toBe(`${count(/matmul/i)} found`);
    host.set('depth', 99);
    expect(view.scene!.opened.size).toBe(view.scene!.groupPaths.length);
    host.set('collapsed', [view.scene!.groupPaths[1]!]);
    expect(view.scene!.opened.has(1)).toBe(false);
    view.search.value = 'add';
    view.search.dispatchEvent(new Event('input'));
    expect([host.get('query'), found()]).toEqual(['add', `${count(/add/i)} found`]);
    view.dispose();
  });

  it('brings into sight what was selected while it was hidden', () => {
    let shown = () => {};
    vi.stubGlobal('ResizeObserver', class {
      constructor(f: () => void) {
        shown = f;
      }
      observe(): void {}
      disconnect(): void {}
    });
    const { store, host } = filled();
    host.set('depth', 0);
    const view = new GraphView(store);
    const scene = view.scene!;
    const hidden = scene.names.findIndex((_, n) => scene.standIn(n) !== scene.itemOfNode[n]);
    store.select([scene.names[hidden]!], 'grid');
    expect([...scene.opened]).toEqual([0]);
    const stage = view.element.querySelector('.tb-stage')!;
    Object.defineProperty(stage, 'clientWidth', { value: 600 });
    Object.defineProperty(stage, 'clientHeight', { value: 400 });
    shown();
    expect(scene.standIn(hidden)).toBe(scene.itemOfNode[hidden]);
    const opened = scene.opened.size;
    shown(); // of another size: it stays where it is
    expect(scene.opened.size).toBe(opened);
    view.dispose();
    vi.unstubAllGlobals();
  });

  it('leaves the host alone where the view has no such trait', () => {
    const { store, host } = filled();
    const view = new GraphView(store);
    view.search.value = 'add';
    view.search.dispatchEvent(new Event('input'));
    expect(host.get('query')).toBeUndefined();
    view.dispose();
  });
});

describe('Overlay', () => {
  it('paints values over its scale, cut at the ends, and leaves empty what has none', () => {
    const made = Overlay.of(overlay(['a', 'b', 'c', 'd'], [10, 20, 15, 99], 10, 20))!;
    expect(made.paint('a', false)).toEqual(loadPaint(0, false));
    expect(made.paint('b', false)).toEqual(loadPaint(1, false));
    expect(made.paint('c', true)).toEqual(loadPaint(0.5, true));
    expect(made.paint('d', false)).toEqual(loadPaint(1, false));
    expect(made.paint('e', false)).toEqual(nothing(false));
    expect(made.legend(false).map(e => e.textContent)).toEqual(['watts', '10', '12.5', '15', '17.5', '20', 'no value']);
  });

  it('has one colour for one value, and is gone without any', () => {
    const same = Overlay.of(overlay(['a'], [7], 7, 7))!;
    expect(same.paint('a', false)).toEqual(loadPaint(0.5, false));
    expect(same.legend(false).map(e => e.textContent)).toEqual(['watts', '7', 'no value']);
    expect(Overlay.of(overlay([], [], 0, 0))).toBeNull();
  });
});
