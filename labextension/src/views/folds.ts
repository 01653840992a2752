/** What repeats: layers with the same ops, epochs with the same picture. It is shown once, with how often it comes. */
import type { Ops } from './ops.js';

const LEAST = 3; // times that something comes before it folds
export const FOLD_FROM = 200; // ops; beyond it layers that repeat are folded where nobody said
const PERIODS = 8; // epochs of one turn, at most

/** A name with a star for the first number that is a part of it, which is that of the layer. */
export function stemOf(name: string): string {
  return name.replace(/(^|[._])\d+(?=[._]|$)/, '$1*');
}

/** Epochs `first` to `first + period * times - 1`: the same `period` epochs over and over. */
export interface Turns {
  first: number;
  period: number;
  times: number;
}

/** Where epochs repeat: the same ops of other layers, in the same places. */
export function turnsOf(ops: Ops): Turns[] {
  const signature = ops.byEpoch.map((members, epoch) => `${ops.ofEpoch('chip', epoch)} ${members
    .map(op => [stemOf(ops.name[op]!), ops.get('row', op), ops.get('col', op), ops.get('rows', op), ops.get('cols', op)].join()).sort().join(' ')}`);
  const turns: Turns[] = [];
  for (let first = 0; first < signature.length;) {
    let best: Turns | null = null;
    for (let period = 1; period <= PERIODS; period++) {
      let same = 0;
      while (first + period + same < signature.length && signature[first + period + same] === signature[first + same]) same++;
      const times = 1 + Math.floor(same / period);
      if (times >= LEAST && times * period > (best ? best.times * best.period : 0)) best = { first, period, times };
    }
    if (best) turns.push(best);
    first += best ? best.period * best.times : 1;
  }
  return turns;
}

/** Items by key, keys in the order of their first item. */
export function groupsOf<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

/** Those groups that come often enough to fold. */
export function repeatsOf<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  return new Map([...groupsOf(items, keyOf)].filter(([, group]) => group.length >= LEAST));
}

/** Ops of the same place in layers that repeat, by the first of `order` among them; only where there are enough. */
export function alike(ops: Ops, order: readonly number[]): Map<number, number[]> {
  const repeats = repeatsOf(order, op => `${stemOf(ops.name[op]!)} ${ops.type[op]!}`);
  return new Map([...repeats.values()].map(list => [list[0]!, list]));
}
