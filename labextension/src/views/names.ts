/** Names of ops: across stages, selected ones that vanished, and those that repeat in layers and epochs. */
import type { Store } from './store.js';
import type { Ops } from './ops.js';

// Names of ops across stages, and selected names that vanished.
/**
 * Names across stages. An op keeps its name from stage to stage unless it is decomposed: `x` becomes `x.dc.<op>.<k>`.
 * A selection made in one stage is shown in another on the nodes that share the original name.
 */
export function original(name: string): string {
  const at = name.indexOf('.dc.');
  return at < 0 ? name : name.slice(0, at);
}

/**
 * The last two parts of a dotted name. A decomposed op shows its original and its step, or its module where the original
 * says no more than the step ("conv1.conv2d_rows", not "conv2d.conv2d_rows").
 */
export function shortName(name: string): string {
  const parts = name.split('.dc.');
  if (parts.length === 1) return name.split('.').slice(-2).join('.');
  const step = parts.at(-1)!.split('.').filter(part => !/^\d+$/.test(part));
  const stem = parts[0]!.split('.');
  const original = step[0]?.startsWith(stem.at(-1)!) && stem.length > 1 ? stem.at(-2)! : stem.at(-1)!;
  return [original, ...step].join('.');
}

const PARTS = 4; // of a name, before the middle of it is left out

/** Short names that tell the ops of an epoch apart: where two are the same, with the parts before that differ. */
export function distinctNames(names: readonly string[]): string[] {
  const found = names.map(shortName);
  for (const [short, group] of groupsOf(names.map((_, i) => i), i => found[i]!)) {
    if (group.length === 1) continue;
    const parts = group.map(i => names[i]!.replaceAll('.dc.', '.').split('.'));
    const differ = (of: (p: string[]) => string | undefined) => new Set(parts.map(of)).size === group.length;
    let label = (p: string[]) => p.join('.');
    const most = Math.max(...parts.map(p => p.length));
    const count = Array.from({ length: PARTS - 2 }, (_, k) => k + 3).find(k => differ(p => p.slice(-k).join('.')));
    if (count !== undefined) label = p => p.slice(-count).join('.');
    else {
      const at = Array.from({ length: most }, (_, k) => k).find(k => differ(p => p[k]));
      if (at !== undefined) label = p => `${p.slice(/^\d+$/.test(p[at]!) ? Math.max(0, at - 1) : at, at + 1).join('.')}…${short}`;
    }
    group.forEach((i, k) => (found[i] = label(parts[k]!)));
  }
  return found;
}

/** The fullest form of a short name that fits: all of it, or the last part alone where that is no other op's, too. */
export function fitting(short: string, room: number, told = true): string {
  return short.length <= room || !told ? short : short.slice(short.indexOf('.') + 1);
}

/**
 * What of a name tells it from `others` in `room` letters: its last parts, else its beginning, else its end, with what is
 * left out as `…`. Null where no cut tells them apart: half a name that fits two ops says less than none.
 */
export function cutName(name: string, room: number, others: readonly string[]): string | null {
  if (name.length <= room) return name;
  const parts = name.split('.');
  for (let k = 1; k < parts.length; k++) {
    const tail = parts.slice(k).join('.');
    if (tail.length <= room && /[a-z]/i.test(tail) && !others.some(other => other === tail || other.endsWith(`.${tail}`))) return tail;
  }
  if (room < LEAST_CUT) return null;
  const shared = Math.max(0, ...others.map(other => sharedParts(parts, other.split('.'))));
  for (let k = Math.min(shared, parts.length - 1); k >= 0; k--) { // without the parts that the others have, too
    const head = parts.slice(k).join('.').slice(0, room - 1);
    if (head.length < room - 1) continue;
    if (!others.some(other => other.startsWith(head) || other.includes(`.${head}`))) return `${head}…`;
  }
  const ends = [...name.matchAll(/[._](?=[a-z])/gi)].map(at => name.slice(at.index + 1));
  const end = ends.find(tail => tail.length < room && tail.length >= LEAST_CUT - 1 && !others.some(other => other.endsWith(tail)));
  return end === undefined ? null : `…${end}`;
}

const LEAST_CUT = 4; // letters: fewer say nothing

function sharedParts(a: readonly string[], b: readonly string[]): number {
  let k = 0;
  while (k < Math.min(a.length, b.length) && a[k] === b[k]) k++;
  return k;
}

/** Names of `present` that stand for `wanted`: the same name if it is there, else all of the same origin. */
export class Matcher {
  private readonly byName = new Map<string, number>();
  private readonly byOriginal = new Map<string, number[]>();

  constructor(names: readonly string[]) {
    names.forEach((name, i) => {
      this.byName.set(name, i);
      const key = original(name);
      const list = this.byOriginal.get(key);
      if (list) list.push(i);
      else this.byOriginal.set(key, [i]);
    });
  }

  find(wanted: readonly string[]): number[] {
    const found = new Set<number>();
    for (const name of wanted) {
      const exact = this.byName.get(name);
      if (exact !== undefined) found.add(exact);
      else this.byOriginal.get(original(name))?.forEach(i => found.add(i));
    }
    return [...found];
  }
}

/** Selected names that a compile made vanish: taken out of the selection, and told once. */
export class LostSelection {
  names: string[] = [];
  private before: Matcher | null = null;
  private readonly stop: () => void;

  constructor(private readonly store: Store, private readonly changed: () => void) {
    this.stop = store.on('frame', key => {
      if (key === 'ops') this.compare();
    });
    this.compare();
  }

  dispose(): void {
    this.stop();
  }

  private compare(): void {
    const frame = this.store.frames.get('ops');
    if (!frame) return;
    const { before } = this;
    const now = (this.before = new Matcher(frame.text('op_name')));
    if (!before) return;
    const chosen = this.store.selection.names;
    const gone = chosen.filter(name => before.find([name]).length && !now.find([name]).length);
    if (gone.length || this.names.length) {
      this.names = gone;
      if (gone.length) this.store.select(chosen.filter(name => !gone.includes(name)), 'lost');
      this.changed();
    }
  }
}

// What repeats: layers with the same ops, epochs with the same picture. It is shown once, with how often it comes.
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

/** The first number that is a part of a name, which is that of the layer; -1 where there is none. */
export function layerOf(name: string): number {
  return Number(/(?:^|[._])(\d+)(?=[._]|$)/.exec(name)?.[1] ?? -1);
}

/** Ops of each layer, by its number, where layers repeat: of those whose like stands in other layers. */
export function layersOf(names: readonly string[]): Map<number, number[]> {
  const repeats = repeatsOf(names.map((_, i) => i).filter(i => layerOf(names[i]!) >= 0), i => stemOf(names[i]!));
  const layers = groupsOf([...repeats.values()].flat(), i => String(layerOf(names[i]!)));
  return new Map([...layers].map(([layer, ops]) => [Number(layer), ops] as const).sort(([a], [b]) => a - b));
}

/** Ops of the same place in layers that repeat, by the first of `order` among them; only where there are enough. */
export function alike(ops: Ops, order: readonly number[]): Map<number, number[]> {
  const repeats = repeatsOf(order, op => `${stemOf(ops.name[op]!)} ${ops.type[op]!}`);
  return new Map([...repeats.values()].map(list => [list[0]!, list]));
}
