/**
 * What comes over the views of a root: a panel, which takes the focus and gives it back, and a line that says what
 * came of an edit.
 */
import { h } from './dom.js';
import type { Store } from './store.js';

/** A panel over the views of a root: takes the focus, keeps Tab inside, gives the focus back. */
export class Dialog {
  readonly element: HTMLElement;
  readonly body = h('div', { class: 'tb-dialog-body' });
  private readonly title = h('h3');
  private before: Element | null = null;

  constructor(name: string, title: string, private readonly closed: () => void = () => undefined) {
    this.title.textContent = title;
    this.element = h('div', {
      class: `tb-dialog tb-dialog-${name}`, role: 'dialog', 'aria-label': title, tabindex: -1, hidden: true,
      'data-tb-view': name, 'data-lm-suppress-shortcuts': 'true'
    },
      h('header', { role: 'presentation' }, this.title,
        h('button', { class: 'tb-close', 'aria-label': 'close', 'data-tb-action': `close-${name}`, onclick: () => this.close() }, '×')),
      this.body);
    this.element.addEventListener('keydown', event => this.key(event));
  }

  get open(): boolean {
    return !this.element.hidden;
  }

  rename(title: string): void {
    this.title.textContent = title;
    this.element.setAttribute('aria-label', title);
  }

  show(): void {
    if (!this.open) this.before = document.activeElement;
    this.element.hidden = false;
    this.element.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: 'nearest' });
  }

  close(): void {
    if (!this.open) return;
    this.element.hidden = true;
    if (this.before instanceof HTMLElement || this.before instanceof SVGElement) this.before.focus({ preventScroll: true });
    this.closed();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === 'Escape') {
      event.preventDefault();
      this.close();
    } else if (event.key === 'Tab') {
      const stops = [...this.element.querySelectorAll<HTMLElement>('button:enabled, input:enabled, select:enabled, [tabindex="0"]')]
        .filter(e => !e.closest('[hidden]'));
      const at = stops.indexOf(document.activeElement as HTMLElement);
      const next = event.shiftKey ? (at <= 0 ? stops.length - 1 : at - 1) : at + 1 >= stops.length ? 0 : at + 1;
      if (at < 0 || (event.shiftKey ? at === 0 : at === stops.length - 1)) {
        event.preventDefault();
        stops[next]?.focus();
      }
    }
    event.stopPropagation();
  }
}

/** Asks the overlays of the root for a panel. */
export interface Opening {
  what: 'why' | 'export' | 'keys' | 'prompt';
  op?: string;
  scope?: 'grid' | 'graph';
  label?: string;
  value?: string;
  onDone?: (text: string) => void;
}

export const OPEN = 'tb-open';

export function open(from: Element, detail: Opening): void {
  from.dispatchEvent(new CustomEvent<Opening>(OPEN, { bubbles: true, detail }));
}

/** Puts a text into the clipboard; says what came of it. A page that isn't served safely has no clipboard. */
export function copy(text: string, say: (ok: boolean, text: string) => void, what = text): void {
  const written = (navigator.clipboard as Clipboard | undefined)?.writeText(text) ?? Promise.reject(new Error('no clipboard'));
  written.then(() => say(true, `copied ${what}`), () => say(false, 'The browser denies access to the clipboard.'));
}

const STAYS = { good: 5000, bad: 12000 }; // ms

const SLOWER = /\(\+[\d.]+ %\)$/; // as the kernel says that an edit made the batch slower

/** A line that says what came of an edit, and goes; refusals stay longer. Doubles as the live region of its view. */
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
      h('button', { class: 'tb-close', 'aria-label': 'dismiss', 'data-tb-action': 'dismiss',
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
