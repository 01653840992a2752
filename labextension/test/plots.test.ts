import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Host } from '../src/views/host.js';
import { DEFAULTS, publishPreferences } from '../src/views/preferences.js';
import { Store } from '../src/views/store.js';
import { frame, handFrame } from './fixture.js';

const text = (key: string, said: string) => handFrame(key, { rev: 1, dark: false }, [['text', 'u1', [...new TextEncoder().encode(said)]]]);

const views: { dispose(): void }[] = [];

/** A module of its own for every test: the library is kept by it. */
async function view(live = true): Promise<{ store: Store; element: HTMLElement; sent: Record<string, unknown>[] }> {
  vi.resetModules();
  const { PlotsView } = await import('../src/views/plots.js');
  const sent: Record<string, unknown>[] = [];
  const host: Host = { live, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage: () => () => undefined };
  const store = new Store(host);
  const view = new PlotsView(store);
  views.push(view);
  const { element } = view;
  Object.defineProperty(element, 'clientWidth', { value: 600 });
  document.body.append(element);
  sent.length = 0;
  return { store, element, sent };
}

afterEach(() => {
  views.splice(0).forEach(view => view.dispose()); // or one draws anew for a theme when the window has gone
  document.body.replaceChildren();
});

describe('PlotsView', () => {
  it('asks once a placement is there, and for the library only the first time', async () => {
    const { store, element, sent } = await view();
    store.put(frame('ops'));
    expect(sent).toEqual([{ type: 'plots', dark: false, library: true }]);
    store.put(text('bokehjs', 'window.x = "</script>"'));
    store.put(text('plots', '<div>drawn</div>'));
    const inner = element.querySelector('iframe')!;
    expect(inner.hidden).toBe(false);
    expect(inner.getAttribute('sandbox')).not.toContain('same-origin');
    expect(inner.srcdoc).toContain('<script>window.x = "<\\/script>"</script><div>drawn</div>');
    store.put(frame('ops'));
    expect(sent.at(-1)).toEqual({ type: 'plots', dark: false, library: false });
  });

  it('says why there are none', async () => {
    const { element } = await view(false);
    expect(element.textContent).toContain('Plots need a kernel');
  });
});

describe('preferences', () => {
  it('decide what grids are coloured by at first', () => {
    publishPreferences({ ...DEFAULTS, colour: 'epoch' });
    const { colour } = new Store({ live: false, get: () => undefined, set: () => undefined, on: () => () => undefined, send: () => undefined, onMessage: () => () => undefined });
    publishPreferences(DEFAULTS);
    expect(colour).toBe('epoch');
  });
});
