/** What a pass did to nodes: names, colours, legend. */
import { h } from '../dom.js';
import type { Paint } from '../theme.js';

export const CHANGES = ['same', 'added', 'changed', 'removed'] as const;
const HUES: Record<string, [number, number]> = { added: [145, 52], changed: [36, 78], removed: [4, 68] };

/** Colours of a node by what a pass did to it; those left alone are grey. */
export function changePaint(change: number, dark: boolean): Paint {
  const [hue, strength] = HUES[CHANGES[change] ?? 'same'] ?? [215, 8];
  return dark
    ? { fill: `hsl(${hue} ${strength}% ${change ? 30 : 18}%)`, edge: `hsl(${hue} ${strength}% ${change ? 60 : 38}%)`, text: '#f3f5f8' }
    : { fill: `hsl(${hue} ${strength}% ${change ? 82 : 95}%)`, edge: `hsl(${hue} ${strength}% ${change ? 38 : 72}%)`, text: '#17202e' };
}

/** @param kinds indices of `CHANGES`. */
export function changeLegend(kinds: readonly number[], dark: boolean): HTMLElement[] {
  return kinds.map(k => {
    const paint = changePaint(k, dark);
    return h('span', { class: 'tb-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }), CHANGES[k]);
  });
}
