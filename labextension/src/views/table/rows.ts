/** The rows of the op table: an op, one of its cores, or the sub-total of an epoch. */
import { counted, grouped, h, percent } from '../dom.js';
import { shortName } from '../grid/draw.js';
import { alike, stemOf } from '../names.js';
import type { Ops } from '../ops.js';

export interface Row {
  /** -1 for a sub-total. */
  op: number;
  epoch: number;
  /** Number of the core in its op, row by row; -1 for the whole op. */
  core: number;
  /** Of a row that stands for the same op of several layers: all of them, itself among them. */
  alike?: number[];
  /** It stands for the one of them that is selected. */
  picked?: boolean;
}

/** Ops in their order as rows, those of layers that repeat as one, unless it is among `unfolded` (by the first op's name). */
export function foldedRows(ops: Ops, shown: readonly number[], unfolded: ReadonlySet<string>): Row[] {
  const folds = alike(ops, shown);
  const inside = new Set([...folds.values()].flat());
  const one = (op: number): Row => ({ op, epoch: ops.epochOf(op), core: -1 });
  return shown.flatMap(op => {
    const list = folds.get(op);
    if (list) return unfolded.has(stemOf(ops.name[op]!)) ? [{ ...one(op), alike: list }, ...list.slice(1).map(one)] : [{ ...one(op), alike: list }];
    return inside.has(op) ? [] : [one(op)];
  });
}

/** Ops in the order they are wanted in, as rows: under their epoch, and core by core. */
export function rowsOf(ops: Ops, shown: readonly number[], byEpoch: boolean, perCore: boolean): Row[] {
  const one = (op: number): Row[] => {
    const cores = perCore ? ops.get('rows', op) * ops.get('cols', op) : 0;
    const epoch = ops.epochOf(op);
    return cores ? Array.from({ length: cores }, (_, core) => ({ op, epoch, core })) : [{ op, epoch, core: -1 }];
  };
  if (!byEpoch) return shown.flatMap(one);
  const members = new Map<number, number[]>();
  for (const op of shown) {
    const list = members.get(ops.epochOf(op));
    if (list) list.push(op);
    else members.set(ops.epochOf(op), [op]);
  }
  return [...members.keys()].sort((a, b) => a - b).flatMap(epoch => [{ op: -1, epoch, core: -1 }, ...members.get(epoch)!.flatMap(one)]);
}

/** Row and column of a core of an op. */
export function coreOf(ops: Ops, { op, core }: Row): [number, number] {
  const wide = Math.max(1, ops.get('cols', op));
  return [ops.get('row', op) + Math.floor(core / wide), ops.get('col', op) + (core % wide)];
}

/** The sub-total of an epoch: its slowest op, how long it takes, its cores, how evenly they are at work. */
export function totalRow(ops: Ops, epoch: number, go: (epoch: number) => void): HTMLElement[] {
  const members = ops.byEpoch[epoch] ?? [];
  const slowest = ops.limitingOf(epoch);
  const chips = (ops.frame.meta['chips'] as number[] | undefined)?.length ?? 1;
  const words = [
    ops.phaseOf(epoch), counted(members.length, 'op'), chips > 1 ? `chip ${ops.ofEpoch('chip', epoch)}` : '',
    ops.epochTimes[epoch] ? `${grouped(ops.epochTimes[epoch])} cycles / input` : '', ops.boundText(epoch),
    slowest < 0 ? '' : `▲ ${shortName(ops.name[slowest]!)}`, counted(ops.ofEpoch('cores', epoch), 'core'),
    `${percent(ops.busy(epoch))} busy`
  ].filter(Boolean);
  return [
    h('span', { role: 'gridcell', class: 'tb-cell tb-total-head' }, h('button', {
      type: 'button', class: 'tb-link', tabindex: -1, 'data-tb-action': 'table-epoch', title: 'Show this epoch on the grid', onclick: () => go(epoch)
    }, `Epoch ${epoch}`)),
    h('span', { role: 'gridcell', class: 'tb-cell tb-total-text', title: slowest < 0 ? undefined : `limits the epoch: ${ops.name[slowest]!}` }, words.join(' · '))
  ];
}
