/** What the keys of the grid do; which key does what is in `keys.ts` of the views. */
import { open } from '../dialog.js';
import { grouped, percent } from '../dom.js';
import type { Edit } from '../editmessages.js';
import { actionOf } from '../keys.js';
import type { Ops } from '../ops.js';
import type { Store } from '../store.js';
import type { Editor } from './edit.js';
import { KeyMove } from './keymove.js';
import { CoreCursor, nextTile } from './tilefocus.js';
import type { Suggestions } from './suggest.js';

export interface Keyed {
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

export class GridKeys {
  readonly moving: KeyMove;
  readonly cursor = new CoreCursor();
  private storing = false;
  private walk: { op: string; stage: number } = { op: '', stage: 0 };

  constructor(private readonly grid: Keyed) {
    this.moving = new KeyMove(grid.editor);
    grid.editor.answer = () => this.moving.refresh();
  }

  handle(event: KeyboardEvent): void {
    const { grid } = this;
    if (grid.editor.dragging) return;
    if (this.moving.key(event) || this.digit(event)) {
      this.taken(event);
      return;
    }
    const action = actionOf(event, 'grid');
    if (!action || !this.run(action, event)) return;
    this.taken(event);
    if (!document.activeElement?.closest('.tb-dialog, .tb-hints')) this.focus(action);
  }

  private taken(event: KeyboardEvent): void {
    event.preventDefault();
    event.stopPropagation();
  }

  private focus(action: string): void {
    const { plane } = this.grid;
    const tile = ['left', 'right', 'up', 'down'].includes(action) ? plane.querySelector<SVGGElement>('.tb-tile.tb-roving') : null;
    (tile ?? plane).focus({ preventScroll: true });
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
    const focused = document.activeElement?.closest<SVGGElement>('.tb-tile')?.dataset['tbOp'];
    const under = ops ? this.cursor.under(ops, store.epoch) : null;
    const { names } = store.selection;
    const only = names.length === 1 ? ops?.matcher.find(names) ?? [] : [];
    return focused ?? (under === null ? only.length === 1 ? ops!.name[only[0]!]! : '' : ops!.name[under]!);
  }

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
      else if (store.edits.busy || store.status.running) store.say(false, 'Wait until the current work ends, or cancel it.');
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
        what: 'prompt', label: `Epoch, 0 to ${ops.epochs - 1}`, value: String(store.epoch), done: text => this.goTo(text)
      }),
      search: () => open(grid.element, { what: 'prompt', label: 'Find op', value: '', done: text => this.find(text) }),
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
    const slowest = ops.limitingOf(epoch);
    return [
      `epoch ${epoch} of ${ops.epochs}: ${ops.ofEpoch('ops', epoch)} ops, ${grouped(ops.epochTimes[epoch]!)} cycles`,
      `${percent(ops.ofEpoch('cores', epoch) / (ops.rows * ops.cols))} of cores, ${percent(ops.busy(epoch))} busy`,
      slowest < 0 ? '' : `${ops.name[slowest]!} limits it`, `all epochs ${grouped(ops.total)} cycles`
    ].filter(Boolean).join('; ');
  }
}
