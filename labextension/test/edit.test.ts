import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { short } from '../src/views/dom.js';
import { EditBar } from '../src/views/editbar.js';
import { Geometry } from '../src/views/grid/geometry.js';
import { withAnswer, Legal, type Size } from '../src/views/grid/legal.js';
import { GridView } from '../src/views/grid/view.js';
import { NodeMenu } from '../src/views/graph/input.js';
import { BringUp } from '../src/views/bringup.js';
import { OverridesPanel } from '../src/views/overrides.js';
import { StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { frames } from './fixture.js';
import { COLS, legalFrame, live, type LiveHost, ops, ROWS } from './live.js';

describe('Legal', () => {
  const SHAPES: Size[] = [[1, 1], [1, 2], [2, 2], [4, 2], [2, 4], [4, 4]];
  const legal = new Legal(legalFrame('a', [2, 2], [0, 0], SHAPES));

  it('knows verdicts and reasons, also outside the device', () => {
    expect(legal.isLegal([2, 2])).toBe(true);
    expect(legal.isLegal([3, 3])).toBe(false);
    expect(legal.reason([3, 3])?.name).toBe('DOES_NOT_DIVIDE');
    expect(legal.reason([9, 1])?.name).toBe('OUTSIDE');
    expect(legal.all()).toHaveLength(SHAPES.length);
  });

  it('snaps to the nearest legal shape: never to an illegal one, never past a nearer one', () => {
    for (let r = 1; r <= ROWS; r++) {
      for (let c = 1; c <= COLS; c++) {
        const near = legal.nearest([r, c])!;
        const off = ([a, b]: Size) => Math.abs(a - r) + Math.abs(b - c);
        expect(legal.isLegal(near)).toBe(true);
        expect(off(near)).toBe(Math.min(...SHAPES.map(off)));
      }
    }
    expect(legal.nearest([1, 8], s => s[0] === 1)).toEqual([1, 2]);
    expect(legal.nearest([3, 3], () => false)).toBeNull();
  });

  it('steps to the next number of cores and stops at the ends', () => {
    expect([...legal.step(1)!].sort()).toEqual([2, 4]);
    expect(legal.step(-1)).toEqual([1, 2]);
    expect(new Legal(legalFrame('a', [4, 4], [0, 0], SHAPES)).step(1)).toBeNull();
  });

  it('turns the shapes of a transposed op', () => {
    const turned = new Legal(legalFrame('a', [1, 4], [0, 0], [[1, 4], [1, 2]], 1, true));
    expect(turned.now).toEqual([4, 1]);
    expect(turned.isLegal([2, 1])).toBe(true);
    expect(turned.isLegal([1, 2])).toBe(false);
    expect(turned.name([2, 1])).toBe('1×2');
  });

  it('reads anchors, and finds the nearest free start', () => {
    const crowded = new Legal(legalFrame('a', [2, 2], [0, 0], SHAPES, 1, false, [[0, 3], [2, 0]]));
    expect(crowded.free([2, 2], 0, 0)).toBe(true);
    expect(crowded.free([2, 2], 0, 2)).toBe(false);
    expect(crowded.free([2, 2], 7, 0)).toBe(false);
    expect(crowded.nearestStart([2, 2], 0, 2)).toEqual([0, 1]);
  });

  it('says old and new', () => {
    const tag = Object.fromEntries(legal.tag([4, 2], ops));
    expect(tag['kernel cycles']).toBe('300 → 150 (−50.0 %)');
    expect(tag['slowest op of the epoch']).toBe('300');
    expect(tag['cycles / input, estimate']).toBe('900');
    expect(withAnswer(legal.tag([4, 2], ops), [['cycles / input', '800']]).map(([term]) => term)).not.toContain('cycles / input, estimate');
    expect(withAnswer(legal.tag([4, 2], ops), [['', 'estimate']]).map(([, text]) => text)).not.toContain('estimate');
    expect(tag['cores']).toBe('8 (+4)');
  });

  it('begins with the cycles that the tiles and the table show, not with those of the fastest way to work on as many cores', () => {
    const i = ops.byEpoch[1]![0]!;
    const size: Size = [ops.get('rows', i), ops.get('cols', i)];
    const own = new Legal(legalFrame(ops.name[i]!, size, [0, 0], [...SHAPES, size]));
    expect(own.value('cycles', size)).not.toBe(ops.get('cycles', i));
    const tag = Object.fromEntries(own.tag([4, 2], ops));
    expect(tag['kernel cycles']).toMatch(`${short(ops.get('cycles', i))} → 150 `);
    expect(tag['cycles / input, estimate']).toMatch(`${short(ops.total)} → 900 `);
    expect(tag['slowest op of the epoch']).toMatch(`${short(ops.frame.column('epoch_limiter_cycles')[1]!)} → 300 `);
    const still = Object.fromEntries(own.tag(size, ops));
    expect(still['kernel cycles']).toBe(short(ops.get('cycles', i))); // what is let go where it stood is no edit
  });
});

describe('Geometry', () => {
  it('gives back the shape whose corner the pointer is on', () => {
    const geometry = new Geometry(ops, 74);
    for (let rows = 1; rows <= ops.rows; rows++) {
      for (let cols = 1; cols <= ops.cols; cols++) {
        const [x, y, w, h] = geometry.box({ row: 0, col: 0, rows, cols });
        expect([geometry.rowsTo(y + h, 0), geometry.columnsTo(x + w, 0)]).toEqual([rows, cols]);
        expect(geometry.corner(x, y)).toEqual([0, 0]);
      }
    }
  });
});

describe('dragging in the grid', () => {
  const op = ops.byEpoch[0]!.find(i => ops.get('row', i) === 0 && ops.get('col', i) === 0)!;
  const name = ops.name[op]!;
  const size: Size = [ops.get('rows', op), ops.get('cols', op)];
  const cell = 74;
  let view: GridView;
  let store: Store;
  let host: LiveHost;
  let plane: HTMLElement;

  beforeEach(() => {
    // The drawing's plane lies at the page's origin, unscaled.
    (SVGElement.prototype as unknown as { getScreenCTM: () => unknown }).getScreenCTM = () => ({ a: 1, d: 1, e: 0, f: 0 });
    Object.assign(HTMLElement.prototype, { setPointerCapture: vi.fn(), releasePointerCapture: vi.fn(), hasPointerCapture: () => true });
    ({ store, host } = live());
    view = new GridView(store);
    document.body.append(view.element);
    plane = view.element.querySelector('.tb-plane')!;
  });
  afterEach(() => {
    view.dispose();
    view.element.remove();
  });

  const tile = () => plane.querySelector<SVGGElement>(`.tb-tile[data-tb-op='${name}']`)!;
  const fire = (target: Element, type: string, x: number, y: number, more: PointerEventInit = {}) =>
    target.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1, ...more }));
  const corner = (r: number, c: number): [number, number] => {
    const [x, y, w, h] = new Geometry(ops, cell).box({ row: 0, col: 0, rows: r, cols: c });
    return [x + w, y + h];
  };
  const take = (which: string) => {
    fire(tile(), 'pointerover', 5, 5);
    const handle = plane.querySelector(`[data-tb-handle='${which}']`)!;
    fire(handle, 'pointerdown', ...corner(...size));
    return host.sent.at(-1)!;
  };
  const answer = (seq: number, taken: Size[] = []) =>
    store.put(legalFrame(name, size, [0, 0], [size, [1, 1], [2, 2], [4, 4]], seq, false, taken));

  it('keeps the handles when a finger leaves, for its next touch; a mouse takes them along', () => {
    const shown = () => plane.querySelectorAll('[data-tb-handle]').length > 0;
    fire(tile(), 'pointerover', 5, 5, { pointerType: 'touch' });
    fire(plane, 'pointerleave', 5, 5, { pointerType: 'touch' });
    expect(shown()).toBe(true);
    expect(plane.classList.contains('tb-in-hand')).toBe(true); // the finger drags and does not scroll
    fire(plane, 'pointerover', 5, 5, { pointerType: 'touch' }); // on empty ground
    expect(shown()).toBe(false);
    expect(plane.classList.contains('tb-in-hand')).toBe(false);
    fire(tile(), 'pointerover', 5, 5, { pointerType: 'mouse' });
    fire(plane, 'pointerleave', 5, 5, { pointerType: 'mouse' });
    expect(shown()).toBe(false);
  });

  it('asks once, sends nothing on the way, commits the legal shape it snapped to', () => {
    const probe = take('se');
    expect(probe).toMatchObject({ type: 'probe_begin', op: name });
    answer(Number(probe['seq']));
    for (let k = 0; k < 50; k++) fire(plane, 'pointermove', 10 + 4 * k, 10 + 3 * k);
    fire(plane, 'pointermove', ...corner(4, 5));
    expect(host.sent).toHaveLength(1);
    expect(view.element.querySelector('.tb-tag')!.getAttribute('data-tb-verdict')).toBe('DOES_NOT_DIVIDE');
    fire(plane, 'pointermove', ...corner(4, 4));
    expect(view.element.querySelector('.tb-tag')!.getAttribute('data-tb-verdict')).toBe('LEGAL');
    expect(view.element.querySelector('.tb-tag')!.textContent).toContain(`${size.join('×')} → 4×4`);
    fire(plane, 'pointermove', ...corner(4, 5));
    fire(plane, 'pointerup', ...corner(4, 5));
    expect(host.sent.slice(1)).toEqual([{ type: 'edit', do: 'resize', op: name, size: [4, 4] }]);
    expect(plane.classList.contains('tb-old')).toBe(true);
    expect(view.element.querySelector<HTMLElement>('.tb-tag')!.hidden).toBe(true);
    store.say(false, 'no room');
    expect(plane.classList.contains('tb-old')).toBe(false);
    expect(view.element.querySelector('[data-tb-answer=refused]')!.textContent).toContain('no room');
  });

  it('with Alt shows why not, and does nothing', () => {
    answer(Number(take('se')['seq']));
    fire(plane, 'pointermove', ...corner(4, 5), { altKey: true });
    expect(view.element.querySelector('.tb-tag')!.textContent).toContain('4×5: rows must divide; a divisor');
    expect(plane.querySelector('.tb-ghost')).toBeNull();
    fire(plane, 'pointerup', ...corner(4, 5), { altKey: true });
    expect(host.sent).toHaveLength(1);
    expect(view.element.querySelector('[data-tb-answer=refused]')!.textContent).toContain('rows must divide');
  });

  it('keeps the keyboard when it is drawn anew', () => {
    tile().focus();
    const before = tile();
    store.setColour('family');
    expect(tile()).not.toBe(before);
    expect(document.activeElement).toBe(tile());
    plane.focus();
    store.setColour('load');
    expect(document.activeElement).toBe(plane);
  });

  it('sends undo while the last edit is at work: the kernel takes one after the other', () => {
    const edits = store.frames.get('edits')!;
    Object.assign(edits.meta, { busy: true });
    plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'z', ctrlKey: true, bubbles: true }));
    plane.dispatchEvent(new KeyboardEvent('keydown', { key: 'z', ctrlKey: true, bubbles: true }));
    expect(host.sent.map(m => m['type'])).toEqual(['undo', 'undo']);
    Object.assign(edits.meta, { busy: false });
  });

  it('is cancelled by Escape, and starts neither with Shift nor with Ctrl nor without a table', () => {
    answer(Number(take('se')['seq']));
    fire(plane, 'pointermove', ...corner(4, 4));
    window.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
    expect(plane.querySelector('.tb-ghosts')).toBeNull();
    fire(plane, 'pointerup', ...corner(4, 4));
    expect(host.sent).toHaveLength(1);
    fire(tile(), 'pointerover', 5, 5);
    const handle = plane.querySelector("[data-tb-handle='e']")!;
    fire(handle, 'pointerdown', 5, 5, { shiftKey: true });
    fire(handle, 'pointerdown', 5, 5, { ctrlKey: true });
    expect(host.sent).toHaveLength(1);
    take('se');
    fire(plane, 'pointerup', ...corner(4, 4));
    expect(host.sent).toHaveLength(2);
  });

  it('takes no notice of an answer to an older question', () => {
    answer(Number(take('se')['seq']) + 1);
    expect(view.element.querySelector('.tb-tag')!.getAttribute('data-tb-verdict')).toBe('WAITING');
  });

  it('moves an op to the nearest free place; a press that stays is a click', () => {
    fire(tile(), 'pointerdown', 10, 10);
    fire(plane, 'pointermove', 12, 11);
    fire(plane, 'pointerup', 12, 11);
    expect(host.sent).toHaveLength(0);
    fire(tile(), 'pointerdown', 10, 10);
    fire(plane, 'pointermove', 10 + cell, 10);
    answer(Number(host.sent[0]!['seq']), [[0, size[1]]]);
    const wanted = new Legal(store.frames.get('legal')!).nearestStart(size, 0, 1)!;
    fire(plane, 'pointermove', 11 + cell, 10);
    expect(view.element.querySelector('.tb-tag')!.getAttribute('data-tb-verdict')).toBe('TAKEN');
    fire(plane, 'pointerup', 11 + cell, 10);
    const moved = host.sent.slice(1);
    expect(moved).toEqual(wanted[0] === 0 && wanted[1] === 0 ? [] : [{ type: 'edit', do: 'move', op: name, start: wanted, transposed: false }]);
  });

  it('has keys for shapes, breaks, clearing, undo and redo', () => {
    store.select([name], 'test');
    const press = (key: string, more: KeyboardEventInit = {}) => plane.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...more }));
    press(']');
    answer(Number(host.sent.at(-1)!['seq']));
    expect(host.sent.at(-1)).toMatchObject({ type: 'edit', do: 'resize', op: name });
    expect(view.element.querySelector('[data-tb-live]')!.textContent).toContain('cycles');
    press('b');
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'break', op: name, on: true });
    press('u');
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'clear', op: name });
    press('z', { ctrlKey: true });
    expect(host.sent.at(-1)).toEqual({ type: 'undo' });
    press('Z', { ctrlKey: true, shiftKey: true });
    expect(host.sent.at(-1)).toEqual({ type: 'redo' });
  });

  it('offers no handle where nothing can be edited', () => {
    const still = new GridView((() => {
      const s = new Store(new StaticHost());
      frames().forEach(f => s.put(f));
      return s;
    })());
    still.element.querySelector('.tb-tile')!.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
    expect(still.element.querySelector('[data-tb-handle]')).toBeNull();
    expect(still.element.querySelector('[data-tb-action=undo]')).toBeNull();
    still.dispose();
  });
});

describe('EditBar', () => {
  it('can undo what there is to undo', () => {
    const { store, host } = live({ stale: true });
    const { element } = new EditBar(store);
    const [undo, redo] = ['undo', 'redo'].map(a => element.querySelector<HTMLButtonElement>(`[data-tb-action=${a}]`)!);
    expect([undo!.disabled, redo!.disabled]).toEqual([false, true]);
    expect(element.querySelector('[data-tb-stale]')!.textContent).toBe('stale');
    undo!.click();
    expect(host.sent).toEqual([{ type: 'undo' }]);
  });
});

describe('OverridesPanel', () => {
  it('tells requested from obtained and takes one away', () => {
    const record = {
      target: 'a<b>', field: 'op_size', requested: '4x4', obtained: '2x4', state: 'missed' as const, because: 'a has (2, 4)',
      python: "pybuda.config.override_op_size('a', (4, 4))", matches: 1, names: ['a<b>'], removable: true
    };
    const { store, host } = live({ overrides: [record, { ...record, target: '/a.*/', removable: false }] });
    const workbench = new BringUp(store);
    expect(workbench.element.querySelector('[data-tb-action=tab-overrides] .tb-badge')!.textContent).toBe('2');
    workbench.dispose();
    host.sent.length = 0;
    const { element } = new OverridesPanel(store);
    const row = element.querySelector<HTMLElement>('[data-tb-override]')!;
    expect(row.dataset['tbState']).toBe('missed');
    expect(row.textContent).toContain('4x4');
    expect(row.textContent).toContain('2x4');
    expect(element.querySelectorAll('[data-tb-action=remove-override]')).toHaveLength(1);
    element.querySelector<HTMLElement>('[data-tb-action=remove-override]')!.click();
    expect(host.sent).toEqual([{ type: 'edit', do: 'clear', op: 'a<b>', kinds: ['op_size'] }]);
  });
});

describe('NodeMenu', () => {
  it('breaks an epoch at a node, and leaves Shift to the browser', () => {
    const { store, host } = live();
    const area = document.createElement('div');
    area.dataset['tbStage'] = 'lowered';
    const node = document.createElement('button');
    node.dataset['tbOp'] = ops.name[1]!;
    area.append(node);
    document.body.append(area);
    const menu = new NodeMenu(store, area);
    node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, shiftKey: true }));
    expect(area.querySelector('[role=menu]')).toBeNull();
    node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    area.querySelector<HTMLElement>('[data-tb-action=epoch-break]')!.click();
    expect(host.sent).toEqual([{ type: 'edit', do: 'break', op: ops.name[1], on: true }]);
    expect(area.querySelector('[role=menu]')).toBeNull();
    menu.dispose();
    area.remove();
  });
});
