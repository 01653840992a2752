/** How the graph lies: from top to bottom or from left to right, with or without words on its edges; buttons and traits. */
import { h } from '../dom.js';
import type { Store } from '../store.js';
import type { Direction } from './layout.js';
import type { Scene } from './scene.js';

export class Lying {
  readonly turner: HTMLButtonElement;
  readonly worder: HTMLButtonElement;
  private direction: Direction = 'TB';
  private words = false;

  /** changed: scenes are to lie anew. dressed: is told the direction, for whoever looks from outside. */
  constructor(private readonly store: Store, private readonly changed: () => void, private readonly dressed: (direction: Direction) => void) {
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { type: 'button', class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
    this.turner = button('graph-direction', '⇄', '', () => this.turn());
    this.worder = button('graph-tms', 'TM', 'Write what edges do to their tensors', () => this.say(!this.words));
    this.direction = store.trait<Direction>('direction', 'TB', direction => this.lie(direction, this.words))();
    this.words = store.trait('show_tms', false, words => this.lie(this.direction, words))();
  }

  lay(scene: Scene): void {
    scene.lie(this.direction, this.words);
  }

  turn(): void {
    const { host } = this.store;
    const next = this.direction === 'TB' ? 'LR' : 'TB';
    this.lie(next, this.words);
    if (host.get('direction') !== undefined) host.set('direction', next);
  }

  private say(words: boolean): void {
    const { host } = this.store;
    this.lie(this.direction, words);
    if (host.get('show_tms') !== undefined) host.set('show_tms', words);
  }

  private lie(direction: Direction, words: boolean): void {
    if (direction === this.direction && words === this.words) return;
    [this.direction, this.words] = [direction, words];
    this.dress();
    this.changed();
  }

  /** Says on the buttons, and to the view, how it lies. */
  dress(): void {
    const turned = this.direction === 'LR';
    this.turner.textContent = turned ? '⇅' : '⇄';
    this.turner.title = turned ? 'From top to bottom (L)' : 'From left to right (L)';
    this.turner.setAttribute('aria-label', this.turner.title);
    this.worder.setAttribute('aria-pressed', String(this.words));
    this.dressed(this.direction);
  }
}
