/** The panels over the views of one root; a view asks for one by an event that bubbles up (see `dialog.open`). */
import { OPEN, type Opening } from './dialog.js';
import { h } from './dom.js';
import { ExportDialog } from './export/dialog.js';
import { KeySheet } from './keysheet.js';
import { Prompt } from './prompt.js';
import type { Store } from './store.js';
import { Toast } from './toast.js';
import { WhyPanel } from './why.js';

export class Overlays {
  readonly element: HTMLElement;
  private readonly why: WhyPanel;
  private readonly exports: ExportDialog;
  private readonly keys = new KeySheet();
  private readonly prompt = new Prompt();
  private readonly toast: Toast | null;
  private readonly heard: (event: Event) => void;

  constructor(private readonly root: HTMLElement, store: Store) {
    this.why = new WhyPanel(store);
    this.exports = new ExportDialog(store, root);
    // The grid says itself what came of an edit; other views alone need somebody to.
    this.toast = root.querySelector('[data-tb-view=grid]') ? null : new Toast(store);
    this.element = h('div', { class: 'tb-overlays' }, this.why.dialog.element, this.exports.dialog.element,
      this.keys.dialog.element, this.prompt.dialog.element, this.toast?.element);
    this.heard = event => this.open((event as CustomEvent<Opening>).detail);
    root.addEventListener(OPEN, this.heard);
    root.append(this.element);
  }

  dispose(): void {
    this.root.removeEventListener(OPEN, this.heard);
    this.why.dispose();
    this.exports.dispose();
    this.toast?.dispose();
    this.element.remove();
  }

  private open(asked: Opening): void {
    if (asked.what === 'why' && asked.op) this.why.show(asked.op);
    else if (asked.what === 'export') this.exports.show();
    else if (asked.what === 'keys') this.keys.show();
    else if (asked.what === 'prompt' && asked.done) this.prompt.show(asked.label ?? 'Go to', asked.value ?? '', asked.done);
  }
}
