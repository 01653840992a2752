/** The cursor of the timeline, shared by the views of one store: what every op does at one cycle. */
import type { Frame } from '../frame.js';
import type { Store } from '../store.js';

/** What one lane does: the cores it stands on, the input it is at. */
export interface Doing {
  op: string;
  cores: [number, number, number, number];
  kind: number;
  input: number;
}

export interface Moment {
  cycle: number;
  epoch: number | null;
  doing: Doing[];
}

export class Playhead {
  moment: Moment | null = null;
  /** Timelines of this store, which move it. */
  private drivers = 0;
  private readonly listeners = new Set<() => void>();

  set(moment: Moment | null): void {
    this.moment = moment;
    this.listeners.forEach(f => f());
  }

  /** Whether a timeline of this store moves it; otherwise moments come from a timeline elsewhere. */
  get driven(): boolean {
    return this.drivers > 0;
  }

  /** A timeline moves it from now on; returns the way to stop it. */
  drive(): () => void {
    this.drivers++;
    return () => {
      this.drivers--;
      if (!this.driven) this.set(null);
    };
  }

  on(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }
}

/** A moment as the kernel tells it; of several epochs at work the preferred one, if it is among them. */
export function momentOf(frame: Frame, preferred: number): Moment {
  const epochs = frame.meta['epochs'] as number[];
  const [row, col, rows, cols, kind, input] = ['row', 'col', 'rows', 'cols', 'kind', 'input'].map(c => frame.column(c));
  const doing = frame.text('op').map((op, i): Doing => ({
    op, cores: [row![i]!, col![i]!, rows![i]!, cols![i]!], kind: kind![i]!, input: input![i]!
  }));
  return { cycle: Number(frame.meta['cycle']), epoch: epochs.includes(preferred) ? preferred : (epochs[0] ?? null), doing };
}

const HEADS = new WeakMap<Store, Playhead>();

export function playheadOf(store: Store): Playhead {
  const head = HEADS.get(store) ?? new Playhead();
  HEADS.set(store, head);
  return head;
}
