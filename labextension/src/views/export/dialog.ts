/** The export dialog: a tab per kind, the command line and the Python call of what is about to be written, and writing it. */
import { copy, Dialog } from '../dialog.js';
import { h } from '../dom.js';
import type { Store } from '../store.js';
import { paintPicture, sendPicture } from './picture.js';

interface Setting {
  name: string;
  default: boolean | number | string;
  meaning: string;
  choices: string[];
}

interface Kind {
  name: string;
  title: string;
  meaning: string;
  suffix: string;
  settings: Setting[];
}

const WAIT = 150; // ms after the last key before the words are asked for again

export class ExportDialog {
  readonly dialog = new Dialog('export', 'Export');
  private readonly stops: (() => void)[] = [];
  private kinds: Kind[] = [];
  private name = 'session';
  private shown = '';
  private paths = new Map<string, string>();
  private settings = new Map<string, Record<string, boolean | number | string>>();
  private seq = 0;
  private timer = 0;
  private readonly tabs = h('div', { class: 'tb-tabs', role: 'tablist' });
  private readonly form = h('div', { class: 'tb-form' });
  private readonly words = h('div', { class: 'tb-words' });
  private readonly result = h('p', { class: 'tb-result', role: 'status' });

  constructor(private readonly store: Store, private readonly root: HTMLElement) {
    this.dialog.body.append(this.tabs, this.form, this.words, this.result);
    this.stops.push(
      store.listen('exports', message => this.offered(message)),
      store.listen('export_plan', message => this.planned(message)),
      store.listen('exported', message => this.written(message)));
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.stops.forEach(stop => stop());
  }

  show(): void {
    if (!this.store.host.live) return;
    this.result.replaceChildren();
    this.dialog.show();
    this.store.host.send({ type: 'exports' });
  }

  private offered(message: Record<string, unknown>): void {
    if (!this.dialog.open) return;
    this.kinds = message['kinds'] as Kind[];
    const name = String(message['name']);
    if (name !== this.name) this.paths.clear();
    this.name = name;
    this.choose(this.kinds.some(k => k.name === this.shown) ? this.shown : this.kinds[0]!.name);
  }

  private choose(name: string): void {
    this.shown = name;
    this.result.replaceChildren();
    const held = this.tabs.contains(document.activeElement);
    this.tabs.replaceChildren(...this.kinds.map(kind => h('button', {
      type: 'button', role: 'tab', 'aria-selected': String(kind.name === name), 'data-tb-action': `export-${kind.name}`,
      onclick: () => this.choose(kind.name)
    }, kind.title)));
    if (held) this.tabs.querySelector<HTMLElement>('[aria-selected=true]')!.focus(); // else Escape would go to the page
    const kind = this.kinds.find(k => k.name === name)!;
    const values = this.valuesOf(kind);
    const fields = kind.settings.map(setting => this.field(kind, setting, values));
    const png = kind.name === 'image';
    this.form.replaceChildren(
      h('p', {}, kind.meaning),
      h('label', {}, h('span', {}, 'Output file (on the kernel’s host)'), h('input', {
        type: 'text', class: 'tb-search', 'data-tb-action': 'export-path', spellcheck: 'false', value: this.pathOf(kind),
        oninput: (event: Event) => {
          this.paths.set(kind.name, (event.target as HTMLInputElement).value);
          this.later();
        }
      })),
      ...fields,
      h('div', { class: 'tb-buttons' },
        h('button', { type: 'button', class: 'tb-button tb-primary', 'data-tb-action': 'export-write', onclick: () => this.write(false) }, 'Write'),
        png && h('button', {
          type: 'button', class: 'tb-button', 'data-tb-action': 'export-png', title: 'Save the view as it is on the screen, at twice its size',
          onclick: () => void this.png(false)
        }, 'Write PNG of the view')));
    this.plan();
  }

  private valuesOf(kind: Kind): Record<string, boolean | number | string> {
    let values = this.settings.get(kind.name);
    if (!values) this.settings.set(kind.name, (values = Object.fromEntries(kind.settings.map(s => [s.name, s.default]))));
    if (kind.name === 'image' && 'epoch' in values) values['epoch'] = this.store.epoch;
    return values;
  }

  private pathOf(kind: Kind): string {
    return this.paths.get(kind.name) ?? `${this.name}${kind.suffix}`;
  }

  private field(kind: Kind, setting: Setting, values: Record<string, boolean | number | string>): HTMLElement {
    const value = values[setting.name]!;
    const set = (next: boolean | number | string) => {
      values[setting.name] = next;
      this.later();
    };
    const hook = { 'data-tb-action': `export-set-${setting.name}` };
    let input: HTMLElement;
    if (typeof setting.default === 'boolean') {
      input = h('input', { type: 'checkbox', checked: value === true, ...hook, onchange: (e: Event) => set((e.target as HTMLInputElement).checked) });
    } else if (setting.choices.length) {
      input = h('select', { ...hook, onchange: (e: Event) => set((e.target as HTMLSelectElement).value) },
        ...setting.choices.map(c => h('option', { value: c, selected: c === value }, c)));
    } else {
      const number = typeof setting.default === 'number';
      input = h('input', {
        type: number ? 'number' : 'text', min: 0, class: 'tb-search', value: String(value), ...hook,
        oninput: (e: Event) => set(number ? Math.max(0, Math.round(Number((e.target as HTMLInputElement).value))) : (e.target as HTMLInputElement).value)
      });
    }
    return h('label', { 'data-kind': kind.name }, h('span', {}, setting.meaning), input);
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.plan(), WAIT);
  }

  private asked(): Record<string, unknown> {
    const kind = this.kinds.find(k => k.name === this.shown)!;
    return { kind: kind.name, path: this.pathOf(kind), settings: this.valuesOf(kind) };
  }

  private plan(): void {
    this.store.host.send({ type: 'export_plan', ask: ++this.seq, ...this.asked() });
  }

  private planned(message: Record<string, unknown>): void {
    if (message['ask'] !== this.seq || message['kind'] !== this.shown) return;
    if (!message['ok']) {
      this.words.replaceChildren(h('p', { class: 'tb-refusal' }, String(message['text'])));
      return;
    }
    const line = (label: string, text: string, action: string) => h('div', { class: 'tb-cli' }, h('span', {}, label), h('code', {}, text),
      h('button', {
        type: 'button', class: 'tb-button', 'data-tb-action': action, 'aria-label': `copy ${text}`,
        onclick: () => copy(text, (ok, said) => this.say(ok, said))
      }, 'Copy'));
    const preview = message['preview'];
    this.words.replaceChildren(
      typeof preview === 'string' && preview ? h('p', { class: 'tb-note', 'data-tb-export': 'preview' }, preview) : '',
      line('Command line', String(message['cli']), 'copy-cli'), line('Python', String(message['python']), 'copy-python'),
      typeof message['note'] === 'string' && message['note'] ? h('p', { class: 'tb-note' }, message['note']) : '',
      h('p', { class: 'tb-note' }, `Relative to ${String(message['folder'])}`));
  }

  private write(replace: boolean): void {
    this.say(true, 'Writing …');
    this.store.host.send({ type: 'export', replace, ...this.asked() });
  }

  private async png(replace: boolean): Promise<void> {
    const kind = this.kinds.find(k => k.name === 'image')!;
    const view = String(this.valuesOf(kind)['view']);
    const path = this.pathOf(kind).replace(/\.svg$/i, '') + '.png';
    try {
      this.say(true, 'Drawing …');
      sendPicture(this.store.host, await paintPicture(this.root, view), path, replace);
    } catch (error) {
      this.say(false, error instanceof Error ? error.message : 'The view cannot be drawn.');
    }
  }

  private written(message: Record<string, unknown>): void {
    if (!this.dialog.open) return;
    const again = message['exists'] === true;
    const png = message['kind'] === 'image' && String(message['text']).includes('.png');
    this.say(message['ok'] === true, String(message['text']));
    if (again) {
      this.result.append(' ', h('button', {
        type: 'button', class: 'tb-button', 'data-tb-action': 'export-replace', onclick: () => (png ? void this.png(true) : this.write(true))
      }, 'Replace it'));
    }
  }

  private say(ok: boolean, text: string): void {
    this.result.dataset['tbAnswer'] = ok ? 'done' : 'refused';
    this.result.replaceChildren(text);
  }
}
