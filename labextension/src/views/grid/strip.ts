/** The film strip: every epoch as a small grid with a bar for its cycles. */
import { h, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { saidTime, shortTime } from '../units.js';
import { paintOf, Rows } from './draw.js';

const W = 7;
const H = 5;

export function drawStrip(ops: Ops, by: ColourBy, dark: boolean, choose: (epoch: number) => void): HTMLElement[] {
  const most = Math.max(...ops.slowest, 1);
  const rows = new Rows(ops.physical, ops.harvested, H, 2);
  const chips = (ops.frame.meta['chips'] as number[]).length;
  return ops.byEpoch.map((members, epoch) => {
    const picture = svg('svg', { viewBox: `0 0 ${ops.cols * W} ${rows.height}`, 'aria-hidden': 'true' },
      svg('rect', { class: 'tb-mini-ground', width: ops.cols * W, height: rows.height, rx: 1.5 }));
    const shapes = new Map<string, string>(); // one path per colour: an element per op would take as long as all else
    for (const op of members) {
      if (!ops.get('rows', op)) continue;
      const [y, hgt] = rows.span(ops.get('row', op), ops.get('rows', op), H);
      const { fill } = paintOf(ops, op, by, dark);
      const wide = ops.get('cols', op) * W - 0.8;
      shapes.set(fill, `${shapes.get(fill) ?? ''}M${ops.get('col', op) * W + 0.4} ${y + 0.4}h${wide}v${hgt - 0.8}h${-wide}z`);
    }
    for (const [fill, d] of shapes) picture.append(svg('path', { d, fill }));
    const cycles = ops.slowest[epoch]!;
    const label = `epoch ${epoch}, chip ${ops.ofEpoch('chip', epoch)}, ${members.length} ops, ${saidTime(cycles, ops.clock)}`;
    return h('button', {
      type: 'button', class: 'tb-frame', 'data-tb-epoch': epoch, 'data-tb-action': 'epoch', 'aria-label': label, title: label,
      onclick: () => choose(epoch)
    }, picture, h('span', { class: 'tb-frame-bar' }, h('i', { style: `width:${(100 * cycles) / most}%` })),
      h('span', { class: 'tb-frame-text' }, h('b', {}, String(epoch)), chips > 1 ? h('span', {}, `c${ops.ofEpoch('chip', epoch)}`) : '', cycles ? shortTime(cycles, ops.clock) : ''));
  });
}

/** A card per chip where there are several: what it holds, and a place to drop an op on. */
export function drawChips(ops: Ops): HTMLElement[] {
  const chips = ops.frame.meta['chips'] as number[];
  if (chips.length < 2) return [];
  const count = new Map<number, number>();
  for (let op = 0; op < ops.count; op++) count.set(ops.get('chip', op), (count.get(ops.get('chip', op)) ?? 0) + 1);
  return chips.map(chip => h('span', { class: 'tb-chip-drop', 'data-tb-chip': chip, title: 'drop an op here to pin it to the chip' },
    h('b', {}, `chip ${chip}`), ` ${count.get(chip) ?? 0} ops`));
}
