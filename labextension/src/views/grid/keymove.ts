/** Moving by keys: arrows go among the legal places of an op, T turns it, Enter puts it down, Escape leaves it. */
import type { Editor } from './edit.js';
import { Ghost, type Picture } from './ghost.js';
import type { Legal } from './legal.js';
import { coresOf, placed, sizeOf, type Dragged } from './pictures.js';

const WAYS: Record<string, [down: number, right: number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]
};

export class KeyMove {
  private drag: Dragged | null = null;
  private legal: Legal | null = null;
  private at: [number, number] = [0, 0];
  private picture: Picture | null = null;

  constructor(private readonly editor: Editor) {}

  get active(): boolean {
    return this.drag !== null;
  }

  start(op: number): void {
    const { editor } = this;
    if (!editor.ready || editor.dragging) return;
    const from = coresOf(editor.ops!, op);
    this.drag = { op, from, handle: 'se', grip: [0, 0], alt: false, turned: false };
    this.legal = null;
    this.at = [from.row, from.col];
    editor.probe(op, legal => {
      if (this.drag?.op !== op) return;
      this.legal = legal;
      this.draw();
      editor.say(`moving ${editor.ops!.name[op]!}: arrows choose among ${legal.starts(sizeOf(this.drag)).length} places, Enter puts it down`);
    });
  }

  /** The exact answer came, or the grid was drawn anew. */
  refresh(): void {
    if (this.drag && this.legal && this.editor.plane) this.draw();
  }

  stop(): void {
    if (!this.drag) return;
    this.drag = null;
    this.picture = null;
    this.editor.exact.end();
    this.editor.ghost.hide();
  }

  /** True for the keys of the move. */
  key(event: KeyboardEvent): boolean {
    const { drag, editor } = this;
    if (!drag) return false;
    const way = WAYS[event.key];
    if (event.key === 'Escape') {
      this.stop();
      editor.say('cancelled');
    } else if (event.key === 'Enter') {
      const { picture } = this;
      this.stop();
      if (picture?.edit) editor.store.ask({ type: 'edit', ...picture.edit });
    } else if (event.key.toLowerCase() === 't') {
      drag.turned = !drag.turned;
      const near = this.legal?.nearestStart(sizeOf(drag), ...this.at);
      if (near) this.at = near;
      else {
        drag.turned = !drag.turned;
        editor.say('turned, it fits nowhere in this epoch');
        return true;
      }
      this.draw();
    } else if (way && this.legal) {
      const next = nextStart(this.legal.starts(sizeOf(drag)), this.at, way);
      if (next) this.at = next;
      this.draw();
    } else if (!way) return false;
    return true;
  }

  private draw(): void {
    const { editor, drag, legal } = this;
    if (!drag || !legal || !editor.ops || !editor.geometry || !editor.plane) return;
    const picture = placed({ ops: editor.ops, geometry: editor.geometry, legal }, drag, ...this.at);
    this.picture = picture;
    const [x, y, w, h] = editor.geometry.box(picture.lands ?? picture.wanted);
    editor.show(picture, editor.inView([x + w, y + h]), new Set([editor.ops.name[drag.op]!]));
    editor.say(Ghost.words(picture, editor.exact.lines));
  }
}

/** The legal start nearest that way; distance across counts double. */
export function nextStart(
  starts: readonly [number, number][], [row, col]: [number, number], [down, right]: [number, number]
): [number, number] | null {
  let best: [number, number] | null = null;
  let least = Infinity;
  for (const start of starts) {
    const along = (start[0] - row) * down + (start[1] - col) * right;
    const across = Math.abs((start[0] - row) * right) + Math.abs((start[1] - col) * down);
    if (along > 0 && along + 2 * across < least) [best, least] = [start, along + 2 * across];
  }
  return best;
}
