/** What pointer, keys and the menu of a node do in the graph; which key does what is in `keys.ts` of the views. */
import type { Edits, Store } from '../store.js';
import type { Scene } from './scene.js';
import { copy, open } from '../dialog.js';
import { h } from '../dom.js';
import type { Edit } from '../editmessages.js';
import { actionOf, chordsOf, KEYS } from '../keys.js';
import { Ops } from '../ops.js';
import { placeText } from '../place.js';

// Pan, zoom, hover and click on the picture of the graph.
interface PointerTarget {
  readonly store: Store;
  readonly scene: Scene | undefined;
  pan(dx: number, dy: number): void;
  zoom(factor: number, cx?: number, cy?: number): void;
  world(event: MouseEvent): [number, number];
  onClick(event: PointerEvent): void;
  toggle(group: number): void;
}

export function pointer(surface: HTMLElement, view: PointerTarget): void {
  let from: { x: number; y: number; moved: boolean } | null = null;
  surface.addEventListener('pointerdown', event => {
    if (event.button !== 0 || (event.target as Element).closest('.tb-break')) return;
    from = { x: event.clientX, y: event.clientY, moved: false };
    surface.setPointerCapture(event.pointerId);
    surface.focus({ preventScroll: true });
  });
  surface.addEventListener('pointermove', event => {
    if (from) {
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(dx, dy) < 4) return;
      from = { x: event.clientX, y: event.clientY, moved: true };
      surface.classList.add('tb-panning');
      view.pan(dx, dy);
      return;
    }
    const hit = view.scene?.hit(...view.world(event));
    surface.style.cursor = hit && (hit.kind === 'node' || hit.header) ? 'pointer' : 'grab';
    view.store.setHover(hit?.kind === 'node' ? view.scene!.names[hit.ref]! : '');
  });
  surface.addEventListener('pointerup', event => {
    const moved = from?.moved;
    from = null;
    surface.classList.remove('tb-panning');
    if (moved === false) view.onClick(event);
  });
  surface.addEventListener('pointercancel', () => (from = null));
  surface.addEventListener('pointerleave', () => view.store.setHover(''));
  surface.addEventListener('dblclick', event => {
    const hit = view.scene?.hit(...view.world(event));
    if (hit?.kind === 'group' && hit.header) view.toggle(hit.ref);
  });
  surface.addEventListener('wheel', event => {
    // The wheel scrolls the page until the view is in focus, or a modifier says zoom.
    const focused = surface.contains(document.activeElement);
    if (!focused && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const rect = surface.getBoundingClientRect();
    view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - rect.left, event.clientY - rect.top);
  }, { passive: false });
}

export interface Item {
  action: string;
  label: string;
  /** The action of the key table that does the same. */
  key?: string;
  /** Why it cannot be done; empty where it can. */
  why?: string;
  more?: string;
  /** The menu stays: its items are replaced. */
  stays?: boolean;
  run: () => void;
}

/** The menu of a node or an edge: what can be done with its op. */
export class NodeMenu {
  private menu: HTMLElement | null = null;
  /** The op whose formats are asked for, and of what. */
  private question: { op: string; of: 'format' | 'fidelity' } | null = null;
  private readonly stops: (() => void)[];
  private readonly away = (event: Event) => {
    if (!this.menu?.contains(event.target as Node)) this.close();
  };

  /** edgeAt: the names of the ends of the edge under a pointer. also: what comes before the commands of an op, and those
   *  of an epoch of the film strip. */
  constructor(
    private readonly store: Store, private readonly area: HTMLElement,
    private readonly edgeAt: (event: MouseEvent) => { from: string; to: string } | null = () => null,
    private readonly also: { op: (name: string) => Item[]; epoch: (epoch: number) => Item[] } | null = null
  ) {
    // JupyterLab opens its own menu elsewhere; Shift keeps that of the browser.
    area.setAttribute('data-jp-suppress-context-menu', '');
    area.addEventListener('contextmenu', event => this.open(event));
    this.stops = [
      store.listen('formats', message => this.formats(message))
    ];
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.close();
  }

  private open(event: MouseEvent): void {
    this.close();
    const { edits } = this.store;
    const frame = this.store.frames.get('ops');
    if (event.shiftKey || !edits || !frame || (this.area.dataset['tbStage'] ?? 'lowered') !== 'lowered') return;
    const ops = Ops.of(frame);
    // The key of the keyboard that asks for a menu: for the op that is selected.
    const { names } = this.store.selection;
    const byKey = event.button !== 2 && event.detail === 0 && names.length === 1 ? names[0] : undefined;
    const name = (event.target as Element).closest<HTMLElement>('[data-tb-op]')?.dataset['tbOp'] ?? byKey;
    const epoch = name === undefined ? (event.target as Element).closest<HTMLElement>('.tb-frame[data-tb-epoch]')?.dataset['tbEpoch'] : undefined;
    const edge = name === undefined ? this.edgeAt(event) : null;
    let title: string;
    let items: Item[];
    if (name !== undefined && ops.indexOf.has(name)) {
      title = name;
      items = [...(this.also?.op(name) ?? []), ...this.ofOp(name, ops, edits)];
    } else if (epoch !== undefined && this.also) {
      title = `Epoch ${epoch}`;
      items = this.also.epoch(Number(epoch));
    } else if (edge && ops.indexOf.has(edge.from)) {
      title = `from ${edge.from}`;
      const readers = edge.to ? [edge.to].filter(n => ops.indexOf.has(n)) : ops.outOf(ops.indexOf.get(edge.from)!).map(i => ops.name[i]!);
      items = readers.flatMap(to => this.ofEdge(edge.from, to));
      if (!items.length) return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    const at = this.area.getBoundingClientRect();
    this.show(title, items, event.clientX - at.left, event.clientY - at.top);
  }

  private ofOp(name: string, ops: Ops, edits: Edits): Item[] {
    const { store } = this;
    const op = ops.indexOf.get(name)!;
    const own = edits.overrides.filter(o => o.target === name && o.state !== 'off');
    const has = (field: string) => own.some(o => o.field === field);
    const ask = (message: Edit) => () => store.edit(message);
    const chips = ops.frame.meta['chips'] as number[];
    const edges = [
      ...ops.into(op).map(i => [ops.name[i]!, name] as const), ...ops.outOf(op).map(i => [name, ops.name[i]!] as const)
    ];
    const alone = chips.length < 2 ? 'the device has one chip' : '';
    return [
      has('epoch_break')
        ? { action: 'epoch-unbreak', label: 'Remove the epoch break', key: 'break', run: ask({ do: 'break', op: name, on: false }) }
        : { action: 'epoch-break', label: 'New epoch from here', key: 'break', run: ask({ do: 'break', op: name, on: true }) },
      has('chip_break')
        ? { action: 'chip-unbreak', label: 'Remove the chip break', key: 'chip-break', run: ask({ do: 'chip-break', op: name, on: false }) }
        : { action: 'chip-break', label: 'New chip from here', key: 'chip-break', why: alone, run: ask({ do: 'chip-break', op: name, on: true }) },
      has('op_placement')
        ? { action: 'unpin', label: 'Unpin', key: 'pin', run: ask({ do: 'clear', op: name, kinds: ['op_placement'] }) }
        : { action: 'pin', label: 'Pin in place', key: 'pin', run: ask({ do: 'pin', op: name }) },
      {
        action: 'pin-chip', label: 'Pin to chip …', why: alone, run: () => open(this.area, {
          what: 'prompt', label: `Chip, ${chips[0]!} to ${chips.at(-1)!}`, value: String(ops.get('chip', op)), onDone: text => {
            if (/^\d+$/.test(text)) ask({ do: 'chip', op: name, chip: Number(text) })();
            else store.say(false, `${text} is not a chip number`);
          }
        })
      },
      {
        action: 'edges', label: 'Buffer or cut an edge …', why: edges.length ? '' : 'no edge to another placed op', stays: true,
        run: () => this.fill(name, edges.slice(0, 8).flatMap(([from, to]) => this.ofEdge(from, to)))
      },
      { action: 'data-format', label: 'Set data format …', stays: true, run: () => this.ask(name, 'format') },
      { action: 'fidelity', label: 'Set fidelity …', stays: true, run: () => this.ask(name, 'fidelity') },
      { action: 'clear-overrides', label: 'Clear overrides', key: 'clear-overrides', why: own.length ? '' : 'none set', run: ask({ do: 'clear', op: name }) },
      {
        action: 'copy-op', label: 'Copy Python', run: () => {
          const size = [ops.get('rows', op), ops.get('cols', op)];
          const shape = ops.get('transposed', op) === 1 ? size.reverse() : size;
          const text = own.length ? own.map(o => o.python).join('\n') : `pybuda.config.override_op_size('${name}', (${shape.join(', ')}))`;
          copy(text, (ok, said) => store.say(ok, said));
        }
      },
      {
        action: 'copy-place', label: 'Copy a link to it', run: () => {
          store.select([name], 'menu');
          copy(placeText(store), (ok, said) => store.say(ok, said), 'the place');
        }
      },
      { action: 'why', label: 'Why here?', key: 'why', run: () => open(this.area, { what: 'why', op: name }) }
    ];
  }

  private ask(op: string, of: 'format' | 'fidelity'): void {
    this.question = { op, of };
    this.store.host.send({ type: 'formats', op });
  }

  /** The legal formats, or fidelities, as items. */
  private formats(message: Record<string, unknown>): void {
    const { question: asked, store, menu } = this;
    if (!menu || !asked || message['op'] !== asked.op) return;
    this.question = null;
    if (!message['ok']) {
      this.close();
      store.say(false, String(message['text']));
      return;
    }
    const { op, of } = asked;
    const plain = of === 'format';
    const values = message[plain ? 'formats' : 'fidelities'] as string[];
    const now = (message['now'] as string[])[plain ? 0 : 1];
    const field = plain ? 'data_format' : 'math_fidelity';
    const has = store.edits?.overrides.some(o => o.target === op && o.field === field && o.state !== 'off');
    const set = (value: string) => () => store.edit({ do: 'format', op, ...(plain ? { data_format: value } : { fidelity: value }) });
    this.fill(`${plain ? 'Data format' : 'Fidelity'} of ${op}`, [
      ...values.map(v => ({
        action: `${of}-${v}`, label: v, why: v === now ? (has ? 'set by override' : 'current') : '', run: set(v)
      })),
      ...(has ? [{ action: `${of}-free`, label: 'Remove override', run: () => store.edit({ do: 'clear', op, kinds: [field] }) }] : []),
      ...(values.length < 2 ? [{ action: `${of}-none`, label: 'No other is legal here', why: 'set by the producer or the host', run: () => undefined }] : [])
    ]);
  }

  private ofEdge(from: string, to: string): Item[] {
    const edit = (what: 'nop' | 'queue', label: string): Item => ({
      action: `edge-${what}`, label, more: `${from} → ${to}`,
      run: () => this.store.edit({ do: `insert-${what}`, op: from, to: [to] })
    });
    return [edit('nop', 'Insert buffering NOP on this edge'), edit('queue', 'Cut this edge to a queue')];
  }

  private show(title: string, items: Item[], x: number, y: number): void {
    const menu = h('div', { class: 'tb-menu', role: 'menu', 'aria-label': title, 'data-lm-suppress-shortcuts': 'true' });
    this.menu = menu;
    this.area.append(menu);
    this.fill(title, items);
    const { width, height } = this.area.getBoundingClientRect();
    menu.style.left = `${Math.max(0, Math.min(x, width - menu.offsetWidth - 4))}px`;
    menu.style.top = `${Math.max(0, Math.min(y, height - menu.offsetHeight - 4))}px`;
    menu.addEventListener('keydown', key => this.key(key));
    document.addEventListener('pointerdown', this.away, true);
  }

  private fill(title: string, items: Item[]): void {
    const busy = this.store.edits?.busy ?? true;
    this.menu!.replaceChildren(h('strong', {}, title), ...items.map(item => {
      const binding = item.key === undefined ? undefined : KEYS.find(k => k.action === item.key);
      const chord = binding && chordsOf(binding)[0];
      return h('button', {
        role: 'menuitem', 'data-tb-action': item.action, disabled: Boolean(item.why) || busy, title: item.why ?? '',
        onclick: () => {
          if (!item.stays) this.close();
          item.run();
        }
      }, chord ? h('kbd', { 'aria-hidden': 'true' }, chord) : '', item.label, item.more || item.why ? h('small', {}, [item.more, item.why].filter(Boolean).join(': ')) : '');
    }));
    this.menu!.querySelector<HTMLElement>('button:enabled')?.focus({ preventScroll: true });
  }

  private key(event: KeyboardEvent): void {
    const items = [...this.menu!.querySelectorAll<HTMLElement>('button:enabled')];
    const at = items.indexOf(document.activeElement as HTMLElement);
    if (event.key === 'Escape') this.close();
    else if (event.key === 'ArrowDown') items[(at + 1) % items.length]?.focus();
    else if (event.key === 'ArrowUp') items[(at - 1 + items.length) % items.length]?.focus();
    else if (event.key === 'Enter' || event.key === ' ') items[at]?.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private close(): void {
    this.menu?.remove();
    this.menu = null;
    document.removeEventListener('pointerdown', this.away, true);
  }
}

const STEP = 60; // px of a pan

interface KeyTarget {
  readonly store: Store;
  readonly element: HTMLElement;
  readonly surface: HTMLElement;
  readonly search: HTMLInputElement;
  readonly ops: Ops | null;
  pan(dx: number, dy: number): void;
  zoom(factor: number): void;
  fit(): void;
  turn(): void;
  stepPass(by: number): void;
}

/** What the keys of the graph do; which key does what is in `keys.ts` of the views. */
export class GraphKeys {
  private storing = false;

  constructor(private readonly graph: KeyTarget) {}

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
      else if (store.blocked) store.say(false, store.blocked);
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
        what: 'prompt', label: 'Epoch', value: String(store.epoch), onDone: text => {
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
