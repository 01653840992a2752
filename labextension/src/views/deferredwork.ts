/** Work that may wait until what is drawn now is on the screen: where ops stand first, all that goes with it behind. */
const LATEST = 250; // ms: a page in the background draws no frames

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
