/** Pictures that follow something fast, as a pointer: the first at once, then at most as many a second as the user likes. */
import { preferences } from './preferences.js';

const ALL = 60; // pictures a second from which there is no cap
const EARLY = 4; // ms, half a tick of the display: that is in time

/** Whether a picture of `last` has stood long enough for the next. */
export function due(last: number, now: number): boolean {
  return now - last >= 1000 / preferences().fps - EARLY;
}

export class FrameThrottle {
  private last = -Infinity;
  private frame = 0;

  constructor(private readonly draw: () => void) {}

  /** Draws now if the last picture is old enough, else once it is. */
  ask(): void {
    if (this.frame) return;
    if (this.ready(performance.now())) this.now();
    else this.frame = requestAnimationFrame(now => this.wait(now));
  }

  /** Draws whatever the time. */
  now(): void {
    this.stop();
    this.last = performance.now();
    this.draw();
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private ready(now: number): boolean {
    return preferences().fps >= ALL || due(this.last, now);
  }

  private wait(now: number): void {
    if (this.ready(now)) this.now();
    else this.frame = requestAnimationFrame(next => this.wait(next));
  }
}
