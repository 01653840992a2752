/** The editor of a grid: an op is picked, dragged, resized and dropped; what is legal and what it costs is shown on the way. */
import { svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Geometry } from './geometry.js';
import { coresOf, type Displacement, type DragGesture, dropPicture, epochsFor, Group, groupMoved, movePicture, resizePicture, type Scene } from './pictures.js';
import type { Store } from '../store.js';
import { Exact } from './exact.js';
import { drawHandles, DropResult, Ghost, type Handle, type Picture } from './ghost.js';
import { Legal } from './legal.js';
import { FrameThrottle } from '../drawtimes.js';

// What lies under the pointer while an op is dragged out of the grid: an epoch of the film strip, or a chip.
interface Target {
  kind: 'epoch' | 'chip';
  number: number;
  element: Element;
}

function targetAt(view: HTMLElement, x: number, y: number): Target | null {
  const root = view.closest('.tb-root') ?? view;
  // There is no such thing without a layout.
  const found = typeof document.elementsFromPoint === 'function' ? document.elementsFromPoint(x, y) : [];
  for (const element of found) {
    const epoch = element.closest('.tb-frame[data-tb-epoch]');
    if (epoch && root.contains(epoch)) return { kind: 'epoch', number: Number(epoch.getAttribute('data-tb-epoch')), element: epoch };
    const chip = element.closest('[data-tb-chip]');
    if (chip && root.contains(chip)) return { kind: 'chip', number: Number(chip.getAttribute('data-tb-chip')), element: chip };
  }
  return null;
}

let marked: Element | null = null;

/** Shows where a drop would go; null for nowhere. */
function mark(target: Target | null): void {
  if (marked === (target?.element ?? null)) return;
  marked?.classList.remove('tb-drop');
  marked = target?.element ?? null;
  marked?.classList.add('tb-drop');
}

/** The rubber band: a drag over empty ground selects the ops that it touches. */
class RubberBand {
  private readonly rect = svg('rect', { class: 'tb-band', rx: 3, 'data-tb-band': '' });

  constructor(private readonly plane: SVGGElement, private readonly from: [number, number]) {
    plane.append(this.rect);
  }

  to([x, y]: [number, number]): void {
    const [x0, y0] = this.from;
    this.rect.setAttribute('x', String(Math.min(x, x0)));
    this.rect.setAttribute('y', String(Math.min(y, y0)));
    this.rect.setAttribute('width', String(Math.abs(x - x0)));
    this.rect.setAttribute('height', String(Math.abs(y - y0)));
  }

  /** Ops of an epoch that a band to a point touches. */
  inside(ops: Ops, epoch: number, geometry: Geometry, [x, y]: [number, number]): number[] {
    const [left, right] = [Math.min(x, this.from[0]), Math.max(x, this.from[0])];
    const [top, bottom] = [Math.min(y, this.from[1]), Math.max(y, this.from[1])];
    return (ops.byEpoch[epoch] ?? []).filter(op => {
      const [bx, by, bw, bh] = geometry.box(coresOf(ops, op));
      return bx < right && by < bottom && bx + bw > left && by + bh > top;
    });
  }

  remove(): void {
    if (this.rect.parentNode === this.plane) this.rect.remove();
  }
}

const STILL = 4; // px: a press that moves less is a click
const SPOKEN = 500; // ms between two announcements

interface Drag extends DragGesture {
  kind: 'resize' | 'move' | 'group' | 'band';
  press: [number, number];
  pointer: [number, number];
  moving: boolean;
  id: number;
  group: Group | null;
  band: RubberBand | null;
}

/**
 * Editing on the grid: an op's edge is dragged to another shape, its body to another place, epoch or chip; several ops
 * are moved together. One question at the start brings the table of legal shapes; from then on nothing is sent until the
 * pointer is let go, but for the exact what-if when it rests.
 */
export class Editor {
  readonly ghost = new Ghost();
  readonly exact: Exact;
  readonly dropResult: DropResult;
  /** Called when an exact answer came while nothing is dragged with the pointer. */
  answer: () => void = () => undefined;
  /** Called when a gesture is over. */
  onEnd: () => void = () => undefined;
  ops: Ops | null = null;
  geometry: Geometry | null = null;
  plane: SVGGElement | null = null;
  private drag: Drag | null = null;
  private readonly throttle = new FrameThrottle(() => {
    if (this.drag?.moving) this.draw();
  });
  private legal: Legal | null = null;
  private seq = 0;
  private handles: SVGGElement | null = null;
  private picture: Picture | null = null;
  private waiting: ((legal: Legal) => void) | null = null;
  private spoken = 0;
  private later = 0;
  private swallow = false;
  private readonly stops: (() => void)[] = [];

  /** say: puts a line into the live region. displacement: what becomes of ops where another is dropped. */
  constructor(
    readonly store: Store, private readonly area: HTMLElement, private readonly view: HTMLElement,
    readonly say: (text: string) => void, private readonly displacement: () => Displacement
  ) {
    this.exact = new Exact(store, () => {
      if (this.drag?.moving) this.draw();
      else this.answer();
    });
    this.dropResult = new DropResult(store);
    const key = (event: KeyboardEvent) => this.dragKey(event);
    area.addEventListener('pointerdown', event => this.press(event));
    area.addEventListener('pointermove', event => this.move(event));
    area.addEventListener('pointerup', event => this.release(event));
    area.addEventListener('pointercancel', () => this.cancel());
    area.addEventListener('click', event => {
      if (!this.swallow) return;
      this.swallow = false;
      event.stopPropagation();
    }, true);
    window.addEventListener('keydown', key, true);
    window.addEventListener('keyup', key, true);
    this.stops.push(
      store.on('frame', what => {
        if (what === 'legal') this.onAnswer();
      }),
      () => {
        window.removeEventListener('keydown', key, true);
        window.removeEventListener('keyup', key, true);
      });
  }

  dispose(): void {
    this.cancel();
    this.exact.dispose();
    this.dropResult.dispose();
    this.stops.forEach(stop => stop());
  }

  get dragging(): boolean {
    return this.drag !== null;
  }

  /** The grid was drawn anew: whatever was dragged belongs to another picture. */
  redrawn(ops: Ops | null, geometry: Geometry | null, root: SVGSVGElement | null): void {
    this.cancel();
    this.handles = null;
    this.ops = ops;
    this.geometry = geometry;
    this.plane = root?.querySelector<SVGGElement>(':scope > g') ?? null;
    if (ops && geometry && this.plane) this.dropResult.redrawn(geometry, this.plane);
  }

  /** Shows the handles of an op, null for none. They stay while the pointer is on one of them. */
  offer(op: number | null): void {
    if (this.drag) return;
    this.area.classList.toggle('tb-in-hand', op !== null && this.ready);
    if (op === null || !this.ready) {
      this.handles?.remove();
      this.handles = null;
      return;
    }
    const name = this.ops!.name[op]!;
    if (this.handles?.isConnected && this.handles.dataset['tbHandlesOf'] === name) return;
    this.handles?.remove();
    const pinned = this.store.edits!.overrides.some(o => o.field === 'op_placement' && o.state !== 'off' && o.names.includes(name));
    this.handles = drawHandles(name, this.geometry!, coresOf(this.ops!, op), pinned);
    this.plane!.append(this.handles);
  }

  /** Whether an edit can be begun. */
  get ready(): boolean {
    const edits = this.store.edits;
    return this.ops !== null && this.plane !== null && edits !== null && !this.store.blocked;
  }

  // -- the gesture ---------------------------------------------------------------------------------------------
  private press(event: PointerEvent): void {
    this.swallow = false;
    // JupyterLab takes a drag that begins with Shift; a control click is a menu on some machines, and toggles here.
    if (event.button !== 0 || event.shiftKey || event.ctrlKey || event.metaKey || this.drag || !this.ops || !this.plane) return;
    const target = event.target as Element;
    const handle = target.closest<SVGElement>('[data-tb-handle]');
    const name = handle?.closest<SVGElement>('[data-tb-handles-of]')?.dataset['tbHandlesOf'] ??
      target.closest<SVGElement>('[data-tb-op]')?.dataset['tbOp'];
    const op = name === undefined ? undefined : this.ops.indexOf.get(name);
    const at = this.inDrawing(event);
    const pointer: [number, number] = [event.clientX, event.clientY];
    const common = { press: pointer, pointer, alt: event.altKey, turned: false, id: event.pointerId, group: null, band: null };
    if (op === undefined) {
      if (target.closest('[data-tb-hint]')) return;
      this.drag = { ...common, kind: 'band', op: -1, handle: 'se', from: { row: 0, col: 0, rows: 0, cols: 0 }, grip: at, moving: false };
      return;
    }
    if (!this.ready) return;
    const from = coresOf(this.ops, op);
    const [x, y] = this.geometry!.box(from);
    const members = event.altKey && !handle ? this.selectedWith(op) : [];
    this.drag = {
      ...common, kind: handle ? 'resize' : members.length > 1 ? 'group' : 'move',
      handle: (handle?.dataset['tbHandle'] ?? 'se') as Handle, op, from, grip: [at[0] - x, at[1] - y], moving: handle !== null,
      group: members.length > 1 ? new Group(this.ops, members, this.store.epoch) : null
    };
    if (handle) {
      event.preventDefault();
      this.begin();
    }
  }

  /** The selected ops of the epoch shown, if the op is among them. */
  private selectedWith(op: number): number[] {
    const ops = this.ops!;
    const found = ops.matcher.find(this.store.selection.names).filter(i => ops.epochOf(i) === this.store.epoch);
    return found.includes(op) ? found : [];
  }

  /** The one question of a gesture. */
  private begin(): void {
    const drag = this.drag!;
    this.area.setPointerCapture(drag.id);
    this.area.dataset['tbDragging'] = drag.kind === 'resize' ? drag.handle : drag.kind;
    this.area.focus({ preventScroll: true });
    if (drag.kind === 'band') drag.band = new RubberBand(this.plane!, drag.grip);
    else if (drag.kind !== 'group') this.probe(drag.op);
    if (drag.kind === 'move') this.shade(drag.op);
    this.draw();
  }

  /** Epochs of the film strip that an op cannot go to. */
  private shade(op: number): void {
    const ops = this.ops!;
    const [first, last] = epochsFor(ops, op);
    for (const frame of this.view.querySelectorAll<HTMLElement>('.tb-frame[data-tb-epoch]')) {
      const epoch = Number(frame.dataset['tbEpoch']);
      frame.classList.toggle('tb-off', (epoch < first || epoch > last) && Math.abs(epoch - ops.epochOf(op)) > 1);
    }
  }

  /** Asks which shapes an op may have; `f` hears the answer. */
  probe(op: number, f: ((legal: Legal) => void) | null = null): void {
    this.legal = null;
    this.waiting = f;
    this.store.host.send({ type: 'probe_begin', op: this.ops!.name[op]!, seq: ++this.seq });
  }

  private onAnswer(): void {
    const legal = new Legal(this.store.frames.get('legal')!);
    if (legal.seq !== this.seq) return;
    this.legal = legal;
    if (this.drag?.moving) this.draw();
    const waiting = this.waiting;
    this.waiting = null;
    waiting?.(legal);
  }

  private move(event: PointerEvent): void {
    const drag = this.drag;
    if (!drag || event.pointerId !== drag.id) return;
    drag.pointer = [event.clientX, event.clientY];
    drag.alt = event.altKey;
    if (!drag.moving) {
      if (Math.hypot(event.clientX - drag.press[0], event.clientY - drag.press[1]) <= STILL) return;
      drag.moving = true;
      this.handles?.remove();
      this.begin();
      return;
    }
    this.throttle.ask();
  }

  private release(event: PointerEvent): void {
    const drag = this.drag;
    if (!drag || event.pointerId !== drag.id) return;
    if (!drag.moving) {
      this.drag = null;
      return;
    }
    drag.pointer = [event.clientX, event.clientY];
    drag.alt = event.altKey;
    this.throttle.now();
    const { picture, legal } = this;
    const { ops, geometry, store } = this;
    const at = store.epoch;
    const names = drag.band
      ? drag.band.inside(ops!, at, geometry!, this.inDrawing(event)).map(op => ops!.name[op]!)
      : [];
    const shown = this.exact.landing(at) ?? (picture?.lands && drag.op >= 0 && !drag.group ? [picture.lands] : []);
    this.cancel(Boolean(picture?.edit));
    this.swallow = true; // the click that follows
    window.setTimeout(() => (this.swallow = false), 0);
    if (drag.kind === 'band') {
      this.store.select(names, 'grid');
      this.say(`${names.length} ops selected`);
    } else if (picture?.edit) {
      if (shown.length && !picture.hidden) this.dropResult.watch(shown, this.ops!.name[drag.op]!);
      this.store.edit(picture.edit);
    }
    else if (!legal && drag.kind !== 'group') {
      this.store.say(false, store.host.whatIf ? 'This page has no table of this op; the model has.' : 'The legal shapes are still loading: try again.');
    }
    else if (picture && (!picture.lands || !picture.good)) this.store.say(false, (picture.refusal ?? picture.note) || picture.title);
  }

  /** Ends a gesture without a trace; `made`: its edit is going to be asked for. */
  cancel(made = false): void {
    if (!this.drag) return;
    const { id, band } = this.drag;
    this.drag = null;
    this.throttle.stop();
    this.picture = null;
    delete this.area.dataset['tbDragging'];
    band?.remove();
    mark(null);
    this.exact.end(made);
    for (const frame of this.view.querySelectorAll('.tb-off')) frame.classList.remove('tb-off');
    this.ghost.hide();
    this.handles?.remove();
    this.handles = null;
    if (this.area.hasPointerCapture(id)) this.area.releasePointerCapture(id);
    this.onEnd();
  }

  private dragKey(event: KeyboardEvent): void {
    const { drag } = this;
    if (!drag?.moving) return;
    const pressed = event.type === 'keydown';
    if (event.key === 'Escape' && pressed) {
      this.cancel();
      this.swallow = true;
      this.say('cancelled');
    } else if (event.key === 'Alt') {
      drag.alt = pressed; // the browser would open its menu
      this.draw();
    } else if (event.key.toLowerCase() === 't' && drag.kind === 'move') {
      if (pressed && !event.repeat) {
        drag.turned = !drag.turned;
        this.draw();
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // -- what is seen of it --------------------------------------------------------------------------------------
  private inDrawing(event: { clientX: number; clientY: number }): [number, number] {
    const m = this.plane!.getScreenCTM();
    return m ? [(event.clientX - m.e) / m.a, (event.clientY - m.f) / m.d] : [0, 0];
  }

  /** From the drawing to pixels of the view. */
  inView([x, y]: [number, number]): [number, number] {
    const m = this.plane!.getScreenCTM();
    const frame = this.view.getBoundingClientRect();
    return m ? [x * m.a + m.e - frame.left, y * m.d + m.f - frame.top] : [x, y];
  }

  private draw(): void {
    const drag = this.drag!;
    const at = this.inDrawing({ clientX: drag.pointer[0], clientY: drag.pointer[1] });
    if (drag.band) {
      drag.band.to(at);
      return;
    }
    const scene: Scene = { ops: this.ops!, geometry: this.geometry!, legal: this.legal, displacement: this.displacement() };
    const target = drag.kind === 'move' ? targetAt(this.view, ...drag.pointer) : null;
    mark(target);
    const picture = drag.group ? groupMoved(scene, drag.group, drag, at)
      : target ? dropPicture(scene, drag, target.kind, target.number)
        : drag.kind === 'move' ? movePicture(scene, drag, at) : resizePicture(scene, drag, at);
    const frame = this.view.getBoundingClientRect();
    this.show(picture, [drag.pointer[0] - frame.left, drag.pointer[1] - frame.top], new Set(
      drag.group ? drag.group.members.map(op => this.ops!.name[op]!) : [this.ops!.name[drag.op]!]));
  }

  /** Draws a picture and watches over it. `at`: in pixels of the view. */
  show(picture: Picture, at: [number, number], own: ReadonlySet<string>): void {
    this.picture = picture;
    this.exact.watch(picture.edit);
    const leaves = this.exact.leaves(this.store.epoch);
    const lines: [string, string][] = [...this.exact.lines, ...(leaves && !picture.hidden ? [['', leaves] as [string, string]] : [])];
    const frame = this.view.getBoundingClientRect();
    this.ghost.show(this.plane!, this.geometry!, picture, at, [frame.width, frame.height],
      {
        lines, landing: this.exact.landing(this.store.epoch),
        outlines: this.exact.outlines(this.store.epoch, own).map(outline => {
          const op = this.ops!.indexOf.get(outline.op);
          return op === undefined || this.ops!.epochOf(op) !== this.store.epoch ? outline : { ...outline, from: coresOf(this.ops!, op) };
        })
      });
    window.clearTimeout(this.later);
    const speak = () => {
      if (this.ghost.tag.hidden) return;
      this.spoken = performance.now();
      this.say(Ghost.words(picture, lines));
    };
    const wait = this.spoken + SPOKEN - performance.now();
    if (wait > 0) this.later = window.setTimeout(speak, wait); // the last words of a gesture are said too
    else speak();
  }

  // -- keys ----------------------------------------------------------------------------------------------------
  /** Asks for the next larger (1) or smaller (-1) legal shape of an op; `rows`: with as many columns as now. */
  grow(op: number, direction: 1 | -1, rows = false): void {
    if (!this.ready || this.drag) return;
    const name = this.ops!.name[op]!;
    this.probe(op, legal => {
      const size = rows ? legal.stepRows(direction) : legal.step(direction);
      if (!size) {
        const what = direction > 0 ? 'largest' : 'smallest';
        this.store.say(false, `${name}: ${legal.name(legal.now)} is the ${what} legal shape${rows ? ` of ${legal.now[1]} columns` : ''}`);
        return;
      }
      this.say([`${legal.name(legal.now)} → ${legal.name(size)}`, ...legal.tag(size, this.ops!).map(t => t.join(' '))].join(', '));
      this.store.edit({ do: 'resize', op: name, size: legal.turn(size) });
    });
  }
}
