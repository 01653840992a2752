import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { ExportDialog } from '../src/views/export/dialog.js';
import { sendPicture } from '../src/views/export/picture.js';
import { Breaks } from '../src/views/graph/breaks.js';
import { NodeMenu } from '../src/views/graph/menu.js';
import { Scene } from '../src/views/graph/scene.js';
import { nextStart } from '../src/views/grid/keymove.js';
import { wrapped } from '../src/views/grid/draw.js';
import { Geometry } from '../src/views/grid/geometry.js';
import { Legal, type Size } from '../src/views/grid/legal.js';
import { coresOf, Group } from '../src/views/grid/pictures.js';
import { GridView } from '../src/views/grid/view.js';
import { actionOf, chord, chordsOf, KEYS } from '../src/views/keys.js';
import { OpControls } from '../src/views/opcontrols.js';
import { bringBy } from '../src/views/lazyview.js';
import { LostSelection } from '../src/views/names.js';
import * as more from '../src/views/lazybundle.js';
import { OverridesPanel } from '../src/views/overrides.js';
import { Overlays } from '../src/views/overlays.js';
import type { Overridden, Store } from '../src/views/store.js';
import { frame } from './fixture.js';
import { editsFrame, legalFrame, live, type LiveHost, ops } from './live.js';

const key = (name: string, more: KeyboardEventInit = {}) => new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true, ...more });
const override = (more: Partial<Overridden>): Overridden => ({
  target: 'a', field: 'op_size', requested: '2x2', obtained: '2x2', state: 'obtained', because: '', python: 'pybuda.x()', matches: 1,
  names: ['a'], removable: true, enabled: true, source: 'drag', ...more
});

describe('keys', () => {
  it('binds no chord twice within a view', () => {
    for (const scope of ['grid', 'graph'] as const) {
      const chords = KEYS.filter(k => k.scope === scope || k.scope === 'both').flatMap(k => [...k.chords]);
      expect(new Set(chords).size).toBe(chords.length);
    }
  });

  it('names chords alike on every keyboard', () => {
    expect(chord(key('b'))).toBe('B');
    expect(chord(key('Z', { ctrlKey: true, shiftKey: true }))).toBe('Ctrl+Shift+Z');
    expect(chord(key('z', { metaKey: true }))).toBe('Ctrl+Z');
    expect(chord(key('?', { shiftKey: true }))).toBe('?');
    expect(chord(key('‘', { altKey: true, code: 'BracketRight' }))).toBe('Alt+]');
    expect(chord(key('ArrowLeft', { ctrlKey: true }))).toBe('Ctrl+ArrowLeft');
  });

  it('follows the settings, and takes no harm from wrong ones', () => {
    const root = document.documentElement;
    const why = KEYS.find(k => k.action === 'why')!;
    root.dataset['tbKeys'] = JSON.stringify({ why: 'Q', nonsense: 7, grow: ['Alt+G', '>'], shrink: 5 });
    expect(actionOf(key('q'), 'grid')).toBe('why');
    expect(actionOf(key('w'), 'grid')).toBeNull();
    expect(actionOf(key('>', { shiftKey: true }), 'grid')).toBe('grow');
    expect(actionOf(key('['), 'grid')).toBe('shrink');
    root.dataset['tbKeys'] = '{';
    expect(chordsOf(why)).toEqual(['W']);
    delete root.dataset['tbKeys'];
    expect(actionOf(key('w'), 'grid')).toBe('why');
  });
});

describe('geometry of gestures', () => {
  it('goes to the legal start nearest that way, and stays where there is none', () => {
    const starts: [number, number][] = [[0, 0], [0, 4], [2, 4], [3, 0]];
    expect(nextStart(starts, [0, 0], [0, 1])).toEqual([0, 4]);
    expect(nextStart(starts, [0, 0], [1, 0])).toEqual([3, 0]);
    expect(nextStart(starts, [0, 0], [-1, 0])).toBeNull();
  });

  it('steps along the rows with as many columns', () => {
    const legal = new Legal(legalFrame('a', [2, 2], [0, 0], [[1, 2], [2, 2], [4, 2], [2, 4]]));
    expect(legal.stepRows(1)).toEqual([4, 2]);
    expect(legal.stepRows(-1)).toEqual([1, 2]);
  });

  it('moves a group only where all of it has room: against brute force over cores', () => {
    const members = ops.byEpoch[0]!.slice(0, 2);
    const others = ops.byEpoch[0]!.slice(2);
    const group = new Group(ops, members, 0);
    const cells = (at: { row: number; col: number; rows: number; cols: number }) => {
      const found: string[] = [];
      for (let r = 0; r < at.rows; r++) for (let c = 0; c < at.cols; c++) found.push(`${at.row + r},${at.col + c}`);
      return found;
    };
    const taken = new Set(others.flatMap(op => cells(coresOf(ops, op))));
    let free = 0;
    for (let d = -ops.rows; d <= ops.rows; d++) {
      for (let r = -ops.cols; r <= ops.cols; r++) {
        const wanted = group.at(d, r).every(at =>
          at.row >= 0 && at.col >= 0 && at.row + at.rows <= ops.rows && at.col + at.cols <= ops.cols && cells(at).every(c => !taken.has(c)));
        expect(group.legal(d, r)).toBe(wanted);
        free += Number(wanted);
      }
    }
    expect(free).toBeGreaterThan(0);
    expect(group.legal(...group.nearest(50, 50))).toBe(true);
    expect(group.nearest(0, 0)).toEqual([0, 0]);
  });

  it('shows whole names in lines, and loses no letter while there is room', () => {
    const name = 'layer.0.attention.self_query.matmul';
    expect(wrapped(name, 12, 9).join('')).toBe(name);
    expect(wrapped(name, 12, 9).every(line => line.length <= 12)).toBe(true);
    expect(wrapped(name, 12, 2)).toHaveLength(2);
  });
});

describe('gestures of the grid', () => {
  const op = ops.byEpoch[0]!.find(i => ops.get('row', i) === 0 && ops.get('col', i) === 0)!;
  const name = ops.name[op]!;
  const size: Size = [ops.get('rows', op), ops.get('cols', op)];
  let view: GridView;
  let store: Store;
  let host: LiveHost;
  let plane: HTMLElement;
  let root: HTMLElement;
  let overlays: Overlays;

  beforeEach(() => {
    vi.useFakeTimers();
    (SVGElement.prototype as unknown as { getScreenCTM: () => unknown }).getScreenCTM = () => ({ a: 1, d: 1, e: 0, f: 0 });
    Object.assign(HTMLElement.prototype, { setPointerCapture: vi.fn(), releasePointerCapture: vi.fn(), hasPointerCapture: () => true });
    ({ store, host } = live());
    view = new GridView(store);
    root = document.createElement('div');
    root.className = 'tb-root';
    root.append(view.element);
    document.body.append(root);
    overlays = new Overlays(root, store);
    plane = view.element.querySelector('.tb-plane')!;
  });
  afterEach(() => {
    vi.useRealTimers();
    overlays.dispose();
    view.dispose();
    root.remove();
    Reflect.deleteProperty(document, 'elementsFromPoint');
  });

  const tileOf = (which: string) => plane.querySelector<SVGGElement>(`.tb-tile[data-tb-op='${which}']`)!;
  const fire = (target: Element, type: string, x: number, y: number, more: PointerEventInit = {}) =>
    target.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1, ...more }));
  const corner = (r: number, c: number): [number, number] => {
    const [x, y, w, h] = new Geometry(ops, 74).box({ row: 0, col: 0, rows: r, cols: c });
    return [x + w, y + h];
  };
  const legal = (shapes: Size[] = [[1, 1], [2, 2], [4, 4]], taken: Size[] = []) => {
    const seq = Number(host.sent.filter(m => m['type'] === 'probe_begin').at(-1)!['seq']);
    store.put(legalFrame(name, size, [0, 0], [size, ...shapes], seq, false, taken));
  };
  const take = () => {
    fire(tileOf(name), 'pointerover', 5, 5);
    fire(plane.querySelector(`[data-tb-handle='se']`)!, 'pointerdown', ...corner(...size));
    legal();
  };
  const tag = () => view.element.querySelector('.tb-tag')!;
  const press = (letter: string, more: KeyboardEventInit = {}) => plane.dispatchEvent(key(letter, more));
  const exact = () => host.sent.filter(m => m['type'] === 'probe_exact');

  it('asks exactly when the drag rests, draws who makes room, and forgets it when the drag goes on', () => {
    take();
    fire(plane, 'pointermove', ...corner(4, 4));
    vi.advanceTimersByTime(100);
    fire(plane, 'pointermove', ...corner(2, 2));
    vi.advanceTimersByTime(100);
    expect(exact()).toEqual([]);
    fire(plane, 'pointermove', ...corner(4, 4));
    vi.advanceTimersByTime(130);
    expect(exact()).toMatchObject([{ edit: { do: 'resize', op: name, size: [4, 4] } }]);
    vi.advanceTimersByTime(260);
    expect(tag().textContent).toContain('estimate, calculating');
    const ask = exact()[0]!['ask'];
    const answer = {
      type: 'exact', ok: true, time: [1000, 900], own: [[name, 0, 0, 0, 4, 4]], epochs: [3, 4], moved: 2, epoch_cycles: [1, 1], gain: 0,
      displaced: [[name, 0, 0, 0, 0, 4, 4], ['other', 0, 0, 4, 2, 1, 3], ['gone', 0, -1, 0, 0, 1, 1]]
    };
    host.say({ ...answer, ask: Number(ask) - 1 });
    expect(tag().textContent).toContain('estimate, calculating');
    host.say({ ...answer, ask });
    expect(tag().textContent).toContain('1.0k → 900 (−10.0 %)');
    expect(tag().textContent).toContain('4 (+1)');
    const outlines = [...plane.querySelectorAll('[data-tb-displaced]')];
    expect(outlines.map(o => o.getAttribute('data-tb-displaced'))).toEqual(['other']);
    const [x, y, w, h] = view.editor.geometry!.box({ row: 4, col: 2, rows: 1, cols: 3 });
    expect(['x', 'y', 'width', 'height'].map(a => Number(outlines[0]!.getAttribute(a)))).toEqual([x, y, w, h]);
    fire(plane, 'pointermove', ...corner(2, 2));
    expect(plane.querySelector('[data-tb-displaced]')).toBeNull();
    fire(plane, 'pointerup', ...corner(2, 2));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'resize', op: name, size: [2, 2] });
  });

  it('tells the kernel that an exact answer is not wanted any more', () => {
    take();
    fire(plane, 'pointermove', ...corner(4, 4));
    vi.advanceTimersByTime(130);
    window.dispatchEvent(key('Escape'));
    expect(host.sent.at(-1)).toEqual({ type: 'probe_end' });
    host.say({ type: 'exact', ask: exact()[0]!['ask'], ok: true, time: [1, 2], own: [], epochs: [1, 1], moved: 0, displaced: [] });
    expect(plane.querySelector('.tb-ghosts')).toBeNull();
  });

  it('says the last words of a drag too, and none once it is over', () => {
    const said = () => view.element.querySelector('[data-tb-live]')!.textContent;
    vi.advanceTimersByTime(1000);
    take();
    fire(plane, 'pointermove', ...corner(4, 4));
    vi.advanceTimersByTime(20);
    fire(plane, 'pointermove', ...corner(2, 2));
    vi.advanceTimersByTime(600);
    expect(said()).toContain('2×2');
    fire(plane, 'pointermove', ...corner(4, 4));
    vi.advanceTimersByTime(20);
    window.dispatchEvent(key('Escape'));
    vi.advanceTimersByTime(1000);
    expect(said()).toBe('cancelled');
  });

  it('turns an op on its way with T', () => {
    const wide = ops.byEpoch[0]!.find(i => ops.get('rows', i) !== ops.get('cols', i))!;
    const at = coresOf(ops, wide);
    fire(tileOf(ops.name[wide]!), 'pointerdown', at.col * 74 + 10, 30);
    fire(plane, 'pointermove', at.col * 74 + 40, 50);
    const seq = Number(host.sent.at(-1)!['seq']);
    store.put(legalFrame(ops.name[wide]!, [at.rows, at.cols], [at.row, at.col], [[at.rows, at.cols]], seq));
    window.dispatchEvent(key('t'));
    expect(tag().textContent).toContain('transposed');
    fire(plane, 'pointerup', at.col * 74 + 40, 50);
    expect(host.sent.at(-1)).toMatchObject({ type: 'edit', do: 'move', op: ops.name[wide], transposed: true });
  });

  it('drops an op on an epoch of the film strip, and on a chip', () => {
    const over = (element: Element) => ((document as unknown as { elementsFromPoint: () => Element[] }).elementsFromPoint = () => [element]);
    const drag = () => {
      fire(tileOf(name), 'pointerdown', 20, 20);
      fire(plane, 'pointermove', 60, 60);
      fire(plane, 'pointermove', 70, 70);
    };
    const film = view.element.querySelector(`.tb-frame[data-tb-epoch='1']`)!;
    over(film);
    drag();
    expect(film.classList.contains('tb-drop')).toBe(true);
    expect(tag().textContent).toContain('to epoch 1');
    fire(plane, 'pointerup', 70, 70);
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'epoch', op: name, epoch: 1 });
    expect(film.classList.contains('tb-drop')).toBe(false);
    const card = document.createElement('div');
    card.dataset['tbChip'] = '3';
    view.element.append(card);
    over(card);
    drag();
    fire(plane, 'pointerup', 70, 70);
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'chip', op: name, chip: 3 });
    over(view.element.querySelector(`.tb-frame[data-tb-epoch='0']`)!);
    drag();
    const count = host.sent.length;
    fire(plane, 'pointerup', 70, 70);
    expect(host.sent.filter(m => m['type'] === 'edit').length).toBe(2);
    expect(host.sent.length).toBe(count);
  });

  it('selects with a band over empty ground, and moves the group with Alt in one command', () => {
    const boxes = ops.byEpoch[0]!.map(i => [i, new Geometry(ops, 74).box(coresOf(ops, i))] as const);
    const right = Math.max(...boxes.map(([, [x, , w]]) => x + w));
    const bottom = Math.max(...boxes.map(([, [, y, , h]]) => y + h));
    fire(plane, 'pointerdown', right + 30, bottom + 30);
    fire(plane, 'pointermove', right + 10, bottom + 10);
    expect(plane.querySelector('[data-tb-band]')).not.toBeNull();
    fire(plane, 'pointermove', -5, -5);
    fire(plane, 'pointerup', -5, -5);
    expect(plane.querySelector('[data-tb-band]')).toBeNull();
    expect([...store.selection.names].sort()).toEqual(ops.byEpoch[0]!.map(i => ops.name[i]!).sort());
    expect(host.sent).toEqual([]);
    const cell = view.editor.geometry!.cell;
    const members = [op, ops.byEpoch[0]!.find(i => i !== op)!];
    store.select(members.map(i => ops.name[i]!), 'test');
    const group = new Group(ops, members, 0);
    const shifts = Array.from({ length: ops.rows * ops.cols }, (_, i): [number, number] => [Math.floor(i / ops.cols), i % ops.cols]);
    const [down, across] = shifts.find(([d, r]) => d + r > 0 && group.legal(d, r)) ?? [0, 0];
    const wanted = down + across > 0;
    const y = (row: number) => view.editor.geometry!.rows.top[row]!;
    const to: [number, number] = wanted ? [20 + cell * across, 20 + y(down)] : [20 + cell, 20];
    fire(tileOf(name), 'pointerdown', 20, 20, { altKey: true });
    fire(plane, 'pointermove', 26, 26, { altKey: true });
    fire(plane, 'pointermove', ...to, { altKey: true });
    expect(tag().getAttribute('data-tb-verdict')).toBe(wanted ? 'LEGAL' : 'TAKEN');
    fire(plane, 'pointerup', ...to, { altKey: true });
    const sent = host.sent.at(-1) as { do: string; edits: { op: string; start: number[] }[] } | undefined;
    expect(sent?.do).toBe(wanted ? 'many' : undefined);
    if (!wanted) return;
    expect(Object.fromEntries(sent!.edits.map(e => [e.op, e.start]))).toEqual(
      Object.fromEntries(members.map(i => [ops.name[i]!, [ops.get('row', i) + down, ops.get('col', i) + across]])));
  });

  it('moves by keys among legal places', () => {
    store.select([name], 'test');
    press('m');
    expect(host.sent.at(-1)).toMatchObject({ type: 'probe_begin', op: name });
    legal([], [[0, size[1]]]);
    press('ArrowRight');
    const label = tag().textContent;
    expect(label).toMatch(/column [1-9]/);
    press('ArrowDown');
    press('Escape');
    expect(plane.querySelector('.tb-ghosts')).toBeNull();
    expect(host.sent.some(m => m['type'] === 'edit')).toBe(false);
    press('m');
    legal();
    press('ArrowDown');
    press('Enter');
    expect(host.sent.at(-1)).toMatchObject({ type: 'edit', do: 'move', op: name, start: [1, 0] });
  });

  it('moves all selected ops by keys', () => {
    const members = [op, ops.byEpoch[0]!.find(i => i !== op)!];
    store.select(members.map(i => ops.name[i]!), 'test');
    const group = new Group(ops, members, 0);
    const free = Array.from({ length: ops.rows - 1 }, (_, k) => k + 1).find(d => group.legal(d, 0));
    press('m');
    press('ArrowDown');
    press('Enter');
    if (free === undefined) expect(host.sent).toEqual([]);
    else {
      expect((host.sent.at(-1) as { edits: { start: number[] }[] }).edits.map(e => e.start)).toEqual(
        members.map(i => [ops.get('row', i) + free, ops.get('col', i)]));
    }
  });

  it('has keys for everything else', async () => {
    bringBy(() => Promise.resolve(more)); // the panel is of the part that is fetched when it is wanted
    store.select([name], 'test');
    const does = (letter: string, expected: Record<string, unknown>, more: KeyboardEventInit = {}) => {
      press(letter, more);
      expect(host.sent.at(-1)).toMatchObject(expected);
    };
    press('c');
    expect([host.sent, store.answer.text]).toEqual([[], 'The device has one chip.']);
    const { meta } = view.ops!.frame;
    meta['chips'] = [0, 1];
    does('c', { do: 'chip-break', on: true });
    meta['chips'] = [0];
    does('k', { do: 'pin' });
    does('ArrowRight', { do: 'epoch', epoch: 1 }, { altKey: true });
    does('r', { type: 'recompile' });
    press('w');
    await vi.waitFor(() => expect(host.sent.at(-1)).toMatchObject({ type: 'why', op: name }), { timeout: 30_000 });
    expect(root.querySelector('.tb-dialog-why')!.hasAttribute('hidden')).toBe(false);
    root.querySelector('.tb-dialog-why')!.dispatchEvent(key('Escape'));
    press('?', { shiftKey: true });
    const sheet = root.querySelector<HTMLElement>('.tb-dialog-keys')!;
    expect(sheet.hidden).toBe(false);
    for (const { action } of KEYS) expect(sheet.querySelector(`[data-tb-key='${action}']`)).not.toBeNull();
    sheet.dispatchEvent(key('Escape'));
    expect(sheet.hidden).toBe(true);
    press('n');
    expect(store.epoch).toBe(1);
    press('v');
    press('3');
    press('p');
    expect(store.epoch).toBe(0);
    press('3');
    expect(store.epoch).toBe(1);
    press('e');
    const prompt = root.querySelector<HTMLInputElement>('[data-tb-action=prompt]')!;
    prompt.value = '0';
    prompt.dispatchEvent(key('Enter'));
    expect(store.epoch).toBe(0);
    press('ArrowDown', { ctrlKey: true });
    expect(plane.querySelector('[data-tb-core]')!.getAttribute('data-tb-core')).toBe('0,0');
    press('ArrowRight', { ctrlKey: true });
    expect(plane.querySelector('[data-tb-core]')!.getAttribute('data-tb-core')).toBe('0,1');
  });

  it('shows feeders, then readers, then the op', () => {
    const middle = ops.name.findIndex((_, i) => ops.into(i).length && ops.outOf(i).length);
    store.select([ops.name[middle]!], 'test');
    const names = (list: number[]) => list.map(i => ops.name[i]!);
    press('d');
    expect(store.selection.names).toEqual(names(ops.into(middle)));
    press('d');
    expect(store.selection.names).toEqual(names(ops.outOf(middle)));
    press('d');
    expect(store.selection.names).toEqual([ops.name[middle]]);
  });

  it('lists suggestions with ghosts, and accepts the one in focus with Enter', () => {
    view.element.querySelector<HTMLElement>('[data-tb-action=suggest]')!.click();
    expect(host.sent.at(-1)).toMatchObject({ type: 'suggest' });
    const hint = (label: string, epoch: number, edits: unknown[]) => ({
      label, epoch, ops: [name], edits, spots: [[name, epoch, 1, 2, 2, 3]], gain: 100, time: [1000, 900], epochs: [3, 3 - epoch]
    });
    const edits = [{ do: 'resize', op: name, size: [2, 3] }, { do: 'resize', op: 'b', size: [2, 3] }];
    host.say({ type: 'suggest', ok: true, list: [hint('one', 0, edits.slice(0, 1)), hint('two', 1, edits)] });
    const list = view.element.querySelector<HTMLElement>('.tb-hints')!;
    const gains = [...list.querySelectorAll('[role=option] .tb-gain')].map(e => e.textContent);
    expect(gains).toEqual(['1.0k → 900 (−10 %)', '1.0k → 900 (−10 %), 1 epoch less']);
    const [x, y] = view.editor.geometry!.box({ row: 1, col: 2, rows: 2, cols: 3 });
    const ghost = plane.querySelector('[data-tb-hint] rect')!;
    expect([Number(ghost.getAttribute('x')), Number(ghost.getAttribute('y'))]).toEqual([x, y]);
    list.dispatchEvent(key('Enter'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', ...edits[0] });
    list.dispatchEvent(key('ArrowDown'));
    expect(store.epoch).toBe(1);
    list.dispatchEvent(key('Enter'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'many', label: 'two', edits });
    list.dispatchEvent(key('Escape'));
    expect(plane.querySelector('[data-tb-hint]')).toBeNull();
  });
});

describe('breaks and menus of the graph', () => {
  const names = ops.name;
  let store: Store;
  let host: LiveHost;

  beforeEach(() => {
    Object.assign(HTMLElement.prototype, { setPointerCapture: vi.fn(), releasePointerCapture: vi.fn(), hasPointerCapture: () => true });
    ({ store, host } = live({ overrides: [override({ target: names[3]!, field: 'epoch_break', requested: 'yes' })] }));
  });

  const bars = () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const breaks = new Breaks(store, () => ({ scene, camera: { x: 0, y: 0, scale: 1 }, shown: true }));
    document.body.append(breaks.element);
    return { breaks, scene, bar: () => breaks.element.querySelector<HTMLElement>('[data-tb-break]')! };
  };

  it('moves a break along the schedule by keys, saying what each stop makes', () => {
    const { breaks, bar } = bars();
    bar().dispatchEvent(key('ArrowDown', { altKey: true }));
    const asked = host.sent.at(-1)!;
    expect(asked).toMatchObject({ type: 'break_stops', op: names[3], kind: 'epoch_break' });
    host.say({ type: 'break_stops', ask: asked['ask'], stops: [[names[4], 3, 5000, 9000, ''], [names[5], 0, 0, 0, 'no room']], done: true });
    expect(bar().getAttribute('aria-valuetext')).toBe(`before ${names[4]!}: 3 epochs, slowest 5.0k, all 9.0k cycles`);
    bar().dispatchEvent(key('ArrowDown', { altKey: true }));
    expect(bar().getAttribute('data-tb-verdict')).toBe('REFUSED');
    bar().dispatchEvent(key('Enter'));
    expect(store.answer.text).toContain('no room');
    bar().dispatchEvent(key('ArrowUp', { altKey: true }));
    bar().dispatchEvent(key('Enter'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'shift-break', op: names[3], to: names[2], kind: 'epoch_break' });
    bar().dispatchEvent(key('Delete'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'break', op: names[3], on: false });
    breaks.dispose();
    breaks.element.remove();
  });

  it('keeps the focus on a break that keys moved; one that is taken away leaves it to the graph', () => {
    const { breaks, bar } = bars();
    const stage = document.createElement('div');
    stage.tabIndex = 0;
    document.body.append(stage);
    stage.append(breaks.element);
    bar().focus();
    store.put(editsFrame({ overrides: [override({ target: names[2]!, field: 'epoch_break', requested: 'yes' })] }));
    expect(bar().dataset['tbBreak']).toBe(names[2]);
    expect(document.activeElement).toBe(bar());
    store.put(editsFrame());
    expect(document.activeElement).toBe(stage);
    stage.blur();
    store.put(editsFrame({ overrides: [override({ target: names[2]!, field: 'epoch_break', requested: 'yes' })] }));
    expect(document.activeElement).toBe(document.body);
    breaks.dispose();
    stage.remove();
  });

  it('moves a break by the pointer, with one question', () => {
    const { breaks, scene, bar } = bars();
    const fire = (type: string, x: number, y: number) =>
      bar().dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1 }));
    fire('pointerdown', 5, 5);
    const [x, y, w] = scene.box(scene.itemOfNode[scene.indexOf.get(names[7]!)!]!);
    for (let k = 0; k < 20; k++) fire('pointermove', 5 + k * 2, 20 + k * 10);
    fire('pointermove', x + w / 2, y - 9);
    expect(bar().getAttribute('data-tb-stop')).toBe(names[7]);
    expect(host.sent).toHaveLength(1);
    fire('pointerup', x + w / 2, y - 9);
    expect(host.sent.at(-1)).toMatchObject({ do: 'shift-break', to: names[7] });
    breaks.dispose();
    breaks.element.remove();
  });

  it('offers edits of edges, on the edge and at its op', () => {
    const area = document.createElement('div');
    area.dataset['tbStage'] = 'lowered';
    const target = ops.name.findIndex((_, i) => ops.into(i).length);
    const from = ops.name[ops.into(target)[0]!]!;
    const to = ops.name[target]!;
    const node = document.createElement('button');
    node.dataset['tbOp'] = to;
    area.append(node);
    document.body.append(area);
    const menu = new NodeMenu(store, area, () => ({ from, to }));
    area.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    area.querySelector<HTMLElement>('[data-tb-action=edge-nop]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'insert-nop', op: from, to: [to] });
    node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    area.querySelector<HTMLElement>('[data-tb-action=edges]')!.click();
    area.querySelector<HTMLElement>('[data-tb-action=edge-queue]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'insert-queue', op: from, to: [to] });
    menu.dispose();
    area.remove();
  });

  it('finds the edge under a point', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const { net, x0, y0 } = [...scene.segments.values()][0]!;
    expect(scene.edgeAt(x0, y0 + 1, 4)?.source).toBe(net);
    expect(scene.edgeAt(-500, -500, 4)).toBeNull();
  });
});

describe('panels', () => {
  it('switches overrides, shows gains and code', () => {
    const { store, host } = live({ overrides: [override({}), override({ target: 'b', state: 'off', enabled: false, source: 'code' })] });
    const panel = new OverridesPanel(store);
    const boxes = [...panel.element.querySelectorAll<HTMLInputElement>('[data-tb-action=switch-override]')];
    expect(boxes.map(b => b.checked)).toEqual([true, false]);
    boxes[1]!.dispatchEvent(new Event('change'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'enable', op: 'b', kinds: ['op_size'] });
    panel.element.querySelector<HTMLElement>('[data-tb-action=gains]')!.click();
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', -1500, -0.25, 0]] });
    const gain = () => panel.element.querySelector('[data-tb-override=a] [data-tb-gain]')!.textContent;
    expect(gain()).toBe('costs 1.5k (25 %)');
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', 27000, 0.5, -1]] });
    expect(gain()).toBe('saves 27.0k (50 %), 1 epoch less');
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', null, null, null]] });
    expect(gain()).toBe('nothing fits without it');
    panel.element.querySelector<HTMLElement>('[data-tb-action=overrides-json]')!.click();
    host.say({ type: 'code', ok: true, python: 'p', json: '{"x": 1}' });
    expect(panel.element.querySelector('[data-tb-code=json]')!.textContent).toBe('{"x": 1}');
    panel.dispose();
  });

  it('offers legal values only', () => {
    const { store, host } = live();
    const knobs = new OpControls(store);
    knobs.offer('a');
    knobs.element.querySelector<HTMLElement>('[data-tb-action=op-controls]')!.click();
    host.say({
      type: 'choices', op: 'a', ok: true, u_kt: [[1, 900], [2, 800], [8, 700]], streams: [['n', 1, 1, 700], ['r', 2, 1, 750]],
      buffers: [[[1, 700], [2, 700]], []], now: { u_kt: 2, stream: ['n', 1, 1], buffers: {} }
    });
    knobs.element.querySelector<HTMLElement>('[data-tb-action=more-u_kt]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'u_kt', u_kt: 8 });
    const stream = knobs.element.querySelector<HTMLSelectElement>('[data-tb-action=set-stream]')!;
    stream.value = 'r 2x1';
    stream.dispatchEvent(new Event('change'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'stream', direction: 'r', shape: [2, 1] });
    knobs.element.querySelector<HTMLElement>('[data-tb-action=more-buffer-0]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'buffer', operand: 0, factor: 2 });
    expect(knobs.element.querySelector('[data-tb-action=set-buffer-1]')).toBeNull();
    knobs.dispose();
  });

  it('lists every kind of export with its words, and asks before it writes over a file', () => {
    const { store, host } = live();
    const dialog = new ExportDialog(store, document.createElement('div'));
    document.body.append(dialog.dialog.element);
    const find = (action: string) => dialog.dialog.element.querySelector<HTMLElement>(`[data-tb-action=${action}]`)!;
    dialog.show();
    expect(host.sent.at(-1)).toEqual({ type: 'exports' });
    const kinds = [{ name: 'overrides', title: 'Overrides', meaning: 'the edits', suffix: '.py', settings: [
      { name: 'form', default: 'python', meaning: 'how', choices: ['python', 'json'] }] }];
    host.say({ type: 'exports', name: 'net', kinds });
    const asked = host.sent.at(-1)!;
    expect(asked).toMatchObject({ type: 'export_plan', kind: 'overrides', path: 'net.py', settings: { form: 'python' } });
    host.say({ type: 'export_plan', ask: asked['ask'], kind: 'overrides', ok: true, cli: 'tbuda export x', python: 'session.x()', note: '', folder: '/f' });
    expect(dialog.dialog.element.textContent).toContain('tbuda export x');
    expect(dialog.dialog.element.textContent).toContain('session.x()');
    find('export-write').click();
    expect(host.sent.at(-1)).toMatchObject({ type: 'export', kind: 'overrides', replace: false });
    host.say({ type: 'exported', kind: 'overrides', ok: false, exists: true, text: 'net.py is there already.' });
    find('export-replace').click();
    expect(host.sent.at(-1)).toMatchObject({ type: 'export', replace: true });
    host.say({ type: 'exports', name: 'net', kinds: [...kinds, { name: 'tti', title: 'TTI', meaning: 'one archive', suffix: '.tti', settings: [
      { name: 'name', default: '', meaning: 'name', choices: [] }, { name: 'weights', default: true, meaning: 'include the weights', choices: [] }] }] });
    find('export-tti').click();
    const image = host.sent.at(-1)!;
    expect(image).toMatchObject({ type: 'export_plan', kind: 'tti', path: 'net.tti', settings: { name: '', weights: true } });
    host.say({
      type: 'export_plan', ask: image['ask'], kind: 'tti', ok: true, cli: 'tbuda export tti x', python: 'session.export_tti()', note: '',
      folder: '/f', preview: 'for n150: 1 chip of 9 x 8 cores; about 2.5 MB'
    });
    expect(dialog.dialog.element.querySelector('[data-tb-export=preview]')!.textContent).toContain('about 2.5 MB');
    dialog.dispose();
    dialog.dialog.element.remove();
  });

  it('sends a picture in parts that fit a message', () => {
    const { host } = live();
    const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251);
    sendPicture(host, bytes, 'a.png', false);
    expect(host.sent.length).toBeGreaterThan(1);
    expect(host.sent.every(m => JSON.stringify(m).length < 64 * 1024)).toBe(true);
    const back = host.sent.flatMap(m => [...Buffer.from(String(m['data']), 'base64')]);
    expect(Uint8Array.from(back)).toEqual(bytes);
  });

  it('takes names that vanished out of the selection, once', () => {
    const { store } = live();
    let told = 0;
    const lost = new LostSelection(store, () => told++);
    store.select([ops.name[0]!, ops.name[1]!], 'test');
    const after = frame('ops');
    const at = after.strings.indexOf(ops.name[0]!);
    after.strings[at] = 'renamed';
    store.put(after);
    expect(lost.names).toEqual([ops.name[0]]);
    expect(store.selection.names).toEqual([ops.name[1]]);
    store.put(after);
    expect(lost.names).toEqual([]);
    expect(told).toBe(2);
    store.put(editsFrame());
    lost.dispose();
  });
});
