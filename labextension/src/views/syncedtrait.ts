/** A state of a view that Python sets and hears of: a trait of the widget. Where there is none it is one of the page alone. */
import type { Store } from './store.js';

export interface SyncedTrait<T> {
  /** What the trait says; without one, what was told last. */
  value(): T;
  /** Tells Python, once the state rests and if it does not know. */
  tell(value: T): void;
  dispose(): void;
}

interface Ways {
  /** The view that has the trait when it stands alone; in a workbench the name means something else, and nothing is kept. */
  of?: string;
  /** Milliseconds for which a state must not change before it is told. */
  rest?: number;
}

/** plain: what holds where Python says nothing. take: hears of every change that another side made. */
export function syncedTrait<T>(
  { host }: Store, name: string, plain: T, take: (value: T) => void = () => undefined, { of = '', rest = 0 }: Ways = {}
): SyncedTrait<T> {
  const mine = !of || host.get('view') === of;
  let kept = plain;
  let timer = 0;
  let own = false;
  const there = () => mine && host.get(name) !== undefined;
  const value = (): T => (there() ? (host.get(name) as T) : kept);
  const stop = mine ? host.on(name, () => {
    if (own) return;
    clearTimeout(timer);
    take(value());
  }) : () => undefined;
  const send = (next: T) => {
    if (!there()) kept = next;
    else if (JSON.stringify(next) !== JSON.stringify(value())) {
      own = true;
      host.set(name, next);
      own = false;
    }
  };
  return {
    value,
    tell(next) {
      clearTimeout(timer);
      if (!mine) return;
      if (rest) timer = window.setTimeout(() => send(next), rest);
      else send(next);
    },
    dispose() {
      clearTimeout(timer);
      stop();
    }
  };
}
