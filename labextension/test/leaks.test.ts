/** A view that is closed listens to nothing any more: neither to its store and its widget, nor to the page. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { StaticHost } from '../src/views/host.js';
import { bringBy } from '../src/views/lazyview.js';
import { LAZY_VIEWS } from '../src/views/lazybundle.js';
import { mountView, VIEWS } from '../src/mount.js';
import { frames } from './fixture.js';
import { editsFrame } from './live.js';
import { Store } from '../src/views/store.js';

bringBy(() => Promise.resolve({ LAZY_VIEWS } as never));

/** Who listens where, by name. */
const listening = new Map<string, number>();
const count = (name: string, by: number): void => void listening.set(name, (listening.get(name) ?? 0) + by);

class Host extends StaticHost {
  override readonly live = true as never;
  override on(name: string, f: () => void): () => void {
    count(`trait ${name}`, 1);
    const stop = super.on(name, f);
    return () => {
      count(`trait ${name}`, -1);
      stop();
    };
  }
}

const observer = (name: string) => class {
  private watched = 0;
  observe(): void {
    this.watched++;
    count(name, 1);
  }
  disconnect(): void {
    count(name, -this.watched);
    this.watched = 0;
  }
};

beforeEach(() => {
  vi.useFakeTimers();
  listening.clear();
  vi.stubGlobal('ResizeObserver', observer('sizes'));
  vi.stubGlobal('MutationObserver', observer('attributes'));
  for (const target of [window, document]) {
    const name = target === window ? 'window' : 'document';
    const live = new Set<string>();
    const ids = new Map<unknown, number>();
    const id = (type: string, f: unknown) => `${type} ${ids.get(f) ?? ids.set(f, ids.size).get(f)!}`;
    const [add, remove] = [target.addEventListener.bind(target), target.removeEventListener.bind(target)];
    vi.spyOn(target as EventTarget, 'addEventListener').mockImplementation((type, f, how) => {
      if (!live.has(id(type, f))) count(`${name} ${type}`, 1);
      live.add(id(type, f));
      add(type, f as EventListener, how);
    });
    vi.spyOn(target as EventTarget, 'removeEventListener').mockImplementation((type, f, how) => {
      if (live.delete(id(type, f))) count(`${name} ${type}`, -1);
      remove(type, f as EventListener, how);
    });
  }
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

/** What listens to the store, by topic. */
function heard(store: Store): [string, number][] {
  const { listeners, hearers } = store as unknown as Record<'listeners' | 'hearers', Map<string, Set<unknown>>>;
  return [...listeners, ...hearers].map(([topic, set]): [string, number] => [topic, set.size]).filter(([, n]) => n);
}

describe('a view that is closed', () => {
  it.each(Object.keys(VIEWS))('%s listens to nothing', async name => {
    const store = new Store(new Host({ view: name }));
    frames().forEach(f => store.put(f));
    store.put(editsFrame());
    const before = [...listening];
    for (let k = 0; k < 2; k++) {
      const { root, dispose } = mountView(store, name);
      document.body.append(root);
      await vi.advanceTimersByTimeAsync(50);
      root.querySelectorAll<HTMLElement>('[role=tab]').forEach(tab => tab.click());
      await vi.advanceTimersByTimeAsync(50);
      store.select(['layer.0.attention.self.matmul_0'], 'test');
      store.put(frames().find(f => f.key === 'ops')!);
      expect(heard(store).length).toBeGreaterThan(0);
      dispose();
    }
    expect(heard(store)).toEqual([]);
    expect([...listening].filter(([, n]) => n)).toEqual(before);
    expect(vi.getTimerCount()).toBe(0);
  });
});
