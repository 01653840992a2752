/** The panels over the views of one root; a view asks for one by an event that bubbles up (see `dialog.open`). */
import type { Opening } from './dialog.js';
import type { ExportDialog } from './export/dialog.js';
import { more } from './lazyview.js';
import { Sheets } from './sheets.js';
import type { Store } from './store.js';
import { Toast } from './toast.js';
import type { WhyPanel } from './why.js';

export class Overlays extends Sheets {
  private panels: Promise<{ why: WhyPanel; exports: ExportDialog }> | null = null;
  private readonly toast: Toast | null;

  constructor(root: HTMLElement, private readonly store: Store) {
    super(root);
    // The grid says itself what came of an edit; other views alone need somebody to.
    this.toast = root.querySelector('[data-tb-view=grid]') ? null : new Toast(store);
    if (this.toast) this.element.append(this.toast.element);
  }

  override dispose(): void {
    super.dispose();
    void this.panels?.then(({ why, exports }) => {
      why.dispose();
      exports.dispose();
    });
    this.toast?.dispose();
  }

  protected override open(asked: Opening): void {
    if (asked.what !== 'why' && asked.what !== 'export') {
      super.open(asked);
      return;
    }
    this.brought().then(({ why, exports }) => {
      if (asked.what === 'export') exports.show();
      else if (asked.op) why.show(asked.op);
    }, (error: unknown) => this.store.say(false, `The panel could not be loaded. ${error instanceof Error ? error.message : String(error)}`));
  }

  /** The panels that ask the kernel, made when one is first wanted. */
  private brought(): Promise<{ why: WhyPanel; exports: ExportDialog }> {
    const { store } = this;
    this.panels ??= more(store, text => store.say(true, text)).then(found => {
      const made = { why: new found.WhyPanel(store), exports: new found.ExportDialog(store, this.root) };
      this.element.append(made.why.dialog.element, made.exports.dialog.element);
      return made;
    });
    this.panels.catch(() => (this.panels = null)); // the next one tries again
    return this.panels;
  }
}
