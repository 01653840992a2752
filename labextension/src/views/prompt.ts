/** One line of input over a view: go to an epoch, find an op. */
import { Dialog } from './dialog.js';
import { h } from './dom.js';

export class Prompt {
  readonly dialog = new Dialog('prompt', 'Go to');
  private readonly input = h('input', { type: 'text', class: 'tb-search', 'data-tb-action': 'prompt', spellcheck: 'false', autocomplete: 'off' });
  private done: (text: string) => void = () => undefined;

  constructor() {
    this.dialog.body.append(this.input);
    this.input.addEventListener('keydown', event => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      event.stopPropagation();
      const text = this.input.value.trim();
      this.dialog.close();
      if (text) this.done(text);
    });
  }

  show(label: string, value: string, done: (text: string) => void): void {
    this.done = done;
    this.dialog.rename(label);
    this.input.setAttribute('aria-label', label);
    this.input.value = value;
    this.dialog.show();
    this.input.focus({ preventScroll: true });
    this.input.select();
  }
}
