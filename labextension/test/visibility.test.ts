import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { MemoryView } from '../src/views/memory/view.js';
import type { Host } from '../src/views/host.js';
import { LazyFrames, Visibility } from '../src/views/lazyframes.js';
import { Store } from '../src/views/store.js';
import { frame, handFrame } from './fixture.js';

/** An observer that says what the test says. */
class Observer {
  static all: Observer[] = [];
  private readonly watched: Element[] = [];
  constructor(private readonly f: (entries: unknown[]) => void) {
    Observer.all.push(this);
  }
  observe(element: Element): void {
    this.watched.push(element);
  }
  disconnect(): void {
    this.watched.length = 0;
  }
  static size(element: Element, width: number): void {
    Object.defineProperty(element, 'clientWidth', { value: width, configurable: true });
    for (const one of Observer.all) {
      if (one.watched.includes(element)) one.f([{ contentRect: { width, height: width / 2 } }]);
    }
  }
}

function store(): { store: Store; sent: Record<string, unknown>[]; hear: (message: Record<string, unknown>) => void } {
  const sent: Record<string, unknown>[] = [];
  let heard: (message: Record<string, unknown>, buffers: DataView[]) => void = () => undefined;
  const host: Host = {
    live: true, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m),
    onMessage(f) {
      heard = f;
      return () => undefined;
    }
  };
  const made = new Store(host);
  sent.length = 0;
  return { store: made, sent, hear: message => heard(message, []) };
}

beforeEach(() => {
  Observer.all = [];
  vi.stubGlobal('ResizeObserver', Observer);
});
afterEach(() => {
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

describe('Visibility', () => {
  it('draws what is seen at once, and what is hidden once when it is seen', () => {
    const element = document.body.appendChild(document.createElement('div'));
    const paint = vi.fn();
    const sight = new Visibility(element, paint);
    sight.draw();
    expect(paint).toHaveBeenCalledTimes(1);
    element.hidden = true; // as a tab does
    sight.draw();
    sight.draw();
    expect(paint).toHaveBeenCalledTimes(1);
    element.hidden = false;
    Observer.size(element, 300);
    Observer.size(element, 400);
    expect(paint).toHaveBeenCalledTimes(2);
    Observer.size(element, 0); // as a panel that is folded away
    sight.draw();
    expect(paint).toHaveBeenCalledTimes(2);
    Observer.size(element, 300);
    expect(paint).toHaveBeenCalledTimes(3);
  });
});

describe('Wanted', () => {
  it('asks once somebody looks, and again when there is something newer', () => {
    const { store: of, sent, hear } = store();
    const element = document.body.appendChild(document.createElement('div'));
    let there = false;
    const paint = vi.fn();
    const wanted = new LazyFrames(of, element, { keys: ['x', 'y'], ready: () => there, question: () => ({ type: 'want', key: 'x' }), paint });
    Observer.size(element, 300);
    expect(sent).toEqual([]);
    there = true;
    wanted.onOutdated();
    wanted.ask();
    expect(sent).toEqual([{ type: 'want', key: 'x' }]);
    element.hidden = true;
    wanted.onOutdated();
    expect(sent).toHaveLength(1);
    hear({ type: 'refused', key: 'z', text: 'none of mine' });
    hear({ type: 'refused', key: 'y', text: 'not yet' });
    expect([wanted.refusal, paint.mock.calls.length]).toEqual(['not yet', 0]);
    element.hidden = false;
    Observer.size(element, 300);
    expect([wanted.refusal, paint.mock.calls.length, sent.length]).toEqual(['', 1, 2]);
    wanted.dispose();
    hear({ type: 'refused', key: 'x', text: 'gone' });
    expect(wanted.refusal).toBe('');
  });
});

describe('a view behind a tab', () => {
  it('neither takes frames apart nor draws, until it is in front', () => {
    const { store: of, sent } = store();
    const { element } = new MemoryView(of);
    document.body.append(element);
    element.hidden = true;
    const before = element.innerHTML;
    of.put(frame('ops'));
    of.put(handFrame('memory', {}, [])); // taken apart, it would throw
    of.select(['a'], 'grid');
    of.setEpoch(1);
    expect(element.innerHTML).toBe(before);
    expect(sent.filter(m => m['type'] === 'want')).toEqual([]);
  });
});
