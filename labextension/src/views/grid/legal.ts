/** The legal shapes of one op, as the kernel sent them when a drag began: everything a drag snaps to. */
import { elide, withThousands, percent, short } from '../dom.js';
import { changeText } from '../numbers.js';
import type { Frame } from '../frame.js';
import type { Ops } from '../ops.js';
import { shortName } from '../names.js';

/** Height and width of the rectangle on the grid (a transposed op's own rows and columns are the other way round). */
export type Size = [rows: number, cols: number];

/** Cycles that a tag says, each old and new. */
type Told = 'cycles' | 'limiter_cycles' | 'epoch_cycles' | 'time';

interface Reason {
  name: string;
  meaning: string;
  fix: string;
}

export class Legal {
  readonly op: string;
  readonly seq: number;
  readonly now: Size;
  readonly start: [number, number];
  private readonly rows: number;
  private readonly cols: number;
  private readonly transposed: boolean;
  private readonly reasons: Record<string, Reason>;

  constructor(private readonly frame: Frame) {
    const meta = frame.meta;
    this.op = String(meta['op']);
    this.seq = Number(meta['seq']);
    this.rows = Number(meta['rows']);
    this.cols = Number(meta['cols']);
    this.transposed = Boolean(meta['transposed']);
    this.start = meta['start'] as [number, number];
    this.reasons = meta['reasons'] as Record<string, Reason>;
    this.now = this.turn(meta['grid'] as Size);
  }

  /** From rows and columns on the grid to those of the op, and back. */
  turn([r, c]: Size): Size {
    return this.transposed ? [c, r] : [r, c];
  }

  private index(size: Size): number {
    const [r, c] = this.turn(size);
    return r >= 1 && c >= 1 && r <= this.rows && c <= this.cols ? (r - 1) * this.cols + c - 1 : -1;
  }

  /** free: the op's place goes along, so that a pin is no reason against a shape. */
  isLegal(size: Size, free = false): boolean {
    const at = this.index(size);
    const verdict = at < 0 ? -1 : this.frame.column('verdict')[at]!;
    return verdict === 0 || (free && this.reasons[String(verdict)]?.name === 'PIN');
  }

  reason(size: Size): Reason | null {
    const at = this.index(size);
    if (at < 0) return { name: 'OUTSIDE', meaning: 'the device has no such grid', fix: '' };
    return this.reasons[String(this.frame.column('verdict')[at])] ?? null;
  }

  value(column: 'cycles' | 'limiter_cycles' | 'epoch_kernel_cycles' | 'epoch_cycles' | 'time' | 'l1_bytes' | 'cores', size: Size): number {
    const at = this.index(size);
    return at < 0 ? NaN : this.frame.column(column)[at]!;
  }

  /** What a numbered column says of a shape: what limits the op, which op limits the epoch, which edge does not fit. */
  word(column: 'limiter' | 'epoch_op' | 'edge', size: Size): string {
    const at = this.index(size);
    const words = this.frame.meta[{ limiter: 'limiters', epoch_op: 'ops', edge: 'edges' }[column]] as Record<string, string> | undefined;
    return at < 0 || !words ? '' : (words[String(this.frame.column(column)[at])] ?? '');
  }

  /** All legal shapes, fewest cores first; equal ones by the epoch they make. */
  all(free = false): Size[] {
    const found: Size[] = [];
    for (let r = 1; r <= this.rows; r++) {
      for (let c = 1; c <= this.cols; c++) {
        const size = this.turn([r, c]);
        if (this.isLegal(size, free)) found.push(size);
      }
    }
    const key = (s: Size) => [this.value('cores', s), this.value('epoch_cycles', s), this.value('cycles', s)];
    return found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return x[0]! - y[0]! || x[1]! - y[1]! || x[2]! - y[2]! || a[0] - b[0];
    });
  }

  /** The legal shape nearest to a wanted one, in cells; equally near ones by the epoch they make. */
  nearest(wanted: Size, allowed: (size: Size) => boolean = () => true, free = false): Size | null {
    let best: Size | null = null;
    let least = Infinity;
    let epoch = Infinity;
    for (const size of this.all(free)) {
      if (!allowed(size)) continue;
      const off = Math.abs(size[0] - wanted[0]) + Math.abs(size[1] - wanted[1]);
      const cycles = this.value('epoch_cycles', size);
      if (off < least || (off === least && cycles < epoch)) [best, least, epoch] = [size, off, cycles];
    }
    return best;
  }

  /** The next legal shape with more (or fewer) cores, the fastest of that count; null at the end. */
  step(direction: 1 | -1): Size | null {
    const now = this.value('cores', this.now);
    const others = this.all().filter(s => direction * (this.value('cores', s) - now) > 0);
    if (!others.length) return null;
    const counts = others.map(s => this.value('cores', s));
    const wanted = direction > 0 ? Math.min(...counts) : Math.max(...counts);
    return others.find(s => this.value('cores', s) === wanted)!;
  }

  /** The next legal shape with more (or fewer) rows on the grid and as many columns; null at the end. */
  stepRows(direction: 1 | -1): Size | null {
    for (let rows = this.now[0] + direction; rows >= 1 && rows <= Math.max(this.rows, this.cols); rows += direction) {
      if (this.isLegal([rows, this.now[1]])) return [rows, this.now[1]];
    }
    return null;
  }

  /** Every free start of a rectangle, row by row. */
  starts(size: Size): [number, number][] {
    const found: [number, number][] = [];
    for (let r = 0; r < this.rows; r++) for (let c = 0; c < this.cols; c++) if (this.free(size, r, c)) found.push([r, c]);
    return found;
  }

  /** Whether a rectangle may start there once the op's own cores are free. */
  free([h, w]: Size, row: number, col: number): boolean {
    if (h < 1 || w < 1 || h > this.rows || w > this.cols || row < 0 || row >= this.rows || col < 0) return false;
    const mask = this.frame.column('anchors')[((h - 1) * this.cols + w - 1) * this.rows + row]!;
    return ((mask >>> col) & 1) === 1;
  }

  /** The free start nearest to a wanted one, in cells; null where the rectangle fits nowhere. */
  nearestStart(size: Size, row: number, col: number): [number, number] | null {
    let best: [number, number] | null = null;
    let least = Infinity;
    for (let r = 0; r < this.rows; r++) {
      for (let c = 0; c < this.cols; c++) {
        const off = Math.abs(r - row) + Math.abs(c - col);
        if (off < least && this.free(size, r, c)) [best, least] = [[r, c], off];
      }
    }
    return best;
  }

  /** "2x4" in the op's own rows and columns, as overrides count them. */
  name(size: Size): string {
    return this.turn(size).join('×');
  }

  /** The same for a person: "2×4, turned" where the rectangle on the grid lies the other way round. turned: on its way. */
  said(size: Size, turned = false): string {
    return `${this.name(size)}${this.transposed !== turned ? ', turned' : ''}`;
  }

  /** What a shape means, each old -> new: cycles of the kernel, as on the tiles; of the op with its data and what that
   *  is; of the epoch's slowest op and which that is; memory, cores. */
  tag(size: Size, ops: Ops): [string, string][] {
    const arrow = (from: number, to: number) => {
      return from === to ? short(to) : `${short(from)} → ${short(to)}${changeText(from, to)}`;
    };
    const more = this.value('cores', size) - this.value('cores', this.now);
    const change = (column: Told) => {
      const now = this.current(column, ops);
      return arrow(now, this.name(size) === this.name(this.now) ? now : this.value(column, size));
    };
    return [
      ['kernel cycles', change('cycles')],
      ...this.withData(size, change),
      [ESTIMATE, change('time')],
      ['slowest op of the epoch', change('epoch_cycles') + this.next(size, ops)],
      ['L1', this.l1(size, ops)],
      ['cores', `${withThousands(this.value('cores', size))}${more ? ` (${more > 0 ? '+' : '−'}${Math.abs(more)})` : ''}`]
    ];
  }

  /** Of the shape that the op has what it takes, of others the estimate of their candidates. */
  private l1(size: Size, ops: Ops): string {
    const op = ops.indexOf.get(this.op);
    const same = op !== undefined && this.name(size) === this.name(this.now);
    return same ? ops.l1Text(op, () => '').trim() : `≈ ${percent(this.value('l1_bytes', size) / ops.l1)}`;
  }

  /** What the op takes as it stands, as every view says it: the table has the fastest way to work on as many cores, and
   *  the policy may have chosen another. */
  private current(column: Told, ops: Ops): number {
    const op = ops.indexOf.get(this.op);
    if (op === undefined) return this.value(column, this.now);
    const epoch = ops.epochOf(op);
    if (column === 'time') return ops.kernelsOnly ? this.value(column, this.now) : ops.total;
    if (column === 'epoch_cycles') return ops.frame.column('epoch_limiter_cycles')[epoch]!;
    return ops.get(column, op);
  }

  /** Where operands or the output take longer than the kernel: how long, and which. */
  private withData(size: Size, change: (column: Told) => string): [string, string][] {
    const what = this.word('limiter', size);
    return !what || what === 'kernel' ? [] : [[slowText(what), change('limiter_cycles')]];
  }

  private next(size: Size, ops: Ops): string {
    const op = this.word('epoch_op', size);
    const at = ops.indexOf.get(op);
    return op && op !== this.op ? ` (${elide(at === undefined ? shortName(op) : ops.short(at), 28)})` : '';
  }
}

/** What the table alone says of the time of the whole model, until the kernel has simulated it. */
const ESTIMATE = 'cycles / input, estimate';

/** The lines of a tag with what the kernel answered: the estimate goes once that is exact. */
export function withAnswer(lines: [string, string][], exact: [string, string][]): [string, string][] {
  const simulated = exact.some(([term]) => term === 'cycles / input');
  const estimated = lines.some(([term]) => term === ESTIMATE);
  return [...lines.filter(([term]) => !simulated || term !== ESTIMATE), ...exact.filter(([term, text]) => term || text !== 'estimate' || !estimated)];
}

const WAYS: Record<string, string> = { dram: 'DRAM', host: 'host link', noc: 'NoC' };

/** "input 1 dram", as tables of the compiler say, for a person: "DRAM reads (input 1)"; "output noc": "NoC writes (output)". */
export function slowText(what: string): string {
  const [, subject, way] = /^(.*) (dram|host|noc)$/.exec(what) ?? [];
  if (!subject || !way) return what;
  return `${WAYS[way]!} ${subject.startsWith('output') ? 'writes' : 'reads'} (${subject})`;
}
