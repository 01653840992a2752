/** Whether an op came to stand where its ghost was shown; if not, that is said, and a frame goes from there to it. */
import { svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Store } from '../store.js';
import type { Cores, Geometry } from './geometry.js';
import { coresOf } from './pictures.js';

const WAY = 900; // ms that the frame takes

export class DropResult {
  private shown: Cores[] = [];
  private op = '';
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.stop = store.listen('edited', message => {
      if (!message['ok']) this.op = ''; // it stands where it stood
    });
  }

  dispose(): void {
    this.stop();
  }

  /** An op was let go; its ghost stood at the first of `shown`. */
  watch(shown: Cores[], op: string): void {
    this.shown = shown;
    this.op = op;
  }

  /** The grid shows a placement; the last one before the answer is that of the edit. */
  redrawn(ops: Ops, geometry: Geometry, plane: SVGGElement): void {
    const op = this.op ? ops.indexOf.get(this.op) : undefined;
    if (op === undefined) return;
    const [promised] = this.shown;
    const is = coresOf(ops, op);
    this.op = '';
    if (!promised || same(promised, is)) return;
    const epoch = ops.epochOf(op);
    const where = epoch === this.store.epoch ? `row ${is.row}, column ${is.col}` : `epoch ${epoch}`;
    this.store.say(true, `${ops.name[op]!} was placed at ${where}: its neighbours left no room at the estimated place`);
    if (epoch !== this.store.epoch) return;
    const [from, to] = [geometry.box(promised), geometry.box(is)];
    const frame = svg('rect', { class: 'tb-ghost', x: to[0], y: to[1], width: to[2], height: to[3], rx: 5 });
    plane.append(frame);
    const gone = () => frame.remove();
    if (!('animate' in frame) || matchMedia('(prefers-reduced-motion: reduce)').matches) {
      setTimeout(gone, WAY);
      return;
    }
    frame.animate([
      { transform: `translate(${from[0] - to[0]}px, ${from[1] - to[1]}px)` }, { transform: 'none' }
    ], { duration: WAY, easing: 'ease-in-out' }).onfinish = gone;
  }
}

function same(a: Cores, b: Cores): boolean {
  return a.row === b.row && a.col === b.col && a.rows === b.rows && a.cols === b.cols;
}
