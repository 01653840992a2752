import { describe, expect, it } from 'vitest';
import { elide, short } from '../src/views/dom.js';
import { drawEpoch, Rows } from '../src/views/grid/draw.js';
import { cutName, distinctNames, fitting, LostSelection, Matcher, original, shortName, layerOf, layersOf } from '../src/views/names.js';
import { Ops } from '../src/views/ops.js';
import { frame, handFrame } from './fixture.js';
import { editsFrame, live, ops } from './live.js';

describe('names', () => {
  it('finds the original of a decomposed op', () => {
    expect(original('a.softmax.dc.exp.2')).toBe('a.softmax');
    expect(original('a.matmul')).toBe('a.matmul');
  });

  it('maps a selection to the stage shown', () => {
    const lowered = new Matcher(['q', 'soft.dc.exp.0', 'soft.dc.multiply.1']);
    expect(lowered.find(['soft'])).toEqual([1, 2]);
    expect(lowered.find(['soft.dc.exp.0'])).toEqual([1]);
    expect(new Matcher(['q', 'soft']).find(['soft.dc.exp.0'])).toEqual([1]);
    expect(lowered.find(['gone'])).toEqual([]);
  });

  it('shortens names for tiles', () => {
    expect(shortName('layer.0.self.query.matmul')).toBe('query.matmul');
    expect(shortName('l.LayerNorm.layernorm.dc.reduce_avg.3')).toBe('layernorm.reduce_avg');
    expect(shortName('blocks.0.conv1.conv2d.dc.conv2d_rows.1.lc1')).toBe('conv1.conv2d_rows.lc1');
    expect(fitting(shortName('l.LayerNorm.layernorm.dc.reduce_avg.3'), 10)).toBe('reduce_avg');
    expect(fitting('down.matmul', 10, false)).toBe('down.matmul'); // another op ends alike: the caller cuts it
    expect(elide('abcdefghij', 5)).toHaveLength(5);
    expect(elide('abcdefghij', 5).startsWith('a')).toBe(true);
  });

  it('tells ops of an epoch apart', () => {
    const layer = (i: number) => [`layer.${i}.intermediate.dense.matmul`, `layer.${i}.output.dense.matmul`, `layer.${i}.output.add`];
    expect(distinctNames(layer(4))).toEqual(['intermediate.dense.matmul', 'output.dense.matmul', 'output.add']);
    expect(distinctNames(['n.layernorm.dc.add.10', 'n.layernorm.dc.add.4'])).toEqual(['layernorm.add.10', 'layernorm.add.4']);
    expect(distinctNames([4, 5].map(i => `layer.${i}.attention.self.key.matmul`))).toEqual(['layer.4…key.matmul', 'layer.5…key.matmul']);
    expect(distinctNames(['up.matmul', 'down.matmul'])).toEqual(['up.matmul', 'down.matmul']);
    const all = [...layer(4), ...layer(5), 'x', 'matmul', 'a.b.c.d.e.f', 'a.b.x.d.e.f', 'q.b.x.d.e.f', 'q.b.c.d.e.f'];
    expect(new Set(distinctNames(all)).size).toBe(all.length);
  });

  it('writes on tiles and in the head what tells them apart', () => {
    const names = ['a.up.matmul', 'a.down.matmul', 'b.down.matmul', 'c.gelu'];
    const four = new Ops(handFrame('ops', { rows: 1, cols: 4, device: 'x', harvested: [], physical: [0], l1: 1, clock_hz: 1, total_cycles: 1, chips: [0] }, [
      ['op_name', 'text', names], ['op_type', 'text', names.map(() => 'matmul')],
      ...['module', 'location', 'df', 'fidelity', 'stream'].map((c): [string, string, string[]] => [`op_${c}`, 'text', names.map(() => '')]),
      ['op_epoch', 'u4', [0, 0, 0, 0]], ['op_row', 'u2', [0, 0, 0, 0]], ['op_col', 'u2', [0, 1, 2, 3]], ['op_rows', 'u2', [1, 1, 1, 1]], ['op_cols', 'u2', [1, 1, 1, 1]],
      ['op_cycles', 'f8', [4, 3, 2, 1]], ['edge_source', 'u4', []], ['edge_target', 'u4', []], ['epoch_chip', 'u2', [0]], ['epoch_cycles', 'f8', [4]]
    ]));
    expect(names.map((_, i) => four.short(i))).toEqual(['up.matmul', 'a.down.matmul', 'b.down.matmul', 'c.gelu']);
    expect(names.map((_, i) => four.told(i))).toEqual([false, false, false, true]);
    const said = [...drawEpoch(four, 0, 'load', false).querySelectorAll('.tb-tile')].map(t => t.querySelector('.tb-name')?.textContent);
    expect(new Set(said).size).toBe(4);
  });

  it('cuts a name to what tells it from the others, or not at all', () => {
    const others = ['0.query.matmul', '0.value.matmul', '0.norm.layernorm.add.4'];
    expect(cutName('0.key.matmul', 20, others)).toBe('0.key.matmul');
    expect(cutName('0.key.matmul', 10, others)).toBe('key.matmul'); // no other ends alike
    expect(cutName('0.key.matmul', 6, others)).toBe('key.m…'); // and without the layer, which all have
    expect(cutName('0.norm.layernorm.add.10', 7, others)).toBe('add.10');
    expect(cutName('0.norm.layernorm.add.10', 5, others)).toBe(null); // "add…" would be two ops
    expect(cutName('block.aaaa', 6, ['block.aaab'])).toBe('aaaa');
    expect(cutName('longword', 3, ['other'])).toBe(null);
    const names = ['0.up.matmul', '1.up.matmul', '0.down.matmul', '1.down.matmul'];
    for (const room of [4, 5, 6, 7, 8, 9]) {
      const cuts = names.map(name => cutName(name, room, names.filter(other => other !== name))).filter(Boolean);
      expect(new Set(cuts).size).toBe(cuts.length);
      expect(cuts.every(cut => cut!.length <= room)).toBe(true);
    }
  });

  it('writes numbers short', () => {
    expect(short(950)).toBe('950');
    expect(short(12_345)).toBe('12.3k');
    expect(short(902_000)).toBe('902k');
    expect(short(5e7)).toBe('50.0M');
  });
});

describe('Rows', () => {
  it('keeps logical rows in order and puts harvested strips where they lie', () => {
    const rows = new Rows([1, 3, 4], [2], 10, 4);
    expect(rows.top).toEqual([0, 14, 24]);
    expect(rows.strips).toEqual([{ y: 10, row: 2 }]);
    expect(rows.span(0, 2, 10)).toEqual([0, 24]);
    expect(rows.height).toBe(34);
  });

  it('keeps the words of a tile off harvested strips and inside the tile', () => {
    for (const [physical, harvested] of [[[1, 3], [2]], [[1, 2, 4], [3]], [[2, 3, 4, 6], [1, 5]]] as const) {
      const rows = physical.length;
      const ops = new Ops(handFrame('ops', { rows, cols: 2, device: 'x', harvested, physical, l1: 1, clock_hz: 1, total_cycles: 1, chips: [0] }, [
        ...['name', 'type', 'module', 'location', 'df', 'fidelity', 'stream'].map((c): [string, string, string[]] => [`op_${c}`, 'text', [c === 'type' ? 'fused_op' : 'softmax.exp']]),
        ['op_epoch', 'u4', [0]], ['op_row', 'u2', [0]], ['op_col', 'u2', [0]], ['op_rows', 'u2', [rows]], ['op_cols', 'u2', [2]], ['op_cycles', 'f8', [8432]],
        ['edge_source', 'u4', []], ['edge_target', 'u4', []], ['epoch_chip', 'u2', [0]], ['epoch_cycles', 'f8', [8432]]
      ]));
      const picture = drawEpoch(ops, 0, 'load', false, 74, false, { least: 0.8, best: 1.3 });
      const number = (e: Element, a: string) => Number(e.getAttribute(a));
      const body = picture.querySelector('.tb-body')!;
      const strips = [...picture.querySelectorAll('[data-tb-harvested] rect')].map(r => [number(r, 'y'), number(r, 'height')]);
      const said = [...picture.querySelectorAll('.tb-tile text')];
      expect(said.map(t => t.textContent)).toContain('8.4k');
      for (const base of said.map(t => number(t, 'y'))) {
        expect(base - 12).toBeGreaterThanOrEqual(number(body, 'y'));
        expect(base + 2).toBeLessThanOrEqual(number(body, 'y') + number(body, 'height'));
        for (const [y, high] of strips) expect(base + 2 <= y! || base - 12 >= y! + high!).toBe(true);
      }
    }
  });
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

describe('layers', () => {
  it('are numbers under which at least three ops stand that differ in the number alone', () => {
    const names = ['m.0.up', 'm.1.up', 'm.2.up', 'm.0.first', 'm.1.down', 'm.2.down', 'm.3.down', 'head.matmul', 'x.7'];
    expect([...layersOf(names)]).toEqual([[0, [0]], [1, [1, 4]], [2, [2, 5]], [3, [6]]]);
    expect(['m.12.up', 'layer_3.x', 'conv1.x', 'x'].map(layerOf)).toEqual([12, 3, -1, -1]);
  });
});
