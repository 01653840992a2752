/**
 * Editing on the grid: an op's edge is dragged to another shape, its body to another place. One question at the start
 * brings the table of legal shapes; from then on nothing is sent until the pointer is let go.
 */
import { Ops } from '../ops.js';
import type { Store } from '../store.js';
import type { Cores, Geometry } from './geometry.js';
import { drawHandles, Ghost, type Handle, type Picture } from './ghost.js';
import { Legal, type Size } from './legal.js';

const STILL = 4; // px: a press that moves less is a click
const SPOKEN = 500; // ms between two announcements

interface Drag {
  kind: 'resize' | 'move';
  handle: Handle;
  op: number;
  from: Cores;
  /** From the tile's corner to the press, in the drawing. */
  grip: [number, number];
  press: [number, number];
  pointer: [number, number];
  alt: boolean;
  moving: boolean;
  id: number;
}

export class Editor {
  readonly ghost = new Ghost();
  private ops: Ops | null = null;
  private geometry: Geometry | null = null;
  private plane: SVGGElement | null = null;
  private drag: Drag | null = null;
  private legal: Legal | null = null;
  private seq = 0;
  private handles: SVGGElement | null = null;
  private picture: Picture | null = null;
  private waiting: ((legal: Legal) => void) | null = null;
  private spoken = 0;
  private swallow = false;
  private readonly stops: (() => void)[] = [];

  /** speak: puts a line into the live region. */
  constructor(
    private readonly store: Store, private readonly area: HTMLElement, private readonly view: HTMLElement,
    private readonly speak: (text: string) => void
  ) {
    const down = (event: PointerEvent) => this.press(event);
    const move = (event: PointerEvent) => this.move(event);
    const up = (event: PointerEvent) => this.release(event);
    const cancel = () => this.cancel();
    const click = (event: MouseEvent) => {
      if (!this.swallow) return;
      this.swallow = false;
      event.stopPropagation();
    };
    const key = (event: KeyboardEvent) => this.dragKey(event);
    area.addEventListener('pointerdown', down);
    area.addEventListener('pointermove', move);
    area.addEventListener('pointerup', up);
    area.addEventListener('pointercancel', cancel);
    area.addEventListener('click', click, true);
    window.addEventListener('keydown', key, true);
    window.addEventListener('keyup', key, true);
    this.stops.push(
      store.on('frame', what => {
        if (what === 'legal') this.answered();
      }),
      () => {
        window.removeEventListener('keydown', key, true);
        window.removeEventListener('keyup', key, true);
      });
  }

  dispose(): void {
    this.cancel();
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
  }

  /** Shows the handles of an op, null for none. They stay while the pointer is on one of them. */
  offer(op: number | null): void {
    if (this.drag) return;
    if (op === null || !this.ready) {
      this.handles?.remove();
      this.handles = null;
      return;
    }
    const name = this.ops!.name[op]!;
    if (this.handles?.isConnected && this.handles.dataset['tbHandlesOf'] === name) return;
    this.handles?.remove();
    this.handles = drawHandles(name, this.geometry!, this.cores(op));
    this.plane!.append(this.handles);
  }

  private get ready(): boolean {
    const edits = this.store.edits;
    return this.ops !== null && this.plane !== null && edits !== null && !edits.busy && !this.store.status.running;
  }

  private cores(op: number): Cores {
    const ops = this.ops!;
    return { row: ops.get('row', op), col: ops.get('col', op), rows: ops.get('rows', op), cols: ops.get('cols', op) };
  }

  // -- the gesture ---------------------------------------------------------------------------------------------
  private press(event: PointerEvent): void {
    this.swallow = false;
    // JupyterLab takes a drag that begins with Shift; a control click is a menu on some machines, and toggles here.
    if (event.button !== 0 || event.shiftKey || event.ctrlKey || event.metaKey || !this.ready || this.drag) return;
    const target = event.target as Element;
    const handle = target.closest<SVGElement>('[data-tb-handle]');
    const name = handle?.closest<SVGElement>('[data-tb-handles-of]')?.dataset['tbHandlesOf'] ??
      target.closest<SVGElement>('[data-tb-op]')?.dataset['tbOp'];
    const op = name === undefined ? undefined : this.ops!.indexOf.get(name);
    if (op === undefined) return;
    const from = this.cores(op);
    const at = this.inDrawing(event);
    const [x, y] = this.geometry!.box(from);
    this.drag = {
      kind: handle ? 'resize' : 'move', handle: (handle?.dataset['tbHandle'] ?? 'se') as Handle, op, from,
      grip: [at[0] - x, at[1] - y], press: [event.clientX, event.clientY], pointer: [event.clientX, event.clientY],
      alt: event.altKey, moving: handle !== null, id: event.pointerId
    };
    if (handle) {
      event.preventDefault();
      this.begin();
    }
  }

  /** The one question of a gesture. */
  private begin(): void {
    const drag = this.drag!;
    this.area.setPointerCapture(drag.id);
    this.area.dataset['tbDragging'] = drag.kind === 'move' ? 'move' : drag.handle;
    this.area.focus({ preventScroll: true });
    this.probe(drag.op);
    this.draw();
  }

  private probe(op: number): void {
    this.legal = null;
    this.store.host.send({ type: 'probe_begin', op: this.ops!.name[op]!, seq: ++this.seq });
  }

  private answered(): void {
    const legal = new Legal(this.store.frames.get('legal')!);
    if (legal.seq !== this.seq) return;
    this.legal = legal;
    if (this.drag) this.draw();
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
    this.draw();
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
    this.draw();
    const { picture, legal } = this;
    this.cancel();
    this.swallow = true; // the click that follows
    window.setTimeout(() => (this.swallow = false), 0);
    if (!legal) this.store.say(false, 'The table of legal shapes is not here yet: try again.');
    else if (!picture?.lands) this.store.say(false, picture?.note ?? '');
    else if (!this.commit(drag, legal, picture.lands) && !picture.good) this.store.say(false, picture.note);
  }

  /** Asks for what was dragged; false where it comes to nothing. */
  private commit(drag: Drag, legal: Legal, lands: Cores): boolean {
    const op = this.ops!.name[drag.op]!;
    const { from } = drag;
    if (lands.row !== from.row || lands.col !== from.col) {
      this.store.ask({ type: 'edit', do: 'move', op, start: [lands.row, lands.col], transposed: this.ops!.get('transposed', drag.op) === 1 });
    } else if (lands.rows !== from.rows || lands.cols !== from.cols) {
      this.store.ask({ type: 'edit', do: 'resize', op, size: legal.turn([lands.rows, lands.cols]) });
    } else return false;
    return true;
  }

  /** Ends a gesture without a trace. */
  cancel(): void {
    if (!this.drag) return;
    const { id } = this.drag;
    this.drag = null;
    this.picture = null;
    delete this.area.dataset['tbDragging'];
    this.ghost.hide();
    this.handles?.remove();
    this.handles = null;
    if (this.area.hasPointerCapture(id)) this.area.releasePointerCapture(id);
  }

  private dragKey(event: KeyboardEvent): void {
    if (!this.drag?.moving) return;
    if (event.key === 'Escape' && event.type === 'keydown') {
      event.preventDefault();
      event.stopPropagation();
      this.cancel();
      this.swallow = true;
      this.speak('cancelled');
    } else if (event.key === 'Alt') {
      event.preventDefault(); // else the browser opens its menu
      this.drag.alt = event.type === 'keydown';
      this.draw();
    }
  }

  // -- what is seen of it --------------------------------------------------------------------------------------
  private inDrawing(event: { clientX: number; clientY: number }): [number, number] {
    const m = this.plane!.getScreenCTM();
    return m ? [(event.clientX - m.e) / m.a, (event.clientY - m.f) / m.d] : [0, 0];
  }

  private draw(): void {
    const drag = this.drag!;
    const at = this.inDrawing({ clientX: drag.pointer[0], clientY: drag.pointer[1] });
    this.picture = drag.kind === 'move' ? this.moved(drag, at) : this.resized(drag, at);
    const frame = this.view.getBoundingClientRect();
    this.ghost.show(this.plane!, this.geometry!, this.picture, [drag.pointer[0] - frame.left, drag.pointer[1] - frame.top],
      [frame.width, frame.height]);
    const now = performance.now();
    if (now - this.spoken >= SPOKEN) {
      this.spoken = now;
      this.speak(Ghost.words(this.picture));
    }
  }

  private resized(drag: Drag, [x, y]: [number, number]): Picture {
    const { from, handle } = drag;
    const { legal } = this;
    const geometry = this.geometry!;
    const size: Size = [
      handle === 'e' ? from.rows : geometry.rowsTo(y, from.row),
      handle === 's' ? from.cols : geometry.columnsTo(x, from.col)
    ];
    const wanted = { ...from, rows: size[0], cols: size[1] };
    if (!legal) return waitingFor(wanted, this.ops!.name[drag.op]!);
    const good = legal.isLegal(size);
    const why = good ? null : legal.reason(size);
    const because = why ? `${legal.name(size)}: ${why.meaning}${why.fix ? `; ${why.fix}` : ''}` : '';
    const snapped = good || drag.alt
      ? good ? size : null
      : legal.nearest(size, s => s[0] <= geometry.height - from.row && s[1] <= geometry.width - from.col &&
          (handle !== 'e' || s[0] === from.rows) && (handle !== 's' || s[1] === from.cols));
    if (!snapped) {
      return {
        wanted, good, lands: null, crowded: false, verdict: why?.name ?? 'NONE', title: `${legal.name(size)} is not legal`,
        lines: [], note: because
      };
    }
    const lands = { ...from, rows: snapped[0], cols: snapped[1] };
    const crowded = !legal.free(snapped, from.row, from.col);
    const same = snapped[0] === from.rows && snapped[1] === from.cols;
    return {
      wanted, good, lands, crowded, verdict: good ? 'LEGAL' : why?.name ?? 'NONE',
      title: same ? legal.name(snapped) : `${legal.name(legal.now)} → ${legal.name(snapped)}`, lines: legal.tag(snapped, this.ops!),
      note: !good ? `${legal.name(size)} is not legal; Alt tells why` : crowded ? 'others make room' : ''
    };
  }

  private moved(drag: Drag, [x, y]: [number, number]): Picture {
    const { from } = drag;
    const { legal } = this;
    const [row, col] = this.geometry!.corner(x - drag.grip[0], y - drag.grip[1]);
    const wanted = { ...from, row: Math.min(row, this.geometry!.height - 1), col };
    const name = this.ops!.name[drag.op]!;
    if (!legal) return waitingFor(wanted, name);
    const size: Size = [from.rows, from.cols];
    const good = legal.free(size, row, col);
    const spot = good ? [row, col] : drag.alt ? null : legal.nearestStart(size, row, col);
    const title = spot ? `row ${spot[0]}, column ${spot[1]}` : `row ${row}, column ${col}`;
    const why = col + from.cols > this.geometry!.width || row + from.rows > this.geometry!.height
      ? `${size.join('×')} cores from there reach beyond the grid` : 'other ops stand there';
    return {
      wanted, good, lands: spot ? { ...from, row: spot[0]!, col: spot[1]! } : null, crowded: false,
      verdict: good ? 'LEGAL' : 'TAKEN', title, lines: [['size', legal.name(size)]],
      note: good ? '' : spot ? `${why}; lands on the nearest free place` : why
    };
  }

  // -- keys ----------------------------------------------------------------------------------------------------
  /** Asks for the next larger (1) or smaller (-1) legal shape of an op. */
  grow(op: number, direction: 1 | -1): void {
    if (!this.ready || this.drag) return;
    const name = this.ops!.name[op]!;
    this.waiting = legal => {
      const size = legal.step(direction);
      if (!size) {
        this.store.say(false, `${name}: ${legal.name(legal.now)} is the ${direction > 0 ? 'largest' : 'smallest'} legal shape`);
        return;
      }
      this.speak([`${legal.name(legal.now)} → ${legal.name(size)}`, ...legal.tag(size, this.ops!).map(t => t.join(' '))].join(', '));
      this.store.ask({ type: 'edit', do: 'resize', op: name, size: legal.turn(size) });
    };
    this.probe(op);
  }
}

function waitingFor(wanted: Cores, name: string): Picture {
  return { wanted, good: true, lands: null, crowded: false, verdict: 'WAITING', title: name, lines: [], note: 'asking for legal shapes' };
}
