/** The comparison frame, unpacked once. */
import type { Frame } from '../frame.js';
import { preferences } from '../preferences.js';

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

  /** Whether kernels alone are compared, as the settings ask. */
  get kernelsOnly(): boolean {
    return preferences().clock === 'kernel';
  }

  /** What the cycles of rows and epochs count. */
  get counts(): string {
    return this.kernelsOnly ? 'kernels only' : this.frame.meta['simulated'] ? `simulated, batch of ${String(this.frame.meta['batch'])}` : 'kernel or transfer, not simulated';
  }

  /** Cycles per input of an op: what the simulated batch takes because of it; of files its kernel or slowest transfer; or
   *  its kernel alone. */
  cycles(side: Side, op: number): number {
    return this.get(side, this.kernelsOnly ? 'cycles' : 'time', op);
  }

  /** Cycles per input of an epoch. */
  epochCycles(side: Side, epoch: number): number {
    return this.frame.column(`${side}_epoch_${this.kernelsOnly ? 'kernels' : 'cycles'}`)[epoch]!;
  }

  /** What the model takes more than its rows say, and of what that is; 0 where rows do not add up to the model. */
  get rest(): [string, number] {
    return [String(this.frame.meta['rest_of']), this.kernelsOnly ? 0 : Math.round(Number(this.frame.meta['rest'] ?? 0))];
  }

  /** Cycles after less before; an op that is missing on a side counts 0 there. */
  delta(op: number): number {
    return Math.max(0, this.cycles('b', op)) - Math.max(0, this.cycles('a', op));
  }

  /** `delta` as a share of the cycles before; null where there is nothing to compare with. */
  ratio(op: number): number | null {
    const before = this.cycles('a', op);
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
