/** The exact what-if: asked when a drag rests on one place, void as soon as it goes on. */
import { changeText } from '../numbers.js';
import { withThousands, short } from '../dom.js';
import type { Edit } from '../editmessages.js';
import { preferences } from '../preferences.js';
import type { Store } from '../store.js';
import type { Cores } from './geometry.js';

const REST = 120; // ms on one shape before the kernel is asked
const LATE = 250; // ms without an answer before the tag says so

interface Effect {
  ok: boolean;
  text?: string;
  /** Cycles per input before and after, simulated for the batch of the session. */
  time: [number, number];
  /** Where the ops of the edit stand afterwards; epoch -1: a new one. */
  own: [op: string, epoch: number, row: number, col: number, rows: number, cols: number][];
  epochs: [number, number];
  moved: number;
  displaced: [op: string, before: number, after: number, row: number, col: number, rows: number, cols: number][];
}

/** A neighbour that will stand elsewhere. */
interface Outline {
  op: string;
  at: Cores;
}

export class Exact {
  private seq = 0;
  private key = '';
  private requested = false;
  private late = false;
  /** Something was asked to be compiled. */
  private live = false;
  private effect: Effect | null = null;
  private timer = 0;
  private readonly stop: () => void;

  constructor(private readonly store: Store, private readonly changed: () => void) {
    this.stop = store.listen('exact', message => {
      if (message['ask'] !== this.seq || !this.requested) return;
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
  watch(edit: Edit | null): void {
    const key = edit ? JSON.stringify(edit) : '';
    if (key === this.key) return;
    this.key = key;
    this.seq++;
    clearTimeout(this.timer);
    this.requested = this.late = false;
    this.effect = null;
    if (!edit) return;
    this.timer = window.setTimeout(() => {
      this.requested = true;
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
    if (!made && (this.live || (this.requested && !this.effect))) this.store.host.send({ type: 'probe_end' });
    this.live = false;
    clearTimeout(this.timer);
    this.key = '';
    this.seq++;
    this.requested = this.late = false;
    this.effect = null;
  }

  /** What the tag adds. */
  get lines(): [string, string][] {
    const { effect } = this;
    if (!effect) return this.key ? [['', this.late ? 'estimate, calculating' : 'estimate']] : [];
    if (!effect.ok) return [['', effect.text ?? 'refused']];
    const [before, after] = effect.time.map(Math.round) as [number, number];
    const number = short(before) === short(after) ? withThousands : short; // "178k → 178k" says nothing
    const change = changeText(before, after);
    const more = effect.epochs[1] - effect.epochs[0];
    return [
      ['cycles / input', after === before ? `${short(before)}, no gain` : `${number(before)} → ${number(after)}${change}${after > before ? ', slower' : ''}`],
      ['epochs', more ? `${effect.epochs[1]} (${more > 0 ? '+' : '−'}${Math.abs(more)})` : String(effect.epochs[1])],
      ...(effect.moved > 1 ? [['moves', `${withThousands(effect.moved)} ops`] as [string, string]] : [])
    ];
  }

  /** Where the ops of the edit will stand; null until that is known. */
  landing(epoch: number): Cores[] | null {
    if (!this.effect?.ok) return null;
    return this.effect.own.filter(([, e]) => e === epoch).map(([, , row, col, rows, cols]) => ({ row, col, rows, cols }));
  }

  /** What leaves the epoch that is shown, in words; "" for nothing. */
  leaves(epoch: number): string {
    const gone = (this.effect?.ok ? this.effect.own : []).filter(([, e]) => e !== epoch);
    return gone.length ? `goes to ${gone[0]![1] < 0 ? 'a new epoch' : `epoch ${gone[0]![1]}`}` : '';
  }

  /** Where the displaced ops stand afterwards that lie in an epoch; an op that leaves it is not among them. */
  outlines(epoch: number, except: ReadonlySet<string>): Outline[] {
    if (!this.effect?.ok) return [];
    return this.effect.displaced
      .filter(([op, , after]) => after === epoch && !except.has(op))
      .map(([op, , , row, col, rows, cols]) => ({ op, at: { row, col, rows, cols } }));
  }
}
