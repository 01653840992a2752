/** The menu of a node or an edge: what can be done with its op. */
import { copy, open } from '../dialog.js';
import { h } from '../dom.js';
import type { Edit } from '../editmessages.js';
import { chordsOf, KEYS } from '../keys.js';
import { Ops } from '../ops.js';
import type { Edits, Store } from '../store.js';

interface Item {
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

export class NodeMenu {
  private menu: HTMLElement | null = null;
  /** The op whose formats are asked for, and of what. */
  private asked: { op: string; of: 'format' | 'fidelity' } | null = null;
  private readonly stops: (() => void)[];
  private readonly away = (event: Event) => {
    if (!this.menu?.contains(event.target as Node)) this.close();
  };

  /** edgeAt: the names of the ends of the edge under a pointer. */
  constructor(
    private readonly store: Store, private readonly area: HTMLElement,
    private readonly edgeAt: (event: MouseEvent) => { from: string; to: string } | null = () => null
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
    if (event.shiftKey || !edits || !frame || this.area.dataset['tbStage'] !== 'lowered') return;
    const ops = Ops.of(frame);
    // The key of the keyboard that asks for a menu: for the op that is selected.
    const { names } = this.store.selection;
    const byKey = event.button !== 2 && event.detail === 0 && names.length === 1 ? names[0] : undefined;
    const name = (event.target as Element).closest<HTMLElement>('[data-tb-op]')?.dataset['tbOp'] ?? byKey;
    const edge = name === undefined ? this.edgeAt(event) : null;
    let title: string;
    let items: Item[];
    if (name !== undefined && ops.indexOf.has(name)) {
      title = name;
      items = this.ofOp(name, ops, edits);
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
          what: 'prompt', label: `Chip, ${chips[0]!} to ${chips.at(-1)!}`, value: String(ops.get('chip', op)), done: text => {
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
      { action: 'why', label: 'Why here?', key: 'why', run: () => open(this.area, { what: 'why', op: name }) }
    ];
  }

  private ask(op: string, of: 'format' | 'fidelity'): void {
    this.asked = { op, of };
    this.store.host.send({ type: 'formats', op });
  }

  /** The legal formats, or fidelities, as items. */
  private formats(message: Record<string, unknown>): void {
    const { asked, store, menu } = this;
    if (!menu || !asked || message['op'] !== asked.op) return;
    this.asked = null;
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
        type: 'button', role: 'menuitem', 'data-tb-action': item.action, disabled: Boolean(item.why) || busy, title: item.why ?? '',
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
