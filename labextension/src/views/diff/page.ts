/** A page with nothing but a comparison, as `tbuda diff --html` writes it. */
import { h } from '../dom.js';
import type { Store } from '../store.js';
import { DiffView } from './view.js';

export class DiffPage {
  readonly element: HTMLElement;
  private readonly view: DiffView;

  constructor(store: Store, title: string) {
    this.view = new DiffView(store);
    this.element = h('div', { class: 'tb-page tb-diff-page' }, h('header', {}, h('h1', {}, title)), this.view.element);
  }

  dispose(): void {
    this.view.dispose();
  }
}
