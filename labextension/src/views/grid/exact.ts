/** The exact what-if: asked when a drag rests on one place, void as soon as it goes on. */
import { grouped, percent, short } from '../dom.js';
import { preferences } from '../preferences.js';
import type { Store } from '../store.js';
import type { Cores } from './geometry.js';

const REST = 120; // ms on one shape before the kernel is asked
const LATE = 250; // ms without an answer before the tag says so

interface Effect {
  ok: boolean;
  text?: string;
  total_cycles: [number, number];
  epochs: [number, number];
  moved: number;
  displaced: [op: string, before: number, after: number, row: number, col: number, rows: number, cols: number][];
}

export class Exact {
  private seq = 0;
  private key = '';
  private asked = false;
  private late = false;
  /** Something was asked to be compiled. */
  private live = false;
  private effect: Effect | null = null;
  private timer = 0;
  private readonly stop: () => void;

  constructor(private readonly store: Store, private readonly changed: () => void) {
    this.stop = store.listen('exact', message => {
      if (message['ask'] !== this.seq || !this.asked) return;
      clearTimeout(this.timer);
      this.late = false;
      this.effect = message as unknown as Effect;
      this.changed();
    });
  }

  dispose(): void {
    this.end();
    this.stop();
  }

  /** Where the drag is now; asks once it stays there. */
  watch(edit: Record<string, unknown> | null): void {
    const key = edit ? JSON.stringify(edit) : '';
    if (key === this.key) return;
    this.key = key;
    this.seq++;
    clearTimeout(this.timer);
    this.asked = this.late = false;
    this.effect = null;
    if (!edit) return;
    this.timer = window.setTimeout(() => {
      this.asked = true;
      this.live = preferences().compile === 'live';
      this.store.host.send({ type: 'probe_exact', ask: this.seq, edit, ...(this.live && { live: true }) });
      this.timer = window.setTimeout(() => {
        this.late = true;
        this.changed();
      }, LATE);
    }, REST);
  }

  /** The drag is over: an answer under way is not wanted any more, nor what was compiled to be looked at, unless the
   *  edit is made now. */
  end(made = false): void {
    if (!made && (this.live || (this.asked && !this.effect))) this.store.host.send({ type: 'probe_end' });
    this.live = false;
    clearTimeout(this.timer);
    this.key = '';
    this.seq++;
    this.asked = this.late = false;
    this.effect = null;
  }

  /** What the tag adds. */
  get lines(): [string, string][] {
    const { effect } = this;
    if (!effect) return this.late ? [['', 'estimate only']] : [];
    if (!effect.ok) return [['', effect.text ?? 'refused']];
    const [before, after] = effect.total_cycles;
    const change = before > 0 && after !== before ? ` (${after > before ? '+' : '−'}${percent(Math.abs(after - before) / before)})` : '';
    const more = effect.epochs[1] - effect.epochs[0];
    return [
      ['cycles / input', after === before ? short(before) : `${short(before)} → ${short(after)}${change}`],
      ['epochs', more ? `${effect.epochs[1]} (${more > 0 ? '+' : '−'}${Math.abs(more)})` : String(effect.epochs[1])],
      ...(effect.moved > 1 ? [['displaced', `${grouped(effect.moved)} ops`] as [string, string]] : [])
    ];
  }

  /** Where the displaced ops stand afterwards that lie in an epoch; an op that leaves it is not among them. */
  outlines(epoch: number, except: ReadonlySet<string>): { op: string; at: Cores }[] {
    if (!this.effect?.ok) return [];
    return this.effect.displaced
      .filter(([op, , after]) => after === epoch && !except.has(op))
      .map(([op, , , row, col, rows, cols]) => ({ op, at: { row, col, rows, cols } }));
  }
}
