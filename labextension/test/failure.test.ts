import { describe, expect, it } from 'vitest';
import { BringUp } from '../src/views/bringup.js';
import { Frame } from '../src/views/frame.js';
import { Store } from '../src/views/store.js';
import { GridView } from '../src/views/grid/view.js';
import { frame, handFrame } from './fixture.js';
import { EDITS, live, LiveHost } from './live.js';

const stages = [{ name: 'Trace', state: 'failed', seconds: null, detail: '' }, { name: 'Place', state: 'pending', seconds: null, detail: '' }];
const failed = { running: false, message: '2 ops cannot be mapped', done: 0, total: 0, cancellable: false, failed: true, stages };

function problems(count: number): Frame {
  const text = (of: (i: number) => string): string[] => Array.from({ length: count }, (_, i) => of(i));
  return handFrame('problems', {}, [
    ['severity', 'text', text(i => (i ? 'error' : 'warning'))], ['where', 'text', text(i => `op_${i}`)], ['rule', 'text', text(() => 'r')],
    ['message', 'text', text(i => `no mapping ${i}`)], ['fix', 'text', text(i => `do ${i}`)]
  ]);
}

function nothing(): { view: BringUp; host: LiveHost; store: Store } {
  const host = new LiveHost();
  const store = new Store(host);
  store.put(new Frame({ key: 'edits', meta: { ...EDITS, stale: true }, strings: [''], columns: [] }, new ArrayBuffer(0)));
  return { view: new BringUp(store), host, store };
}

describe('Failure', () => {
  it('says what failed, where and what would work, in place of empty panes', () => {
    const { view, host, store } = nothing();
    const notice = view.element.querySelector<HTMLElement>('[data-tb-view=failure]')!;
    expect(notice.hidden).toBe(true);
    store.put(problems(3));
    host.say({ type: 'status', seq: 1, status: failed });
    expect(notice.hidden).toBe(false);
    expect(notice.textContent).toContain('Trace failed');
    expect([...notice.querySelectorAll('li')].map(li => li.textContent)).toEqual(['op_1: no mapping 1→ do 1', 'op_2: no mapping 2→ do 2']);
    expect(view.element.querySelector<HTMLElement>('.tb-panes')!.hidden).toBe(true);
    expect(view.element.querySelector('[data-tb-stale]')).toBeNull(); // nothing is older than what never was
    host.say({ type: 'status', seq: 2, status: { ...failed, failed: false, running: true } });
    expect(notice.hidden).toBe(true);
    expect(view.element.querySelector<HTMLElement>('.tb-panes')!.hidden).toBe(false);
  });

  it('keeps the last placement in sight and leads to the rest of the problems', () => {
    const { store, host } = live({ stale: true });
    const { element } = new BringUp(store);
    store.put(problems(9));
    host.say({ type: 'status', seq: 1, status: failed });
    const notice = element.querySelector<HTMLElement>('[data-tb-view=failure]')!;
    expect(notice.querySelectorAll('li')).toHaveLength(4);
    expect(notice.textContent).toContain('last placement that worked');
    expect(element.querySelector<HTMLElement>('.tb-panes')!.hidden).toBe(false);
    expect(element.querySelector('[data-tb-stale]')).not.toBeNull();
    notice.querySelector<HTMLElement>('[data-tb-action=all-problems]')!.click();
    expect(element.querySelector('[data-tb-action=tab-problems]')!.getAttribute('aria-selected')).toBe('true');
  });

  it('is said by a grid that stands alone, whenever its placement comes', () => {
    const host = new LiveHost();
    const store = new Store(host);
    const { element } = new GridView(store);
    host.say({ type: 'status', seq: 1, status: failed });
    store.put(problems(2));
    store.put(new Frame({ key: 'edits', meta: { ...EDITS, stale: true }, strings: [''], columns: [] }, new ArrayBuffer(0)));
    expect(element.querySelector('[data-tb-stale]')).toBeNull();
    store.put(frame('ops'));
    const chip = element.querySelector<HTMLElement>('[data-tb-stale=stale]')!;
    expect(chip.textContent).toBe('not compiled');
    expect(chip.title).toContain('no mapping 1; do 1');
    host.say({ type: 'status', seq: 2, status: { ...failed, failed: false } });
    expect(element.querySelector('[data-tb-stale]')!.textContent).toBe('stale');
  });

  it('leaves a press on cancel in sight until the work has stopped', () => {
    const { store, host } = live();
    const { element } = new BringUp(store);
    const cancel = () => element.querySelector<HTMLButtonElement>('[data-tb-action=cancel]')!;
    const busy = { ...failed, failed: false, running: true, cancellable: true };
    host.say({ type: 'status', seq: 1, status: busy });
    expect([cancel().textContent, cancel().disabled]).toEqual(['Cancel', false]);
    host.say({ type: 'status', seq: 2, status: { ...busy, cancellable: false } });
    expect([cancel().textContent, cancel().disabled]).toEqual(['Cancelling …', true]);
  });
});
