/** Views whose code is fetched when they are first seen: a page without them starts sooner. Where from, the entry says. */
import type { View } from './docks.js';
import { h } from './dom.js';
import type { More, LazyName } from './lazybundle.js';
import type { Store } from './store.js';

/** Brings the code of the other views; `waiting` is told when it takes longer. May be called again after it failed. */
export type Bring = (store: Store, waiting: (text: string) => void) => Promise<More>;

let bring: Bring = () => Promise.reject(new Error('This page does not contain this view.'));
let came: More | null = null;

export function bringBy(way: Bring): void {
  bring = way;
}

/** The code of the other views, fetched once. */
export async function more(store: Store, waiting: (text: string) => void): Promise<More> {
  return (came ??= await bring(store, waiting));
}

/** Stands in the place of a view until its code is there; a view that does not come says why. */
export class LazyView implements View {
  private view: View | null = null;
  private readonly place: HTMLElement;
  private readonly text = h('p', {}, 'Loading …');
  private readonly again = h('button', { class: 'tb-button', hidden: true, 'data-tb-action': 'load-view', onclick: () => this.lookedAt() }, 'Try again');
  private requested = false;
  private disposed = false;

  constructor(private readonly store: Store, private readonly name: LazyName) {
    this.place = h('section', { class: 'tb-view tb-late', 'data-tb-view': name, 'data-tb-late': 'waiting' },
      h('div', { class: 'tb-empty', role: 'status' }, h('div', {}, this.text, this.again)));
  }

  get element(): HTMLElement {
    return this.view?.element ?? this.place;
  }

  /** Somebody looks: now the code is wanted. */
  lookedAt(): void {
    if (came) this.onBundle(came);
    this.view?.lookedAt?.();
    if (this.view || this.requested) return;
    this.requested = true;
    this.say('waiting', 'Loading …');
    more(this.store, text => this.say('waiting', text)).then(found => {
      this.onBundle(found);
      this.view?.lookedAt?.();
    }, (error: unknown) => {
      this.requested = false;
      this.say('failed', `This view could not be loaded. ${error instanceof Error ? error.message : String(error)}`);
    });
  }

  dispose(): void {
    this.disposed = true;
    this.view?.dispose();
  }

  private onBundle(found: More): void {
    if (this.disposed || this.view) return;
    const { make, style } = found.LAZY_VIEWS[this.name];
    const { place } = this;
    const focused = place.contains(document.activeElement);
    const root = place.closest<HTMLElement>('.tb-root');
    this.view = new make(this.store);
    const { element } = this.view;
    element.hidden = place.hidden;
    dress(root ?? element, this.name, style);
    place.replaceWith(element);
    if (focused) element.focus({ preventScroll: true });
  }

  private say(state: 'waiting' | 'failed', text: string): void {
    this.place.dataset['tbLate'] = state;
    this.text.textContent = text;
    this.again.hidden = state !== 'failed';
  }
}

/** A view by itself, as the registry of views wants it. */
export function late(name: LazyName): new (store: Store) => View {
  return class extends LazyView {
    constructor(store: Store) {
      super(store, name);
      this.lookedAt();
    }
  };
}

/** Puts the style sheet of a view behind those of the root, once. */
export function dress(root: HTMLElement, name: string, style: string): void {
  const sheets = [...root.querySelectorAll<HTMLElement>(':scope > style')];
  if (!style || sheets.some(sheet => sheet.dataset['tbStyle'] === name)) return;
  const sheet = h('style', { 'data-tb-style': name }, style);
  if (sheets.length) sheets.at(-1)!.after(sheet);
  else root.prepend(sheet);
}
