/** The L1 of the cores of an epoch: how full each is, and the buffers of the chosen one by address. */
import { bytes, elide, h, percent, svg } from '../dom.js';
import { Rows, shortName } from '../grid/draw.js';
import type { Ops } from '../ops.js';
import { loadPaint } from '../theme.js';
import { hex, type MemoryData, type Part } from './data.js';

const CELL_W = 46;
const CELL_H = 30;
const STRIP = 10;
const LEFT = 20;
const TOP = 16;

/** Every core of an epoch, coloured by how full it is. core: row and column of one that is marked. */
export function drawHeat(ops: Ops, data: MemoryData, epoch: number, dark: boolean, core: readonly number[] = []): SVGSVGElement {
  const rows = Rows.of(ops.frame.meta, ops.ofEpoch('chip', epoch), CELL_H, STRIP);
  const w = ops.cols * CELL_W;
  const root = svg('svg', {
    class: 'tb-cores tb-heat', viewBox: `0 0 ${LEFT + w + 4} ${TOP + rows.height + 4}`, role: 'listbox', 'aria-multiselectable': 'true', preserveAspectRatio: 'xMidYMin meet',
    'aria-label': `L1 of epoch ${epoch}: ${ops.rows} rows by ${ops.cols} columns`
  });
  const plane = svg('g', { transform: `translate(${LEFT} ${TOP})` });
  root.append(plane);
  for (let c = 0; c < ops.cols; c++) plane.append(svg('text', { class: 'tb-ruler', x: (c + 0.5) * CELL_W, y: -5, 'text-anchor': 'middle' }, String(c)));
  const cells: string[] = [];
  for (let r = 0; r < ops.rows; r++) {
    plane.append(svg('text', { class: 'tb-ruler', x: -6, y: rows.top[r]! + CELL_H / 2 + 4, 'text-anchor': 'end' }, String(r)));
    for (let c = 0; c < ops.cols; c++) cells.push(`M${c * CELL_W + 1} ${rows.top[r]! + 1}h${CELL_W - 2}v${CELL_H - 2}h${2 - CELL_W}z`);
  }
  plane.append(svg('path', { class: 'tb-lattice', d: cells.join('') }));
  for (const { y } of rows.strips) plane.append(svg('rect', { class: 'tb-diff-strip', x: 0, y: y + 1, width: w, height: STRIP - 2 }));
  for (const op of ops.byEpoch[epoch] ?? []) {
    const at = data.indexOf.get(ops.name[op]!);
    if (at === undefined || !ops.get('rows', op)) continue;
    const [row, col, high, wide] = [ops.get('row', op), ops.get('col', op), ops.get('rows', op), ops.get('cols', op)];
    const [y, tall] = rows.span(row, high, CELL_H);
    const fill = data.fill(at);
    const paint = loadPaint(fill, dark);
    const [width, height] = [wide * CELL_W - 3, tall - 3];
    const group = svg('g', {
      class: 'tb-tile', 'data-tb-op': ops.name[op]!, 'data-tb-fill': fill.toFixed(4), role: 'option', tabindex: -1
    });
    group.style.setProperty('--tile-text', paint.text);
    group.append(svg('title', {}, `${ops.name[op]!}: ${bytes(data.used(at))} of every core, ${percent(fill)} of what buffers may use`),
      svg('rect', { class: 'tb-body', x: col * CELL_W + 1.5, y: y + 1.5, width, height, rx: 4, fill: paint.fill, stroke: paint.edge }));
    const room = Math.floor(width / 6);
    const full = shortName(ops.name[op]!);
    if (height > 44 || width > 60) {
      group.append(svg('text', { class: 'tb-sub', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + 1.5 + height / 2 - 2, 'text-anchor': 'middle' },
        elide(full.length <= room ? full : full.slice(full.indexOf('.') + 1), room)));
      group.append(svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + 1.5 + height / 2 + 10, 'text-anchor': 'middle' }, percent(fill)));
    } else {
      group.append(svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: col * CELL_W + 1.5 + width / 2, y: y + height / 2 + 5, 'text-anchor': 'middle' }, percent(fill)));
    }
    plane.append(group);
  }
  const [row, col] = core;
  if (row !== undefined && row < ops.rows && col! < ops.cols) plane.append(svg('rect', {
    class: 'tb-core-mark', 'data-tb-core': core.join(','), x: col! * CELL_W + 3.5, y: rows.top[row]! + 3.5, width: CELL_W - 7, height: CELL_H - 7, rx: 3
  }));
  return root;
}

function what(part: Part): string {
  if (part.kind === 'output') return 'output';
  if (part.kind === 'intermediate') return 'intermediates';
  return part.operand < 0 ? part.kind : `${part.kind} ${part.operand}`;
}

/** The core of an op from address 0 to the end, and its buffers one by one. */
export function core(data: MemoryData, name: string): HTMLElement {
  const op = data.indexOf.get(name);
  if (op === undefined) return h('div', { class: 'tb-empty' }, 'Choose an op to see the buffers of its cores.');
  const parts = data.partsOf(op), sizes = data.frame.meta['sizes'];
  const share = (value: number) => `${((100 * value) / data.size).toFixed(3)}%`;
  const segment = (kind: string, size: number, title: string) =>
    h('i', { class: `tb-seg tb-seg-${kind}`, style: `width:${share(size)}`, title, 'data-tb-part': kind });
  const free = data.free(op);
  const line = (kind: string, label: string, source: string, size: number, start: number) =>
    h('tr', { 'data-tb-part': kind, 'data-tb-bytes': size },
      h('td', {}, h('i', { class: `tb-seg tb-seg-${kind} tb-seg-key` }), label), h('td', { title: source }, source),
      h('td', { class: 'tb-right' }, bytes(size)), h('td', { class: 'tb-right' }, percent(size / data.size)), h('td', { class: 'tb-right tb-hex' }, hex(start)));
  return h('div', { class: 'tb-core', 'data-tb-core-of': name },
    h('p', { class: 'tb-core-head' }, h('b', { title: name }, shortName(name)), ` · every core: ${bytes(data.used(op))} in buffers, `,
      h('span', { 'data-tb-metric': 'l1-free' }, `${bytes(free)} free`), `, largest hole ${bytes(data.hole(op))}`),
    h('div', { class: 'tb-l1bar', role: 'img', 'aria-label': parts.map(p => `${what(p)} ${bytes(p.bytes)}`).join(', ') },
      segment('reserved', data.reserved, `reserved: firmware, overlay, routing tables, ${bytes(data.reserved)}`),
      ...parts.map(p => segment(p.kind, p.bytes, `${what(p)}, ${p.source}: ${bytes(p.bytes)}`)),
      segment('free', free, `free: ${bytes(free)}`)),
    h('div', { class: 'tb-l1ends' }, h('span', {}, '0x0'), h('span', {}, hex(data.size))),
    h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...['Buffer', 'Of', 'Bytes', 'of L1', 'From'].map((t, k) => h('th', { scope: 'col', class: `tb-title${k > 1 ? ' tb-right' : ''}` }, t)))),
      h('tbody', {}, line('reserved', 'reserved', 'firmware, overlay, routing tables', data.reserved, 0),
        ...parts.map(p => line(p.kind, what(p), p.source, p.bytes, p.start)),
        line('free', 'free', '', free, data.size - free))),
    h('p', { class: 'tb-fix' }, `Sizes are ${typeof sizes === 'string' ? sizes : 'those of the compile'}; the backend assigns the final addresses.`));
}
