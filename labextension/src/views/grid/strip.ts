/** The film strip, every epoch as a small grid with a bar for its cycles; several chips beside each other. */
import { quantity, h, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { saidTime, shortTime } from '../numbers.js';
import { drawEpoch, type Letters, paintOf, Rows } from './draw.js';

// Several chips: which one is looked at, and all that work at the same time beside each other.
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
  const box = h('div', { class: 'tb-together', 'data-tb-together': time.length, style: `grid-template-columns:repeat(${perRow},minmax(0,1fr))` });
  for (const chip of chipsOf(ops)) {
    const here = siblingOf(ops, epoch, chip);
    const current = here === epoch;
    const said = here < 0 ? 'rests' : `epoch ${here}, ${(words ? saidTime : shortTime)(ops.epochTimes[here]!, ops.clock)}`;
    box.append(h('figure', {
      class: current ? 'tb-chip-now' : here < 0 ? 'tb-chip-idle' : '', 'data-tb-figure': chip, 'data-tb-chip': current ? undefined : chip
    }, h('figcaption', {}, h('button', {
      class: 'tb-link', 'data-tb-action': 'chip-epoch', disabled: here < 0, 'aria-current': current ? 'true' : undefined,
      title: here < 0 ? 'no ops in this temporal epoch' : 'Show this epoch with its handles and links', onclick: () => choose(here)
    }, `chip ${chip}`), h('span', {}, said)),
    current ? drawing : drawEpoch(ops, here, by, dark, undefined, false, words)));
  }
  return box;
}

// The film strip: every epoch as a small grid with a bar for its cycles.
const W = 7;
const H = 5;

/** known: frames of the picture before. Those that look as they did are the same elements: the page keeps their layout. */
export function drawStrip(
  ops: Ops, by: ColourBy, dark: boolean, choose: (epoch: number) => void, known = new Map<string, HTMLElement>()
): HTMLElement[] {
  const before = new Map(known);
  known.clear();
  const most = Math.max(...ops.epochTimes, 1);
  const directions = (ops.frame.meta['directions'] as string[] | undefined) ?? [];
  const sections = new Set(directions).size > 1; // a training step, or subgraphs: which part of it an epoch is
  const chips = (ops.frame.meta['chips'] as number[]).length;
  return ops.byEpoch.map((members, epoch) => {
    const rows = Rows.of(ops.frame.meta, ops.ofEpoch('chip', epoch), H, 2);
    const shapes = new Map<string, string>(); // one path per colour: an element per op would take as long as all else
    for (const op of members) {
      if (!ops.get('rows', op)) continue;
      const [y, hgt] = rows.span(ops.get('row', op), ops.get('rows', op), H);
      const { fill } = paintOf(ops, op, by, dark);
      const wide = ops.get('cols', op) * W - 0.8;
      shapes.set(fill, `${shapes.get(fill) ?? ''}M${ops.get('col', op) * W + 0.4} ${y + 0.4}h${wide}v${hgt - 0.8}h${-wide}z`);
    }
    const cycles = ops.epochTimes[epoch]!;
    const section = sections ? ops.phaseOf(epoch) : '';
    const label = `epoch ${epoch}${section && (section.startsWith('subgraph') ? `, ${section}` : `, section ${section}`)}, chip ${ops.ofEpoch('chip', epoch)}, ${quantity(members.length, 'op')}, ${saidTime(cycles, ops.clock)}`;
    const bar = `width:${(100 * cycles) / most}%`;
    const key = [label, bar, chips, ops.cols, rows.height, ...[...shapes].flat()].join('\n');
    const made = before.get(key) ?? h('button', {
      class: `tb-frame${chips > 1 || section ? ' tb-wide' : ''}`, 'data-tb-epoch': epoch, 'data-tb-phase': ops.phaseOf(epoch) || undefined, 'data-tb-action': 'epoch', 'aria-label': label, title: label,
      onclick: () => choose(epoch)
    }, svg('svg', { viewBox: `0 0 ${ops.cols * W} ${rows.height}`, 'aria-hidden': 'true' },
      svg('rect', { class: 'tb-mini-ground', width: ops.cols * W, height: rows.height, rx: 1.5 }),
      ...[...shapes].map(([fill, d]) => svg('path', { d, fill }))), h('span', { class: 'tb-frame-bar' }, h('i', { style: bar })),
      h('span', { class: 'tb-frame-text' }, h('b', {}, String(epoch)), section && h('span', { class: 'tb-section' }, section), chips > 1 ? h('span', {}, `c${ops.ofEpoch('chip', epoch)}`) : '', cycles ? shortTime(cycles, ops.clock) : ''));
    known.set(key, made);
    return made;
  });
}

/** A card per chip where there are several: what it holds, a place to drop an op on, and a way to see its epochs alone. */
export function drawChips(ops: Ops, alone: number | null, choose: (chip: number) => void): HTMLElement[] {
  const chips = ops.frame.meta['chips'] as number[];
  if (chips.length < 2) return [];
  const count = new Map<number, number>();
  for (let op = 0; op < ops.count; op++) count.set(ops.get('chip', op), (count.get(ops.get('chip', op)) ?? 0) + 1);
  return chips.map(chip => h('button', {
    class: 'tb-chip-drop', 'data-tb-chip': chip, 'data-tb-action': 'chip', 'aria-pressed': String(chip === alone),
    title: 'Show only its epochs, or all again; drop an op here to pin it to the chip', onclick: () => choose(chip)
  },
    h('b', {}, `chip ${chip}`), ` ${quantity(count.get(chip) ?? 0, 'op')}`));
}
