/** The edits of a session as its file has them: device, steps, checkpoints, overrides, and how to go on with them. */
import type { View } from './docks.js';
import { factList, h } from './dom.js';
import type { Store } from './store.js';

export class JournalFile implements View {
  readonly element = h('div', { class: 'tb-document', 'data-tb-view': 'journal' });
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.stop = store.on('frame', () => this.render());
    this.render();
  }

  dispose(): void {
    this.stop();
  }

  private render(): void {
    const meta = this.store.frames.get('journal')?.meta;
    if (!meta) return;
    const steps = meta['steps'] as [string, string][];
    const undone = meta['undone'] as string[];
    const checkpoints = meta['checkpoints'] as string[];
    const python = String(meta['python']);
    const resume = `session = Session.open(${JSON.stringify(meta['path'])}, model, inputs)\nBringUp(session)`;
    this.element.replaceChildren(
      h('h3', {}, String(meta['name'])),
      factList([['device', String(meta['device'])], ...(meta['options'] as [string, string][]),
        ['checkpoints', checkpoints.join(', ') || 'none']]),
      h('h4', {}, `Edits (${steps.length})`),
      steps.length + undone.length
        ? h('ol', { class: 'tb-steps' },
            ...steps.map(([label, source]) => h('li', { 'data-tb-step': label }, label, ' ', h('small', {}, source))),
            ...undone.map(label => h('li', { class: 'tb-undone', 'data-tb-undone': label }, label, ' ', h('small', {}, 'undone'))))
        : h('p', {}, 'No edits.'),
      h('h4', {}, 'Overrides as Python'),
      python ? this.code(python, 'copy-python') : h('p', {}, 'None.'),
      h('h4', {}, 'Continue this session'),
      h('p', {}, 'A session file holds the edits, not the model. Open it with the model, in a notebook:'),
      this.code(`from tbuda_lab.core.session import Session\nfrom tbuda_lab.widgets import BringUp\n\n${resume}`, 'copy-resume'));
  }

  private code(text: string, action: string): HTMLElement {
    return h('div', { class: 'tb-snippet' }, h('pre', { class: 'tb-code', tabindex: 0 }, text), h('button', {
      type: 'button', class: 'tb-button', 'data-tb-action': action, onclick: () => void (navigator.clipboard as Clipboard | undefined)?.writeText(text)
    }, 'Copy'));
  }
}
