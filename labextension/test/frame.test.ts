import { deflateSync } from 'node:zlib';
import { describe, expect, it, vi } from 'vitest';
import { Assembler, Frame, type FrameHeader } from '../src/views/frame.js';
import { Store } from '../src/views/store.js';
import { frame } from './fixture.js';
import { LiveHost } from './live.js';

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
    expect([...(f as Frame).column('n')]).toEqual([1, 2, 1]);
  });

  it('drops chunks of an older revision', () => {
    const a = new Assembler();
    const view = new DataView(buffer().buffer);
    expect(a.add(chunk(0, 2, 5), [view])).toBeNull();
    expect(a.add(chunk(1, 2, 4), [view])).toBeNull();
    expect(a.add(chunk(0, 1, 6), [view])).not.toBeNull();
  });

  it('inflates a frame that came compressed, in pieces', async () => {
    const text = new TextEncoder().encode(JSON.stringify(header));
    const head = new Uint8Array(8 * Math.ceil((4 + text.length) / 8)).fill(32);
    new DataView(head.buffer).setUint32(0, text.length, true);
    head.set(text, 4);
    const packed = deflateSync(Buffer.concat([head, buffer()]), { level: 1 });
    const a = new Assembler();
    const give = (index: number, data: Uint8Array) =>
      a.add({ type: 'frame', key: 'k', rev: 1, chunk: [index, 2], deflated: true }, [new DataView(Uint8Array.from(data).buffer)]);
    expect(give(0, packed.subarray(0, packed.length >> 1))).toBeNull();
    const f = await give(1, packed.subarray(packed.length >> 1));
    expect(f && [...f.column('n')]).toEqual([1, 2, 1]);
    expect(f?.text('n')).toEqual(['a', 'b', 'a']);
  });
});

describe('Store', () => {
  it('keeps the order of messages while a frame inflates, and asks for it as it is where it cannot', async () => {
    const host = new LiveHost();
    const store = new Store(host);
    const seen: string[] = [];
    store.on('frame', key => seen.push(`frame ${key}`));
    store.on('answer', text => seen.push(text));
    vi.spyOn(console, 'error').mockImplementation(() => undefined);
    host.say({ type: 'frame', key: 'k', rev: 3, chunk: [0, 1], deflated: true }); // nothing in it
    host.say({ type: 'edited', ok: true, text: 'done' });
    expect(seen).toEqual([]);
    await vi.waitFor(() => expect(seen).toEqual(['done']), { timeout: 30_000 });
    expect(host.sent.at(-1)).toEqual({ type: 'hello', have: {}, inflates: false });
  });

  it('loses nothing of what comes while a placement is drawn, and mixes nothing up', async () => {
    const host = new LiveHost();
    const store = new Store(host);
    const seen: string[] = [];
    const inflating = (key: string, rev: number) => {
      const text = new TextEncoder().encode(JSON.stringify({ ...header, key }));
      const head = new Uint8Array(8 * Math.ceil((4 + text.length) / 8)).fill(32);
      new DataView(head.buffer).setUint32(0, text.length, true);
      head.set(text, 4);
      const packed = deflateSync(Buffer.concat([head, buffer()]), { level: 1 });
      host.say({ type: 'frame', key, rev, chunk: [0, 1], deflated: true }, [new DataView(Uint8Array.from(packed).buffer)]);
    };
    let later: string[] = ['netlist', 'trace', 'fills'];
    store.on('frame', key => {
      seen.push(key);
      if (key === 'ops') setTimeout(() => { // between this picture and the next frame of the screen
        later.forEach((one, k) => inflating(one, 2 + k));
        later = [];
        host.say({ type: 'edited', ok: true, text: 'done' });
      }, 0);
    });
    store.on('answer', text => seen.push(text));
    inflating('ops', 1);
    await vi.waitFor(() => expect(seen).toEqual(['ops', 'netlist', 'trace', 'fills', 'done']), { timeout: 30_000 });
  });
});
