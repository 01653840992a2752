/** One epoch as SVG: rulers, cores, harvested rows, op rectangles; cores that cannot be as a netlist file has them. */
import { elide, freshId, svg } from '../dom.js';
import { fitting } from '../names.js';
import type { Ops } from '../ops.js';
import type { ColourBy } from '../store.js';
import { epochPaint, familyPaint, loadPaint, type Paint } from '../theme.js';
import { saidTime, shortTime } from '../numbers.js';

// Cores that cannot be as a netlist file has them: shared by several ops, or not on the device.
/** [row, column, ops] of every core that more than one op of the epoch claims. */
function shared(ops: Ops, epoch: number): [number, number, number[]][] {
  const users = new Map<number, number[]>();
  for (const op of ops.byEpoch[epoch] ?? []) {
    for (let r = 0; r < ops.get('rows', op); r++) {
      for (let c = 0; c < ops.get('cols', op); c++) {
        const key = (ops.get('row', op) + r) * 65536 + ops.get('col', op) + c;
        const there = users.get(key);
        if (there) there.push(op);
        else users.set(key, [op]);
      }
    }
  }
  return [...users].filter(([, list]) => list.length > 1).map(([key, list]) => [Math.floor(key / 65536), key % 65536, list]);
}

/** Marks over the tiles: crossed cores with the number of ops on them. */
function drawShared(ops: Ops, epoch: number, top: readonly number[], cell: number, high: number): SVGElement[] {
  return shared(ops, epoch).map(([row, col, list]) => {
    const [x, y] = [col * cell + 1.5, top[row]! + 1.5];
    const [w, h] = [cell - 3, high - 3];
    const label = `row ${row}, column ${col} is claimed by ${list.map(op => ops.name[op]!).join(', ')}`;
    return svg('g', { class: 'tb-overlap', role: 'img', 'aria-label': label, 'data-tb-overlap': `${row},${col}` },
      svg('title', {}, label),
      svg('rect', { x, y, width: w, height: h, rx: 4 }),
      svg('path', { d: `M${x + 4} ${y + 4}l${w - 8} ${h - 8}M${x + w - 4} ${y + 4}l${8 - w} ${h - 8}` }),
      svg('text', { x: x + w / 2, y: y + h / 2 + 4, 'text-anchor': 'middle' }, `${list.length} ops`));
  });
}

/** Ground under cores that the device does not have. */
function drawAbsent(ops: Ops, top: readonly number[], cell: number, high: number): SVGElement | null {
  const meta = ops.frame.meta;
  const rows = Number(meta['device_rows'] ?? ops.rows);
  const cols = Number(meta['device_cols'] ?? ops.cols);
  const d: string[] = [];
  for (let r = 0; r < ops.rows; r++) {
    for (let c = 0; c < ops.cols; c++) {
      if (r >= rows || c >= cols) d.push(`M${c * cell + 4} ${top[r]! + 4}l${cell - 8} ${high - 8}m0 ${8 - high}l${8 - cell} ${high - 8}`);
    }
  }
  return d.length ? svg('path', { class: 'tb-absent', d: d.join('') }, svg('title', {}, 'the device has no core here')) : null;
}

// One epoch as SVG: rulers, cores, harvested rows, op rectangles.
export const CELL_W = 74;
const CELL_H = 46;
const STRIP = 18; // a harvested row is drawn lower than a working one
export const RULER_X = 30;
export const RULER_Y = 20;
const SMALLEST = 11.2; // px: smaller letters are not written; a drawing may be a little smaller than its room, and 11 are left
const HIGHEST = 1.6; // times the letters of the drawing that a strip is high enough for
const USUAL = 1.45; // times the letters of the drawing, at most

/** Where rows lie: working rows at their logical index, harvested ones between them. */
export class Rows {
  readonly top: number[] = [];
  readonly strips: { y: number; row: number }[] = [];
  readonly height: number;

  constructor(physical: readonly number[], harvested: readonly number[], cell = CELL_H, strip = STRIP) {
    const logical = new Map(physical.map((p, i) => [p, i]));
    const all = [...physical, ...harvested].sort((a, b) => a - b);
    let y = 0;
    for (const row of all) {
      const index = logical.get(row);
      if (index === undefined) {
        this.strips.push({ y, row });
        y += strip;
      } else {
        this.top[index] = y;
        y += cell;
      }
    }
    this.height = y;
  }

  /** Those of a chip, of what a frame says of a grid: chips may differ in what is harvested. */
  static of(meta: object, chip: number, cell?: number, strip?: number): Rows {
    const { chips, chip_rows: own, physical, harvested } = meta as {
      chips?: number[]; chip_rows?: [number[], number[]][]; physical: number[]; harvested: number[];
    };
    return new Rows(...(own?.[chips!.indexOf(chip)] ?? [physical, harvested] as const), cell, strip);
  }

  /** [y, height] of a run of logical rows. */
  span(from: number, count: number, cell = CELL_H): [number, number] {
    const y = this.top[from] ?? 0;
    return [y, (this.top[from + count - 1] ?? y) + cell - y];
  }
}

/** By what its placement says of an op: its load, its epoch or its layer. */
export function placedPaint(ops: Ops, op: number, by: ColourBy, dark: boolean): Paint {
  if (by === 'load') return loadPaint(ops.load(op), dark);
  return epochPaint(by === 'epoch' ? ops.epochOf(op) : ops.layer(op), dark);
}

export function paintOf(ops: Ops, op: number, by: ColourBy, dark: boolean): Paint {
  if (ops.overlay) return ops.overlay.paint(ops.name[op]!, dark);
  if (by === 'family') return familyPaint(ops.type[op]!, dark);
  return placedPaint(ops, op, by, dark);
}

/** Sizes of letters on a grid, as times of those of the drawing: the smallest that is read, and what is best. */
export interface Letters {
  least: number;
  best: number;
}

/** Letters for a grid of that cell width in a room of that size, `zoom` times as large as fits. */
export function letterSizes(ops: Ops, cell: number, width: number, height: number, zoom: number): Letters {
  const tall = new Rows(ops.physical, ops.harvested).height + RULER_Y + 6;
  const scale = zoom * Math.min(width / (RULER_X + ops.cols * cell + 6), height / tall);
  if (!(scale > 0)) return { least: 1, best: 1 };
  const least = SMALLEST / (10 * scale);
  return { least, best: Math.max(least, scale > 1.2 ? 1.2 / scale : Math.min(USUAL, 1 / scale)) };
}

/** Width of a core so that the grid fills a room of that width and height. */
export function cellWidth(ops: Ops, width: number, height: number): number {
  if (!width || !height) return CELL_W;
  const tall = new Rows(ops.physical, ops.harvested).height + RULER_Y + 6;
  return Math.round(Math.max(40, Math.min(240, ((width / height) * tall - RULER_X - 6) / ops.cols)));
}

const PLAIN: Letters = { least: 1, best: 1 };

/** @param letters sizes of what is written on ops; null: they are told by `aria-label` alone. */
export function drawEpoch(
  ops: Ops, epoch: number, by: ColourBy, dark: boolean, cell = CELL_W, full = false, letters: Letters | null = PLAIN
): SVGSVGElement {
  const rows = Rows.of(ops.frame.meta, ops.ofEpoch('chip', epoch));
  const [w, hgt] = [ops.cols * cell, rows.height];
  const hatch = freshId('hatch');
  const root = svg('svg', {
    class: 'tb-cores', viewBox: `0 0 ${RULER_X + w + 6} ${RULER_Y + hgt + 6}`, role: 'group',
    'aria-label': `Core grid of epoch ${epoch}: ${ops.rows} rows by ${ops.cols} columns`
  });
  root.style.setProperty('--tb-letter', String(letters?.best ?? 1));
  root.append(
    svg('defs', {},
      svg('pattern', { id: hatch, width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
        svg('rect', { width: 7, height: 7, class: 'tb-hatch-ground' }), svg('line', { x1: 0, y1: 0, x2: 0, y2: 7, class: 'tb-hatch-line' })))
  );
  const plane = svg('g', { transform: `translate(${RULER_X} ${RULER_Y})` });
  root.append(plane);
  for (let c = 0; c < ops.cols; c++) {
    plane.append(svg('text', { class: 'tb-ruler', x: (c + 0.5) * cell, y: -7, 'text-anchor': 'middle' }, String(c)));
  }
  const lattice: string[] = [];
  for (let r = 0; r < ops.rows; r++) {
    const y = rows.top[r]!;
    plane.append(svg('text', { class: 'tb-ruler', x: -8, y: y + CELL_H / 2 + 4, 'text-anchor': 'end' }, String(r)));
    for (let c = 0; c < ops.cols; c++) lattice.push(roundRect(c * cell + 1.5, y + 1.5, cell - 3, CELL_H - 3, 4));
  }
  plane.append(svg('path', { class: 'tb-lattice', d: lattice.join('') }));
  const absent = drawAbsent(ops, rows.top, cell, CELL_H);
  if (absent) plane.append(absent);
  const tiles = svg('g', { class: 'tb-tiles', role: 'listbox', 'aria-label': 'Ops', 'aria-multiselectable': 'true' });
  for (const op of ops.byEpoch[epoch] ?? []) if (ops.get('rows', op)) tiles.append(tile(ops, op, rows, paintOf(ops, op, by, dark), cell, full, letters));
  plane.append(tiles, ...drawShared(ops, epoch, rows.top, cell, CELL_H));
  for (const { y, row } of rows.strips) {
    const label = `row ${row} harvested`;
    plane.append(svg('g', { class: 'tb-harvested', 'data-tb-harvested': row },
      svg('title', {}, label),
      svg('rect', { x: 0, y: y + 1, width: w, height: STRIP - 2, fill: `url(#${hatch})` }),
      (letters?.best ?? 1) <= HIGHEST && svg('text', { x: w / 2, y: y + STRIP / 2 + 3.5, 'text-anchor': 'middle' }, label)));
  }
  return root;
}

function roundRect(x: number, y: number, w: number, h: number, r: number): string {
  return `M${x + r} ${y}h${w - 2 * r}a${r} ${r} 0 0 1 ${r} ${r}v${h - 2 * r}a${r} ${r} 0 0 1 ${-r} ${r}h${2 * r - w}a${r} ${r} 0 0 1 ${-r} ${-r}v${2 * r - h}a${r} ${r} 0 0 1 ${r} ${-r}z`;
}

function tile(
  ops: Ops, op: number, rows: Rows, paint: Paint, cell: number, full: boolean, letters: Letters | null
): SVGGElement {
  const [row, col, high, wide] = [ops.get('row', op), ops.get('col', op), ops.get('rows', op), ops.get('cols', op)];
  const [y0, h0] = rows.span(row, high);
  const [x, y, w, hgt] = [col * cell + 1.5, y0 + 1.5, wide * cell - 3, h0 - 3];
  const name = ops.name[op]!;
  const limits = ops.isLimiting(op);
  const group = svg('g', {
    class: `tb-tile${limits ? ' tb-limits' : ''}`, 'data-tb-op': name, role: 'option', tabindex: -1,
    'aria-label': `${name}, ${ops.type[op]!}, ${ops.where(op)}, ${saidTime(ops.time(op), ops.clock)}${limits ? ', worth enlarging' : ''}`
  });
  group.style.setProperty('--tile-text', paint.text);
  group.style.setProperty('--tile-fill', paint.fill);
  group.append(svg('rect', { class: 'tb-body', x, y, width: w, height: hgt, rx: 5, fill: paint.fill, stroke: paint.edge }));
  const inner: string[] = [];
  for (let c = 1; c < wide; c++) inner.push(`M${(col + c) * cell} ${y + 4}V${y + hgt - 4}`);
  for (let r = 1; r < high; r++) inner.push(`M${x + 4} ${rows.top[row + r]!}H${x + w - 4}`);
  if (inner.length) group.append(svg('path', { class: 'tb-seams', d: inner.join(''), stroke: paint.edge }));
  if (letters) words(group, ops, op, rows, [x, y, w, hgt], limits, full, letters);
  return group;
}

/**
 * Name, type and cycles, as much as fits at a size that can be read, kept off harvested strips. What does not fit is left
 * out: the card below the grid says it.
 */
function words(
  group: SVGGElement, ops: Ops, op: number, rows: Rows, [x, y, w, hgt]: [number, number, number, number], limits: boolean, full: boolean,
  { least, best }: Letters
): void {
  [y, hgt] = clear(rows, y, hgt);
  const low = Math.max(least, Math.min(1, best));
  const mid = (low + best) / 2;
  const tries: [number, boolean][] = [[best, true], [mid, true], [best, false], [mid, false], [low, false], [least, false]];
  let [letter, lines]: [number, [string, string][]] = [1, []];
  for (const [size, whole] of tries) {
    [letter, lines] = [size, linesFor(ops, op, w, hgt, limits, full, size, whole)];
    if (!lines.some(([line]) => line.includes('…'))) break;
  }
  while (lines.length * 12 * letter > hgt) {
    const sub = lines.findIndex(([, kind]) => kind === 'tb-sub');
    lines.splice(sub < 0 ? lines.length - 1 : sub, 1);
  }
  if (!lines.some(([, kind]) => kind === 'tb-name')) group.classList.add('tb-unnamed');
  if (letter !== best) group.style.setProperty('--tb-letter', String(letter));
  const step = 13 * letter;
  const top = y + (hgt - lines.length * step) / 2;
  lines.forEach(([line, kind], k) =>
    group.append(svg('text', { class: kind, x: x + w / 2, y: top + 10 * letter + k * step, 'text-anchor': 'middle' }, line)));
}

/** [y, height] of the tallest part of a tile that no harvested strip lies on. */
function clear(rows: Rows, y: number, hgt: number): [number, number] {
  let best: [number, number] = [y, 0];
  let from = y;
  for (const strip of [...rows.strips, { y: y + hgt }]) {
    const tall = Math.min(strip.y, y + hgt) - from;
    if (tall > best[1]) best = [from, tall];
    from = Math.max(from, strip.y + STRIP);
  }
  return best;
}

/** The lines of a tile with their classes, at a size of letters; `whole`: the module is said too, fit or not. */
function linesFor(
  ops: Ops, op: number, w: number, hgt: number, limits: boolean, full: boolean, letter: number, whole: boolean
): [string, string][] {
  const name = ops.name[op]!;
  const room = Math.floor((w - 6) / (7.1 * letter));
  const label = full ? name : whole ? ops.short(op) : fitting(ops.short(op), room, ops.told(op));
  const most = full ? Math.max(1, Math.floor((hgt - 22) / (13 * letter))) : hgt < 80 ? 1 : 2;
  let wrapped = wrapName(label, room, most, full);
  if (!full && !whole && wrapped.some(line => line.includes('…'))) wrapped = [ops.cut(op, room) ?? ''].filter(Boolean);
  const lines = wrapped.map((line): [string, string] => [line, 'tb-name']);
  if (!lines.length && ops.type[op]!.length <= room + 1) lines.push([ops.type[op]!, 'tb-sub']); // what kind of op, where there is no room for which
  else if (lines.length && !full && hgt >= 80 && ops.type[op] !== label) lines.push([elide(ops.type[op]!, room), 'tb-sub']);
  const cycles = ops.time(op); // 0 where nobody has worked them out: a file without a kernel
  if (cycles) lines.push([`${limits ? '▲ ' : ''}${shortTime(cycles, ops.clock)}`, limits ? 'tb-sub tb-hot' : 'tb-sub']);
  return lines;
}

/** A whole name in lines of `room` letters, cut after dots and underscores; the last line is elided. anywhere: cut within a
 *  word that has neither, too. */
export function wrapName(name: string, room: number, most: number, anywhere = true): string[] {
  const lines: string[] = [];
  let rest = name;
  while (rest.length > room && lines.length < most - 1) {
    const cut = Math.max(rest.lastIndexOf('.', room - 1), rest.lastIndexOf('_', room - 1)) + 1 || (anywhere ? Math.max(1, room) : 0);
    if (!cut) break;
    lines.push(rest.slice(0, cut));
    rest = rest.slice(cut);
  }
  return [...lines, elide(rest, room)];
}
