/** The comparison frame, unpacked once. */
import type { Frame } from '../frame.js';

export type Side = 'a' | 'b';
export const CLASSES = ['added', 'removed', 'resized', 'moved', 'retimed'] as const;
export type Class = (typeof CLASSES)[number];
export const GLYPHS: Record<Class, string> = { added: '+', removed: '−', resized: '⤢', moved: '→', retimed: '◷' };

export interface GridMeta {
  device: string;
  rows: number;
  cols: number;
  physical: number[];
  harvested: number[];
}

export interface Box {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

export class DiffData {
  readonly names: string[];
  readonly indexOf = new Map<string, number>();
  readonly pairs: [number, number][];
  readonly known: string[];

  constructor(readonly frame: Frame) {
    this.names = frame.text('op_name');
    this.names.forEach((name, i) => this.indexOf.set(name, i));
    const b = frame.column('pair_b');
    this.pairs = Array.from(frame.column('pair_a'), (a, i): [number, number] => [a, b[i]!]);
    this.known = (frame.meta['names'] as string[] | undefined) ?? [];
  }

  name(side: Side): string {
    return String(this.frame.meta[side]);
  }

  grid(side: Side): GridMeta {
    return this.frame.meta[`grid_${side}`] as GridMeta;
  }

  get(side: Side, column: string, op: number): number {
    return this.frame.column(`op_${side}_${column}`)[op]!;
  }

  has(side: Side, op: number): boolean {
    return this.get(side, 'epoch', op) >= 0;
  }

  box(side: Side, op: number): Box {
    return {
      row: this.get(side, 'row', op), col: this.get(side, 'col', op), rows: this.get(side, 'rows', op), cols: this.get(side, 'cols', op)
    };
  }

  /** What is different about an op; nothing for one that both sides have alike. */
  classes(op: number): Class[] {
    const bits = this.frame.column('op_classes')[op]!;
    return CLASSES.filter((_, k) => (bits >> k) & 1);
  }

  count(name: Class): number {
    return (this.frame.meta['counts'] as Record<string, number>)[name] ?? 0;
  }

  get changed(): number[] {
    return this.names.map((_, i) => i).filter(i => this.frame.column('op_classes')[i]! > 0);
  }

  ofEpoch(side: Side, epoch: number): number[] {
    return this.names.map((_, i) => i).filter(i => this.get(side, 'epoch', i) === epoch);
  }

  /** Cycles after less before; an op that is missing on a side counts 0 there. */
  delta(op: number): number {
    return Math.max(0, this.get('b', 'limit', op)) - Math.max(0, this.get('a', 'limit', op));
  }

  /** `delta` as a share of the cycles before; null where there is nothing to compare with. */
  ratio(op: number): number | null {
    const before = this.get('a', 'limit', op);
    return this.has('a', op) && this.has('b', op) && before > 0 ? this.delta(op) / before : null;
  }

  /** "4×2 at 0,3, epoch 1" */
  text(side: Side, op: number): string {
    if (!this.has(side, op)) return '–';
    const { row, col, rows, cols } = this.box(side, op);
    const chip = this.get(side, 'chip', op);
    return `${rows}×${cols} at ${row},${col}, epoch ${this.get(side, 'epoch', op)}${chip > 0 ? `, chip ${chip}` : ''}`;
  }

  /** The pair of epochs where an op stands, on the side where it is. */
  pairOf(op: number): number {
    const [a, b] = [this.get('a', 'epoch', op), this.get('b', 'epoch', op)];
    return this.pairs.findIndex(pair => (b >= 0 ? pair[1] === b : pair[0] === a));
  }
}

/** "+12.5 %" */
export function signed(share: number | null): string {
  if (share === null) return '';
  return `${share > 0 ? '+' : share < 0 ? '−' : ''}${(100 * Math.abs(share)).toFixed(1)} %`;
}
