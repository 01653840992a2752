/** Spin controls for what an op can be told besides its shape and place; they offer legal values only. */
import { h, short } from './dom.js';
import type { Store } from './store.js';

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
      type: 'button', class: 'tb-link', 'data-tb-action': 'op-controls', onclick: () => this.ask()
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
      type: 'button', class: 'tb-button', 'data-tb-action': `${name}-${id}`, 'aria-label': `${name} ${label}`,
      disabled: busy || at < 0 || !values[at + by], onclick: () => set(values[at + by]![0])
    }, sign);
    return h('div', { class: 'tb-knob' }, h('span', {}, label), step(-1, '−', 'less'), select, step(1, '+', 'more'));
  }
}
