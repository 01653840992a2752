/** Several chips: which one is looked at, and all that work at the same time beside each other. */
import { h } from '../dom.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { saidTime, shortTime } from '../numbers.js';
import { drawEpoch, type Letters } from './draw.js';

const WORDS = 300; // px of a chip from which its ops are written

export function chipsOf(ops: Ops): number[] {
  return ops.frame.meta['chips'] as number[];
}

/** The epoch of a chip that runs at the time of another one; -1 where the chip rests. */
export function siblingOf(ops: Ops, epoch: number, chip: number): number {
  const time = ops.ofEpoch('temporal', epoch);
  return ops.byEpoch.findIndex((_, e) => ops.ofEpoch('temporal', e) === time && ops.ofEpoch('chip', e) === chip);
}

/** The epoch of a chip nearest in time to another one; -1 for a chip without any. */
export function nearestOf(ops: Ops, epoch: number, chip: number): number {
  const time = ops.ofEpoch('temporal', epoch);
  let best = -1;
  ops.byEpoch.forEach((_, e) => {
    const off = Math.abs(ops.ofEpoch('temporal', e) - time);
    if (ops.ofEpoch('chip', e) === chip && (best < 0 || off < Math.abs(ops.ofEpoch('temporal', best) - time))) best = e;
  });
  return best;
}

/** Whether ops are written where that many chips share a width. */
export function wordsAt(width: number, perRow: number): boolean {
  return width / Math.max(1, perRow) >= WORDS;
}

/** How many chips a row has where nobody said: the square-most that is not too small. */
export function usualPerRow(chips: number): number {
  return chips <= 4 ? Math.min(2, chips) : chips <= 8 ? 4 : 8;
}

/**
 * All chips of the time of an epoch, as figures in rows. `drawing`: that of the epoch itself, which is the one that can be
 * edited. A chip's head shows its epoch; an op dropped on another chip is pinned to it.
 */
export function together(
  ops: Ops, epoch: number, drawing: SVGSVGElement, by: ColourBy, dark: boolean, perRow: number, words: Letters | null, choose: (epoch: number) => void
): HTMLElement {
  const time = ops.byEpoch.map((_, e) => e).filter(e => ops.ofEpoch('temporal', e) === ops.ofEpoch('temporal', epoch));
  const slowest = Math.max(...time.map(e => ops.epochTimes[e]!));
  const box = h('div', { class: 'tb-together', 'data-tb-together': time.length, style: `grid-template-columns:repeat(${perRow},minmax(0,1fr))` });
  for (const chip of chipsOf(ops)) {
    const here = siblingOf(ops, epoch, chip);
    const current = here === epoch;
    const limits = here >= 0 && ops.epochTimes[here]! >= slowest;
    const said = here < 0 ? 'rests' : `epoch ${here}, ${(words ? saidTime : shortTime)(ops.epochTimes[here]!, ops.clock)}`;
    box.append(h('figure', {
      class: current ? 'tb-chip-now' : here < 0 ? 'tb-chip-idle' : '', 'data-tb-figure': chip, 'data-tb-chip': current ? undefined : chip
    }, h('figcaption', {}, h('button', {
      type: 'button', class: 'tb-link', 'data-tb-action': 'chip-epoch', disabled: here < 0, 'aria-current': current ? 'true' : undefined,
      title: here < 0 ? 'no ops in this temporal epoch' : 'Show this epoch with its handles and links', onclick: () => choose(here)
    }, `chip ${chip}`), h('span', {}, `${limits ? '▲ ' : ''}${said}`)),
    current ? drawing : drawEpoch(ops, here, by, dark, undefined, false, words)));
  }
  return box;
}
