import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { BringUp } from '../src/views/bringup.js';
import { FrameThrottle } from '../src/views/drawtimes.js';
import { DEFAULTS, publishPreferences } from '../src/views/preferences.js';
import { makeRoot } from '../src/views/root.js';
import { live } from './live.js';

describe('Pace', () => {
  let next: FrameRequestCallback | null = null;
  let now = 0;
  const frame = (at: number) => {
    now = at;
    const f = next;
    next = null;
    f?.(at);
  };
  beforeEach(() => {
    vi.stubGlobal('requestAnimationFrame', (f: FrameRequestCallback) => ((next = f), 1));
    vi.stubGlobal('cancelAnimationFrame', () => (next = null));
    vi.spyOn(performance, 'now').mockImplementation(() => now);
  });
  afterEach(() => {
    publishPreferences(DEFAULTS);
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it('draws at once, then no more often than the user likes, and the last of what was asked', () => {
    publishPreferences({ ...DEFAULTS, fps: 10 });
    const draw = vi.fn();
    const pace = new FrameThrottle(draw);
    pace.ask();
    expect(draw).toHaveBeenCalledTimes(1);
    for (const at of [20, 40, 60, 80]) {
      pace.ask();
      frame(at);
    }
    expect(draw).toHaveBeenCalledTimes(1);
    frame(100);
    expect(draw).toHaveBeenCalledTimes(2);
    pace.ask();
    pace.now(); // let go
    expect(draw).toHaveBeenCalledTimes(3);
    frame(500);
    expect(draw).toHaveBeenCalledTimes(3);
  });

  it('has no cap unless somebody sets one', () => {
    const draw = vi.fn();
    const pace = new FrameThrottle(draw);
    for (let k = 0; k < 5; k++) pace.ask();
    expect(draw).toHaveBeenCalledTimes(5);
  });
});

describe('the workbench without JupyterLab', () => {
  it('goes over the whole page, and back with Escape; in JupyterLab a tab is opened instead', () => {
    const { store } = live();
    delete document.body.dataset['tbPreferences'];
    const view = new BringUp(store);
    const { root } = makeRoot('bringup', view.element);
    document.body.append(root);
    const action = (name: string) => root.querySelector<HTMLElement>(`[data-tb-action=${name}]`)!;
    expect([action('full-width').hidden, action('open-tab').hidden]).toEqual([false, true]);
    action('full-width').click();
    expect(root.classList.contains('tb-filling')).toBe(true);
    expect(action('full-width').getAttribute('aria-pressed')).toBe('true');
    root.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
    expect(root.classList.contains('tb-filling')).toBe(false);
    publishPreferences(DEFAULTS);
    const other = new BringUp(store);
    expect(other.element.querySelector<HTMLElement>('[data-tb-action=full-width]')!.hidden).toBe(true);
    view.dispose();
    other.dispose();
  });
});
