import { describe, expect, it } from 'vitest';
import { MOST_BYTES, mountPreview, PreviewError, previewFrames } from '../src/lab/preview.js';
import { Ops } from '../src/views/ops.js';
import { DEFAULTS, publishPreferences } from '../src/views/preferences.js';
import { isDark } from '../src/views/theme.js';
import { longTime, saidTime, shortTime } from '../src/views/numbers.js';

const TEXT = `devices:
  arch: grayskull
queues:
  x: {input: HOST, type: queue, entries: 2, grid_size: [2, 1], t: 3, mblock: [2, 2], ublock: [1, 4], df: Float16_b, target_device: 0, loc: dram}
graphs:
  g0:
    target_device: 0
    input_count: 1
    first: {type: nop, grid_loc: [0, 1], grid_size: [2, 3], inputs: [x],
         t: 1, mblock: [1, 2], ublock: [1, 1], out_df: Float16_b, attributes: {m_k: 4, u_kt: 2}}
  g1:
    target_device: 1
    input_count: 1
    second: {type: exp, grid_loc: [3, 4], grid_size: [1, 2], grid_transpose: true, inputs: [first], t: 1, mblock: [1, 1], ublock: [1, 1]}
programs:
  - run:
    - execute: {graph_name: g0}
`;

describe('a netlist without a kernel', () => {
  it('reads places, blocks and readers off the file', () => {
    const frames = new Map(previewFrames(TEXT, 'a.yaml').map(f => [f.key, f]));
    const ops = new Ops(frames.get('ops')!);
    expect([ops.rows, ops.cols, ops.name]).toEqual([10, 12, ['first', 'second']]);
    expect(ops.byEpoch).toEqual([[0], [1]]);
    expect(['row', 'col', 'rows', 'cols'].map(k => ops.get(k, 0))).toEqual([0, 1, 2, 3]);
    expect(['row', 'col', 'rows', 'cols'].map(k => ops.get(k, 1))).toEqual([3, 4, 2, 1]);
    expect([ops.get('m_k', 0), ops.get('u_kt', 0), ops.get('mblock_n', 0), ops.get('cores', 0)]).toEqual([4, 2, 2, 6]);
    expect([ops.ofEpoch('chip', 1), ops.outOf(0), ops.into(1)]).toEqual([1, [1], [0]]);
    const queues = frames.get('queues')!;
    expect([queues.text('queue_name'), queues.text('queue_readers'), queues.text('queue_shape')]).toEqual([['x'], ['first'], ['3×4×8']]);
    const text = frames.get('netlist')!;
    expect(text.text('entry_name')).toEqual(['x', 'first', 'second']);
    expect([...text.column('entry_line')].map(k => TEXT.split('\n')[k]!.trim().split(':')[0])).toEqual(['x', 'first', 'second']);
    expect(text.column('entry_lines')[1]).toBe(2);
    expect(new TextDecoder().decode(frames.get('programs')!.column('text'))).toContain('execute: {graph_name: g0}');
  });

  it('draws it', () => {
    const { root, dispose } = mountPreview(TEXT, 'a.yaml');
    expect([...root.querySelectorAll('.tb-tile')].map(e => (e as SVGElement).dataset['tbOp'])).toEqual(['first']);
    dispose();
  });

  it.each([
    ['an open list', 'a: [1', 'Not YAML'], ['other YAML', 'just: yaml', 'not a netlist'], ['a list', '- 1', 'not a netlist'],
    ['nothing', '', 'Not YAML'], ['too much', `graphs: {}\n#${'x'.repeat(MOST_BYTES)}`, '4 MB'],
    ['a function', 'x: !!js/function "function () {}"', 'Not YAML']
  ])('says why there is none: %s', (_, text, why) => {
    expect(() => previewFrames(text, 'a.yaml')).toThrow(PreviewError);
    expect(() => previewFrames(text, 'a.yaml')).toThrow(why);
  });

  it.each(['graphs: 7', 'graphs: {g: 1}', 'graphs: {g: {o: {type: nop, grid_loc: x, grid_size: [1e9, -4], inputs: 3}}}', 'queues: {q: null}'])(
    'survives nonsense: %s', text => {
      expect(previewFrames(text, 'a.yaml').map(f => f.key)).toContain('queues');
    });
});

describe('preferences', () => {
  it('turn cycles into time at the clock, and the views dark', () => {
    publishPreferences(DEFAULTS);
    expect([shortTime(31_000, 1.2e9), longTime(31_000, 1.2e9), saidTime(31_000, 1.2e9)]).toEqual(['31.0k', '31,000 cycles', '31.0k cycles']);
    publishPreferences({ ...DEFAULTS, units: 'us', theme: 'dark' });
    expect([shortTime(31_000, 1.2e9), longTime(1_200, 1.2e9), longTime(1_200_000, 1.2e9)]).toEqual(['25.8 µs', '1.00 µs', '1,000 µs']);
    expect(isDark()).toBe(true);
    publishPreferences({ ...DEFAULTS, theme: 'light' });
    document.body.dataset['jpThemeLight'] = 'false';
    expect(isDark()).toBe(false);
    publishPreferences(DEFAULTS);
    expect(isDark()).toBe(true);
    delete document.body.dataset['jpThemeLight'];
  });
});
