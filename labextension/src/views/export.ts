/**
 * The export dialog: a tab per kind, the command line and the Python call of what is about to be written, and
 * writing it; the view as it is on the screen, as PNG.
 */
import type { Host } from './host.js';
import { copy, Dialog } from './dialog.js';
import { h } from './dom.js';
import type { Store } from './store.js';

// The view as it is on the screen, as PNG bytes; sent to the kernel in parts, which writes the file.
const SCALE = 2;
const PART = 45_000; // bytes: 60,000 letters in base64, below what one message may have

/** PNG of the grid or the graph of a root. Raises an error where there is no such view, or the browser cannot paint it. */
async function paintPicture(root: HTMLElement, view: string): Promise<Uint8Array> {
  const canvas = view === 'graph' ? graphCanvas(root) : await gridCanvas(root);
  const blob = await new Promise<Blob | null>(done => canvas.toBlob(done, 'image/png'));
  if (!blob) throw new Error('The browser cannot make a picture of that size.');
  return new Uint8Array(await blob.arrayBuffer());
}

function graphCanvas(root: HTMLElement): HTMLCanvasElement {
  const from = root.querySelector<HTMLCanvasElement>('[data-tb-view=graph] canvas.tb-canvas');
  if (!from?.width) throw new Error('The graph is hidden: show it, or choose the grid.');
  return onGround(root, from.width, from.height, context => context.drawImage(from, 0, 0));
}

async function gridCanvas(root: HTMLElement): Promise<HTMLCanvasElement> {
  const from = root.querySelector<SVGSVGElement>('[data-tb-view=grid] svg.tb-cores');
  if (!from) throw new Error('The grid is hidden: show it, or choose the graph.');
  const box = from.getBoundingClientRect();
  const copy = from.cloneNode(true) as SVGSVGElement;
  inline(from, copy);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', String(box.width));
  copy.setAttribute('height', String(box.height));
  const image = new Image();
  const ready = new Promise<void>((done, fail) => {
    image.onload = () => done();
    image.onerror = () => fail(new Error('The browser cannot draw the grid.'));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await ready;
  return onGround(root, box.width * SCALE, box.height * SCALE, (context, w, h) => context.drawImage(image, 0, 0, w, h));
}

function onGround(
  root: HTMLElement, w: number, h: number, paint: (context: CanvasRenderingContext2D, w: number, h: number) => void
): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(w);
  canvas.height = Math.round(h);
  const context = canvas.getContext('2d');
  if (!context) throw new Error('The browser does not support canvas drawing.');
  context.fillStyle = getComputedStyle(root).getPropertyValue('--tb-surface').trim() || '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  paint(context, canvas.width, canvas.height);
  return canvas;
}

const STYLES = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'opacity', 'font-family', 'font-size',
  'font-weight', 'text-anchor', 'visibility', 'display'
];

/** Writes the styles that the page's sheet gives into the copy: a picture has no sheet. */
function inline(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  to.setAttribute('style', STYLES.map(name => `${name}:${style.getPropertyValue(name)}`).join(';'));
  [...from.children].forEach((child, i) => inline(child, to.children[i]!));
}

export function sendPicture(host: Host, bytes: Uint8Array, path: string, replace: boolean): void {
  const count = Math.max(1, Math.ceil(bytes.length / PART));
  for (let i = 0; i < count; i++) {
    let text = '';
    for (const byte of bytes.subarray(i * PART, (i + 1) * PART)) text += String.fromCharCode(byte);
    host.send({ type: 'export_picture', path, replace, part: [i, count], data: btoa(text) });
  }
}

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

/** The export dialog: a tab per kind, the command line and the Python call of what is about to be written, and writing it. */
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
      store.listen('exports', message => this.onOffer(message)),
      store.listen('export_plan', message => this.onPlan(message)),
      store.listen('exported', message => this.onWritten(message)));
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

  private onOffer(message: Record<string, unknown>): void {
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
      role: 'tab', 'aria-selected': String(kind.name === name), 'data-tb-action': `export-${kind.name}`,
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
        h('button', { class: 'tb-button tb-primary', 'data-tb-action': 'export-write', onclick: () => this.write(false) }, 'Write'),
        png && h('button', {
          class: 'tb-button', 'data-tb-action': 'export-png', title: 'Save the view as it is on the screen, at twice its size',
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

  private request(): Record<string, unknown> {
    const kind = this.kinds.find(k => k.name === this.shown)!;
    return { kind: kind.name, path: this.pathOf(kind), settings: this.valuesOf(kind) };
  }

  private plan(): void {
    this.store.host.send({ type: 'export_plan', ask: ++this.seq, ...this.request() });
  }

  private onPlan(message: Record<string, unknown>): void {
    if (message['ask'] !== this.seq || message['kind'] !== this.shown) return;
    if (!message['ok']) {
      this.words.replaceChildren(h('p', { class: 'tb-refusal' }, String(message['text'])));
      return;
    }
    const line = (label: string, text: string, action: string) => h('div', { class: 'tb-cli' }, h('span', {}, label), h('code', {}, text),
      h('button', {
        class: 'tb-button', 'data-tb-action': action, 'aria-label': `copy ${text}`,
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
    this.store.host.send({ type: 'export', replace, ...this.request() });
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

  private onWritten(message: Record<string, unknown>): void {
    if (!this.dialog.open) return;
    const again = message['exists'] === true;
    const png = message['kind'] === 'image' && String(message['text']).includes('.png');
    this.say(message['ok'] === true, String(message['text']));
    if (again) {
      this.result.append(' ', h('button', {
        class: 'tb-button', 'data-tb-action': 'export-replace', onclick: () => (png ? void this.png(true) : this.write(true))
      }, 'Replace it'));
    }
  }

  private say(ok: boolean, text: string): void {
    this.result.dataset['tbAnswer'] = ok ? 'done' : 'refused';
    this.result.replaceChildren(text);
  }
}
