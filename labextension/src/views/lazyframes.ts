/** Frames that the kernel makes only while somebody looks at the view that shows them. */
import type { Store } from './store.js';

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

/** What is asked for, and by whom. */
interface FrameRequest {
  /** Keys of the frames; refusals of these are for this view. */
  keys: string[];
  /** Whether there is something to ask about yet. */
  ready: () => boolean;
  question: () => Record<string, unknown>;
  paint: () => void;
  /** The view is seen, or has another size. */
  onSize?: () => void;
}

export class LazyFrames {
  /** Why there are none; empty where there is no such reason. */
  refusal = '';
  /** Those of the newest placement are under way, or here. */
  requested = false;
  private readonly visibility: Visibility;
  private readonly stop: () => void;

  constructor(private readonly store: Store, element: HTMLElement, private readonly wish: FrameRequest) {
    const paint = () => {
      this.ask(); // first, so that the picture says what is under way
      wish.paint();
    };
    this.visibility = new Visibility(element, paint, () => {
      if (this.ask()) this.draw();
      wish.onSize?.();
    });
    this.stop = store.listen('refused', message => {
      if (!wish.keys.includes(String(message['key']))) return;
      this.refusal = String(message['text']);
      this.draw();
    });
  }

  dispose(): void {
    this.stop();
    this.visibility.dispose();
  }

  get hidden(): boolean {
    return this.visibility.hidden;
  }

  /** What a view without its frames says: why there are none, what is under way, or when they come. */
  waiting(doing: string, later: string): string {
    return this.refusal || (this.requested ? doing : later);
  }

  /** Draws the view now, or once somebody looks. */
  draw(): void {
    this.visibility.draw();
  }

  /** What is here belongs to another placement. */
  onOutdated(): void {
    this.requested = false;
    this.ask();
  }

  /** Asks if somebody looks and it was not asked yet; `again`: whatever was asked before. True if it asked. */
  ask(again = false): boolean {
    if (!this.store.host.live || !this.wish.ready() || (!again && (this.requested || !this.visibility.seen))) return false;
    this.requested = true;
    this.refusal = '';
    this.store.host.send(this.wish.question());
    return true;
  }
}
