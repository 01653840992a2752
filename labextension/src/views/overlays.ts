/** The panels over the views of one root; a view asks for one by an event that bubbles up (see `dialog.open`). */
import type { Opening } from './dialog.js';
import { ExportDialog } from './export/dialog.js';
import { Sheets } from './sheets.js';
import type { Store } from './store.js';
import { Toast } from './toast.js';
import { WhyPanel } from './why.js';

export class Overlays extends Sheets {
  private readonly why: WhyPanel;
  private readonly exports: ExportDialog;
  private readonly toast: Toast | null;

  constructor(root: HTMLElement, store: Store) {
    super(root);
    this.why = new WhyPanel(store);
    this.exports = new ExportDialog(store, root);
    // The grid says itself what came of an edit; other views alone need somebody to.
    this.toast = root.querySelector('[data-tb-view=grid]') ? null : new Toast(store);
    this.element.append(this.why.dialog.element, this.exports.dialog.element, ...(this.toast ? [this.toast.element] : []));
  }

  override dispose(): void {
    super.dispose();
    this.why.dispose();
    this.exports.dispose();
    this.toast?.dispose();
  }

  protected override open(asked: Opening): void {
    if (asked.what === 'why' && asked.op) this.why.show(asked.op);
    else if (asked.what === 'export') this.exports.show();
    else super.open(asked);
  }
}
