/** Colours of the graph: of each node, of the legend, of what a pass changed, and of the style sheet for the canvas. */
import { h } from '../dom.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { epochPaint, FAMILY_NAMES, familyPaint, loadPaint, type Paint } from '../theme.js';
import type { Colours } from './draw.js';
import type { Scene } from './scene.js';

const OP = 3; // index of "op" in the frame's kinds

export function nodePaint(scene: Scene, ops: Ops | null, by: ColourBy, node: number, dark: boolean): Paint {
  if (ops && by !== 'family' && scene.kinds[node] === OP) {
    const op = ops.indexOf.get(scene.names[node]!);
    if (op !== undefined) return by === 'epoch' ? epochPaint(ops.epochOf(op), dark) : loadPaint(ops.load(op), dark);
  }
  return familyPaint(scene.kinds[node] === OP ? scene.types[node]! : 'io', dark);
}

export function paintLegend(legend: HTMLElement, by: ColourBy, stage: string, dark: boolean): void {
  const key = `${by}${dark ? 'd' : 'l'}${stage}`;
  if (legend.dataset['key'] === key) return;
  legend.dataset['key'] = key;
  const swatch = (paint: Paint, label: string) =>
    h('span', { class: 'tb-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }), label);
  const placed = stage === 'lowered';
  const items =
    by === 'load' && placed
      ? [h('span', {}, 'cycles against the slowest op'),
          ...[0.1, 0.4, 0.7, 1].map(v => swatch(loadPaint(v, dark), `${100 * v} %`))]
      : by === 'epoch' && placed
        ? [h('span', { class: 'tb-key' }, 'one colour per epoch')]
        : FAMILY_NAMES.map(name => swatch(familyPaint(name, dark), name));
  legend.replaceChildren(...items);
}

export function readColours(element: HTMLElement): Colours {
  const style = getComputedStyle(element);
  const read = (name: string) => style.getPropertyValue(name).trim() || '#888';
  return {
    text: read('--tb-text'),
    muted: read('--tb-muted'),
    line: read('--tb-edge'),
    surface: read('--tb-surface'),
    group: read('--tb-group'),
    groupEdge: read('--tb-group-edge'),
    accent: read('--tb-accent'),
    incoming: read('--tb-incoming'),
    outgoing: read('--tb-outgoing'),
    font: read('--tb-font')
  };
}

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
