/** What waits look like: a colour and a pattern each, so that none is told by its colour alone. */
import { freshId, svg } from '../dom.js';

export const KINDS = ['compute', 'wait for input', 'wait for space', 'wait for DRAM', 'wait for host'] as const;
export const KIND_KEYS = ['compute', 'input', 'space', 'dram', 'host'] as const;

interface KindPaint {
  ground: string;
  ink: string;
  /** Where a bar is too narrow for a pattern. */
  flat: string;
}

const LIGHT: KindPaint[] = [
  { ground: '#5b93d6', ink: '#2f66ab', flat: '#5b93d6' },
  { ground: '#fbe9c6', ink: '#b97a08', flat: '#e8bd68' },
  { ground: '#fadbd5', ink: '#bb3a2c', flat: '#dd7c70' },
  { ground: '#e8def6', ink: '#7446b0', flat: '#ab8cd4' },
  { ground: '#d3efe6', ink: '#17765a', flat: '#68b69d' }
];
const DARK: KindPaint[] = [
  { ground: '#4684cf', ink: '#8dbdf5', flat: '#4684cf' },
  { ground: '#4d3f20', ink: '#eebb55', flat: '#a8843b' },
  { ground: '#54302c', ink: '#ff8f82', flat: '#b8625a' },
  { ground: '#3f3156', ink: '#c3a2f2', flat: '#836bab' },
  { ground: '#1d4439', ink: '#7fdcbf', flat: '#3f8f77' }
];
const MARKS = ['', 'M0 6L6 0M-1 1L1 -1M5 7L7 5', 'M0 0L6 6M0 6L6 0', 'M3 2v2', 'M0 3h6'];

export function kindPaints(dark: boolean): KindPaint[] {
  return dark ? DARK : LIGHT;
}

export interface Brushes {
  wide: (string | CanvasPattern)[];
  narrow: string[];
  ink: string[];
}

/** Fill styles for a canvas: patterns for wide bars, plain colours for narrow ones. */
export function brushes(ctx: CanvasRenderingContext2D, dark: boolean, ratio: number): Brushes {
  const paints = kindPaints(dark);
  const wide = paints.map((paint, kind) => {
    if (!kind) return paint.ground;
    const cell = document.createElement('canvas');
    cell.width = cell.height = Math.round(6 * ratio);
    const pen = cell.getContext('2d');
    if (!pen) return paint.flat;
    pen.scale(cell.width / 6, cell.height / 6);
    pen.fillStyle = paint.ground;
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = paint.ink;
    pen.lineWidth = kind === 3 ? 2 : 1.2;
    pen.stroke(new Path2D(MARKS[kind]));
    const pattern = ctx.createPattern(cell, 'repeat');
    pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern ?? paint.flat;
  });
  return { wide, narrow: paints.map(p => p.flat), ink: paints.map(p => p.ink) };
}

/** The same patterns for an SVG; use them as `url(#<prefix>-<kind>)`. */
export function patterns(prefix: string, dark: boolean): SVGDefsElement {
  return svg('defs', {}, ...kindPaints(dark).map((paint, kind) =>
    svg('pattern', { id: `${prefix}-${kind}`, width: 6, height: 6, patternUnits: 'userSpaceOnUse' },
      svg('rect', { width: 6, height: 6, fill: paint.ground }),
      MARKS[kind] ? svg('path', { d: MARKS[kind], stroke: paint.ink, 'stroke-width': kind === 3 ? 2 : 1.2, fill: 'none' }) : null)));
}

/** A small picture of a kind, for legends. */
export function swatch(kind: number, dark: boolean): SVGSVGElement {
  const id = freshId('kind');
  const paint = kindPaints(dark)[kind]!;
  return svg('svg', { width: 18, height: 11, class: 'tb-kind', 'aria-hidden': 'true' }, patterns(id, dark),
    svg('rect', { x: 0.5, y: 0.5, width: 17, height: 10, rx: 2, fill: `url(#${id}-${kind})`, stroke: paint.ink }));
}
