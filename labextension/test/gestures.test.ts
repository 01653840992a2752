import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { nextStart } from '../src/views/grid/keys.js';
import { wrapName } from '../src/views/grid/draw.js';
import { Geometry } from '../src/views/grid/geometry.js';
import { Legal, type Size } from '../src/views/grid/legal.js';
import { coresOf, Group, groupPlaced } from '../src/views/grid/pictures.js';
import { GridView } from '../src/views/grid/view.js';
import { actionOf, chord, chordsOf, KEYS } from '../src/views/keys.js';
import { bringBy } from '../src/views/lazyview.js';
import * as more from '../src/views/lazybundle.js';
import { Overlays } from '../src/views/overlays.js';
import type { Store } from '../src/views/store.js';
import { frame } from './fixture.js';
import { editsFrame, legalFrame, live, type LiveHost, ops, override } from './live.js';

const key = (name: string, more: KeyboardEventInit = {}) => new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true, ...more });

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
    expect(wrapName(name, 12, 9).join('')).toBe(name);
    expect(wrapName(name, 12, 9).every(line => line.length <= 12)).toBe(true);
    expect(wrapName(name, 12, 2)).toHaveLength(2);
    expect(wrapName('reciprocal', 9, 2, false)).toEqual(['rec…rocal']);
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
    expect(tag().textContent).toContain('turned');
    fire(plane, 'pointerup', at.col * 74 + 40, 50);
    expect(host.sent.at(-1)).toMatchObject({ type: 'edit', do: 'move', op: ops.name[wide], transposed: true });
    store.put(store.frames.get('ops')!); // a picture of something else, before the answer: it proves nothing
    expect(store.answer.text).toBe('');
    host.say({ type: 'edited', ok: true, text: 'moved' });
    expect(store.answer.text).toContain('moved. It stands at row');
    host.say({ type: 'edited', ok: true, text: 'another' });
    expect(store.answer.text).toBe('another');
  });

  it('has a menu of the same commands, for an op and for an epoch, and shows what the user fixed', () => {
    const items = () => [...view.element.querySelectorAll<HTMLElement>('.tb-menu button')].map(b => b.dataset['tbAction']);
    const press = (on: Element) => on.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true, button: 2 }));
    press(tileOf(name));
    expect(items()).toEqual(expect.arrayContaining(['menu-grow', 'menu-move', 'epoch-break', 'pin', 'clear-overrides', 'why', 'copy-place']));
    view.element.querySelector<HTMLElement>('[data-tb-action=menu-grow]')!.click();
    expect(host.sent.at(-1)).toMatchObject({ type: 'probe_begin', op: name });
    press(view.element.querySelector(`.tb-frame[data-tb-epoch='1']`)!);
    expect(items()).toEqual(['menu-epoch', 'menu-select', 'menu-slowest', 'menu-unbreak']);
    view.element.querySelector<HTMLElement>('[data-tb-action=menu-epoch]')!.click();
    expect([store.epoch, view.element.querySelector('.tb-menu')]).toEqual([1, null]);
    store.setEpoch(0);
    expect(tileOf(name).classList.contains('tb-fixed')).toBe(false);
    store.put(editsFrame({ overrides: [override({ names: [name], field: 'op_size' }), override({ names: [name], field: 'op_placement' })] }));
    expect([tileOf(name).dataset['tbFixed'], tileOf(name).querySelectorAll('.tb-fixed-mark').length]).toEqual(['size, place', 1]);
    expect(tileOf(name).getAttribute('aria-label')).toMatch(/, size, place fixed by you$/);
    store.put(editsFrame({ overrides: [override({ names: [name], field: 'op_size', state: 'off' })] }));
    expect(tileOf(name).querySelector('.tb-fixed-mark')).toBeNull();
    expect(tileOf(name).getAttribute('aria-label')).not.toContain('fixed');
  });

  it('says of a refusal what stays, not what would land', () => {
    const members = ops.byEpoch[0]!;
    const group = new Group(ops, members, 0);
    const picture = groupPlaced(ops, group, coresOf(ops, members[0]!), 0, 90);
    expect(picture.edit === null).toBe(picture.note.includes('stay where they are'));
    expect(groupPlaced(ops, group, coresOf(ops, members[0]!), 0, 0).note).toBe('');
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
    expect(gains).toEqual(['1.0k → 900 (−10.0 %)', '1.0k → 900 (−10.0 %), 1 epoch less']);
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

  it('asks for suggestions again once the work is over that refused them', () => {
    const status = (running: boolean) => host.say({ type: 'status', status: { ...store.status, running } });
    status(true);
    view.element.querySelector<HTMLElement>('[data-tb-action=suggest]')!.click();
    host.say({ type: 'suggest', ok: false, text: 'The model is being compiled or run: wait until that ends.' });
    const asked = () => host.sent.filter(message => message['type'] === 'suggest').length;
    const [note, before] = [view.element.querySelector('.tb-suggestions .tb-note')!, asked()];
    status(true);
    expect([note.textContent, asked()]).toEqual(['The model is being compiled or run: wait until that ends.', before]);
    status(false);
    expect([note.textContent, asked()]).toEqual(['Searching for edits that save cycles …', before + 1]);
  });

  it('stays in the epoch that is looked at when a placement comes, and follows what was selected there', () => {
    const last = ops.epochs - 1;
    store.select([ops.name[ops.byEpoch[0]![0]!]!], 'test');
    store.setEpoch(last);
    store.put(frame('ops')); // what came of an edit of another op
    expect(store.epoch).toBe(last);
    store.select([ops.name[ops.byEpoch[last]![0]!]!], 'test');
    store.put(frame('ops'));
    expect(store.epoch).toBe(last);
    store.select([], 'test');
    store.setEpoch(0);
    store.select([ops.name[ops.byEpoch[last]![0]!]!], 'elsewhere');
    expect(store.epoch).toBe(last);
  });
});
