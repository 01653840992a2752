import { afterEach, describe, expect, it, vi } from 'vitest';
import { NodeMenu } from '../src/views/graph/input.js';
import { Exact } from '../src/views/grid/exact.js';
import { Geometry } from '../src/views/grid/geometry.js';
import type { Edit } from '../src/views/editmessages.js';
import { drawHandles, type Handle } from '../src/views/grid/ghost.js';
import { Legal, type Size } from '../src/views/grid/legal.js';
import { coresOf, dropPicture, epochsFor, placePicture, resizePicture } from '../src/views/grid/pictures.js';
import { pipesOf } from '../src/views/grid/links.js';
import { GridView } from '../src/views/grid/view.js';
import { OverridesPanel } from '../src/views/overrides.js';
import { PREFERENCES_ATTRIBUTE } from '../src/views/preferences.js';
import { StageBar } from '../src/views/stagebar.js';
import type { Overridden } from '../src/views/store.js';
import { TableView } from '../src/views/table/view.js';
import { frame } from './fixture.js';
import { editsFrame, legalFrame, live, ops } from './live.js';

const override = (more: Partial<Overridden>): Overridden => ({
  target: 'a', field: 'op_size', requested: '2x2', obtained: '2x2', state: 'obtained', because: '', python: 'pybuda.x()', matches: 1,
  names: ['a'], removable: true, enabled: true, source: 'drag', ...more
});
const SHAPES: Size[] = [[1, 1], [1, 2], [2, 1], [2, 2], [3, 2], [4, 2], [2, 4], [4, 4]];

describe('handles on the left and on top', () => {
  const op = ops.byEpoch[0]![0]!;
  const geometry = new Geometry(ops, 74);
  const from = { row: 3, col: 4, rows: 2, cols: 2 };
  const scene = (legal = new Legal(legalFrame(ops.name[op]!, [2, 2], [3, 4], SHAPES))) => ({ ops, geometry, legal });
  const drag = (handle: Handle, alt = false) => ({ op, from, handle, grip: [0, 0] as [number, number], alt, turned: false });
  /** The upper left corner of a core, in the drawing. */
  const corner = (row: number, col: number): [number, number] => [col * 74 + 1.5, geometry.box({ row, col, rows: 1, cols: 1 })[1]];

  it('keep the other side where it is, and move the start', () => {
    const picture = resizePicture(scene(), drag('nw'), corner(1, 4));
    expect(picture.wanted).toEqual({ row: 1, col: 4, rows: 4, cols: 2 });
    expect(picture.lands).toEqual({ row: 1, col: 4, rows: 4, cols: 2 });
    expect(picture.edit).toMatchObject({
      do: 'many', edits: [{ do: 'resize', size: [4, 2] }, { do: 'move', start: [1, 4], transposed: false }]
    });
    expect(picture.note).toContain('row 1, column 4');
    expect(resizePicture(scene(), drag('n'), corner(3, 0)).edit).toBeNull();
    expect(resizePicture(scene(), drag('w'), corner(0, 2)).edit).toMatchObject({ edits: [{ size: [2, 4] }, { start: [3, 2] }] });
    expect(resizePicture(scene(), drag('se'), corner(7, 6)).edit).toEqual({ do: 'resize', op: ops.name[op], size: [4, 2] });
  });

  it('snap like the others, and Alt says why not', () => {
    const snapped = resizePicture(scene(), drag('n'), corner(0, 4));
    expect([snapped.good, snapped.lands]).toEqual([false, { row: 1, col: 4, rows: 4, cols: 2 }]);
    const refused = resizePicture(scene(), drag('w', true), corner(3, 3));
    expect([refused.lands, refused.edit]).toEqual([null, null]);
    expect(refused.note).toContain('rows must divide');
  });

  it('are not stopped by the pin that they move', () => {
    const table = legalFrame(ops.name[op]!, [2, 2], [3, 4], SHAPES);
    (table.meta['reasons'] as Record<string, unknown>)['66'] = { name: 'PIN', meaning: 'beyond the grid', fix: 'move the pin' };
    const verdicts = table.column('verdict') as Uint8Array;
    verdicts[3 * 8 + 1] = 66; // 4x2
    const legal = new Legal(table);
    expect(resizePicture(scene(legal), drag('n'), corner(1, 4)).edit).toMatchObject({ edits: [{ size: [4, 2] }, { start: [1, 4] }] });
    expect(resizePicture(scene(legal), drag('s', true), corner(7, 4)).edit).toBeNull();
  });

  it('are there where the place is fixed, and on large tiles', () => {
    const names = (g: SVGGElement) => [...g.querySelectorAll('[data-tb-handle]')].map(e => e.getAttribute('data-tb-handle'));
    expect(names(drawHandles('a', geometry, { ...from, rows: 1, cols: 1 }, false))).toEqual(['e', 's', 'se']);
    expect(names(drawHandles('a', geometry, { ...from, rows: 1, cols: 1 }, true))).toEqual(['e', 's', 'w', 'n', 'se', 'sw', 'ne', 'nw']);
    expect(names(drawHandles('a', geometry, { ...from, rows: 3, cols: 3 }, false))).toHaveLength(8);
  });
});

describe('moves in time', () => {
  it('know the epochs of an op by its edges, and say which are legal', () => {
    for (let op = 0; op < ops.count; op++) {
      const [first, last] = epochsFor(ops, op);
      expect(ops.into(op).every(i => ops.epochOf(i) <= first)).toBe(true);
      expect(ops.outOf(op).every(i => ops.epochOf(i) >= last)).toBe(true);
      expect(first <= ops.epochOf(op) && ops.epochOf(op) <= last).toBe(true);
      for (let epoch = 0; epoch < ops.epochs; epoch++) {
        const picture = dropPicture({ ops, geometry: new Geometry(ops, 74), legal: null }, {
          op, from: coresOf(ops, op), handle: 'se', grip: [0, 0], alt: false, turned: false
        }, 'epoch', epoch);
        const here = ops.epochOf(op);
        if (epoch === here) expect(picture.verdict).toBe('SAME');
        else if ((epoch >= first && epoch <= last) || Math.abs(epoch - here) === 1) expect(picture.edit).toEqual({ do: 'epoch', op: ops.name[op], epoch });
        else expect([picture.verdict, picture.edit, /legal for it alone/.test(picture.note)]).toEqual(['SCHEDULE', null, true]);
      }
    }
  });
});

describe('live compiling', () => {
  afterEach(() => {
    document.body.removeAttribute(PREFERENCES_ATTRIBUTE);
    vi.useRealTimers();
  });

  it('asks for the compile where a drag rests, and takes it back when nothing comes of it', () => {
    vi.useFakeTimers();
    const { store, host } = live();
    const exact = new Exact(store, () => undefined);
    const edit: Edit = { do: 'resize', op: 'a', size: [1, 1] };
    exact.watch(edit);
    vi.advanceTimersByTime(130);
    expect(host.sent.at(-1)).toMatchObject({ type: 'probe_exact', edit });
    expect(host.sent.at(-1)).not.toHaveProperty('live');
    exact.end(true);
    document.body.setAttribute(PREFERENCES_ATTRIBUTE, JSON.stringify({ compile: 'live' }));
    exact.watch(edit);
    vi.advanceTimersByTime(130);
    expect(host.sent.at(-1)).toMatchObject({ type: 'probe_exact', live: true });
    const count = host.sent.length;
    exact.end(true);
    expect(host.sent).toHaveLength(count);
    exact.watch(edit);
    vi.advanceTimersByTime(130);
    exact.end();
    expect(host.sent.at(-1)).toEqual({ type: 'probe_end' });
    exact.dispose();
  });

  it('holds a drag while the other views show what it would make', () => {
    const { store } = live();
    const grid = new GridView(store);
    const tile = grid.element.querySelector<SVGElement>('.tb-tile')!;
    tile.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true, button: 0, pointerId: 1 }));
    expect(grid.editor.dragging).toBe(true);
    store.put(frame('ops'));
    expect([grid.editor.dragging, grid.element.contains(tile)]).toEqual([true, true]);
    grid.editor.cancel();
    expect(grid.element.contains(tile)).toBe(false);
    store.put(editsFrame({ shown: 'resize a to 1x1' }));
    expect(grid.element.querySelector('[data-tb-stale=preview]')?.getAttribute('title')).toContain('resize a to 1x1');
    grid.dispose();
  });
});

describe('the menu of a node', () => {
  it('sets formats and fidelities that are legal, and takes them back', () => {
    const name = ops.name[0]!;
    const { store, host } = live({ overrides: [override({ target: name, field: 'data_format', names: [name] })] });
    const area = document.createElement('div');
    area.dataset['tbStage'] = 'lowered';
    const node = document.createElement('button');
    node.dataset['tbOp'] = name;
    area.append(node);
    document.body.append(area);
    const menu = new NodeMenu(store, area);
    const press = (action: string) => area.querySelector<HTMLElement>(`[data-tb-action=${action}]`)!.click();
    const open = () => node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, button: 2, cancelable: true }));
    open();
    press('data-format');
    expect(host.sent.at(-1)).toEqual({ type: 'formats', op: name });
    host.say({ type: 'formats', op: name, ok: true, formats: ['Float16_b', 'Bfp8_b'], fidelities: ['LoFi', 'HiFi3'], now: ['Bfp8_b', 'HiFi3'] });
    expect(area.querySelector<HTMLButtonElement>('[data-tb-action=format-Bfp8_b]')!.disabled).toBe(true);
    press('format-Float16_b');
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'format', op: name, data_format: 'Float16_b' });
    open();
    press('data-format');
    host.say({ type: 'formats', op: name, ok: true, formats: ['Float16_b', 'Bfp8_b'], fidelities: [], now: ['Bfp8_b', 'HiFi3'] });
    press('format-free');
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'clear', op: name, kinds: ['data_format'] });
    open();
    press('fidelity');
    host.say({ type: 'formats', op: name, ok: true, formats: [], fidelities: ['LoFi', 'HiFi3'], now: ['Bfp8_b', 'HiFi3'] });
    press('fidelity-LoFi');
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'format', op: name, fidelity: 'LoFi' });
    menu.dispose();
    area.remove();
  });
});

describe('the list of overrides', () => {
  it('moves an override by arrows where its place matters, and takes orders of ops away', () => {
    const { store, host } = live({ overrides: [
      override({ field: 'math_fidelity', at: 0, order: true }), override({ field: 'math_fidelity', target: '/.*/', at: 1, order: true, removable: false }),
      override({ at: 2, order: false }), override({ target: 'a, b', field: 'schedule_constraint', ops: ['a', 'b'], removable: false, at: 3, order: false })
    ] });
    const panel = new OverridesPanel(store);
    document.body.append(panel.element);
    const grips = panel.element.querySelectorAll<HTMLElement>('[data-tb-action=order-override]');
    expect(grips).toHaveLength(2);
    const arrow = (key: string) => new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true });
    grips[0]!.dispatchEvent(arrow('ArrowUp'));
    expect(host.sent.filter(m => m['type'] === 'edit')).toHaveLength(0);
    grips[0]!.dispatchEvent(arrow('ArrowDown'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'reorder', at: 0, to: 1 });
    panel.element.querySelector<HTMLElement>('[data-tb-at="3"] [data-tb-action=remove-override]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'constrain', ops: ['a', 'b'], on: false });
    panel.dispose();
    panel.element.remove();
  });

  it('offers to import where there are none', () => {
    const { store } = live();
    const panel = new OverridesPanel(store);
    expect(panel.element.querySelector('[data-tb-action=overrides-import]')).not.toBeNull();
    panel.dispose();
  });
});

describe('breaking a run', () => {
  it('is switched, and told to all', () => {
    const { store, host } = live();
    const bar = new StageBar(store);
    const brake = () => bar.element.querySelector<HTMLElement>('[data-tb-action=run-break]')!;
    brake().click();
    expect(host.sent.at(-1)).toEqual({ type: 'break_on_failure', on: true });
    host.say({ type: 'status', status: store.status, breaks: true });
    expect(brake().getAttribute('aria-pressed')).toBe('true');
    brake().click();
    expect(host.sent.at(-1)).toEqual({ type: 'break_on_failure', on: false });
    bar.element.querySelector<HTMLElement>('[data-tb-action=run-step-op]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'step', of: 'op' });
    bar.dispose();
  });
});

describe('the table beside the grid', () => {
  it('says of every op of the epoch what the picture shows', () => {
    const { store } = live();
    const grid = new GridView(store);
    const table = grid.element.querySelector('[data-tb-table]')!;
    expect(table.getAttribute('role')).toBe('grid');
    const heads = [...table.querySelectorAll('[role=rowheader]')].map(e => e.textContent);
    expect(heads).toEqual(ops.byEpoch[0]!.map(op => ops.name[op]));
    expect(table.textContent).toContain(ops.where(ops.byEpoch[0]![0]!));
    if (ops.epochs > 1) {
      store.setEpoch(1);
      expect(grid.element.querySelectorAll('[data-tb-table="1"] [role=rowheader]')).toHaveLength(ops.byEpoch[1]!.length);
    }
    grid.dispose();
  });
});

describe('what is in the way of a drop', () => {
  const epoch = ops.byEpoch.findIndex(list => list.length > 2);
  const sizes = (op: number) => coresOf(ops, op);
  const [op, other] = ops.byEpoch.flatMap(list => list.flatMap(a => list.filter(
    b => b !== a && sizes(a).rows === sizes(b).rows && sizes(a).cols === sizes(b).cols).map(b => [a, b] as const)))[0]!;
  const from = sizes(op);
  const [row, col] = [sizes(other).row, sizes(other).col];
  const taken: Size[] = [];
  for (let r = 0; r < from.rows; r++) for (let c = 0; c < from.cols; c++) taken.push([row + r, col + c]);
  const drop = (displacement: 'free' | 'push' | 'swap' | 'evict') => placePicture({
    ops, geometry: new Geometry(ops, 74), displacement,
    legal: new Legal(legalFrame(ops.name[op]!, [from.rows, from.cols], [from.row, from.col], [[from.rows, from.cols]], 1, false, taken))
  }, { op, from, handle: 'se', grip: [0, 0], alt: false, turned: false }, row, col);

  it('makes the op take a free place, the others room, or both change places', () => {
    expect(epoch).toBeGreaterThanOrEqual(0);
    expect([drop('free').good, drop('free').verdict]).toEqual([false, 'TAKEN']);
    expect(drop('push').edit).toMatchObject({ do: 'move', op: ops.name[op], start: [row, col] });
    expect(drop('swap').edit).toMatchObject({ do: 'many', edits: [
      { do: 'move', op: ops.name[op], start: [row, col] }, { do: 'move', op: ops.name[other], start: [from.row, from.col] }
    ] });
    const out = drop('evict');
    if (ops.epochOf(op) + 1 < ops.epochs) {
      expect(out.edit).toMatchObject({ do: 'many', edits: [{ do: 'epoch', op: ops.name[other], epoch: ops.epochOf(op) + 1 }, { do: 'move', start: [row, col] }] });
    } else expect(out.verdict).toBe('TAKEN');
  });
});

describe('pipes', () => {
  it('are the edges within the epoch that carry enough, of all ops or of those selected', () => {
    const epoch = 0;
    const inside = (ops.byEpoch[epoch] ?? []).flatMap(a => [...new Set(ops.outOf(a))].filter(b => ops.epochOf(b) === epoch).map(b => [a, b]));
    const all = pipesOf(ops, epoch, 'all', new Set(), 0);
    expect(all.map(([a, b]) => [a, b])).toEqual(inside);
    expect(inside.length).toBeGreaterThan(0);
    const most = Math.max(...all.map(p => p[2]));
    expect(pipesOf(ops, epoch, 'all', new Set(), most).every(p => p[2] === most)).toBe(true);
    const [a, b] = inside[0]!;
    expect(pipesOf(ops, epoch, 'selected', new Set([b!]), 0).some(p => p[0] === a)).toBe(true);
    expect(pipesOf(ops, epoch, 'selected', new Set(), 0)).toEqual([]);
    expect(pipesOf(ops, epoch, 'none', new Set([a!]), 0)).toEqual([]);
  });

  it('and what is in the way, are traits of the view', () => {
    const { store, host } = live();
    const grid = new GridView(store);
    expect(grid.element.querySelector('[data-tb-pipe]')).toBeNull();
    host.set('show_pipes', 'all');
    expect(grid.element.querySelectorAll('[data-tb-pipe]').length).toBe(pipesOf(ops, 0, 'all', new Set(), 0).length);
    const choice = grid.element.querySelector<HTMLSelectElement>('[data-tb-action=show_pipes]')!;
    choice.value = 'none';
    choice.dispatchEvent(new Event('change'));
    expect([host.get('show_pipes'), grid.element.querySelector('[data-tb-pipe]')]).toEqual(['none', null]);
    host.set('edit', false);
    expect(store.edits).toBeNull();
    grid.dispose();
  });
});

describe('what Python tells tables and lists', () => {
  it('is which columns, in which order, and which rows', () => {
    const { store, host } = live();
    host.set('filter', 'matmul');
    host.set('sort', '-cycles');
    const table = new TableView(store);
    const shown = () => [...table.element.querySelectorAll<HTMLElement>('.tb-rows [data-tb-op]')].map(e => e.dataset['tbOp']!);
    const heads = () => [...table.element.querySelectorAll('[data-tb-action^=sort-]')].map(e => e.getAttribute('data-tb-action'));
    expect(table.element.querySelector('[aria-sort=descending] > button')?.getAttribute('data-tb-action')).toBe('sort-cycles');
    expect(shown().every(name => `${name} ${ops.type[ops.indexOf.get(name)!]!}`.includes('matmul'))).toBe(true);
    const all = heads().length;
    host.set('columns', ['cycles', 'name', 'nonsense']);
    expect(heads()).toEqual(['sort-cycles', 'sort-name']);
    host.set('columns', []);
    expect(heads()).toHaveLength(all);
    table.dispose();
  });

  it('is the code of the overrides', () => {
    const { store, host } = live({ overrides: [override({})] });
    host.set('show_code', 'json');
    const panel = new OverridesPanel(store);
    expect([host.sent.at(-1), panel.element.querySelector('[data-tb-code=json]') !== null]).toEqual([{ type: 'code' }, true]);
    host.set('show_code', '');
    expect(panel.element.querySelector('[data-tb-override]')).not.toBeNull();
    panel.dispose();
  });
});
