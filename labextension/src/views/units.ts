/** Time as text: cycles, or microseconds at the clock of the device; and what the time of a batch is spent on. */
import { grouped, percent, short } from './dom.js';
import type { Ops } from './ops.js';
import { preferences } from './preferences.js';

export function inMicroseconds(): boolean {
  return preferences().units === 'us';
}

/** Shortest form, for a tile: "31.0k" or "25.8 µs". */
export function shortTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : short(cycles);
}

/** With its unit, for a line of text: "31,000 cycles" or "25.8 µs". */
export function longTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : `${grouped(cycles)} cycles`;
}

/** With its unit, shortly: "31.0k cycles" or "25.8 µs". */
export function saidTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : `${short(cycles)} cycles`;
}

function micro(cycles: number, clock: number): string {
  const value = (1e6 * cycles) / clock;
  return `${value >= 100 ? grouped(value) : value.toFixed(value >= 10 ? 1 : 2)} µs`;
}

/** "1.2 GHz" */
export function clockText(clock: number): string {
  return `${(clock / 1e9).toFixed(1)} GHz`;
}

const PARTS: [string, string][] = [
  ['steady', 'steady work at the rate of the slowest op'], ['fill', 'filling and emptying the pipeline'], ['stall', 'waits for full buffers'],
  ['switch', 'switching epochs']
];

function said(of: (part: string) => number, total: number): string {
  return PARTS.map(([part, words]) => [of(part), words] as const).filter(([cycles]) => cycles > 0)
    .map(([cycles, words]) => `${words} ${grouped(cycles)} (${percent(cycles / Math.max(1, total))})`).join(', ');
}

/** Of an epoch: "steady work at the rate of the slowest op 7,164 (7 %), filling ... ". */
export function partsText(ops: Ops, epoch: number): string {
  return `Cycles per input: ${said(part => ops.ofEpoch(part, epoch), ops.epochTimes[epoch]!)}.`;
}

/** Of the whole model; epochs that run side by side on several chips are all counted. */
export function totalParts(ops: Ops): string {
  const parts = ops.frame.meta['time_parts'] as Record<string, number>;
  return `All epochs: ${said(part => parts[part] ?? 0, Object.values(parts).reduce((n, c) => n + c, 0))}.`;
}
