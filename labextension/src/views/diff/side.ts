/**
 * The comparison frame, unpacked once, and one side of it as a core grid: what is alike is quiet, what differs has
 * the colour and glyph of its class.
 */
import type { Frame } from '../frame.js';
import { preferences } from '../preferences.js';
import { elide, quantity, svg } from '../dom.js';
import { Rows } from '../grid/draw.js';
import { shortName } from '../names.js';
import type { Paint } from '../theme.js';

export type Side = 'a' | 'b';
export const CLASSES = ['added', 'removed', 'resized', 'moved', 'retimed'] as const;
export type Class = (typeof CLASSES)[number];
export const GLYPHS: Record<Class, string> = { added: '+', removed: '−', resized: '⤢', moved: '→', retimed: '◷' };

interface GridMeta {
  device: string;
  rows: number;
  cols: number;
  physical: number[];
  harvested: number[];
}

interface Box {
  row: number;
  col: number;
  rows: number;
  cols: number;
}

/** The comparison frame, unpacked once. */
export class DiffData {
  readonly names: string[];
  readonly indexOf = new Map<string, number>();
  readonly pairs: [number, number][];
  readonly known: string[];

  constructor(readonly frame: Frame) {
    this.names = frame.text('op_name');
    this.names.forEach((name, i) => this.indexOf.set(name, i));
    const b = frame.column('pair_b');
    this.pairs = Array.from(frame.column('pair_a'), (a, i): [number, number] => [a, b[i]!]);
    this.known = (frame.meta['names'] as string[] | undefined) ?? [];
  }

  name(side: Side): string {
    return String(this.frame.meta[side]);
  }

  grid(side: Side): GridMeta {
    return this.frame.meta[`grid_${side}`] as GridMeta;
  }

  get(side: Side, column: string, op: number): number {
    return this.frame.column(`op_${side}_${column}`)[op]!;
  }

  has(side: Side, op: number): boolean {
    return this.get(side, 'epoch', op) >= 0;
  }

  box(side: Side, op: number): Box {
    return {
      row: this.get(side, 'row', op), col: this.get(side, 'col', op), rows: this.get(side, 'rows', op), cols: this.get(side, 'cols', op)
    };
  }

  /** What is different about an op; nothing for one that both sides have alike. */
  classes(op: number): Class[] {
    const bits = this.frame.column('op_classes')[op]!;
    return CLASSES.filter((_, k) => (bits >> k) & 1);
  }

  count(name: Class): number {
    return (this.frame.meta['counts'] as Record<string, number>)[name] ?? 0;
  }

  get changed(): number[] {
    return this.names.map((_, i) => i).filter(i => this.frame.column('op_classes')[i]! > 0);
  }

  ofEpoch(side: Side, epoch: number): number[] {
    return this.names.map((_, i) => i).filter(i => this.get(side, 'epoch', i) === epoch);
  }

  /** Whether kernels alone are compared, as the settings ask. */
  get kernelsOnly(): boolean {
    return preferences().clock === 'kernel';
  }

  /** What the cycles of rows and epochs count. */
  get counts(): string {
    return this.kernelsOnly ? 'kernels only' : this.frame.meta['simulated'] ? `simulated, batch of ${String(this.frame.meta['batch'])}` : 'kernel or transfer, not simulated';
  }

  /** Cycles per input of an op: what the simulated batch takes because of it; of files its kernel or slowest transfer; or
   *  its kernel alone. */
  cycles(side: Side, op: number): number {
    return this.get(side, this.kernelsOnly ? 'cycles' : 'time', op);
  }

  /** Cycles per input of an epoch. */
  epochCycles(side: Side, epoch: number): number {
    return this.frame.column(`${side}_epoch_${this.kernelsOnly ? 'kernels' : 'cycles'}`)[epoch]!;
  }

  /** Whether two measured runs are compared: ops stand nowhere, times are in ns. */
  get measured(): boolean {
    return this.frame.has('op_kind');
  }

  /** What the model takes more than its rows say, and of what that is; 0 where rows do not add up to the model. */
  get rest(): [string, number] {
    return [String(this.frame.meta['rest_of']), this.kernelsOnly ? 0 : Math.round(Number(this.frame.meta['rest'] ?? 0))];
  }

  /** Cycles after less before; an op that is missing on a side counts 0 there. */
  delta(op: number): number {
    return Math.max(0, this.cycles('b', op)) - Math.max(0, this.cycles('a', op));
  }

  /** `delta` as a share of the cycles before; null where there is nothing to compare with. */
  ratio(op: number): number | null {
    const before = this.cycles('a', op);
    return this.has('a', op) && this.has('b', op) && before > 0 ? this.delta(op) / before : null;
  }

  /** "4×2 at 0,3, epoch 1"; of a measured op its cores. */
  text(side: Side, op: number): string {
    if (!this.has(side, op)) return '–';
    const { row, col, rows, cols } = this.box(side, op);
    if (this.measured) return quantity(cols, 'core');
    const chip = this.get(side, 'chip', op);
    return `${rows}×${cols} at ${row},${col}, epoch ${this.get(side, 'epoch', op)}${chip > 0 ? `, chip ${chip}` : ''}`;
  }

  /** The pair of epochs where an op stands, on the side where it is. */
  pairOf(op: number): number {
    const [a, b] = [this.get('a', 'epoch', op), this.get('b', 'epoch', op)];
    return this.pairs.findIndex(pair => (b >= 0 ? pair[1] === b : pair[0] === a));
  }
}

/** "+12.5 %" */
export function percent(share: number | null): string {
  if (share === null) return '';
  return `${share > 0 ? '+' : share < 0 ? '−' : ''}${(100 * Math.abs(share)).toFixed(1)} %`;
}

// One side of a comparison as a core grid: what is alike is quiet, what differs has the colour and glyph of its class.
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

interface SideOptions {
  side: Side;
  epoch: number;
  /** Colours by change of cycles, with the places before as outlines. */
  delta: boolean;
  dark: boolean;
}

export function drawSide(data: DiffData, { side, epoch, delta, dark }: SideOptions): SVGSVGElement {
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
  const share = data.delta(op) ? percent(data.ratio(op)) : '';
  const mark = share && w > 80 ? `${glyphs} ${share}` : glyphs;
  group.append(svg('title', {}, `${name}: ${said}, ${data.text(side, op)}, cycles ${data.delta(op) ? percent(data.ratio(op)) || 'not comparable' : 'as before'}`), body,
    svg('text', { class: 'tb-name', 'aria-hidden': 'true', x: x + w / 2, y: y + hgt / 2 + (mark ? -1 : 4), 'text-anchor': 'middle' }, label));
  if (mark) group.append(svg('text', { class: 'tb-sub', 'aria-hidden': 'true', x: x + w / 2, y: y + hgt / 2 + 11, 'text-anchor': 'middle' }, mark));
  return group;
}
