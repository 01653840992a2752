/** A line that says what came of an edit, and goes; refusals stay longer. Doubles as the live region of its view. */
import { h } from './dom.js';
import type { Store } from './store.js';

const STAYS = { good: 5000, bad: 12000 }; // ms

const SLOWER = /\(\+[\d.]+ %\)$/; // as the kernel says that an edit made the batch slower

export class Toast {
  readonly element: HTMLElement;
  private readonly live = h('div', { class: 'tb-live', role: 'status', 'aria-live': 'polite', 'data-tb-live': '' });
  private readonly toast = h('div', { class: 'tb-toast', hidden: true });
  private timer = 0;
  private readonly stop: () => void;

  constructor(store: Store) {
    this.element = h('div', { class: 'tb-toasts' }, this.toast, this.live);
    this.stop = store.on('answer', () => this.show(store.answer.ok, store.answer.text));
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.stop();
  }

  /** For a screen reader only. */
  speak(text: string): void {
    this.live.textContent = text;
  }

  private show(ok: boolean, text: string): void {
    if (!text) return;
    this.speak(text);
    this.toast.hidden = false;
    this.toast.dataset['tbAnswer'] = ok ? 'done' : 'refused';
    const slower = ok && SLOWER.test(text);
    this.toast.classList.toggle('tb-refused', !ok);
    this.toast.classList.toggle('tb-slower', slower);
    this.toast.replaceChildren(
      h('span', { class: 'tb-glyph', 'aria-hidden': 'true' }, slower ? '▲' : ok ? '✓' : '✕'), h('span', {}, text),
      h('button', { type: 'button', class: 'tb-close', 'aria-label': 'dismiss', 'data-tb-action': 'dismiss',
        onmousedown: (event: Event) => event.preventDefault(), // the focus stays where the work is
        onclick: () => this.hide() }, '×'));
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.hide(), ok ? STAYS.good : STAYS.bad);
  }

  private hide(): void {
    clearTimeout(this.timer);
    this.toast.hidden = true;
  }
}
