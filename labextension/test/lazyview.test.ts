import { afterEach, describe, expect, it, vi } from 'vitest';

import { BringUp } from '../src/views/bringup.js';
import { bringBy, dress, late } from '../src/views/lazyview.js';
import * as more from '../src/views/lazybundle.js';
import { makeRoot } from '../src/views/root.js';
import { filled } from './fixture.js';
import { live } from './live.js';

afterEach(() => document.body.replaceChildren());

const settled = () => new Promise(done => setTimeout(done, 0));
const at = (root: Element, name: string) => root.querySelector<HTMLElement>(`[data-tb-view=${name}]`)!;

// The code is fetched once for a page: the order of these tests is the order of a page's life.
describe('A view whose code comes later', () => {
  it('is fetched when it is first seen, says why it did not come, and can be tried again', async () => {
    const bring = vi.fn(() => Promise.reject<typeof more>(new Error('No way there.')));
    bringBy(bring);
    const { store } = filled();
    const made = new BringUp(store);
    const { root } = makeRoot('bringup', made.element);
    document.body.append(root);
    await settled();
    expect(bring).not.toHaveBeenCalled();
    root.querySelector<HTMLElement>('[data-tb-action=tab-memory]')!.click();
    await settled();
    const place = at(root, 'memory');
    expect(place.hidden).toBe(false);
    expect(place.dataset['tbLate']).toBe('failed');
    expect(place.textContent).toContain('No way there.');
    bringBy(() => Promise.resolve(more));
    place.querySelector<HTMLElement>('[data-tb-action=load-view]')!.click();
    expect(place.dataset['tbLate']).toBe('waiting');
    await settled();
    expect(at(root, 'memory').classList.contains('tb-memory')).toBe(true);
    expect(at(root, 'memory').hidden).toBe(false);
    expect(root.querySelectorAll('style[data-tb-style=memory]')).toHaveLength(1);
    expect(at(root, 'cluster').dataset['tbLate']).toBe('waiting'); // nobody looked at it
    made.dispose();
  });

  it('hears what was said to it on the way', async () => {
    let here: (found: typeof more) => void = () => undefined;
    vi.resetModules();
    const fresh = await import('../src/views/lazyview.js');
    fresh.bringBy(() => new Promise(done => (here = done)));
    const { store, host } = live();
    const view = new (fresh.late('trace'))(store);
    document.body.append(view.element);
    host.say({ type: 'trace_state', state: 'working', text: 'simulating 8 inputs' });
    here(more);
    await settled();
    expect(at(document.body, 'trace').dataset['tbState']).toBe('working');
    expect(document.body.textContent).toContain('simulating 8 inputs');
    view.dispose();
  });

  it('is there at once when the code already is', () => {
    const { store } = filled();
    const view = new (late('memory'))(store);
    expect(view.element.classList.contains('tb-memory')).toBe(true);
    view.dispose();
  });
});

describe('style sheets of rooms', () => {
  it('come behind those of the root, once each', () => {
    const root = document.createElement('div');
    root.innerHTML = '<style>.a { flex: 1 }</style><section></section>';
    dress(root, 'diff', '.a { flex: 2 }');
    dress(root, 'memory', '.b { flex: 2 }');
    dress(root, 'diff', '.a { flex: 3 }');
    expect([...root.children].map(e => [e.tagName, (e as HTMLElement).dataset['tbStyle'] ?? ''])).toEqual(
      [['STYLE', ''], ['STYLE', 'diff'], ['STYLE', 'memory'], ['SECTION', '']]);
  });
});
