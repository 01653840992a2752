/** Frames: a JSON header, strings once in a table, typed columns in one little-endian buffer. */
export type Column = Uint8Array | Uint16Array | Uint32Array | Int16Array | Int32Array | Float32Array | Float64Array;

export interface FrameHeader {
  key: string;
  meta: Record<string, unknown>;
  strings: string[];
  columns: { name: string; dtype: string; offset: number; length: number }[];
}

const ARRAYS = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i2: Int16Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array
} as const;

export class Frame {
  readonly key: string;
  readonly meta: Record<string, unknown>;
  readonly strings: string[];
  private readonly columns = new Map<string, Column>();

  constructor(private readonly header: FrameHeader, private readonly buffer: ArrayBuffer) {
    this.key = header.key;
    this.meta = header.meta;
    this.strings = header.strings;
    for (const { name, dtype, offset, length } of header.columns) {
      if (!(dtype in ARRAYS)) throw new Error(`frame ${header.key}: column ${name} has the unknown type ${dtype}`);
      const type = ARRAYS[dtype as keyof typeof ARRAYS];
      if (offset + length * type.BYTES_PER_ELEMENT > buffer.byteLength) {
        throw new Error(`frame ${header.key}: column ${name} reaches past the buffer`);
      }
      this.columns.set(name, new type(buffer, offset, length));
    }
  }

  /** The same frame under another key. */
  as(key: string): Frame {
    return new Frame({ ...this.header, key }, this.buffer);
  }

  /** A copy under a key, with single values and entries of the meta changed; columns that there are not are passed over. */
  patched(key: string, changes: { column: string; at: number; value: number }[], meta: Record<string, unknown> = {}): Frame {
    const copy = new Frame({ ...this.header, key, meta: { ...this.meta, ...meta } }, changes.length ? this.buffer.slice(0) : this.buffer);
    for (const { column, at, value } of changes) if (copy.has(column) && Number.isFinite(value)) copy.column(column)[at] = value;
    return copy;
  }

  has(name: string): boolean {
    return this.columns.has(name);
  }

  column(name: string): Column {
    const column = this.columns.get(name);
    if (!column) throw new Error(`frame ${this.key} has no column ${name}`);
    return column;
  }

  /** A string column as strings. */
  text(name: string): string[] {
    return Array.from(this.column(name), i => this.strings[i] ?? '');
  }
}

/** A frame on its way: whole, or still to be inflated. */
export type Arrival = Frame | Promise<Frame>;

/** Collects the chunks of frames until each is whole. */
export class Assembler {
  private readonly parts = new Map<string, { rev: number; header: FrameHeader | null; chunks: (DataView | null)[] }>();

  /** Returns the frame once its last chunk is there, else null. A chunk of an older revision is dropped. */
  add(message: Record<string, unknown>, buffers: DataView[]): Arrival | null {
    const key = String(message['key']);
    const rev = Number(message['rev']);
    const [index, count] = message['chunk'] as [number, number];
    let entry = this.parts.get(key);
    if (!entry || entry.rev < rev || entry.chunks.length !== count) {
      entry = { rev, header: null, chunks: new Array<DataView | null>(count).fill(null) };
      this.parts.set(key, entry);
    } else if (entry.rev > rev) {
      return null;
    }
    if (message['header']) entry.header = message['header'] as FrameHeader;
    entry.chunks[index] = buffers[0] ?? new DataView(new ArrayBuffer(0));
    if (entry.chunks.includes(null) || (!entry.header && !message['deflated'])) return null;
    this.parts.delete(key);
    const total = entry.chunks.reduce((n, c) => n + c!.byteLength, 0);
    const whole = new Uint8Array(total);
    let at = 0;
    for (const chunk of entry.chunks) {
      whole.set(new Uint8Array(chunk!.buffer, chunk!.byteOffset, chunk!.byteLength), at);
      at += chunk!.byteLength;
    }
    return entry.header ? new Frame(entry.header, whole.buffer) : inflate(whole);
  }
}

/** Whether this browser can take compressed frames. */
export const INFLATES = typeof DecompressionStream === 'function' && typeof Response === 'function';

/** A compressed frame: the length of its header, the header as JSON, blanks up to a multiple of eight, the columns. */
async function inflate(data: Uint8Array<ArrayBuffer>): Promise<Frame> {
  // Not as a blob: that would go through another process, which takes longer than all the rest.
  const stream = new Response(data).body!.pipeThrough(new DecompressionStream('deflate'));
  const whole = await new Response(stream).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length))) as FrameHeader;
  return new Frame(header, whole.slice(8 * Math.ceil((4 + length) / 8)));
}
