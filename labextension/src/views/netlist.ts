/** The netlist text with its entries, and the view that shows it. */
import { h } from './dom.js';
import type { Frame } from './frame.js';
import type { Store } from './store.js';

const KNOWN = new WeakMap<Frame, NetlistText>();

export class NetlistText {
  private split: string[] | null = null;
  private readonly entries = new Map<string, [number, number]>();

  /** The frame unpacked: once, however many views ask. */
  static of(frame: Frame): NetlistText {
    const text = KNOWN.get(frame) ?? new NetlistText(frame);
    KNOWN.set(frame, text);
    return text;
  }

  /** Half a megabyte is decoded when somebody looks. */
  get lines(): string[] {
    return (this.split ??= new TextDecoder().decode(this.frame.column('text')).split('\n'));
  }

  constructor(private readonly frame: Frame) {
    const first = frame.column('entry_line');
    const count = frame.column('entry_lines');
    frame.text('entry_name').forEach((name, i) => this.entries.set(name, [first[i]!, count[i]!]));
  }

  /** [first line, number of lines] of an op or queue. */
  lineOf(name: string): [number, number] | undefined {
    return this.entries.get(name);
  }

  /** The fields of an entry, in written order; a flow mapping is cut at its outer commas. */
  fields(name: string): [string, string][] {
    const at = this.entries.get(name);
    if (!at) return [];
    const lines = this.lines.slice(at[0], at[0] + at[1]);
    const text = lines.join(' ');
    if (!/^[^:{]*:\s*(\{|#|$)/.test(lines[0] ?? '')) return [];
    if (!/^[^:{]*:\s*\{/.test(text)) return indented(lines.slice(1));
    const open = text.indexOf('{', text.indexOf(':'));
    return open < 0 ? [] : split(text.slice(open + 1, text.lastIndexOf('}')));
  }
}

/** The fields of a block mapping: what stands at the least indent, with whatever is indented below it. */
function indented(lines: string[]): [string, string][] {
  const fields: [string, string][] = [];
  const kept = lines.filter(line => line.trim() && !line.trim().startsWith('#'));
  const least = Math.min(...kept.map(line => line.search(/\S/)));
  for (const line of kept) {
    const colon = line.indexOf(':');
    if (line.search(/\S/) > least && fields.length) fields.at(-1)![1] += ` ${line.trim()}`;
    else if (colon > 0) fields.push([line.slice(0, colon).trim(), line.slice(colon + 1).trim()]);
  }
  return fields;
}

function split(body: string): [string, string][] {
  const fields: [string, string][] = [];
  let depth = 0;
  let from = 0;
  const cut = (to: number) => {
    const part = body.slice(from, to).trim();
    const colon = part.indexOf(':');
    if (colon > 0) fields.push([part.slice(0, colon).trim(), part.slice(colon + 1).trim()]);
    from = to + 1;
  };
  for (let i = 0; i < body.length; i++) {
    const c = body[i]!;
    if ('[{'.includes(c)) depth++;
    else if (']}'.includes(c)) depth--;
    else if (c === ',' && depth === 0) cut(i);
  }
  cut(body.length);
  return fields;
}

/** Continued lines stand far to the right in the file; here just right of the line they go on with. */
export function shallow(line: string): string {
  return line.replace(/^ {9,}/, ' '.repeat(8)).replace(/(\S) {6,}/g, '$1   ');
}

const LINE = 18;

/** The text with only the lines in sight as elements. */
export class NetlistView {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly body: HTMLElement;
  private text: NetlistText | null = null;
  private marked = new Set<number>();
  /** What there is to do once somebody looks. */
  private missed: (() => void) | null = null;
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.body = h('div', { class: 'tb-code-body' });
    this.scroller = h('div', { class: 'tb-code', tabindex: 0, role: 'region', 'aria-label': 'Netlist text' }, this.body);
    this.element = h('section', { class: 'tb-view tb-netlist', 'data-tb-view': 'netlist' }, this.scroller);
    this.scroller.addEventListener('scroll', () => this.render());
    this.stops.push(
      store.on('frame', key => {
        if (key === 'netlist') this.load();
      }),
      store.on('selection', () => this.follow(true)),
      store.on('line', line => this.goto(Number(line) - 1))
    );
    const resize = new ResizeObserver(() => {
      if (this.element.hidden || !this.missed) this.render();
      else this.missed();
    });
    resize.observe(this.scroller);
    this.stops.push(() => resize.disconnect());
    this.load();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** Whether nobody looks: then `f` is done when somebody does. */
  private later(f: () => void): boolean {
    this.missed = this.element.hidden ? f : null;
    return this.element.hidden;
  }

  private load(): void {
    if (this.later(() => {
      this.load();
      this.follow(true);
    })) return;
    const frame = this.store.frames.get('netlist');
    if (frame) this.text = NetlistText.of(frame);
    const lines = this.text?.lines ?? [];
    const longest = lines.reduce((n, line) => Math.max(n, line.length), 0);
    this.body.style.height = `${lines.length * LINE}px`;
    this.body.style.width = `${longest + 8}ch`;
    this.follow(false);
  }

  private follow(scroll: boolean): void {
    if (this.element.hidden) {
      this.missed ??= () => this.follow(true);
      return;
    }
    this.marked.clear();
    let top = -1;
    for (const name of this.store.selection.names) {
      const at = this.text?.lineOf(name);
      if (!at) continue;
      if (top < 0) top = at[0];
      for (let k = 0; k < at[1]; k++) this.marked.add(at[0] + k);
    }
    const { scrollTop, clientHeight } = this.scroller;
    if (scroll && top >= 0 && (top * LINE < scrollTop || (top + 2) * LINE > scrollTop + clientHeight)) {
      this.scroller.scrollTop = Math.max(0, top * LINE - clientHeight / 3);
    }
    this.render();
  }

  /** Marks one line and brings it into sight. */
  private goto(line: number): void {
    if (this.later(() => {
      this.load();
      this.goto(line);
    })) return;
    this.marked = new Set([line]);
    this.scroller.scrollTop = Math.max(0, line * LINE - this.scroller.clientHeight / 3);
    this.render();
  }

  private render(): void {
    if (this.element.hidden) return;
    const lines = this.text?.lines;
    if (!lines) {
      this.body.replaceChildren(h('div', { class: 'tb-empty' }, 'The netlist appears here once it is written.'));
      return;
    }
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / LINE) - 5);
    const last = Math.min(lines.length, first + Math.ceil(this.scroller.clientHeight / LINE) + 10);
    const made: HTMLElement[] = [];
    for (let i = first; i < last; i++) {
      const mark = this.marked.has(i) ? ' tb-marked' : '';
      made.push(h('div', { class: `tb-line${mark}`, style: `top:${i * LINE}px` },
        h('span', { class: 'tb-number' }, String(i + 1)), shallow(lines[i]!)));
    }
    this.body.replaceChildren(...made);
  }
}
