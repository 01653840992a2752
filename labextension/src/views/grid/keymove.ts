/** Moving by keys: arrows go among the legal places of an op, T turns it, Enter drops it, Escape leaves it. */
import type { Editor } from './edit.js';
import { Ghost, type Picture } from './ghost.js';
import type { Legal } from './legal.js';
import { coresOf, Group, groupPlaced, placed, sizeOf, type Dragged } from './pictures.js';

const WAYS: Record<string, [down: number, right: number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]
};

export class KeyMove {
  private drag: Dragged | null = null;
  private legal: Legal | null = null;
  private at: [number, number] = [0, 0];
  private picture: Picture | null = null;
  private group: Group | null = null;

  constructor(private readonly editor: Editor) {}

  get active(): boolean {
    return this.drag !== null;
  }

  start(op: number): void {
    const { editor } = this;
    if (!editor.ready || editor.dragging) return;
    const from = coresOf(editor.ops!, op);
    this.drag = { op, from, handle: 'se', grip: [0, 0], alt: false, turned: false };
    this.legal = this.group = null;
    this.at = [from.row, from.col];
    editor.probe(op, legal => {
      if (this.drag?.op !== op) return;
      this.legal = legal;
      this.draw();
      editor.say(`moving ${editor.ops!.name[op]!}: arrows choose among ${legal.starts(sizeOf(this.drag)).length} places, Enter drops it`);
    });
  }

  /** Several ops of an epoch, rigidly. */
  startGroup(members: readonly number[], epoch: number): void {
    const { editor } = this;
    if (!editor.ready || editor.dragging) return;
    this.drag = { op: members[0]!, from: coresOf(editor.ops!, members[0]!), handle: 'se', grip: [0, 0], alt: false, turned: false };
    this.group = new Group(editor.ops!, members, epoch);
    this.at = [0, 0];
    this.draw();
    editor.say(`moving ${members.length} ops together: arrows choose among places where all have room, Enter drops them`);
  }

  /** The exact answer came, or the grid was drawn anew. */
  refresh(): void {
    if (this.drag && (this.legal ?? this.group) && this.editor.plane) this.draw();
  }

  stop(made = false): void {
    if (!this.drag) return;
    this.drag = null;
    this.picture = null;
    this.editor.exact.end(made);
    this.editor.ghost.hide();
    this.editor.ended();
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
      this.stop(Boolean(picture?.edit));
      if (picture?.edit) editor.store.edit(picture.edit);
    } else if (this.group) {
      if (!way) return false;
      this.shift(this.group, way);
    } else if (event.key.toLowerCase() === 't') {
      drag.turned = !drag.turned;
      const near = this.legal?.nearestStart(sizeOf(drag), ...this.at);
      if (near) this.at = near;
      else {
        drag.turned = !drag.turned;
        editor.say('transposed, it fits nowhere in this epoch');
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

  /** To the next place that way where all have room. */
  private shift(group: Group, [down, right]: [number, number]): void {
    const [d, r] = this.at;
    const { rows, cols } = this.editor.ops!;
    for (let k = 1; k < Math.max(rows, cols); k++) {
      if (!group.legal(d + k * down, r + k * right)) continue;
      this.at = [d + k * down, r + k * right];
      break;
    }
    this.draw();
  }

  private draw(): void {
    const { editor, drag, legal, group } = this;
    if (!drag || !editor.ops || !editor.geometry || !editor.plane || (!legal && !group)) return;
    const picture = group
      ? groupPlaced(editor.ops, group, drag.from, ...this.at)
      : placed({ ops: editor.ops, geometry: editor.geometry, legal }, drag, ...this.at);
    this.picture = picture;
    const [x, y, w, h] = editor.geometry.box(picture.lands ?? picture.wanted);
    const own = group ? group.members : [drag.op];
    editor.show(picture, editor.inView([x + w, y + h]), new Set(own.map(op => editor.ops!.name[op]!)));
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
