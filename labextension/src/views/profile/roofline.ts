/** The roofline: ops by kernel cycles per byte of DRAM traffic, and by how much of their time the kernel takes. */
import { percent, short, svg } from '../dom.js';
import { shortName } from '../grid/draw.js';

export interface Point {
  op: string;
  bound: string;
  /** Bytes of DRAM traffic per input; 0: none. */
  dram: number;
  kernel: number;
  cycles: number;
  share: number;
}

const [W, H] = [420, 230];
const [LEFT, RIGHT, TOP, BOTTOM] = [38, 10, 10, 34];

export function boundClass(bound: string): string {
  return `tb-b-${bound.split(' ')[0]!}`;
}

/** ridge: bytes per cycle that all channels of DRAM carry together. Ops without traffic stand at the right edge. */
export function roofline(points: Point[], ridge: number, select: (op: string) => void): SVGSVGElement {
  const finite = points.filter(p => p.dram > 0).map(p => p.kernel / p.dram);
  const low = Math.min(...finite, 1 / ridge) / 2;
  const high = 4 * Math.max(...finite, 1 / ridge);
  const x = (v: number) => LEFT + ((Math.log(Math.min(high, Math.max(low, v))) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (W - LEFT - RIGHT);
  const y = (v: number) => H - BOTTOM - Math.max(0, Math.min(1, v)) * (H - TOP - BOTTOM);
  const root = svg('svg', {
    viewBox: `0 0 ${W} ${H}`, role: 'img', preserveAspectRatio: 'xMidYMid meet',
    'aria-label': `Roofline of ${points.length} ops: kernel cycles per byte of DRAM traffic, and the share of an op's time that its kernel takes`
  });
  for (const share of [0, 0.5, 1]) {
    root.append(svg('path', { class: 'tb-axis', 'stroke-opacity': share ? 0.3 : 1, d: `M${LEFT} ${y(share)}H${W - RIGHT}` }),
      svg('text', { x: LEFT - 5, y: y(share) + 3, 'text-anchor': 'end' }, percent(share)));
  }
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
    root.append(svg('path', { class: 'tb-axis', d: `M${x(10 ** power)} ${y(0)}v4` }),
      svg('text', { x: x(10 ** power), y: H - BOTTOM + 15, 'text-anchor': 'middle' }, power < 0 ? (10 ** power).toFixed(-power) : short(10 ** power)));
  }
  root.append(
    svg('text', { x: (LEFT + W - RIGHT) / 2, y: H - 4, 'text-anchor': 'middle' }, 'kernel cycles per byte of DRAM traffic; at the right edge: no traffic'),
    svg('path', { class: 'tb-limit', d: [...Array(60).keys()].map(i => {
      const v = low * (high / low) ** (i / 59);
      return `${i ? 'L' : 'M'}${x(v).toFixed(1)} ${y(ridge * v).toFixed(1)}`;
    }).join('') },
      svg('title', {}, `Limit of the DRAM bandwidth: ${ridge.toFixed(0)} bytes per cycle`)));
  for (const p of [...points].sort((a, b) => b.share - a.share)) {
    const dot = svg('circle', {
      class: boundClass(p.bound), cx: x(p.dram > 0 ? p.kernel / p.dram : Infinity).toFixed(1), cy: y(p.cycles ? p.kernel / p.cycles : 0).toFixed(1),
      r: (3 + 9 * Math.sqrt(p.share)).toFixed(1), 'data-tb-op': p.op, onclick: () => select(p.op)
    }, svg('title', {}, `${shortName(p.op)}: bound by ${p.bound}, ${percent(p.share)} of the time`));
    root.append(dot);
  }
  return root;
}
