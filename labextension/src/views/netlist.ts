/** The netlist as text, with the lines of the selection marked. */
import { h } from './dom.js';
import { NetlistText, shallow } from './netlisttext.js';
import { type Store, syncedTrait, type SyncedTrait } from './store.js';

const LINE = 18;

/** The text with only the lines in sight as elements. */
export class NetlistView {
  readonly element: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly body: HTMLElement;
  private text: NetlistText | null = null;
  /** Lines of the entries of the selection. */
  private marked = new Set<number>();
  /** The one that somebody clicked or asked for, counted from 1. */
  private readonly line: SyncedTrait<number | null>;
  /** What there is to do once somebody looks. */
  private whenSeen: (() => void) | null = null;
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.body = h('div', { class: 'tb-code-body' });
    this.scroller = h('div', {
      class: 'tb-code', tabindex: 0, role: 'region', 'data-lm-suppress-shortcuts': 'true',
      'aria-label': 'Netlist text. Up and down mark a line, Enter selects what stands there, Escape clears the mark.'
    }, this.body);
    this.element = h('section', { class: 'tb-view tb-netlist', 'data-tb-view': 'netlist' }, this.scroller);
    this.scroller.addEventListener('scroll', () => this.render());
    this.body.addEventListener('click', event => this.onClick(event));
    this.scroller.addEventListener('keydown', event => this.key(event));
    this.line = syncedTrait<number | null>(store, 'line', null, line => this.goto(line));
    this.stops.push(
      () => this.line.dispose(),
      store.on('frame', key => {
        if (key === 'netlist') this.load();
      }),
      store.on('selection', source => this.follow(source !== 'netlist')),
      store.on('line', line => this.mark(Number(line)))
    );
    const resize = new ResizeObserver(() => {
      const due = this.element.hidden || !this.scroller.clientHeight ? null : this.whenSeen;
      if (due) this.whenSeen = null;
      (due ?? (() => this.render()))();
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
    this.whenSeen = this.element.hidden ? f : null;
    return this.element.hidden;
  }

  /** The first text is scrolled to what is selected or marked: both may have come before it. */
  private load(): void {
    if (this.later(() => {
      this.load();
      this.follow(true);
    })) return;
    const frame = this.store.frames.get('netlist');
    const first = !this.text;
    if (frame) this.text = NetlistText.of(frame);
    const lines = this.text?.lines ?? [];
    const longest = lines.reduce((n, line) => Math.max(n, line.length), 0);
    this.body.style.height = `${lines.length * LINE}px`;
    this.body.style.width = `${longest + 8}ch`;
    this.follow(first);
    if (first && this.text && this.line.value() !== null) this.goto(this.line.value());
    if (first && this.text && !this.scroller.clientHeight) this.whenSeen = () => this.toPlace(); // not in the page yet
  }

  /** Brings what is marked into sight, else what is selected. */
  private toPlace(): void {
    this.follow(true);
    if (this.line.value() !== null) this.goto(this.line.value());
  }

  private follow(scroll: boolean): void {
    if (this.element.hidden) {
      this.whenSeen ??= () => this.follow(true);
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

  /** Marks a line, or none, and brings it into sight. */
  private mark(line: number | null): void {
    this.line.tell(line);
    this.goto(line);
  }

  private goto(line: number | null): void {
    if (this.later(() => {
      this.load();
      this.goto(line);
    })) return;
    const { scrollTop, clientHeight } = this.scroller;
    const top = ((line ?? 1) - 1) * LINE;
    if (line !== null && (top < scrollTop || top + LINE > scrollTop + clientHeight)) this.scroller.scrollTop = Math.max(0, top - clientHeight / 3);
    this.render();
  }

  /** A click marks a line and selects what stands there; on the marked one it takes the mark away. */
  private onClick(event: MouseEvent): void {
    const line = Number((event.target as Element).closest<HTMLElement>('[data-tb-line]')?.dataset['tbLine']);
    if (!line || line > this.text!.count || getSelection()?.toString()) return; // letters were chosen, to copy them
    const again = line === this.line.value();
    this.mark(again ? null : line);
    if (!again) this.choose(line);
  }

  private choose(line: number): void {
    const name = this.text?.at(line - 1);
    if (name !== undefined) this.store.select([name], 'netlist');
  }

  private key(event: KeyboardEvent): void {
    const line = this.line.value();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!this.text || event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) {
      const first = Math.ceil(this.scroller.scrollTop / LINE) + 1;
      this.mark(Math.max(1, Math.min(this.text.count, line === null ? first : line + step)));
    } else if (event.key === 'Enter' && line !== null) this.choose(line);
    else if (event.key === 'Escape' && line !== null) this.mark(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private render(): void {
    if (this.element.hidden) return;
    const lines = this.text?.lines;
    if (!lines) {
      this.body.replaceChildren(h('div', { class: 'tb-empty' }, 'The netlist appears here once the model is placed.'));
      return;
    }
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / LINE) - 5);
    const last = Math.min(lines.length, first + Math.ceil(this.scroller.clientHeight / LINE) + 10);
    const line = this.line.value();
    const made: HTMLElement[] = [];
    for (let i = first; i < last; i++) {
      const mark = this.marked.has(i) ? ' tb-marked' : '';
      made.push(h('div', { class: `tb-line${mark}`, style: `top:${i * LINE}px`, 'data-tb-line': i + 1, 'aria-current': i + 1 === line && 'true' },
        h('span', { class: 'tb-number' }, String(i + 1)), shallow(lines[i]!)));
    }
    this.body.replaceChildren(...made);
  }
}
