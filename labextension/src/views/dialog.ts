/** A panel over the views of a root: takes the focus, keeps Tab inside, gives the focus back. */
import { h } from './dom.js';

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
        h('button', { type: 'button', class: 'tb-close', 'aria-label': 'close', 'data-tb-action': `close-${name}`, onclick: () => this.close() }, '×')),
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
  done?: (text: string) => void;
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
