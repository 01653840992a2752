/**
 * Whether somebody looks at a view: one behind a tab, or in a folded panel, only notes that its picture is old and draws
 * it when it is seen.
 */
export class Visibility {
  private old = false;
  private folded = false;
  private readonly resize: ResizeObserver;

  /** paint: draws the view. came: called whenever its size changes while it is seen, after a picture that was due. */
  constructor(private readonly element: HTMLElement, private readonly paint: () => void, came: () => void = () => undefined) {
    this.resize = new ResizeObserver(entries => {
      const box = entries.at(-1)?.contentRect;
      this.folded = !box || (box.width === 0 && box.height === 0);
      if (this.hidden) return;
      if (this.old) this.draw();
      came();
    });
    this.resize.observe(element);
  }

  dispose(): void {
    this.resize.disconnect();
  }

  /** Nobody can see it. A view that is not in the page yet is not hidden: it is drawn before it comes. */
  get hidden(): boolean {
    return this.element.hidden || this.folded;
  }

  /** It stands in the page, for somebody to see. This asks the browser for a layout. */
  get seen(): boolean {
    return !this.hidden && this.element.clientWidth > 0;
  }

  /** Draws now, or once somebody looks. */
  draw(): void {
    this.old = this.hidden;
    if (!this.old) this.paint();
  }
}
