/** The best single edits: a list, and ghosts on the grid where they would put the ops. Enter accepts the one in focus. */
import { copy } from '../dialog.js';
import { epochsMore, h, short, svg } from '../dom.js';
import { changeText } from '../numbers.js';
import type { SingleEdit } from '../editmessages.js';
import { oneStep, type Store } from '../store.js';
import type { Geometry } from './geometry.js';

interface Hint {
  label: string;
  kind?: string;
  python?: string;
  epoch: number;
  ops: string[];
  edits: SingleEdit[];
  spots: [op: string, epoch: number, row: number, col: number, rows: number, cols: number][];
  gain: number;
  /** Cycles per input before and after, simulated for the batch of the session, or for `batch` inputs. */
  time: [number, number];
  batch?: number | null;
  epochs: [number, number];
}

let serial = 0;

export class Suggestions {
  readonly button: HTMLButtonElement;
  readonly element: HTMLElement;
  private readonly list: HTMLElement;
  private readonly note = h('p', { class: 'tb-note', role: 'status' });
  private readonly id = `tb-hints-${++serial}`;
  private hints: Hint[] = [];
  private at = 0;
  private on = false;
  private requested = false;
  /** It was asked while a compile or run went on, and said no. */
  private refused = false;
  private layer: SVGGElement | null = null;
  private plane: SVGGElement | null = null;
  private geometry: Geometry | null = null;
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store, private readonly back: () => void) {
    this.button = h('button', {
      class: 'tb-button', 'data-tb-action': 'suggest', 'aria-pressed': 'false', title: 'Suggest the ten best single edits (G)',
      onclick: () => this.toggle()
    }, 'Suggest');
    this.list = h('div', {
      class: 'tb-hints', role: 'listbox', tabindex: 0, 'aria-label': 'Suggested edits. Up and down choose, Enter accepts, Escape closes.',
      'data-lm-suppress-shortcuts': 'true'
    });
    this.element = h('div', { class: 'tb-suggestions', hidden: true, 'data-tb-view': 'suggestions' }, this.note, this.list);
    this.list.addEventListener('keydown', event => this.key(event));
    this.stops.push(
      store.listen('suggest', message => this.onMessage(message)),
      store.on('frame', key => {
        if (key === 'edits') this.refresh();
        else if (key === 'ops' && this.on) this.requested = false;
      }),
      store.on('status', () => {
        if (!this.refused || store.status.running) return;
        this.refused = this.requested = false;
        this.refresh();
      }));
    this.refresh();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  toggle(): void {
    this.on = !this.on;
    this.button.setAttribute('aria-pressed', String(this.on));
    this.element.hidden = !this.on;
    if (this.on) {
      this.hints = [];
      this.requested = false;
      this.refresh();
      this.list.focus({ preventScroll: true });
    } else this.back();
    this.draw();
  }

  /** Asks again once what was asked is answered by another placement. */
  private refresh(): void {
    const { edits } = this.store;
    this.button.hidden = !edits;
    this.button.disabled = !this.on && (!edits || edits.busy || edits.stale);
    if (!this.on || this.requested || !edits || edits.busy) return;
    this.requested = true;
    this.note.textContent = 'Searching for edits that save cycles …';
    this.store.host.send({ type: 'suggest', n: 10 });
  }

  private onMessage(message: Record<string, unknown>): void {
    if (!this.on) return;
    this.refused = !message['ok'] && this.store.status.running;
    if (!message['ok']) {
      this.hints = [];
      this.note.textContent = String(message['text']);
      this.at = 0;
    } else {
      // SyncedTrait in parts, best first: what is in focus stays there while better ones come in.
      const kept = this.at > 0 ? this.hints[this.at]?.label : undefined;
      this.hints = message['list'] as Hint[];
      this.at = Math.max(0, this.hints.findIndex(hint => hint.label === kept));
      this.note.textContent = message['done'] === false ? 'Searching for better edits …'
        : this.hints.length ? '' : 'No single edit found that makes this batch faster.';
    }
    this.render();
    if (this.hints.length) this.go(this.at, false);
  }

  private render(): void {
    this.list.replaceChildren(...this.hints.map((hint, i) => {
      const [before, after] = hint.time;
      const share = after < before ? changeText(before, after) : ', no gain';
      return h('div', {
        class: 'tb-hint-row', role: 'option', id: `${this.id}-${i}`, 'data-tb-suggestion': i, 'data-tb-kind': hint.kind ?? '', 'aria-selected': String(i === this.at),
        onclick: () => this.go(i), ondblclick: () => this.accept(i), onpointerenter: () => this.go(i, false)
      }, h('b', {}, String(i + 1)), h('i', { class: 'tb-hint-kind' }, hint.kind ?? ''), h('span', { title: hint.ops.join(', ') }, hint.label), h('span', {}, `epoch ${hint.epoch}`),
        h('span', { class: 'tb-gain' }, `${short(before)} → ${short(after)}${share}${epochsMore(hint.epochs[1] - hint.epochs[0])}${hint.batch ? `, batch of ${hint.batch}` : ''}`),
        h('span', {
          class: 'tb-link', 'data-tb-action': 'copy-suggestion', 'aria-hidden': 'true', title: hint.python ?? '', onclick: (event: Event) => {
            event.stopPropagation();
            copy(hint.python ?? '', (ok, text) => this.store.say(ok, text));
          }
        }, hint.python ? 'Copy' : ''),
        // Not a button: inside an option there is nothing to go to by keys, Enter accepts.
        h('span', {
          class: 'tb-link', 'data-tb-action': 'accept-suggestion', 'aria-hidden': 'true', onclick: (event: Event) => {
            event.stopPropagation();
            this.accept(i);
          }
        }, 'Accept'));
    }));
    this.draw();
  }

  private go(to: number, focus = true): void {
    const hint = this.hints[to];
    if (!hint) return;
    this.at = to;
    this.list.setAttribute('aria-activedescendant', `${this.id}-${to}`);
    [...this.list.children].forEach((row, i) => row.setAttribute('aria-selected', String(i === to)));
    const row = this.list.children[to] as HTMLElement;
    if (row.offsetTop < this.list.scrollTop) this.list.scrollTop = row.offsetTop;
    else if (row.offsetTop + row.offsetHeight > this.list.scrollTop + this.list.clientHeight) {
      this.list.scrollTop = row.offsetTop + row.offsetHeight - this.list.clientHeight;
    }
    if (focus) this.list.focus({ preventScroll: true });
    this.store.setEpoch(hint.epoch);
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'ArrowDown') this.go(Math.min(this.hints.length - 1, this.at + 1));
    else if (event.key === 'ArrowUp') this.go(Math.max(0, this.at - 1));
    else if (event.key === 'Enter') this.accept(this.at);
    else if (event.key === 'Escape' || event.key.toLowerCase() === 'g') this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private accept(at: number): void {
    const hint = this.hints[at];
    if (!hint || !this.store.edits || this.store.edits.busy) return;
    this.store.edit(oneStep(hint.label, hint.edits));
  }

  /** The grid was drawn anew. */
  redrawn(plane: SVGGElement | null, geometry: Geometry | null): void {
    this.plane = plane;
    this.geometry = geometry;
    this.draw();
  }

  private draw(): void {
    this.layer?.remove();
    this.layer = null;
    if (!this.on || !this.plane || !this.geometry || !this.hints.length) return;
    const marks: SVGElement[] = [];
    // The one in focus last: it lies on top.
    const order = this.hints.map((_, i) => i).sort((a, b) => Number(a === this.at) - Number(b === this.at));
    for (const i of order) {
      for (const [op, epoch, row, col, rows, cols] of this.hints[i]!.spots) {
        if (epoch !== this.store.epoch) continue;
        const [x, y, width, height] = this.geometry.box({ row, col, rows, cols });
        const own = i === this.at;
        marks.push(svg('g', { class: `tb-hint${own ? ' tb-hint-on' : ''}`, 'data-tb-hint': op },
          svg('rect', { x, y, width, height, rx: 5 }),
          svg('circle', { cx: x + 12 + 3 * (i % 4), cy: y + 12, r: 9 }),
          svg('text', { x: x + 12 + 3 * (i % 4), y: y + 15.5, 'text-anchor': 'middle' }, String(i + 1))));
      }
    }
    this.layer = svg('g', { class: 'tb-hint-layer', 'aria-hidden': 'true' }, ...marks);
    this.plane.append(this.layer);
  }
}
