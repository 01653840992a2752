/** The cursor of the timeline, shared by the views of one store: what every op does at one cycle. */
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
  private readonly listeners = new Set<() => void>();

  set(moment: Moment | null): void {
    this.moment = moment;
    this.listeners.forEach(f => f());
  }

  on(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }
}

const HEADS = new WeakMap<Store, Playhead>();

export function playheadOf(store: Store): Playhead {
  const head = HEADS.get(store) ?? new Playhead();
  HEADS.set(store, head);
  return head;
}
