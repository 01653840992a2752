/** A store with a kernel behind it, and a legal frame as the kernel makes it. */
import { Frame } from '../src/views/frame.js';
import type { Size } from '../src/views/grid/legal.js';
import { StaticHost } from '../src/views/host.js';
import { Ops } from '../src/views/ops.js';
import { type Edits, type Overridden, Store } from '../src/views/store.js';
import { frame, frames } from './fixture.js';

export const ROWS = 8;
export const COLS = 8;
export const ops = new Ops(frame('ops'));

/** A legal frame as `editframes.legal_frame` makes it; cycles = 1200 / cores. */
export function legalFrame(op: string, grid: Size, start: Size, shapes: Size[], seq = 1, transposed = false, taken: Size[] = []): Frame {
  const count = ROWS * COLS;
  const is = (r: number, c: number) => shapes.some(([a, b]) => a === r && b === c);
  const at = (f: (r: number, c: number) => number) => Array.from({ length: count }, (_, i) => f(Math.floor(i / COLS) + 1, (i % COLS) + 1));
  const columns: [string, string, ArrayLike<number>, number][] = [
    ['verdict', 'u1', Uint8Array.from(at((r, c) => (is(r, c) ? 0 : 64))), 1],
    ['cycles', 'f4', Float32Array.from(at((r, c) => (is(r, c) ? 1200 / (r * c) : NaN))), 4],
    ['epoch_cycles', 'f4', Float32Array.from(at((r, c) => (is(r, c) ? Math.max(300, 1200 / (r * c)) : NaN))), 4],
    ['time', 'f4', Float32Array.from(at((r, c) => (is(r, c) ? 600 + Math.max(300, 1200 / (r * c)) : NaN))), 4],
    ['l1_bytes', 'u4', Uint32Array.from(at(() => 65536)), 4],
    ['cores', 'u2', Uint16Array.from(at((r, c) => r * c)), 2],
    ['anchors', 'u2', Uint16Array.from({ length: count * ROWS }, (_, i) => {
      const y = i % ROWS;
      const [r, c] = [Math.floor(i / ROWS / COLS) + 1, (Math.floor(i / ROWS) % COLS) + 1];
      let mask = 0;
      for (let x = 0; x + c <= COLS; x++) {
        const hit = taken.some(([ty, tx]) => ty >= y && ty < y + r && tx >= x && tx < x + c);
        if (y + r <= ROWS && !hit) mask |= 1 << x;
      }
      return mask;
    }), 2]
  ];
  const buffer = new ArrayBuffer(16384);
  let offset = 0;
  const described = columns.map(([name, dtype, values, size]) => {
    const bytes = new Uint8Array((values as Uint8Array).buffer);
    new Uint8Array(buffer).set(bytes, offset);
    const column = { name, dtype, offset, length: values.length };
    offset += Math.ceil((values.length * size) / 8) * 8;
    return column;
  });
  const meta = { op, rev: 1, seq, rows: ROWS, cols: COLS, grid, start, transposed, reasons: { 64: { name: 'DOES_NOT_DIVIDE', meaning: 'rows must divide', fix: 'a divisor' } } };
  return new Frame({ key: 'legal', meta, strings: [''], columns: described }, buffer);
}

export const EDITS: Edits = { stale: false, busy: false, undo: 'resize a to 2x2', redo: '', overrides: [] };

export class LiveHost extends StaticHost {
  private heard: ((message: Record<string, unknown>, buffers: DataView[]) => void) | null = null;
  override readonly live = true as never;
  readonly sent: Record<string, unknown>[] = [];
  override onMessage(f?: (message: Record<string, unknown>, buffers: DataView[]) => void): () => void {
    this.heard = f ?? null;
    return () => (this.heard = null);
  }
  /** A message of the kernel. */
  say(message: Record<string, unknown>, buffers: DataView[] = []): void {
    this.heard?.(message, buffers);
  }
  override send(message?: Record<string, unknown>): void {
    if (message) this.sent.push(message);
  }
}

export function live(edits: Partial<Edits> = {}): { store: Store; host: LiveHost } {
  const host = new LiveHost();
  const store = new Store(host);
  frames().forEach(f => store.put(f));
  store.put(new Frame({ key: 'edits', meta: { ...EDITS, ...edits }, strings: [''], columns: [] }, new ArrayBuffer(0)));
  host.sent.length = 0;
  return { store, host };
}

/** The `edits` frame of a kernel. */
export function editsFrame(edits: Partial<Edits> = {}): Frame {
  return new Frame({ key: 'edits', meta: { ...EDITS, ...edits }, strings: [''], columns: [] }, new ArrayBuffer(0));
}

/** An override that the panel lists. */
export const override = (more: Partial<Overridden>): Overridden => ({
  target: 'a', field: 'op_size', requested: '2x2', obtained: '2x2', state: 'obtained', because: '', python: 'pybuda.x()', matches: 1,
  names: ['a'], removable: true, enabled: true, source: 'drag', ...more
});
