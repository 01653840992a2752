/** The film strip: every epoch as a small grid with a bar for its cycles. */
import { counted, h, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { saidTime, shortTime } from '../numbers.js';
import { paintOf, Rows } from './draw.js';

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
  const sections = new Set(directions).size > 1; // a training step: which part of it an epoch is
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
    const label = `epoch ${epoch}${section && `, section ${section}`}, chip ${ops.ofEpoch('chip', epoch)}, ${counted(members.length, 'op')}, ${saidTime(cycles, ops.clock)}`;
    const bar = `width:${(100 * cycles) / most}%`;
    const key = [label, bar, chips, ops.cols, rows.height, ...[...shapes].flat()].join('\n');
    const made = before.get(key) ?? h('button', {
      type: 'button', class: `tb-frame${chips > 1 || section ? ' tb-wide' : ''}`, 'data-tb-epoch': epoch, 'data-tb-phase': ops.phaseOf(epoch) || undefined, 'data-tb-action': 'epoch', 'aria-label': label, title: label,
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
    type: 'button', class: 'tb-chip-drop', 'data-tb-chip': chip, 'data-tb-action': 'chip', 'aria-pressed': String(chip === alone),
    title: 'Show only its epochs, or all again; drop an op here to pin it to the chip', onclick: () => choose(chip)
  },
    h('b', {}, `chip ${chip}`), ` ${counted(count.get(chip) ?? 0, 'op')}`));
}
