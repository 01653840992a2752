/** The stretch of time in sight, and cycles on a ruler and in words. */
import { withThousands, short } from '../dom.js';

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
  if (unit === 'cycles') return `${withThousands(cycles)} cycles`;
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
  return step >= 1000 && cycle % 100 === 0 ? short(cycle) : withThousands(cycle);
}

/** The stretch of time that is shown, in cycles. */
export class Window {
  start = 0;
  end = 1;

  constructor(readonly cycles: number) {
    this.end = cycles;
  }

  get width(): number {
    return this.end - this.start;
  }

  /** Shows [start, end), moved and cut to the trace; never less than 16 cycles. */
  show(start: number, end: number): void {
    const width = Math.max(Math.min(16, this.cycles), Math.min(this.cycles, end - start));
    this.start = Math.max(0, Math.min(this.cycles - width, start));
    this.end = this.start + width;
  }

  /** Zooms by a factor so that a cycle stays where it is. */
  zoom(factor: number, about: number): void {
    this.show(about - (about - this.start) / factor, about + (this.end - about) / factor);
  }

  pan(share: number): void {
    const by = share * this.width;
    this.show(this.start + by, this.end + by);
  }

  /** Brings a stretch into sight with some room around it, unless a good part of it is there already. */
  reveal(start: number, end: number): boolean {
    const seen = Math.min(end, this.end) - Math.max(start, this.start);
    if (seen > 0 && (seen >= 0.2 * (end - start) || seen >= 0.5 * this.width)) return false;
    const room = 0.04 * Math.max(16, end - start);
    this.show(start - room, end + room);
    return true;
  }
}
