/** What the keys of the graph do; which key does what is in `keys.ts` of the views. */
import { open } from '../dialog.js';
import type { Edit } from '../editmessages.js';
import { actionOf } from '../keys.js';
import type { Ops } from '../ops.js';
import type { Store } from '../store.js';

const STEP = 60; // px of a pan

export interface Keyed {
  readonly store: Store;
  readonly element: HTMLElement;
  readonly stage: HTMLElement;
  readonly search: HTMLInputElement;
  readonly ops: Ops | null;
  pan(dx: number, dy: number): void;
  zoom(factor: number): void;
  fit(): void;
  turn(): void;
  stepPass(by: number): void;
}

export class GraphKeys {
  private storing = false;

  constructor(private readonly graph: Keyed) {}

  handle(event: KeyboardEvent): void {
    const { graph } = this;
    if ((event.target as Element).closest('.tb-break, .tb-menu')) return;
    const action = this.storing && /^[1-9]$/.test(event.key) ? 'keep' : actionOf(event, 'graph');
    this.storing = false;
    if (!action || !this.run(action, event)) return;
    event.preventDefault();
    event.stopPropagation();
    if (action === 'search') graph.search.focus();
  }

  private run(action: string, event: KeyboardEvent): boolean {
    const { graph } = this;
    const { store } = graph;
    const { names } = store.selection;
    const found = names.length === 1 ? graph.ops?.matcher.find(names) ?? [] : [];
    const op = found.length === 1 ? graph.ops!.name[found[0]!]! : '';
    const edit = (f: () => void): void => {
      if (!store.edits) store.say(false, 'This page has no kernel: nothing can be edited.');
      else if (store.edits.busy || store.status.running) store.say(false, 'Wait until the current work ends, or cancel it.');
      else if (!op) store.say(false, 'Select one placed op first.');
      else f();
    };
    const has = (field: string): boolean => store.edits?.overrides.some(o => o.target === op && o.field === field && o.state !== 'off') ?? false;
    const ask = (message: Edit): void => edit(() => store.edit(message));
    const step = (what: string): void => {
      if (store.edits && (what !== 'recompile' || !store.edits.busy)) store.ask({ type: what }); // undo and redo queue up
    };
    const go = (by: number): void => store.stepEpoch(by);
    const actions: Record<string, () => void> = {
      left: () => graph.pan(STEP, 0), right: () => graph.pan(-STEP, 0), up: () => graph.pan(0, STEP), down: () => graph.pan(0, -STEP),
      'zoom-in': () => graph.zoom(1.25), 'zoom-out': () => graph.zoom(1 / 1.25), fit: () => graph.fit(),
      'next-pass': () => graph.stepPass(1), 'previous-pass': () => graph.stepPass(-1), direction: () => graph.turn(),
      search: () => undefined,
      clear: () => store.select([], 'graph'),
      'next-epoch': () => go(1), 'previous-epoch': () => go(-1),
      'go-to-epoch': () => open(graph.element, {
        what: 'prompt', label: 'Epoch', value: String(store.epoch), done: text => {
          const count = graph.ops?.epochs ?? 0;
          if (/^\d+$/.test(text) && Number(text) < count) store.setEpoch(Number(text));
          else store.say(false, `There is no epoch ${text}; there are 0 to ${count - 1}.`);
        }
      }),
      neighbours: () => {
        const i = graph.ops?.indexOf.get(op);
        if (i !== undefined) store.select([...graph.ops!.into(i), ...graph.ops!.outOf(i)].map(n => graph.ops!.name[n]!), 'neighbours');
      },
      break: () => ask({ do: 'break', op, on: !has('epoch_break') }),
      'chip-break': () => {
        if ((graph.ops?.frame.meta['chips'] as unknown[] | undefined ?? []).length < 2) store.say(false, 'The device has one chip.');
        else ask({ do: 'chip-break', op, on: !has('chip_break') });
      },
      pin: () => ask(has('op_placement') ? { do: 'clear', op, kinds: ['op_placement'] } : { do: 'pin', op }),
      'clear-overrides': () => ask({ do: 'clear', op }),
      undo: () => step('undo'), redo: () => step('redo'), recompile: () => step('recompile'),
      why: () => edit(() => open(graph.element, { what: 'why', op })),
      summary: () => store.say(true, graph.ops ? `${graph.ops.count} ops in ${graph.ops.epochs} epochs, ${graph.ops.total} cycles` : 'nothing is placed yet'),
      export: () => open(graph.element, { what: 'export' }),
      keys: () => open(graph.element, { what: 'keys', scope: 'graph' }),
      'store-view': () => {
        this.storing = true;
      },
      keep: () => {
        store.keep(event.key);
        store.say(true, `View saved under ${event.key}`);
      },
      'recall-view': () => {
        if (!store.recall(event.key)) store.say(false, `No view is saved under ${event.key}: press V, then ${event.key}, to save this one.`);
      }
    };
    actions[action]?.();
    return action in actions;
  }
}
