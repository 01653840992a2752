/**
 * The panels over the views of one root: keyboard shortcuts, the prompt, and those whose code is fetched. A view
 * asks for one by an event that bubbles up (see `dialog.open`).
 */
import { Dialog, OPEN, type Opening, Toast } from './dialog.js';
import { h } from './dom.js';
import { chordsOf, KEYS } from './keys.js';
import type { ExportDialog } from './export.js';
import { more } from './lazyview.js';
import type { Store } from './store.js';
import type { WhyPanel } from './why.js';

const NAMES: Record<string, string> = { ArrowLeft: '←', ArrowRight: '→', ArrowUp: '↑', ArrowDown: '↓', Escape: 'Esc' };

/** All keyboard shortcuts, as they are bound. */
class KeySheet {
  readonly dialog = new Dialog('keys', 'Keyboard shortcuts');

  show(): void {
    const groups = [...new Set(KEYS.map(k => k.group))];
    this.dialog.body.replaceChildren(...groups.map(group =>
      h('section', {}, h('h4', {}, group), h('dl', { class: 'tb-keys' }, ...KEYS.filter(k => k.group === group).flatMap(binding => {
        const chords = chordsOf(binding);
        const shown = chords.length > 4 ? [`${chords[0]!} … ${chords.at(-1)!}`] : chords;
        const where = binding.scope === 'both' ? '' : ` (${binding.scope})`;
        return [
          h('dt', { 'data-tb-key': binding.action }, ...(shown.length ? shown.map(keys) : [h('i', {}, 'none')])),
          h('dd', {}, binding.does + where)
        ];
      })))),
      h('section', {}, h('h4', {}, 'Mouse'), h('dl', { class: 'tb-keys' },
        ...([
          ['edge of an op', 'resize: lands on the nearest legal shape'], ['Alt while dragging', 'no snapping: says why a shape is illegal'],
          ['body of an op', 'move: in the grid, onto an epoch of the film strip, onto a chip'], ['T while dragging', 'transpose the op'],
          ['drag over empty cores', 'select ops with a rectangle'], ['Alt+drag of a selected op', 'moves the whole selection'],
          ['Ctrl+click', 'adds to the selection'], ['right click in the graph', 'commands of an op or edge']
        ] as const).flatMap(([what, does]) => [h('dt', {}, h('i', {}, what)), h('dd', {}, does)]))));
    this.dialog.show();
  }
}

function keys(chord: string): HTMLElement {
  return h('kbd', {}, chord.split('+').map(part => NAMES[part] ?? part).join('+') || '+');
}

/** One line of input over a view: go to an epoch, find an op. */
class Prompt {
  readonly dialog = new Dialog('prompt', 'Go to');
  private readonly input = h('input', { type: 'text', class: 'tb-search', 'data-tb-action': 'prompt', spellcheck: 'false', autocomplete: 'off' });
  private onDone: (text: string) => void = () => undefined;

  constructor() {
    this.dialog.body.append(this.input);
    this.input.addEventListener('keydown', event => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      event.stopPropagation();
      const text = this.input.value.trim();
      this.dialog.close();
      if (text) this.onDone(text);
    });
  }

  show(label: string, value: string, done: (text: string) => void): void {
    this.onDone = done;
    this.dialog.rename(label);
    this.input.setAttribute('aria-label', label);
    this.input.value = value;
    this.dialog.show();
    this.input.focus({ preventScroll: true });
    this.input.select();
  }
}

/** The panels that need no kernel: the sheet of keys and the prompt. Asked for by an event that bubbles up to the root. */
export class Sheets {
  readonly element = h('div', { class: 'tb-overlays' });
  private readonly keys = new KeySheet();
  private readonly prompt = new Prompt();
  private readonly listener = (event: Event) => this.open((event as CustomEvent<Opening>).detail);

  constructor(protected readonly root: HTMLElement) {
    this.element.append(this.keys.dialog.element, this.prompt.dialog.element);
    root.addEventListener(OPEN, this.listener);
    root.append(this.element);
  }

  dispose(): void {
    this.root.removeEventListener(OPEN, this.listener);
    this.element.remove();
  }

  protected open(asked: Opening): void {
    if (asked.what === 'keys') this.keys.show();
    else if (asked.what === 'prompt' && asked.onDone) this.prompt.show(asked.label ?? 'Go to', asked.value ?? '', asked.onDone);
  }
}

/** The panels over the views of one root; a view asks for one by an event that bubbles up (see `dialog.open`). */
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
