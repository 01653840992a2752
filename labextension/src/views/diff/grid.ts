/** One side of a comparison as a core grid: what is alike is quiet, what differs has the colour and glyph of its class. */
import { elide, svg } from '../dom.js';
import { Rows, shortName } from '../grid/draw.js';
import type { Paint } from '../theme.js';
import { type Box, type DiffData, GLYPHS, type Side, signed } from './data.js';

const CELL_W = 52;
const CELL_H = 34;
const STRIP = 12;
const LEFT = 20;
const TOP = 16;

/** By share of change, blue (faster) over grey to orange (slower); full colour at a factor of two. */
export function deltaPaint(ratio: number | null, dark: boolean): Paint {
  const strength = Math.min(1, Math.abs(ratio ?? 0));
  const hue = (ratio ?? 0) > 0 ? 28 : 212;
  const [saturation, light] = [Math.round(78 * Math.sqrt(strength)), dark ? 26 + 14 * strength : 92 - 26 * strength];
  return {
    fill: `hsl(${hue} ${saturation}% ${light}%)`,
    edge: `hsl(${hue} ${saturation}% ${dark ? light + 24 : light - 28}%)`,
    text: dark ? '#f3f5f8' : '#17202e'
  };
}

export interface Shown {
  side: Side;
  epoch: number;
  /** Colours by change of cycles, with the places before as outlines. */
  delta: boolean;
  dark: boolean;
}

export function drawSide(data: DiffData, { side, epoch, delta, dark }: Shown): SVGSVGElement {
  const grid = data.grid(side);
  const rows = Rows.of(grid, data.frame.column(`${side}_epoch_chip`)[epoch] ?? 0, CELL_H, STRIP);
  const [w, hgt] = [grid.cols * CELL_W, rows.height];
  const title = `${data.name(side)}, epoch ${epoch}: ${grid.rows} rows by ${grid.cols} columns`;
  const root = svg('svg', {
    class: 'tb-cores tb-diff-cores', viewBox: `0 0 ${LEFT + w + 4} ${TOP + hgt + 4}`, role: 'group', 'aria-label': title, 'data-tb-side': side,
    preserveAspectRatio: 'xMidYMin meet'
  });
  const plane = svg('g', { transform: `translate(${LEFT} ${TOP})` });
  root.append(plane);
  for (let c = 0; c < grid.cols; c++) {
    plane.append(svg('text', { class: 'tb-ruler', x: (c + 0.5) * CELL_W, y: -5, 'text-anchor': 'middle' }, String(c)));
  }
  const cells: string[] = [];
  for (let r = 0; r < grid.rows; r++) {
    plane.append(svg('text', { class: 'tb-ruler', x: -6, y: rows.top[r]! + CELL_H / 2 + 4, 'text-anchor': 'end' }, String(r)));
    for (let c = 0; c < grid.cols; c++) cells.push(`M${c * CELL_W + 1} ${rows.top[r]! + 1}h${CELL_W - 2}v${CELL_H - 2}h${2 - CELL_W}z`);
  }
  plane.append(svg('path', { class: 'tb-lattice', d: cells.join('') }));
  for (const { y } of rows.strips) plane.append(svg('rect', { class: 'tb-diff-strip', x: 0, y: y + 1, width: w, height: STRIP - 2 }));
  const place = ({ row, col, rows: high, cols: wide }: Box): [number, number, number, number] => {
    const [y, tall] = rows.span(row, high, CELL_H);
    return [col * CELL_W + 1.5, y + 1.5, wide * CELL_W - 3, tall - 3];
  };
  const members = data.ofEpoch(side, epoch).filter(op => data.get(side, 'rows', op) > 0);
  const tiles = svg('g', { role: 'listbox', 'aria-label': 'Ops' });
  plane.append(tiles);
  for (const op of members) tiles.append(tile(data, side, op, place(data.box(side, op)), delta ? deltaPaint(data.ratio(op), dark) : null));
  if (delta) plane.append(...ghosts(data, side, epoch, place));
  return root;
}

/** Where ops stood before: outlines of those that moved, were resized, or are gone. */
function ghosts(data: DiffData, side: Side, epoch: number, place: (box: Box) => [number, number, number, number]): SVGElement[] {
  const from = data.pairs.find(pair => pair[1] === epoch)?.[0] ?? -1;
  if (side !== 'b' || from < 0) return [];
  return data.ofEpoch('a', from).flatMap(op => {
    const kinds = data.classes(op);
    const gone = kinds.includes('removed') || !data.has('b', op);
    if (!gone && !kinds.includes('moved') && !kinds.includes('resized')) return [];
    const [x, y, width, height] = place(data.box('a', op));
    return [svg('rect', { class: `tb-diff-ghost${gone ? ' tb-d-removed' : ''}`, x, y, width, height, rx: 4 },
      svg('title', {}, `${data.names[op]!} before: ${data.text('a', op)}`))];
  });
}

function tile(data: DiffData, side: Side, op: number, [x, y, w, hgt]: [number, number, number, number], paint: Paint | null): SVGGElement {
  const name = data.names[op]!;
  const kinds = data.classes(op);
  const said = kinds.length ? kinds.join(', ') : 'as before';
  const group = svg('g', {
    class: `tb-tile tb-diff-tile ${kinds[0] ? `tb-d-${kinds[0]}` : 'tb-d-same'}`, 'data-tb-op': name, role: 'option', tabindex: -1,
    'data-tb-change': kinds.join(' ')
  });
  const body = svg('rect', { class: 'tb-body', x, y, width: w, height: hgt, rx: 4 });
  if (paint) {
    body.setAttribute('style', `fill:${paint.fill};stroke:${paint.edge}`);
    group.style.setProperty('--tile-text', paint.text);
  }
  const room = Math.floor((w - 6) / 6.2);
  const full = shortName(name);
  const label = elide(full.length <= room ? full : full.slice(full.indexOf('.') + 1), room);
  const glyphs = kinds.map(k => GLYPHS[k]).join('');
  const share = data.delta(op) ? signed(data.ratio(op)) : '';
  const mark = share && w > 80 ? `${glyphs} ${share}` : glyphs;
  group.append(svg('title', {}, `${name}: ${said}, ${data.text(side, op)}, cycles ${data.delta(op) ? signed(data.ratio(op)) || 'not comparable' : 'as before'}`), body,
    svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: x + w / 2, y: y + hgt / 2 + (mark ? -1 : 4), 'text-anchor': 'middle' }, label));
  if (mark) group.append(svg('text', { class: 'tb-sub', 'aria-hidden': 'true', x: x + w / 2, y: y + hgt / 2 + 11, 'text-anchor': 'middle' }, mark));
  return group;
}
