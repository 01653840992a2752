/** Two measured runs beside each other: each as a strip of time, op by op, and the time by kind of op. */
import { h, quantity, svg } from '../dom.js';
import { us } from '../optimes.js';
import { isDark } from '../theme.js';
import { deltaPaint, type DiffData, percent, type Side } from './side.js';

const SIDES = ['a', 'b'] as const;
const THINNEST = 1 / 3000; // of the longer run: what takes less is not drawn by itself

interface Kind {
  name: string;
  count: [number, number];
  time: [number, number];
}

/** Times by kind of op, what takes longest first. */
function byKind(data: DiffData): Kind[] {
  const kinds = new Map<string, Kind>();
  data.frame.text('op_kind').forEach((name, op) => {
    const kind = kinds.get(name) ?? { name, count: [0, 0], time: [0, 0] };
    kinds.set(name, kind);
    for (const [k, side] of SIDES.entries()) {
      if (!data.has(side, op)) continue;
      kind.count[k]!++;
      kind.time[k]! += data.cycles(side, op);
    }
  });
  return [...kinds.values()].sort((x, y) => Math.max(...y.time) - Math.max(...x.time));
}

/** A run from left to right; `longest`: ns that the width stands for. */
function strip(data: DiffData, side: Side, longest: number): SVGSVGElement {
  const root = svg('svg', { class: 'tb-run', viewBox: '0 0 3000 20', preserveAspectRatio: 'none', role: 'group', 'aria-label': `${data.name(side)} op by op`, 'data-tb-side': side });
  const at = data.frame.column(`op_${side}_place`);
  const order = data.names.map((_, op) => op).filter(op => data.has(side, op)).sort((x, y) => at[x]! - at[y]!);
  let begin = 0;
  for (const op of order) {
    const width = Math.max(0, data.cycles(side, op));
    const kind = data.classes(op)[0];
    if (width > longest * THINNEST) {
      const paint = kind === 'added' || kind === 'removed' ? null : deltaPaint(data.ratio(op), isDark());
      root.append(svg('rect', {
        class: `tb-run-op ${kind ? `tb-d-${kind}` : 'tb-d-same'}`, x: ((3000 * begin) / longest).toFixed(1), width: ((3000 * width) / longest).toFixed(1), y: 0, height: 20,
        'data-tb-op': data.names[op], ...(paint ? { style: `fill:${paint.fill}` } : {})
      }, svg('title', {}, `${data.names[op]!}: ${us(width)} µs${kind ? `, ${kind} ${percent(data.ratio(op))}` : ''}`)));
    }
    begin += width;
  }
  return root;
}

export function drawRuns(data: DiffData): HTMLElement {
  const kinds = byKind(data);
  const totals = SIDES.map((_, k) => kinds.reduce((sum, kind) => sum + kind.time[k]!, 0)) as [number, number];
  const longest = Math.max(...totals, 1);
  const widest = Math.max(...kinds.flatMap(kind => kind.time), 1);
  const bar = (ns: number, side: Side) => h('i', { class: `tb-run-bar tb-run-${side}`, style: `width:${((100 * ns) / widest).toFixed(1)}%` });
  return h('div', { class: 'tb-runs' },
    ...SIDES.map((side, k) => h('figure', {}, h('figcaption', {}, `${data.name(side)} · ${us(totals[k]!)} µs · ${quantity(data.names.filter((_, op) => data.has(side, op)).length, 'op')}`), strip(data, side, longest))),
    h('p', { class: 'tb-note' }, 'Orange takes longer than before, blue less; green is new, red is gone.'),
    h('div', { class: 'tb-scroll' }, h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...['Kind of op', 'Ops', 'Before and after', 'µs before', 'after', 'Δ %'].map((text, k) =>
        h('th', { scope: 'col', class: k > 2 || k === 1 ? 'tb-right' : '' }, h('span', { class: 'tb-cell' }, text))))),
      h('tbody', {}, ...kinds.map(({ name, count, time: [a, b] }) => h('tr', { 'data-tb-kind': name },
        h('td', {}, name), h('td', { class: 'tb-right' }, count[0] === count[1] ? String(count[0]) : `${count[0]} → ${count[1]}`),
        h('td', { class: 'tb-run-bars' }, bar(a, 'a'), bar(b, 'b')),
        ...[a, b].map((ns, k) => h('td', { class: 'tb-right' }, count[k] ? us(ns) : '–')),
        h('td', { class: `tb-right${b > a ? ' tb-worse' : b < a ? ' tb-better' : ''}` }, a > 0 && b > 0 ? percent(b / a - 1) : '')))))));
}
