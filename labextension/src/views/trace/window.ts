/** The stretch of time that is shown. */
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
