/**
 * Breaks that somebody set, as bars across the graph. A bar is dragged along the schedule, op by op; each stop says what
 * a break there would make: how many epochs, and the slowest one. One question at the start brings those numbers.
 */
import { h, short } from '../dom.js';
import type { Store } from '../store.js';
import type { Camera } from './draw.js';
import type { Scene } from './scene.js';

type Kind = 'epoch_break' | 'chip_break';
type Stop = [op: string, epochs: number, slowest: number, total: number, against: string];

interface Bar {
  op: string;
  kind: Kind;
  element: HTMLElement;
  tag: HTMLElement;
}

interface Drag {
  bar: Bar;
  /** Where the bar is now. */
  to: string;
  pointer: number;
  began: [number, number];
  moving: boolean;
  /** Placed ops in schedule order. */
  order: string[];
}

const GAP = 9; // from a bar to the node below it, in the graph's own units

export class Breaks {
  readonly element = h('div', { class: 'tb-breaks' });
  private bars: Bar[] = [];
  private drag: Drag | null = null;
  private stops = new Map<string, Stop>();
  private seq = 0;
  private key = '';
  private readonly ends: (() => void)[] = [];

  constructor(
    private readonly store: Store, private readonly picture: () => { scene: Scene | undefined; camera: Camera; shown: boolean }
  ) {
    const escape = (event: KeyboardEvent) => {
      if (event.key !== 'Escape' || !this.drag) return;
      event.preventDefault();
      event.stopPropagation();
      this.end();
    };
    window.addEventListener('keydown', escape, true);
    this.ends.push(
      () => window.removeEventListener('keydown', escape, true),
      store.on('frame', key => {
        if (key === 'edits') this.load();
      }),
      store.listen('break_stops', message => this.onAnswer(message)));
    this.load();
  }

  dispose(): void {
    this.ends.forEach(end => end());
  }

  private load(): void {
    const wanted = (this.store.edits?.overrides ?? []).filter(
      o => (o.field === 'epoch_break' || o.field === 'chip_break') && o.removable && o.state !== 'off');
    const key = wanted.map(o => `${o.field} ${o.target}`).join('\n');
    if (key === this.key) return;
    this.key = key;
    this.end();
    const held = this.element.contains(document.activeElement);
    const known = new Set(this.bars.map(b => b.op));
    this.bars = wanted.map(o => this.bar(o.target, o.field as Kind));
    this.element.replaceChildren(...this.bars.map(b => b.element));
    this.replace();
    // The bar that had the focus is another element now; one that was taken away leaves it to the graph.
    if (held) (this.bars.find(b => !known.has(b.op))?.element ?? this.element.parentElement)?.focus({ preventScroll: true });
  }

  private bar(op: string, kind: Kind): Bar {
    const what = kind === 'epoch_break' ? 'epoch' : 'chip';
    const tag = h('span', { class: 'tb-break-tag' }, `new ${what} from ${op}`);
    const element = h('div', {
      class: `tb-break tb-break-${what}`, role: 'slider', tabindex: 0, 'data-tb-break': op, 'data-tb-kind': kind,
      'aria-label': `${what} break before ${op}. Alt with arrows moves it along the schedule, Delete removes it.`,
      'aria-orientation': 'vertical', 'aria-valuetext': op, 'aria-valuemin': 1, 'aria-valuenow': 1, 'data-lm-suppress-shortcuts': 'true'
    }, tag);
    const order = this.store.frames.get('ops')?.text('op_name') ?? [];
    element.setAttribute('aria-valuenow', String(Math.max(1, order.indexOf(op))));
    element.setAttribute('aria-valuemax', String(Math.max(1, order.length - 1)));
    const bar = { op, kind, element, tag };
    element.addEventListener('pointerdown', event => this.press(bar, event));
    element.addEventListener('pointermove', event => this.move(event));
    element.addEventListener('pointerup', event => this.release(event));
    element.addEventListener('pointercancel', () => this.end());
    element.addEventListener('keydown', event => this.onKey(bar, event));
    element.addEventListener('blur', () => {
      if (this.drag?.bar === bar && this.drag.pointer < 0) this.end();
    });
    return bar;
  }

  private get ready(): boolean {
    const { edits, status } = this.store;
    return edits !== null && !edits.busy && !status.running;
  }

  // -- the gesture ---------------------------------------------------------------------------------------------
  private press(bar: Bar, event: PointerEvent): void {
    if (event.button !== 0 || event.shiftKey || !this.ready) return;
    event.stopPropagation();
    bar.element.setPointerCapture(event.pointerId);
    bar.element.focus({ preventScroll: true });
    this.begin(bar, event.pointerId, [event.clientX, event.clientY]);
  }

  private begin(bar: Bar, pointer: number, began: [number, number]): void {
    const order = this.store.frames.get('ops')?.text('op_name') ?? [];
    this.drag = { bar, to: bar.op, pointer, began, moving: pointer < 0, order };
    bar.element.classList.add('tb-moving');
    this.stops = new Map();
    this.store.host.send({ type: 'break_stops', op: bar.op, kind: bar.kind, ask: ++this.seq });
    this.label();
  }

  private move(event: PointerEvent): void {
    const { drag } = this;
    if (drag?.pointer !== event.pointerId) return;
    if (!drag.moving && Math.hypot(event.clientX - drag.began[0], event.clientY - drag.began[1]) <= 4) return;
    drag.moving = true;
    const { scene, camera } = this.picture();
    if (!scene) return;
    const frame = this.element.getBoundingClientRect();
    const x = (event.clientX - frame.left - camera.x) / camera.scale;
    const y = (event.clientY - frame.top - camera.y) / camera.scale;
    let least = Infinity;
    for (const op of drag.order) {
      const box = place(scene, op);
      if (!box) continue;
      // Ops side by side: the one under the pointer. Rows count more than columns.
      const off = scene.turned
        ? Math.abs(box[0] - GAP - x) * 4 + Math.max(0, Math.abs(box[1] + box[3] / 2 - y) - box[3] / 2)
        : Math.abs(box[1] - GAP - y) * 4 + Math.max(0, Math.abs(box[0] + box[2] / 2 - x) - box[2] / 2);
      if (off < least) [least, drag.to] = [off, op];
    }
    this.label();
    this.replace();
  }

  private release(event: PointerEvent): void {
    if (this.drag?.pointer !== event.pointerId) return;
    const { moving } = this.drag;
    if (moving) this.commit();
    else this.end();
  }

  private onKey(bar: Bar, event: KeyboardEvent): void {
    const way = event.key === 'ArrowDown' || event.key === 'ArrowRight' ? 1 : event.key === 'ArrowUp' || event.key === 'ArrowLeft' ? -1 : 0;
    if (way && event.altKey) {
      if (this.ready) this.step(bar, way);
    } else if (event.key === 'Enter' && this.drag?.bar === bar) this.commit();
    else if (event.key === 'Delete' || event.key === 'Backspace') {
      if (this.ready) this.store.edit({ do: bar.kind === 'epoch_break' ? 'break' : 'chip-break', op: bar.op, on: false });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** One op along the schedule; Enter puts it there. */
  private step(bar: Bar, way: number): void {
    if (this.drag?.bar !== bar) {
      this.end();
      this.begin(bar, -1, [0, 0]);
    }
    const drag = this.drag!;
    const at = drag.order.indexOf(drag.to) + way;
    drag.to = drag.order[Math.max(1, Math.min(drag.order.length - 1, at))] ?? drag.to;
    this.label();
    this.replace();
  }

  private commit(): void {
    const { bar, to } = this.drag!;
    const stop = this.stops.get(to);
    this.end();
    if (to === bar.op) return;
    if (stop?.[4]) this.store.say(false, `${to}: ${stop[4]}`);
    else this.store.edit({ do: 'shift-break', op: bar.op, to, kind: bar.kind });
  }

  private end(): void {
    const { drag } = this;
    if (!drag) return;
    this.drag = null;
    this.seq++;
    drag.bar.element.classList.remove('tb-moving');
    drag.bar.tag.textContent = `new ${drag.bar.kind === 'epoch_break' ? 'epoch' : 'chip'} from ${drag.bar.op}`;
    drag.bar.element.setAttribute('aria-valuetext', drag.bar.op);
    this.replace();
  }

  private onAnswer(message: Record<string, unknown>): void {
    if (message['ask'] !== this.seq || !this.drag) return;
    for (const stop of message['stops'] as Stop[]) this.stops.set(stop[0], stop);
    this.label();
  }

  private label(): void {
    const drag = this.drag!;
    const stop = this.stops.get(drag.to);
    const said = !stop ? 'calculating …' : stop[4] ? `not legal: ${stop[4]}` : `${stop[1]} epochs, slowest ${short(stop[2])}, all ${short(stop[3])} cycles`;
    const text = `before ${drag.to}: ${said}`;
    drag.bar.tag.textContent = text;
    drag.bar.element.setAttribute('aria-valuetext', text);
    drag.bar.element.setAttribute('aria-valuenow', String(drag.order.indexOf(drag.to)));
    drag.bar.element.dataset['tbStop'] = drag.to;
    drag.bar.element.dataset['tbVerdict'] = !stop ? 'WAITING' : stop[4] ? 'REFUSED' : 'LEGAL';
  }

  // -- where they lie ------------------------------------------------------------------------------------------
  private replace(): void {
    const { scene, camera } = this.picture();
    if (scene) this.place(scene, camera);
  }

  /** Puts the bars over their ops; called at every painting. */
  place(scene: Scene, camera: Camera): void {
    this.element.hidden = !this.picture().shown || !this.bars.length;
    if (this.element.hidden) return;
    for (const bar of this.bars) {
      const box = place(scene, this.drag?.bar === bar ? this.drag.to : bar.op);
      bar.element.hidden = box === null;
      if (!box) continue;
      const [at, side] = scene.turned ? [(box[0] - GAP) * camera.scale + camera.x, 'left' as const] : [(box[1] - GAP) * camera.scale + camera.y, 'top' as const];
      bar.element.style.left = bar.element.style.top = '';
      bar.element.style[side] = `${at}px`;
      bar.element.classList.toggle('tb-upright', scene.turned);
      bar.element.setAttribute('aria-orientation', scene.turned ? 'horizontal' : 'vertical');
    }
  }
}

/** The box of a node, or of the closed group that hides it. */
function place(scene: Scene, op: string): [number, number, number, number] | null {
  const node = scene.indexOf.get(op);
  return node === undefined ? null : scene.box(scene.standIn(node));
}
