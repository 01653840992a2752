/** Edges between the ops of an epoch as lines over the grid, as thick as what they carry. */
import { short, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import type { Geometry } from './geometry.js';
import { coresOf } from './pictures.js';

export type Shown = 'none' | 'selected' | 'all';

/** Pipes of an epoch: from, to, bytes per cycle. Those below the threshold are left out. */
export function pipesOf(ops: Ops, epoch: number, shown: Shown, chosen: ReadonlySet<number>, threshold: number): [number, number, number][] {
  if (shown === 'none') return [];
  const cycles = Math.max(1, ops.epochTimes[epoch] ?? 1);
  return (ops.byEpoch[epoch] ?? []).flatMap(from => [...new Set(ops.outOf(from))]
    .filter(to => ops.epochOf(to) === epoch && (shown === 'all' || chosen.has(from) || chosen.has(to)))
    .map(to => [from, to, ops.get('out_bytes', from) / cycles] as [number, number, number])
    .filter(([, , load]) => load >= threshold));
}

export function drawPipes(ops: Ops, geometry: Geometry, pipes: readonly [number, number, number][]): SVGGElement {
  /** Where the way from the middle of an op to that of another leaves its tile. */
  const edge = (op: number, other: number): [number, number] => {
    const [x, y, w, h] = geometry.box(coresOf(ops, op));
    const [u, v, p, q] = geometry.box(coresOf(ops, other));
    const [dx, dy] = [u + p / 2 - x - w / 2, v + q / 2 - y - h / 2];
    const part = Math.min(w / 2 / (Math.abs(dx) || 1e-9), h / 2 / (Math.abs(dy) || 1e-9), 0.5);
    return [x + w / 2 + part * dx, y + h / 2 + part * dy];
  };
  const most = Math.max(...pipes.map(p => p[2]), 1e-9);
  return svg('g', { class: 'tb-pipes', 'pointer-events': 'none' }, ...pipes.map(([from, to, load]) => {
    const [[x, y], [u, v]] = [edge(from, to), edge(to, from)];
    const [dx, dy] = [u - x, v - y];
    const length = Math.hypot(dx, dy) || 1;
    // A bow to the left of the way: there and back are two lines.
    const bow = Math.min(14, length / 4);
    const [mx, my] = [(x + u) / 2 + (dy / length) * bow, (y + v) / 2 - (dx / length) * bow];
    const [ax, ay] = [u - (dx / length) * 7, v - (dy / length) * 7];
    const turn = (Math.atan2(v - my, u - mx) * 180) / Math.PI;
    return svg('g', { class: 'tb-pipe', 'data-tb-pipe': `${ops.name[from]!} → ${ops.name[to]!}` },
      svg('title', {}, `${ops.name[from]!} → ${ops.name[to]!}: ${short(ops.get('out_bytes', from))}B per input, ${load.toFixed(1)} bytes per cycle`),
      svg('path', { d: `M${x} ${y}Q${mx} ${my} ${ax} ${ay}`, 'stroke-width': (1 + 3 * (load / most)).toFixed(1) }),
      svg('path', { class: 'tb-pipe-head', d: 'M0 0l-8 -4v8z', transform: `translate(${u} ${v}) rotate(${turn.toFixed(1)})` }));
  }));
}
