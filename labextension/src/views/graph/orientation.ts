/** How the graph lies: from top to bottom or from left to right, with or without words on its edges; buttons and traits. */
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Direction } from './layout.js';
import type { Scene } from './scene.js';
import { button } from './tools.js';

export class Orientation {
  readonly turner: HTMLButtonElement;
  readonly worder: HTMLButtonElement;
  private readonly direction: SyncedTrait<Direction>;
  private readonly words: SyncedTrait<boolean>;

  /** changed: scenes are to lie anew. dressed: is told the direction, for whoever looks from outside. */
  constructor(store: Store, private readonly changed: () => void, private readonly dressed: (direction: Direction) => void) {
    this.turner = button('graph-direction', '⇄', '', () => this.turn());
    this.worder = button('graph-tms', 'TM', 'Show TMs on edges', () => this.put(this.words, !this.words.value()));
    this.direction = syncedTrait<Direction>(store, 'direction', 'TB', () => this.renew());
    this.words = syncedTrait(store, 'show_tms', false, () => this.renew());
  }

  dispose(): void {
    this.direction.dispose();
    this.words.dispose();
  }

  lay(scene: Scene): void {
    scene.lie(this.direction.value(), this.words.value());
  }

  turn(): void {
    this.put(this.direction, this.direction.value() === 'TB' ? 'LR' : 'TB');
  }

  private put<T>(trait: SyncedTrait<T>, value: T): void {
    trait.tell(value);
    this.renew();
  }

  private renew(): void {
    this.dress();
    this.changed();
  }

  /** Says on the buttons, and to the view, how it lies. */
  dress(): void {
    const direction = this.direction.value();
    const turned = direction === 'LR';
    this.turner.textContent = turned ? '⇅' : '⇄';
    this.turner.title = turned ? 'From top to bottom (L)' : 'From left to right (L)';
    this.turner.setAttribute('aria-label', this.turner.title);
    this.worder.setAttribute('aria-pressed', String(this.words.value()));
    this.dressed(direction);
  }
}
