/** A state of a view that Python sets and hears of: a trait of the widget that shows this view alone. */
import type { Store } from './store.js';

export interface Told<T> {
  /** What the trait says; undefined where there is no such trait (workbenches, reports). */
  value(): T | undefined;
  /** Tells Python, once the state rests and if it does not know. */
  tell(value: T): void;
  dispose(): void;
}

/** take: hears of every change that another side made. rest: milliseconds for which a state must not change. */
export function told<T>(store: Store, kind: string, name: string, take: (value: T) => void, rest = 0): Told<T> {
  const { host } = store;
  const there = host.get('view') === kind && host.get(name) !== undefined;
  const value = (): T | undefined => (there ? (host.get(name) as T) : undefined);
  let timer = 0;
  let own = false;
  const stop = there ? host.on(name, () => {
    if (own) return;
    clearTimeout(timer);
    take(host.get(name) as T);
  }) : () => undefined;
  const send = (next: T) => {
    if (JSON.stringify(next) === JSON.stringify(value())) return;
    own = true;
    host.set(name, next);
    own = false;
  };
  return {
    value,
    tell(next) {
      clearTimeout(timer);
      if (!there) return;
      if (rest) timer = window.setTimeout(() => send(next), rest);
      else send(next);
    },
    dispose() {
      clearTimeout(timer);
      stop();
    }
  };
}
