/** A stretch of time as the user wants to read it: cycles, or microseconds at the clock of the device. */
import { grouped, short } from './dom.js';
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
