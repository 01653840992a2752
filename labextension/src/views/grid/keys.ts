/**
 * What the keys of the grid do (which key does what is in `keys.ts` of the views): the focus on tiles and cores,
 * moving an op.
 */
import { goToPlace } from '../place.js';
import { withThousands, percent, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Geometry } from './geometry.js';
import { coresOf, type DragGesture, Group, groupPlaced, placePicture, sizeOf } from './pictures.js';
import type { Editor } from './edit.js';
import { Ghost, type Picture } from './ghost.js';
import type { Legal } from './legal.js';
import { open } from '../dialog.js';
import type { Edit } from '../editmessages.js';
import { actionOf } from '../keys.js';
import type { Store } from '../store.js';
import type { Suggestions } from './suggest.js';

/** The nearest tile that way; distance across counts double. The first one where nothing is in focus. */
function nextTile(plane: HTMLElement, ops: Ops, from: SVGGElement | null, dx: number, dy: number): SVGGElement | null {
  const tiles = [...plane.querySelectorAll<SVGGElement>('.tb-tile')];
  const centre = (tile: SVGGElement): [number, number] => {
    const c = coresOf(ops, ops.indexOf.get(tile.dataset['tbOp']!)!);
    return [c.col + c.cols / 2, c.row + c.rows / 2];
  };
  const current = from ?? plane.querySelector<SVGGElement>('.tb-roving') ?? plane.querySelector<SVGGElement>('.tb-tile.tb-selected');
  if (!current?.isConnected) return tiles[0] ?? null;
  const [x, y] = centre(current);
  let best = Infinity;
  let next = current;
  for (const tile of tiles) {
    const [tx, ty] = centre(tile);
    const along = (tx - x) * dx + (ty - y) * dy;
    const across = Math.abs((tx - x) * dy) + Math.abs((ty - y) * dx);
    if (along > 0.1 && along + 2 * across < best) [best, next] = [along + 2 * across, tile];
  }
  return next;
}

/** The focus that goes from tile to tile, and the core that it stands on. */
class CoreCursor {
  private at: [number, number] | null = null;
  private mark: SVGElement | null = null;

  /** Moves by one core; returns what a screen reader says. */
  step(ops: Ops, epoch: number, plane: SVGGElement, geometry: Geometry, down: number, right: number): string {
    const [r, c] = this.at ?? [0, 0];
    const first = this.at === null;
    const row = Math.max(0, Math.min(ops.rows - 1, first ? r : r + down));
    const col = Math.max(0, Math.min(ops.cols - 1, first ? c : c + right));
    this.at = [row, col];
    this.mark?.remove();
    const [x, y, width, height] = geometry.box({ row, col, rows: 1, cols: 1 });
    this.mark = svg('rect', { class: 'tb-core-cursor', x, y, width, height, rx: 4, 'data-tb-core': `${row},${col}` });
    plane.append(this.mark);
    const op = this.under(ops, epoch);
    return `row ${row}, column ${col}: ${op === null ? 'free' : ops.name[op]!}`;
  }

  /** The op on the core. */
  under(ops: Ops, epoch: number): number | null {
    if (!this.at) return null;
    const [row, col] = this.at;
    return (ops.byEpoch[epoch] ?? []).find(op => {
      const c = coresOf(ops, op);
      return row >= c.row && row < c.row + c.rows && col >= c.col && col < c.col + c.cols;
    }) ?? null;
  }

  hide(): void {
    this.mark?.remove();
    this.mark = null;
    this.at = null;
  }
}

const WAYS: Record<string, [down: number, right: number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]
};

/** Moving by keys: arrows go among the legal places of an op, T turns it, Enter drops it, Escape leaves it. */
class KeyMove {
  private drag: DragGesture | null = null;
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
    this.editor.onEnd();
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
      : placePicture({ ops: editor.ops, geometry: editor.geometry, legal }, drag, ...this.at);
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

interface KeyTarget {
  readonly store: Store;
  readonly plane: HTMLElement;
  readonly element: HTMLElement;
  readonly editor: Editor;
  readonly suggestions: Suggestions;
  ops: Ops | null;
  toggleNames(): void;
  zoom(direction: 1 | -1): void;
  fit(): void;
}

/** What the keys of the grid do; which key does what is in `keys.ts` of the views. */
export class GridKeys {
  readonly moving: KeyMove;
  readonly cursor = new CoreCursor();
  private storing = false;
  private walk: { op: string; stage: number } = { op: '', stage: 0 };

  constructor(private readonly grid: KeyTarget) {
    this.moving = new KeyMove(grid.editor);
    grid.editor.answer = () => this.moving.refresh();
  }

  handle(event: KeyboardEvent): void {
    const { grid } = this;
    if (grid.editor.dragging) return;
    if (this.moving.key(event) || this.digit(event)) {
      this.consume(event);
      return;
    }
    const action = actionOf(event, 'grid');
    if (!action || !this.run(action, event)) return;
    this.consume(event);
    if (!document.activeElement?.closest('.tb-dialog, .tb-hints')) this.focus(action);
  }

  private consume(event: KeyboardEvent): void {
    event.preventDefault();
    event.stopPropagation();
  }

  private focus(action: string): void {
    const { plane } = this.grid;
    const tile = ['left', 'right', 'up', 'down'].includes(action) ? plane.querySelector<SVGGElement>('.tb-tile.tb-roving') : null;
    (tile ?? plane).focus({ preventScroll: true });
  }

  /** Does what a key does, to an op that is pointed at. */
  doTo(name: string, action: string): void {
    this.named = name;
    this.run(action, new KeyboardEvent('keydown'));
    this.named = '';
  }

  /** The digit after V keeps the view. */
  private digit(event: KeyboardEvent): boolean {
    if (!this.storing) return false;
    if (event.key === 'Shift') return true;
    this.storing = false;
    if (!/^[1-9]$/.test(event.key)) return false;
    this.grid.store.keep(event.key);
    this.grid.store.say(true, `View saved under ${event.key}`);
    return true;
  }

  /** The op that keys act on: the tile in focus, the only one selected, the one under the core. */
  private target(): string {
    const { store, ops } = this.grid;
    if (this.named) return this.named;
    const focused = document.activeElement?.closest<SVGGElement>('.tb-tile')?.dataset['tbOp'];
    const under = ops ? this.cursor.under(ops, store.epoch) : null;
    const { names } = store.selection;
    const only = names.length === 1 ? ops?.matcher.find(names) ?? [] : [];
    return focused ?? (under === null ? only.length === 1 ? ops!.name[only[0]!]! : '' : ops!.name[under]!);
  }

  private named = '';

  private run(action: string, event: KeyboardEvent): boolean {
    const { grid } = this;
    const { store, ops } = grid;
    if (!ops) {
      if (action === 'keys') open(grid.element, { what: 'keys', scope: 'grid' });
      return action === 'keys';
    }
    const name = this.target();
    const op = ops.indexOf.get(name);
    const withOp = (f: (op: number) => void): void => {
      if (op === undefined) store.say(false, 'Select an op first: arrows and Enter, or a click.');
      else f(op);
    };
    const edit = (f: (op: number) => void): void => {
      if (!store.edits) store.say(false, 'This page has no kernel: nothing can be edited.');
      else if (store.blocked) store.say(false, store.blocked);
      else withOp(i => {
        store.select([name], 'grid');
        f(i);
      });
    };
    const ask = (message: Edit): void => edit(() => store.edit(message));
    const has = (field: string): boolean => store.edits?.overrides.some(o => o.target === name && o.field === field && o.state !== 'off') ?? false;
    const go = (step: number): void => store.setEpoch(Math.max(0, Math.min(ops.epochs - 1, store.epoch + step)));
    const rove = (dx: number, dy: number): void => this.rove(dx, dy);
    const core = (down: number, right: number): void =>
      grid.editor.say(this.cursor.step(ops, store.epoch, grid.editor.plane!, grid.editor.geometry!, down, right));
    const actions: Record<string, () => void> = {
      left: () => rove(-1, 0), right: () => rove(1, 0), up: () => rove(0, -1), down: () => rove(0, 1),
      'core-left': () => core(0, -1), 'core-right': () => core(0, 1), 'core-up': () => core(-1, 0), 'core-down': () => core(1, 0),
      'next-epoch': () => go(1), 'previous-epoch': () => go(-1),
      'go-to-epoch': () => open(grid.element, {
        what: 'prompt', label: `Epoch, 0 to ${ops.epochs - 1}, or a place that was copied`, value: String(store.epoch), onDone: text => this.goTo(text)
      }),
      search: () => open(grid.element, { what: 'prompt', label: 'Find op', value: '', onDone: text => this.find(text) }),
      select: () => withOp(() => store.click(name, false, 'grid')),
      toggle: () => withOp(() => store.click(name, true, 'grid')),
      neighbours: () => this.neighbours(ops, op),
      clear: () => {
        this.cursor.hide();
        store.select([], 'grid');
      },
      grow: () => edit(i => grid.editor.grow(i, 1)),
      shrink: () => edit(i => grid.editor.grow(i, -1)),
      'grow-rows': () => edit(i => grid.editor.grow(i, 1, true)),
      'shrink-rows': () => edit(i => grid.editor.grow(i, -1, true)),
      move: () => {
        const several = ops.matcher.find(store.selection.names).filter(i => ops.epochOf(i) === store.epoch);
        if (several.length > 1 && store.edits && !store.edits.busy) this.moving.startGroup(several, store.epoch);
        else edit(i => this.moving.start(i));
      },
      later: () => edit(i => store.edit({ do: 'epoch', op: name, epoch: Math.min(ops.epochs - 1, ops.epochOf(i) + 1) })),
      earlier: () => edit(i => store.edit({ do: 'epoch', op: name, epoch: Math.max(0, ops.epochOf(i) - 1) })),
      break: () => ask({ do: 'break', op: name, on: !has('epoch_break') }),
      'chip-break': () => {
        if ((ops.frame.meta['chips'] as unknown[] | undefined ?? []).length < 2) store.say(false, 'The device has one chip.');
        else ask({ do: 'chip-break', op: name, on: !has('chip_break') });
      },
      pin: () => ask(has('op_placement') ? { do: 'clear', op: name, kinds: ['op_placement'] } : { do: 'pin', op: name }),
      'clear-overrides': () => ask({ do: 'clear', op: name }),
      undo: () => this.step('undo'),
      redo: () => this.step('redo'),
      recompile: () => {
        if (store.edits && !store.edits.busy) store.ask({ type: 'recompile' });
      },
      why: () => edit(() => open(grid.element, { what: 'why', op: name })),
      suggest: () => {
        if (store.edits) grid.suggestions.toggle();
      },
      summary: () => store.say(true, this.summary(ops)),
      export: () => open(grid.element, { what: 'export' }),
      keys: () => open(grid.element, { what: 'keys', scope: 'grid' }),
      'full-names': () => grid.toggleNames(),
      'zoom-in': () => grid.zoom(1), 'zoom-out': () => grid.zoom(-1), fit: () => grid.fit(),
      'store-view': () => {
        this.storing = true;
        grid.editor.say('Press a digit from 1 to 9');
      },
      'recall-view': () => {
        if (!store.recall(event.key)) store.say(false, `No view is saved under ${event.key}: press V, then ${event.key}, to save this one.`);
      }
    };
    actions[action]?.();
    return action in actions;
  }

  private step(what: 'undo' | 'redo'): void {
    const { store } = this.grid;
    if (store.edits) store.ask({ type: what }); // while it works too: one step follows the other
  }

  private rove(dx: number, dy: number): void {
    const { plane, ops } = this.grid;
    const focused = document.activeElement?.closest<SVGGElement>('.tb-tile') ?? null;
    const next = nextTile(plane, ops!, focused, dx, dy);
    for (const tile of plane.querySelectorAll('.tb-tile')) tile.classList.toggle('tb-roving', tile === next);
    this.cursor.hide();
  }

  private goTo(text: string): void {
    const { store, ops } = this.grid;
    if (text.includes('epoch=') && goToPlace(store, text)) return;
    const epoch = Number(text);
    if (Number.isInteger(epoch) && epoch >= 0 && epoch < ops!.epochs) store.setEpoch(epoch);
    else store.say(false, `There is no epoch ${text}; there are 0 to ${ops!.epochs - 1}.`);
  }

  private find(text: string): void {
    const { store, ops } = this.grid;
    const lower = text.toLowerCase();
    const found = ops!.name.findIndex(n => n === text) + 1 || ops!.name.findIndex(n => n.toLowerCase().includes(lower)) + 1;
    if (found) store.select([ops!.name[found - 1]!], 'find');
    else store.say(false, `No op has ${text} in its name.`);
  }

  /** The op's feeders, at the next press its readers, then the op itself again. */
  private neighbours(ops: Ops, op: number | undefined): void {
    const { store, editor } = this.grid;
    const on = store.selection.source === 'neighbours' ? ops.indexOf.get(this.walk.op) : undefined;
    const from = on ?? op;
    if (from === undefined) {
      store.say(false, 'Select an op first: arrows and Enter, or a click.');
      return;
    }
    const name = ops.name[from]!;
    const rounds: [string, number[]][] = [['the op', [from]], ['feeders', ops.into(from)], ['readers', ops.outOf(from)]];
    let stage = on === undefined ? 0 : this.walk.stage;
    do stage = (stage + 1) % 3; while (!rounds[stage]![1].length);
    this.walk = { op: name, stage };
    const [what, list] = rounds[stage]!;
    store.select(list.map(i => ops.name[i]!), 'neighbours');
    editor.say(stage ? `${list.length} ${what} of ${name}` : name);
  }

  private summary(ops: Ops): string {
    const { epoch } = this.grid.store;
    const slowest = ops.slowestOf(epoch);
    return [
      `epoch ${epoch} of ${ops.epochs}: ${ops.ofEpoch('ops', epoch)} ops, ${withThousands(ops.epochTimes[epoch]!)} cycles`,
      `${percent(ops.ofEpoch('cores', epoch) / (ops.rows * ops.cols))} of cores, ${percent(ops.busy(epoch))} busy`,
      ops.limitsText(epoch) || (slowest < 0 ? '' : `slowest kernel ${ops.name[slowest]!}`), `all epochs ${withThousands(ops.total)} cycles`
    ].filter(Boolean).join('; ');
  }
}
