import { describe, expect, it } from 'vitest';

import { Assembler, Frame, type FrameHeader } from '../src/views/frame.js';
import { frame } from './fixture.js';

const header: FrameHeader = {
  key: 'k', meta: {}, strings: ['', 'a', 'b'],
  columns: [{ name: 'n', dtype: 'u4', offset: 0, length: 3 }, { name: 'x', dtype: 'f8', offset: 16, length: 1 }]
};

function buffer(): Uint8Array {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  [1, 2, 1].forEach((v, i) => view.setUint32(4 * i, v, true));
  view.setFloat64(16, 2.5, true);
  return bytes;
}

describe('Frame', () => {
  it('reads columns and strings without copying', () => {
    const f = new Frame(header, buffer().buffer as ArrayBuffer);
    expect([...f.column('n')]).toEqual([1, 2, 1]);
    expect(f.text('n')).toEqual(['a', 'b', 'a']);
    expect(f.column('x')[0]).toBe(2.5);
  });

  it('refuses a column that it does not have, cannot hold, or does not know', () => {
    const f = new Frame(header, buffer().buffer as ArrayBuffer);
    expect(() => f.column('y')).toThrow(/no column y/);
    expect(() => new Frame(header, new ArrayBuffer(8))).toThrow(/reaches past/);
    const odd = { ...header, columns: [{ name: 'n', dtype: 'c8', offset: 0, length: 1 }] };
    expect(() => new Frame(odd, new ArrayBuffer(8))).toThrow(/unknown type/);
  });

  it('agrees with what the kernel packed', () => {
    const ops = frame('ops');
    expect(ops.column('op_row').length).toBe(ops.column('op_name').length);
    expect(ops.text('op_name')[0]).toBe('layer.0.attention.self.query.matmul');
  });
});

describe('Assembler', () => {
  const chunk = (index: number, count: number, rev = 1) => ({
    type: 'frame', key: 'k', rev, chunk: [index, count], ...(index === 0 ? { header } : {})
  });

  it('joins chunks in any order, whatever their offset in a larger buffer', () => {
    const bytes = buffer();
    const padded = new Uint8Array(40);
    padded.set(bytes, 8);
    const a = new Assembler();
    expect(a.add(chunk(1, 2), [new DataView(padded.buffer, 18, 14)])).toBeNull();
    const f = a.add(chunk(0, 2), [new DataView(padded.buffer, 8, 10)]);
    expect(f && [...f.column('n')]).toEqual([1, 2, 1]);
  });

  it('drops chunks of an older revision', () => {
    const a = new Assembler();
    const view = new DataView(buffer().buffer);
    expect(a.add(chunk(0, 2, 5), [view])).toBeNull();
    expect(a.add(chunk(1, 2, 4), [view])).toBeNull();
    expect(a.add(chunk(0, 1, 6), [view])).not.toBeNull();
  });
});
