/**
 * Colours of the graph: of each node, of the legend, of what a pass changed, of values from the frame `overlay`,
 * and of the style sheet for the canvas.
 */
import { h } from '../dom.js';
import { placedPaint } from '../grid/draw.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { FAMILY_NAMES, familyPaint, loadPaint, type Paint } from '../theme.js';
import type { Colours } from './draw.js';
import type { Scene } from './scene.js';
import type { Frame } from '../frame.js';

// Colours of the graph: of each node, of the legend, of what a pass changed, and of the style sheet for the canvas.
const OP = 3; // index of "op" in the frame's kinds

export function nodePaint(scene: Scene, ops: Ops | null, by: ColourBy, node: number, dark: boolean): Paint {
  if (ops && by !== 'family' && scene.kinds[node] === OP) {
    const op = ops.indexOf.get(scene.names[node]!);
    if (op !== undefined) return placedPaint(ops, op, by, dark);
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
      : by !== 'family' && placed
        ? [h('span', { class: 'tb-key' }, `one colour per ${by}`)]
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

/** A node without a value: empty, so that it is not taken for the quiet end of the scale. */
export function nothing(dark: boolean): Paint {
  return dark
    ? { fill: '#14181f', edge: '#4a5565', text: '#aab4c2' }
    : { fill: '#ffffff', edge: '#b4bdc9', text: '#566376' };
}

/** Values of somebody's own by node name, painted instead of the usual colours: the frame `overlay`. */
export class Overlay {
  private readonly values = new Map<string, number>();
  private readonly low: number;
  private readonly high: number;
  private readonly name: string;
  private readonly guessed: number;

  /** The overlay of a frame; null for one without values, which takes it away. */
  static of(frame: Frame): Overlay | null {
    return frame.column('overlay_value').length ? new Overlay(frame) : null;
  }

  private constructor(frame: Frame) {
    const values = frame.column('overlay_value');
    frame.text('overlay_name').forEach((name, k) => this.values.set(name, values[k]!));
    [this.low, this.high] = [Number(frame.meta['low']), Number(frame.meta['high'])];
    this.name = String(frame.meta['name']);
    this.guessed = Number(frame.meta['guessed'] ?? 0);
  }

  /** Where a value lies between the ends of the scale, 0 to 1; the middle where both are the same. */
  private part(value: number): number {
    if (this.high <= this.low) return 0.5;
    return Math.max(0, Math.min(1, (value - this.low) / (this.high - this.low)));
  }

  /** Colours of a node; an empty box for one that has no value. */
  paint(name: string, dark: boolean): Paint {
    const value = this.values.get(name);
    return value === undefined ? nothing(dark) : loadPaint(this.part(value), dark);
  }

  legend(dark: boolean): HTMLElement[] {
    const swatch = (paint: Paint, label: string) =>
      h('span', { class: 'tb-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }), label);
    const stops = this.high > this.low ? [0, 0.25, 0.5, 0.75, 1].map(p => this.low + p * (this.high - this.low)) : [this.low];
    return [h('span', { 'data-tb-overlay': this.name }, this.name),
      ...stops.map(v => swatch(loadPaint(this.part(v), dark), String(Number(v.toPrecision(3))))),
      swatch(nothing(dark), 'no value'),
      ...(this.guessed ? [h('span', { 'data-tb-guessed': this.guessed, title: 'Beyond what the table of kernels was fitted to; which ones is said where an op is pointed at' }, `~ ${this.guessed} of ${this.values.size} extrapolated`)] : [])];
  }
}
