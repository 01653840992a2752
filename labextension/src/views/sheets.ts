/** The panels that need no kernel: the sheet of keys and the prompt. Asked for by an event that bubbles up to the root. */
import { OPEN, type Opening } from './dialog.js';
import { h } from './dom.js';
import { KeySheet } from './keysheet.js';
import { Prompt } from './prompt.js';

export class Sheets {
  readonly element = h('div', { class: 'tb-overlays' });
  private readonly keys = new KeySheet();
  private readonly prompt = new Prompt();
  private readonly heard = (event: Event) => this.open((event as CustomEvent<Opening>).detail);

  constructor(protected readonly root: HTMLElement) {
    this.element.append(this.keys.dialog.element, this.prompt.dialog.element);
    root.addEventListener(OPEN, this.heard);
    root.append(this.element);
  }

  dispose(): void {
    this.root.removeEventListener(OPEN, this.heard);
    this.element.remove();
  }

  protected open(asked: Opening): void {
    if (asked.what === 'keys') this.keys.show();
    else if (asked.what === 'prompt' && asked.done) this.prompt.show(asked.label ?? 'Go to', asked.value ?? '', asked.done);
  }
}
