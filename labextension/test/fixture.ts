/** Frames as the kernel packs them: `tests/widgets/fixture.json` is written and checked by the Python tests. */
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
