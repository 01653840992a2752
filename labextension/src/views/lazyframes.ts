/** Frames that the kernel makes only while somebody looks at the view that shows them. */
import { Visibility } from './visibility.js';
import type { Store } from './store.js';

/** What is asked for, and by whom. */
export interface FrameRequest {
  /** Keys of the frames; refusals of these are for this view. */
  keys: string[];
  /** Whether there is something to ask about yet. */
  ready: () => boolean;
  question: () => Record<string, unknown>;
  paint: () => void;
  /** The view is seen, or has another size. */
  sized?: () => void;
}

export class LazyFrames {
  /** Why there are none; empty where there is no such reason. */
  refused = '';
  /** Those of the newest placement are under way, or here. */
  asked = false;
  private readonly visibility: Visibility;
  private readonly stop: () => void;

  constructor(private readonly store: Store, element: HTMLElement, private readonly wish: FrameRequest) {
    const paint = () => {
      this.ask(); // first, so that the picture says what is under way
      wish.paint();
    };
    this.visibility = new Visibility(element, paint, () => {
      if (this.ask()) this.draw();
      wish.sized?.();
    });
    this.stop = store.listen('refused', message => {
      if (!wish.keys.includes(String(message['key']))) return;
      this.refused = String(message['text']);
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
    return this.refused || (this.asked ? doing : later);
  }

  /** Draws the view now, or once somebody looks. */
  draw(): void {
    this.visibility.draw();
  }

  /** What is here belongs to another placement. */
  outdated(): void {
    this.asked = false;
    this.ask();
  }

  /** Asks if somebody looks and it was not asked yet; `again`: whatever was asked before. True if it asked. */
  ask(again = false): boolean {
    if (!this.store.host.live || !this.wish.ready() || (!again && (this.asked || !this.visibility.seen))) return false;
    this.asked = true;
    this.refused = '';
    this.store.host.send(this.wish.question());
    return true;
  }
}
