/** Frames made by hand, column by column. */
import { Frame } from '../src/views/frame.js';

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array } as const;

/** Columns are [name, type, values]; text columns have the type "text". */
export function handFrame(key: string, meta: Record<string, unknown>, columns: [string, string, (number | string)[]][]): Frame {
  const strings = [''];
  let offset = 0;
  const parts: [number, ArrayBufferLike][] = [];
  const described = columns.map(([name, type, values]) => {
    const dtype = type === 'text' ? 'u4' : type;
    const numbers = type === 'text' ? values.map(v => strings.push(String(v)) - 1) : (values as number[]);
    const array = ARRAYS[dtype as keyof typeof ARRAYS].from(numbers);
    parts.push([offset, array.buffer]);
    const entry = { name, dtype, offset, length: values.length };
    offset += array.byteLength + ((8 - (array.byteLength % 8)) % 8);
    return entry;
  });
  const whole = new Uint8Array(offset);
  parts.forEach(([at, buffer]) => whole.set(new Uint8Array(buffer), at));
  return new Frame({ key, meta, strings, columns: described }, whole.buffer);
}
