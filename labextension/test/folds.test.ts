/** What repeats is shown once: ops of layers, epochs; panes that resize; the grid seen closer. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { stemOf, turnsOf } from '../src/views/names.js';
import { letterSizes } from '../src/views/grid/draw.js';
import { Viewport } from '../src/views/grid/geometry.js';
import { Ops } from '../src/views/ops.js';
import { splitter } from '../src/views/docks.js';
import { foldedRows } from '../src/views/table/rows.js';
import { handFrame } from './fixture.js';

const META = { rows: 2, cols: 8, device: 'x', harvested: [], physical: [0, 1], l1: 1, clock_hz: 1, total_cycles: 1, chips: [0] };

/** A chain of ops, each in an epoch, at the column that is given. */
function chain(...named: [name: string, epoch: number, col: number][]): Ops {
  return withDirections(undefined, ...named);
}

function withDirections(directions: string[] | undefined, ...named: [name: string, epoch: number, col: number][]): Ops {
  const column = (name: string, type: string, values: (string | number)[]): [string, string, (string | number)[]] => [name, type, values];
  const epochs = 1 + Math.max(...named.map(([, epoch]) => epoch));
  const of = (n: number, value: number) => Array.from({ length: n }, () => value);
  return new Ops(handFrame('ops', { ...META, directions }, [
    column('op_name', 'text', named.map(([name]) => name)),
    ...['type', 'module', 'location', 'df', 'fidelity', 'stream'].map(c => column(`op_${c}`, 'text', named.map(() => 'matmul'))),
    column('op_epoch', 'u4', named.map(([, epoch]) => epoch)), column('op_col', 'u2', named.map(([, , col]) => col)),
    column('op_row', 'u2', of(named.length, 0)), column('op_rows', 'u2', of(named.length, 1)), column('op_cols', 'u2', of(named.length, 1)),
    column('op_cycles', 'f8', of(named.length, 1)), column('edge_source', 'u4', []), column('edge_target', 'u4', []),
    column('epoch_chip', 'u2', of(epochs, 0)), column('epoch_cycles', 'f8', of(epochs, 1))
  ] as never));
}

describe('the part of the model that an epoch belongs to', () => {
  const of = (...directions: string[]) => {
    const ops = withDirections(directions, ...directions.map((_, k): [string, number, number] => [`op_${k}`, k, 0]));
    return directions.map((_, k) => ops.phaseOf(k));
  };

  it('is a step of training, or a subgraph, and nothing where all are one', () => {
    expect(of('fwd', 'bwd', 'opt')).toEqual(['forward', 'backward', 'optimizer']);
    expect(of('fwd', 'fwd', 'fwd_1', 'fwd_12')).toEqual(['subgraph 0', 'subgraph 0', 'subgraph 1', 'subgraph 12']);
    expect(of('fwd', 'fwd')).toEqual(['', '']);
  });
});

describe('stems', () => {
  it('have a star for the layer, and for nothing else', () => {
    expect(['layer.12.dense.matmul', 'h.3.softmax.dc.exp.2', 'block_7', 'conv2d.weight', 'plain'].map(stemOf))
      .toEqual(['layer.*.dense.matmul', 'h.*.softmax.dc.exp.2', 'block_*', 'conv2d.weight', 'plain']);
  });
});

describe('epochs', () => {
  it('fold where the same few come three times, whatever stands around them', () => {
    const turns = (pairs: [string, number][]) => turnsOf(chain(...pairs.map(([name, col], epoch): [string, number, number] => [name, epoch, col])));
    const body: [string, number][] = [0, 1, 2].flatMap((k): [string, number][] => [[`layer.${k}.a`, 1], [`layer.${k}.b`, 2]]);
    expect(turns([['stem', 0], ...body, ['head', 0]])).toEqual([{ first: 1, period: 2, times: 3 }]);
    expect(turns(body.slice(0, 5))).toEqual([]); // twice and a half
    expect(turns([['layer.0.a', 1], ['layer.1.a', 2], ['layer.2.a', 3]])).toEqual([]); // other places
  });
});

describe('rows of the table', () => {
  const ops = chain(['layer.0.a', 0, 0], ['layer.0.b', 0, 1], ['layer.1.a', 0, 2], ['layer.1.b', 0, 3], ['layer.2.a', 0, 4], ['head', 0, 5]);

  it('are one for the ops of three layers, and all of them once it is opened', () => {
    const shown = (order: number[], open: string[] = []) => foldedRows(ops, order, new Set(open)).map(row => [row.op, row.alike?.length ?? 0]);
    expect(shown([0, 1, 2, 3, 4, 5])).toEqual([[0, 3], [1, 0], [3, 0], [5, 0]]); // b comes twice only
    expect(shown([4, 2, 0])).toEqual([[4, 3]]); // the first of the order stands for all
    expect(shown([0, 2, 4, 5], ['layer.*.a'])).toEqual([[0, 3], [2, 0], [4, 0], [5, 0]]);
  });
});

describe('letters on the grid', () => {
  it('are never below 11 px, however small the grid is drawn or large it is seen', () => {
    const ops = chain(['a', 0, 0]);
    for (const [width, height, zoom] of [[300, 80, 1], [900, 400, 1], [900, 400, 6], [120, 40, 1]] as const) {
      const { least, best } = letterSizes(ops, 74, width, height, zoom);
      const scale = zoom * Math.min(width / (30 + 8 * 74 + 6), height / (2 * 46 + 26));
      expect(10 * least * scale).toBeCloseTo(11.2);
      expect(best).toBeGreaterThanOrEqual(least);
      expect(10.8 * best * scale).toBeLessThan(24);
    }
  });
});

describe('the lens', () => {
  afterEach(() => vi.unstubAllGlobals());

  it('zooms around the middle, pans within the grid, and shows all of it again', () => {
    vi.stubGlobal('requestAnimationFrame', (f: () => void) => (f(), 1));
    const plane = document.createElement('div');
    const drawing = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    drawing.setAttribute('viewBox', '0 0 800 400');
    let changed = 0;
    const lens = new Viewport(plane, () => changed++);
    lens.redrawn(drawing);
    const box = () => drawing.getAttribute('viewBox')!.split(' ').map(Number);
    lens.step(1);
    const [x, y, w, h] = box() as [number, number, number, number];
    expect([changed, x + w / 2, y + h / 2]).toEqual([1, expect.closeTo(400), expect.closeTo(200)]);
    expect(w).toBeLessThan(800);
    lens.reveal(0, 0, 10, 10);
    expect(box()[0]).toBeLessThanOrEqual(0);
    for (let k = 0; k < 20; k++) lens.step(1);
    expect(plane.dataset['tbZoom']).toBe('8.00');
    lens.fit();
    expect(box()).toEqual([0, 0, 800, 400]);
    lens.dispose();
  });
});

describe('a bar between panes', () => {
  afterEach(() => localStorage.clear());

  it('moves by keys within its range, is remembered, and goes back by a double click', () => {
    const made = () => {
      const room = document.createElement('div');
      const bar = splitter(room, { name: 'x', label: 'Width', across: true, share: 0.5, range: [0.2, 0.8] });
      return { bar, share: () => Number(room.style.getPropertyValue('--tb-share-x')) };
    };
    const { bar, share } = made();
    const key = (name: string) => bar.dispatchEvent(new KeyboardEvent('keydown', { key: name }));
    expect([share(), bar.getAttribute('aria-valuenow')]).toEqual([0.5, '50']);
    key('ArrowRight');
    key('ArrowUp'); // not its direction
    expect(share()).toBeCloseTo(0.52);
    expect(made().share()).toBeCloseTo(0.52);
    for (let k = 0; k < 40; k++) key('ArrowLeft');
    expect(share()).toBe(0.2);
    bar.dispatchEvent(new MouseEvent('dblclick'));
    expect(share()).toBe(0.5);
    localStorage.setItem('tbuda-lab:panes', '{"x": "wide"');
    expect(made().share()).toBe(0.5);
  });
});
