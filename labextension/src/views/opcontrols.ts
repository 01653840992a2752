/** What an op can be told besides its shape and place: spin controls, and buttons that keep a parameter in L1. */
import { h, short } from './dom.js';
import type { Store } from './store.js';
import type { Edit } from './editmessages.js';
import { Exact } from './grid/exact.js';
import type { Ops } from './ops.js';

interface Offer {
  ok: boolean;
  op: string;
  text?: string;
  u_kt: [number, number][];
  streams: [string, number, number, number][];
  buffers: [number, number][][];
  now: { u_kt: number; stream: [string, number, number]; buffers: Record<string, number> };
}

const AUTO = 'auto';

/** Spin controls for what an op can be told besides its shape and place; they offer legal values only. */
export class OpControls {
  readonly element = h('div', { class: 'tb-op-controls', 'data-tb-view': 'op-controls', hidden: true });
  private op = '';
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.stops.push(
      store.listen('choices', message => {
        if (message['op'] === this.op) this.render(message as unknown as Offer);
      }),
      store.on('frame', key => {
        if (key === 'edits' && this.op && store.edits && !store.edits.busy && this.element.querySelector('select')) this.ask();
      }));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** Shows the way to the controls of an op; "" for none. */
  offer(op: string): void {
    this.op = op;
    this.element.hidden = !op || !this.store.edits;
    if (this.element.hidden) return;
    this.element.replaceChildren(h('button', {
      class: 'tb-link', 'data-tb-action': 'op-controls', onclick: () => this.ask()
    }, 'Inner steps, streaming, buffers …'));
  }

  private ask(): void {
    this.store.host.send({ type: 'choices', op: this.op });
  }

  private has(field: string): boolean {
    return this.store.edits?.overrides.some(o => o.target === this.op && o.field === field && o.state !== 'off') ?? false;
  }

  private render(offer: Offer): void {
    if (!offer.ok) {
      this.element.replaceChildren(h('p', { class: 'tb-refusal' }, offer.text ?? ''));
      return;
    }
    const { op, store } = this;
    const rows: HTMLElement[] = [];
    if (offer.u_kt.length) {
      rows.push(this.spin('u_kt', 'u_kt', offer.u_kt.map(([v, c]) => [String(v), `${v}: ${short(c)} cycles`]), String(offer.now.u_kt),
        this.has('u_kt'), value => store.edit(value === AUTO
          ? { do: 'clear', op, kinds: ['u_kt'] } : { do: 'u_kt', op, u_kt: Number(value) })));
    }
    if (offer.streams.length > 1) {
      const key = ([d, r, c]: readonly [string, number, number, ...number[]]) => `${d} ${r}x${c}`;
      rows.push(this.spin('stream', 't-stream', offer.streams.map(s => [key(s), `${s[0] === 'n' ? 'none' : key(s)}: ${short(s[3])} cycles`]),
        key(offer.now.stream), this.has('t_stream_dir') || this.has('t_stream_shape'), value => {
          const chosen = offer.streams.find(s => key(s) === value);
          store.edit(chosen
            ? { do: 'stream', op, direction: chosen[0], shape: [chosen[1], chosen[2]] } : { do: 'clear', op, kinds: ['t_stream_dir', 't_stream_shape'] });
        }));
    }
    offer.buffers.forEach((factors, operand) => {
      const now = offer.now.buffers[String(operand)];
      if (factors.length) {
        rows.push(this.spin(`buffer-${operand}`, `buffer of operand ${operand}`, factors.map(([f]) => [String(f), `× ${f}`]),
          String(now ?? 1), now !== undefined, value => store.edit({ do: 'buffer', op, operand, factor: value === AUTO ? null : Number(value) })));
      }
    });
    this.element.replaceChildren(...(rows.length ? rows : [h('p', {}, 'This op has no other legal settings at its shape.')]));
  }

  /** A choice with a step down and a step up. */
  private spin(
    id: string, label: string, values: [value: string, text: string][], now: string, fixed: boolean, set: (value: string) => void
  ): HTMLElement {
    const busy = this.store.edits?.busy ?? true;
    const at = values.findIndex(([v]) => v === now);
    const select = h('select', {
      'aria-label': label, 'data-tb-action': `set-${id}`, disabled: busy, onchange: (e: Event) => set((e.target as HTMLSelectElement).value)
    }, h('option', { value: AUTO, selected: !fixed }, fixed ? 'Remove override' : `automatic (${values[at]?.[1].split(':')[0] ?? now})`),
      ...values.map(([v, text]) => h('option', { value: v, selected: fixed && v === now }, text)));
    const step = (by: number, sign: string, name: string) => h('button', {
      class: 'tb-button', 'data-tb-action': `${name}-${id}`, 'aria-label': `${name} ${label}`,
      disabled: busy || at < 0 || !values[at + by], onclick: () => set(values[at + by]![0])
    }, sign);
    return h('div', { class: 'tb-knob' }, h('span', {}, label), step(-1, '−', 'less'), select, step(1, '+', 'more'));
  }
}

/** Operands of an op that are parameters, and whether they wait in L1. */
function parameters(ops: Ops, op: number): [operand: number, preloaded: boolean][] {
  if (!ops.frame.has('op_parameters')) return [];
  const [are, wait] = [ops.get('parameters', op), ops.get('preloaded', op)];
  return Array.from({ length: 31 }, (_, k): [number, boolean] => [k, ((wait >> k) & 1) === 1]).filter(([k]) => (are >> k) & 1);
}

/** "1 of 2 preloaded" */
export function preloadText(ops: Ops, op: number): string {
  const all = parameters(ops, op);
  const count = all.filter(([, on]) => on).length;
  return !all.length ? '' : count === all.length ? 'preloaded' : count ? `${count} of ${all.length} preloaded` : 'streamed';
}

/** Buttons that keep a parameter of an op in L1, or stream it from DRAM for every input. While one is pointed at or has the
 *  focus, what the model would take then is simulated and shown; a press makes the edit. */
export class PreloadButtons {
  /** What pressing the button that is pointed at would do. */
  readonly effect = h('span', { class: 'tb-preload-effect', role: 'status', 'data-tb-whatif': '' });
  private readonly exact: Exact;
  private question = '';

  constructor(private readonly store: Store) {
    this.exact = new Exact(store, () => this.say());
  }

  dispose(): void {
    this.exact.dispose();
  }

  /** A button per parameter. focus: whether the Tab key stops at them. */
  of(ops: Ops, op: number, focus = true): HTMLElement[] {
    const { store } = this;
    if (!store.edits) return [];
    const name = ops.name[op]!;
    return parameters(ops, op).map(([operand, on]) => {
      const edit: Edit = { do: 'prologue', op: name, operand, on: !on };
      const what = `${on ? 'Stream' : 'Preload'} input ${operand}`;
      const look = () => {
        this.question = what;
        this.exact.watch(edit);
        this.say();
      };
      const leave = () => {
        this.question = '';
        this.exact.end();
        this.say();
      };
      return h('button', {
        class: 'tb-chip tb-preload', tabindex: focus ? 0 : -1, 'data-tb-action': 'preload', 'data-tb-operand': operand, 'aria-pressed': String(on),
        'aria-label': `input ${operand} of ${name}, ${on ? 'preloaded into L1' : 'streamed from DRAM'}`,
        title: on ? 'Waits in L1 from before the first input. Press to stream it from DRAM for every input' : 'Streamed from DRAM for every input. Press to preload it into L1',
        onpointerenter: look, onfocus: look, onpointerleave: leave, onblur: leave,
        onclick: (event: Event) => {
          event.stopPropagation();
          this.question = '';
          this.exact.end(true);
          this.say();
          store.edit(edit);
        }
      }, `input ${operand} ${on ? 'in L1' : 'from DRAM'}`);
    });
  }

  private say(): void {
    const lines = this.question ? this.exact.lines.filter(([term, text]) => term !== 'epochs' || text.includes('(')) : [];
    this.effect.dataset['tbWhatif'] = this.question ? (lines.some(([term]) => term) ? 'exact' : 'asked') : '';
    this.effect.textContent = this.question ? [this.question, ...lines.map(([term, text]) => `${term} ${text}`.trim())].join(' · ') : '';
  }
}
