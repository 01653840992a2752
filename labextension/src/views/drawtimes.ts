/**
 * When something is drawn: pictures that follow the pointer at a bounded rate, and work that waits for the
 * picture.
 */
import { preferences } from './preferences.js';

const ALL = 60; // pictures a second from which there is no cap
const EARLY = 4; // ms, half a tick of the display: that is in time

/** Whether a picture of `last` has stood long enough for the next. */
export function due(last: number, now: number): boolean {
  return now - last >= 1000 / preferences().fps - EARLY;
}

/** Pictures that follow something fast, as a pointer: the first at once, then at most as many a second as the user likes. */
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

const LATEST = 250; // ms: a page in the background draws no frames

/** Work that may wait until what is drawn now is on the screen: where ops stand first, all that goes with it behind. */
export class DeferredWork {
  private timer = 0;
  private frame = 0;

  constructor(private readonly f: () => void) {}

  /** Does it after the next frame; called again before that, it is done once all the same. */
  soon(): void {
    if (this.timer) return;
    this.timer = window.setTimeout(() => this.now(), LATEST);
    this.frame = requestAnimationFrame(() => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.now(), 0); // behind the painting of this frame
    });
  }

  /** Does it at once, and not again. */
  now(): void {
    this.dispose();
    this.f();
  }

  dispose(): void {
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    this.timer = 0;
  }
}
