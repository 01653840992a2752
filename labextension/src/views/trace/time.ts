/** Cycles on a ruler and in words. */
import { grouped, short } from '../dom.js';

/** Round steps of a ruler: about `room` pixels apart. */
export function ticks(start: number, end: number, width: number, room = 110): number[] {
  const rough = ((end - start) / Math.max(1, width)) * room;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const step = Math.max(1, [1, 2, 5, 10].map(k => k * power).find(s => s >= rough) ?? power * 10);
  const list: number[] = [];
  for (let t = Math.ceil(start / step) * step; t <= end; t += step) list.push(t);
  return list;
}

export type Unit = 'cycles' | 'time';

/** A length: "12,345 cycles", or microseconds at the device's clock. */
export function length(cycles: number, unit: Unit, clock: number): string {
  if (unit === 'cycles') return `${grouped(cycles)} cycles`;
  const us = (cycles / clock) * 1e6;
  if (us >= 1000) return `${(us / 1000).toFixed(us >= 1e5 ? 0 : 2)} ms`;
  return us >= 1 ? `${us.toFixed(us >= 100 ? 0 : 2)} µs` : `${(us * 1000).toFixed(0)} ns`;
}

/** A tick's label, as short as the distance between ticks allows. */
export function tick(cycle: number, step: number, unit: Unit, clock: number): string {
  if (unit === 'time') {
    const us = (cycle / clock) * 1e6;
    const fine = (step / clock) * 1e6;
    return `${us.toFixed(fine >= 1 ? 0 : fine >= 0.1 ? 1 : fine >= 0.01 ? 2 : 3)} µs`;
  }
  return step >= 1000 && cycle % 100 === 0 ? short(cycle) : grouped(cycle);
}
