/**
 * What the tests show: frames as the kernel packs them (`tests/widgets/fixture.json` is written and checked by the
 * Python tests), frames made by hand, and a host that records what a page sends.
 */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Frame, type FrameHeader } from '../src/views/frame.js';
import { StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';

export interface Fixture {
  frames: { header: FrameHeader; data: string }[];
  layouts: { open: number[]; direction: 'TB' | 'LR'; words: boolean; size: [number, number]; boxes: [number, number, number, number, number][] }[];
}

const path = resolve(import.meta.dirname, '../../tests/widgets/fixture.json');
export const fixture = JSON.parse(readFileSync(path, 'utf-8')) as Fixture;

export function frames(): Frame[] {
  return fixture.frames.map(({ header, data }) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    return new Frame(header, bytes.buffer);
  });
}

export function frame(key: string): Frame {
  return frames().find(f => f.key === key)!;
}

/** A store with all frames in it, and what was sent to the host. */
export function filled(): { store: Store; host: StaticHost } {
  const host = new StaticHost();
  const store = new Store(host);
  frames().forEach(f => store.put(f));
  return { store, host };
}

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

/** A host that remembers what the page told it and sent. */
export class RecordingHost extends StaticHost {
  override readonly live = true as never;
  readonly told: [string, unknown][] = [];
  readonly sent: Record<string, unknown>[] = [];
  private asking = false;
  override set(name: string, value: unknown): void {
    if (!this.asking && name !== 'selection') this.told.push([name, value]);
    super.set(name, value);
  }
  override send(message?: Record<string, unknown>): void {
    if (message) this.sent.push(message);
  }
  /** Python sets a trait. */
  ask(name: string, value: unknown): void {
    this.asking = true;
    super.set(name, value);
    this.asking = false;
  }
}

/** A page of one view, and what it told its host. */
export function aloneView(view: string, traits: Record<string, unknown>): { host: RecordingHost; store: Store } {
  const host = new RecordingHost({ view, ...traits });
  return { host, store: new Store(host) };
}
