import { afterEach, describe, expect, it } from 'vitest';
import type { Ask, Picture, Trial } from '../src/views/explore/data.js';
import { effectsOf, paretoFront, scaleOf } from '../src/views/explore/data.js';
import { ExplorePicture } from '../src/views/explore/picture.js';
import { ExploreTab } from '../src/views/explore/view.js';
import { Store } from '../src/views/store.js';
import { handFrame } from './fixture.js';

const trial = (n: number, batch: number, device: string, numbers: Record<string, number>, more: Partial<Trial> = {}): Trial => ({
  n, point: { device, microbatch: batch }, state: 'done', reason: null, numbers, placement: '', epochs: null, stale: false, version: '1', holds: true, command: `tbuda compile --device ${device}`, ...more
});

const TRIALS = [
  trial(0, 1, 'n150', { 'samples/s': 100, chips: 1 }),
  trial(1, 16, 'n150', { 'samples/s': 900, chips: 1 }),
  trial(2, 1, 'n300', { 'samples/s': 500, chips: 2 }),
  trial(3, 16, 'n300', { 'samples/s': 1600, chips: 2 }),
  trial(4, 16, 'tiny', {}, { state: 'refused', reason: { type: 'PlacementError', text: 'no room for <b>op</b>', diagnostics: ['give it more rows'] }, holds: false }),
  trial(5, 16, 'n300', { 'samples/s': 9000, chips: 1 }, { holds: false }),
  trial(-1, 16, 'n150', { 'samples/s': 9000, chips: 1 }, { stale: true, holds: false })
];
const PICTURE: Picture = {
  title: 'mlp', progress: { done: 6, total: 8, seconds_left: 3.2 }, running: true,
  axes: [{ name: 'device', values: ['n150', 'n300', 'tiny'] }, { name: 'microbatch', values: [1, 16] }],
  objectives: ['samples/s', 'chips'], names: ['samples/s', 'chips'], directions: { 'samples/s': 'max', chips: 'min' }, units: { 'samples/s': '1/s', chips: '' },
  requirements: [], trials: TRIALS, grids: {}
};

function picture(data = PICTURE): { element: HTMLElement; asks: Ask[]; show: (data: Picture) => void } {
  const asks: Ask[] = [];
  const made = new ExplorePicture(ask => asks.push(ask));
  document.body.append(made.element);
  made.show(data);
  return { element: made.element, asks, show: next => made.show(next) };
}

afterEach(() => document.body.replaceChildren());

/** Of all pairs: what no other one beats. */
function naiveFront(trials: Trial[]): number[] {
  const able = trials.filter(t => t.state === 'done' && t.holds && !t.stale);
  const beats = (a: Trial, b: Trial) => a.numbers['samples/s']! >= b.numbers['samples/s']! && a.numbers['chips']! <= b.numbers['chips']!
    && (a.numbers['samples/s']! > b.numbers['samples/s']! || a.numbers['chips']! < b.numbers['chips']!);
  return able.filter(t => !able.some(other => beats(other, t))).map(t => t.n).sort((a, b) => a - b);
}

describe('the front of an exploration', () => {
  it('is what no other trial beats, without what is stale or misses a requirement', () => {
    const ids = (trials: Trial[]) => paretoFront({ ...PICTURE, trials }, trials, 'chips', 'samples/s').map(t => t.n).sort((a, b) => a - b);
    expect(ids(TRIALS)).toEqual([1, 3]);
    let seed = 7;
    const draw = () => (seed = (seed * 16807) % 2147483647) % 6;
    for (let k = 0; k < 50; k++) {
      const some = Array.from({ length: 12 }, (_, n) => trial(n, 1, 'n150', { 'samples/s': draw(), chips: draw() }));
      expect(ids(some)).toEqual(naiveFront(some));
    }
  });

  it('has effects that are means over the trials that are done', () => {
    const [device] = effectsOf(PICTURE, TRIALS, 'samples/s');
    expect(device!.values).toEqual([{ value: 'n150', mean: 500, of: 2 }, { value: 'n300', mean: 3700, of: 3 }, { value: 'tiny', mean: null, of: 0 }]);
  });

  it('has places within the picture, also for a single value and for none', () => {
    for (const values of [[1, 2, 3], [5], []]) {
      const { place, ticks } = scaleOf(values, 100, 0);
      for (const value of [...values, ...ticks]) expect(place(value)).toBeGreaterThanOrEqual(0);
      for (const value of [...values, ...ticks]) expect(place(value)).toBeLessThanOrEqual(100);
    }
  });
});

describe('the picture of an exploration', () => {
  const row = (element: HTMLElement, n: number) => element.querySelector<HTMLElement>(`[data-tx-row="${n}"]`)!;
  const button = (element: HTMLElement, name: string) => element.querySelector<HTMLButtonElement>(`button[data-tx="${name}"]`);

  it('says why a point was refused, as text', () => {
    const { element } = picture();
    row(element, 4).click();
    expect(element.querySelector('.tx-note')!.textContent).toContain('no room for <b>op</b>');
    expect(element.querySelector('.tx-note')!.textContent).toContain('give it more rows');
    expect(element.querySelector('.tx-note b')).toBeNull();
    expect(button(element, 'overrides')).toBeNull();
    expect(element.querySelector('.tx-cross')!.getAttribute('aria-label')).toContain('refused');
  });

  it('opens a point, compares two, exports and cancels', () => {
    const { element, asks } = picture();
    expect(element.textContent).toContain('6 of 8 trials, about 4 s left');
    row(element, 1).click();
    button(element, 'open')!.click();
    row(element, 3).dispatchEvent(new MouseEvent('click', { ctrlKey: true, bubbles: true }));
    button(element, 'compare')!.click();
    button(element, 'overrides')!.click();
    button(element, 'csv')!.click();
    button(element, 'parquet')!.click();
    button(element, 'cancel')!.click();
    expect(asks).toEqual([
      { do: 'open', n: 1 }, { do: 'compare', a: 1, b: 3 }, { do: 'export', what: 'overrides', n: 1 }, { do: 'export', what: 'csv' },
      { do: 'export', what: 'parquet' }, { do: 'cancel' }
    ]);
  });

  it('brushes by values of an axis, in every part', () => {
    const { element } = picture();
    element.querySelector('[data-tx-value="device=n150"]')!.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    expect([...element.querySelectorAll('[data-tx-row]')].map(r => r.getAttribute('data-tx-row'))).toEqual(['1', '0', '-1']);
    expect(element.querySelector('[data-tx-value="device=n150"]')!.getAttribute('aria-pressed')).toBe('true');
    button(element, 'clear')!.click();
    expect(element.querySelectorAll('[data-tx-row]').length).toBe(TRIALS.length);
  });

  it('lists forty trials, and more where they are asked for', () => {
    const { element } = picture({ ...PICTURE, trials: Array.from({ length: 60 }, (_, n) => trial(n, 1, 'n150', { 'samples/s': n, chips: 1 })) });
    const rows = () => element.querySelectorAll('[data-tx-row]').length;
    expect(rows()).toBe(40);
    expect(button(element, 'more')!.textContent).toBe('Show 20 more of 60');
    button(element, 'more')!.click();
    expect(rows()).toBe(60);
    expect(button(element, 'more')).toBeNull();
  });

  it('stays with what is chosen when new trials come', () => {
    const { element, show } = picture();
    row(element, 1).click();
    show({ ...PICTURE, running: false, trials: [...TRIALS, trial(6, 1, 'tiny', { 'samples/s': 1, chips: 1 })] });
    expect(element.querySelector('.tx-note')!.textContent).toContain('Trial 1');
    expect(button(element, 'cancel')).toBeNull();
    expect(row(element, 6).textContent).toContain('tiny');
  });
});

describe('the tab', () => {
  it('asks for an exploration, shows its frame, and tells of a point that was opened', () => {
    const sent: Record<string, unknown>[] = [];
    let hear: (message: Record<string, unknown>, buffers: DataView[]) => void = () => undefined;
    const store = new Store({
      live: true, get: () => undefined, set: () => undefined, on: () => () => undefined, send: m => sent.push(m), onMessage(f) {
        hear = f;
        return () => undefined;
      }
    });
    const tab = new ExploreTab(store);
    document.body.append(tab.element);
    expect(sent.at(-1)).toEqual({ type: 'want', key: 'explore' });
    tab.element.querySelector<HTMLInputElement>('[data-tb-field="devices"]')!.value = 'n150';
    tab.element.querySelector<HTMLButtonElement>('[data-tb-action="explore-begin"]')!.click();
    expect(sent.at(-1)).toMatchObject({ type: 'explore', devices: 'n150', batches: '1,16', objectives: 'samples/s:max,chips:min' });
    store.put(handFrame('explore', { picture: PICTURE }, []));
    expect(tab.element.querySelectorAll('[data-tx-row]').length).toBe(TRIALS.length);
    let opened = '';
    document.body.addEventListener('tb-session', event => (opened = (event as CustomEvent<string>).detail));
    hear({ type: 'explore_opened', session: '7' }, []);
    expect(opened).toBe('7');
    tab.dispose();
  });
});
