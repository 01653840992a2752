/** Times of a measured run by placed op, as the frame `measured` has them: for the table, the timeline and comparisons. */
import type { Frame } from './frame.js';

/** In ns; NaN where there is none. guess: why the table of kernels had to extrapolate, "" where it had not. */
export interface OpTimes {
  measured: number;
  table: number;
  lost: number;
  guess: string;
}

const KNOWN = new WeakMap<Frame, ReadonlyMap<string, OpTimes>>();

/** By op; null where no run is laid over the placement. */
export function opTimes(frame: Frame | undefined): ReadonlyMap<string, OpTimes> | null {
  if (!frame?.has('op_name')) return null;
  let known = KNOWN.get(frame);
  if (!known) {
    const [time, table, lost] = [frame.column('op_measured'), frame.column('op_table'), frame.column('op_lost')];
    const guess = frame.text('op_extrapolated');
    known = new Map(frame.text('op_name').map((name, i) => [name, { measured: time[i]!, table: table[i]!, lost: lost[i]!, guess: guess[i]! }]));
    KNOWN.set(frame, known);
  }
  return known;
}

/** Microseconds of ns. */
export function us(ns: number): string {
  return Number.isFinite(ns) ? (ns < 9950 ? (ns / 1000).toFixed(2) : Math.round(ns / 1000).toLocaleString('en-US')) : '';
}

/** "~ 12.30": what the table says, marked where it had to extrapolate. */
export function byTable(times: OpTimes): string {
  return Number.isFinite(times.table) ? `${times.guess ? '~ ' : ''}${us(times.table)}` : '';
}

/** "9.00 µs, by table ~ 12.30 µs, ratio 0.73"; "" for an op that was not measured. */
export function timesText(times: OpTimes | undefined): string {
  if (!times || !Number.isFinite(times.measured)) return '';
  const table = Number.isFinite(times.table) ? `, by table ${byTable(times)} µs` : '';
  const ratio = times.table > 0 && times.measured > 0 ? `, ratio ${(times.measured / times.table).toFixed(2)}` : '';
  return `${us(times.measured)} µs${table}${ratio}`;
}

/** Why the table had to extrapolate, as a line below what it says; "" where it had not. */
export function guessText(times: OpTimes | undefined): string {
  return times?.guess ? `\n~ is an extrapolation: ${times.guess}` : '';
}
