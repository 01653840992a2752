/** Pictures that follow something fast, as a pointer: the first at once, then at most as many a second as the user likes. */
import { preferences } from './preferences.js';

const ALL = 60; // pictures a second from which there is no cap
const EARLY = 4; // ms, half a tick of the display: that is in time

export class Pace {
  private last = -Infinity;
  private frame = 0;

  constructor(private readonly draw: () => void) {}

  /** Draws now if the last picture is old enough, else once it is. */
  ask(): void {
    if (this.frame) return;
    if (this.due(performance.now())) this.now();
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

  private due(now: number): boolean {
    const { fps } = preferences();
    return fps >= ALL || now - this.last >= 1000 / fps - EARLY;
  }

  private wait(now: number): void {
    if (this.due(now)) this.now();
    else this.frame = requestAnimationFrame(next => this.wait(next));
  }
}
