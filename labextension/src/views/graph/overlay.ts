/** Values of somebody's own by node name, painted instead of the usual colours: the frame `overlay`. */
import { h } from '../dom.js';
import type { Frame } from '../frame.js';
import { loadPaint, type Paint } from '../theme.js';

/** A node without a value: empty, so that it is not taken for the quiet end of the scale. */
export function nothing(dark: boolean): Paint {
  return dark
    ? { fill: '#14181f', edge: '#4a5565', text: '#aab4c2' }
    : { fill: '#ffffff', edge: '#b4bdc9', text: '#566376' };
}

export class Overlay {
  private readonly values = new Map<string, number>();
  private readonly low: number;
  private readonly high: number;
  private readonly name: string;

  /** The overlay of a frame; null for one without values, which takes it away. */
  static of(frame: Frame): Overlay | null {
    return frame.column('overlay_value').length ? new Overlay(frame) : null;
  }

  private constructor(frame: Frame) {
    const values = frame.column('overlay_value');
    frame.text('overlay_name').forEach((name, k) => this.values.set(name, values[k]!));
    [this.low, this.high] = [Number(frame.meta['low']), Number(frame.meta['high'])];
    this.name = String(frame.meta['name']);
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
      swatch(nothing(dark), 'no value')];
  }
}
