/** Paints the timeline: an overview of all epochs, a ruler, and the rows in sight. */
import type { Frame } from '../frame.js';
import { pinnedHeight, type Row, type TraceModel } from './model.js';
import { type Brushes, KINDS } from './paint.js';
import { tick, ticks, type Unit } from './time.js';
import type { Tile, Tiles } from './tiles.js';

export const OVERVIEW = 18;
const RULER = 20;
export const HEAD = OVERVIEW + RULER;
const NARROW = 4; // pixels below which a pattern is no more than noise

export interface Colours {
  text: string;
  muted: string;
  line: string;
  faint: string;
  surface: string;
  accent: string;
  soft: string;
  bad: string;
  font: string;
}

interface Scene {
  model: TraceModel;
  tiles: Tiles;
  rows: readonly Row[];
  first: number;
  last: number;
  scroll: number;
  start: number;
  end: number;
  width: number;
  height: number;
  selected: ReadonlySet<number>;
  related: ReadonlySet<number>;
  hover: number;
  brushes: Brushes;
  colours: Colours;
  unit: Unit;
  fills: Frame | null;
  epoch: number;
  /** Inputs that the selected op gets and hands on. */
  flows: Frame | null;
}

export function draw(ctx: CanvasRenderingContext2D, scene: Scene, ratio: number): void {
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, scene.width, scene.height);
  ctx.textBaseline = 'middle';
  grid(ctx, scene);
  rows(ctx, scene);
  flows(ctx, scene);
  head(ctx, scene);
}

const APART = 14; // px between two flows of an edge at least: zoomed out, a few stand for all

/** From where a producer begins with an input to where its reader does; between rows that are laid out. */
function flows(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { flows, model, colours } = scene;
  if (!flows) return;
  const row = new Map(scene.rows.filter(r => r.kind === 'op').map(r => [model.ops[r.op]!.name, HEAD + r.top - scene.scroll + r.height / 2]));
  const [producer, consumer] = [flows.text('producer'), flows.text('consumer')];
  const [leaves, arrives] = [flows.column('leaves'), flows.column('arrives')];
  const last = new Map<string, number>();
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, HEAD, scene.width, scene.height - HEAD);
  ctx.clip();
  ctx.strokeStyle = ctx.fillStyle = colours.accent;
  ctx.lineWidth = 1.2;
  ctx.globalAlpha = 0.75;
  for (let i = 0; i < producer.length; i++) {
    const [y0, y1] = [row.get(producer[i]!), row.get(consumer[i]!)];
    if (y0 === undefined || y1 === undefined || arrives[i]! < scene.start || leaves[i]! > scene.end) continue;
    const [x0, x1] = [at(scene, leaves[i]!), at(scene, arrives[i]!)];
    const edge = `${producer[i]!} ${consumer[i]!}`;
    if (x1 - (last.get(edge) ?? -APART) < APART) continue;
    last.set(edge, x1);
    const bend = Math.max(8, Math.abs(x1 - x0) / 2);
    ctx.beginPath();
    ctx.moveTo(x0, y0);
    ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x1, y1, 2.5, 0, 7);
    ctx.fill();
  }
  ctx.restore();
}

function at(scene: Scene, cycle: number): number {
  return ((cycle - scene.start) / (scene.end - scene.start)) * scene.width;
}

function grid(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { colours, width, height, start, end } = scene;
  ctx.strokeStyle = colours.faint;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const t of ticks(start, end, width)) {
    const x = Math.round(at(scene, t)) + 0.5;
    ctx.moveTo(x, HEAD);
    ctx.lineTo(x, height);
  }
  ctx.stroke();
}

function head(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { colours, width, model, start, end, unit } = scene;
  ctx.fillStyle = colours.surface;
  ctx.fillRect(0, 0, width, HEAD);
  // all epochs, whatever is shown below
  for (const run of model.rounds) {
    const [x0, x1] = [(run.start / model.cycles) * width, (run.end / model.cycles) * width];
    ctx.fillStyle = run.epoch === scene.epoch ? colours.accent : run.epoch % 2 ? colours.line : colours.faint;
    ctx.fillRect(x0, 3, Math.max(1, x1 - x0 - 0.5), OVERVIEW - 6);
    if (x1 - x0 > 16) {
      ctx.fillStyle = run.epoch === scene.epoch ? colours.surface : colours.muted;
      ctx.font = `600 9.5px ${colours.font}`;
      ctx.textAlign = 'center';
      ctx.fillText(String(run.epoch), (x0 + x1) / 2, OVERVIEW / 2 + 0.5);
    }
  }
  const [low, high] = [(start / model.cycles) * width, (end / model.cycles) * width];
  if (high - low < width - 1) {
    ctx.strokeStyle = colours.text;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(low + 0.5, 1, Math.max(3, high - low - 1), OVERVIEW - 2);
  }
  ctx.fillStyle = colours.muted;
  ctx.font = `10px ${colours.font}`;
  ctx.textAlign = 'center';
  const marks = ticks(start, end, width);
  const step = marks.length > 1 ? marks[1]! - marks[0]! : end - start;
  for (const t of marks) {
    const x = at(scene, t);
    const label = tick(t, step, unit, model.clock);
    const half = ctx.measureText(label).width / 2;
    ctx.fillText(label, Math.max(half + 1, Math.min(width - half - 1, x)), OVERVIEW + RULER / 2 + 1);
  }
  ctx.strokeStyle = colours.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(-1, HEAD - 0.5, width + 2, 1);
}

function rows(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const above = pinnedHeight(scene.rows);
  paintRows(ctx, scene, scene.rows.slice(scene.first, scene.last), scene.scroll, HEAD + above, scene.height);
  if (!above) return;
  paintRows(ctx, scene, scene.rows.filter(row => row.pinned), 0, HEAD, HEAD + above);
  ctx.fillStyle = scene.colours.accent;
  ctx.fillRect(0, HEAD + above - 1, scene.width, 1);
}

/** Rows between two heights of the canvas, moved up by `scroll`. */
function paintRows(ctx: CanvasRenderingContext2D, scene: Scene, list: readonly Row[], scroll: number, from: number, to: number): void {
  const { colours, width } = scene;
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, from, width, to - from);
  ctx.clip();
  const batches = new Batches();
  const words: [string, number, number][] = [];
  for (const row of list) {
    const y = HEAD + row.top - scroll;
    const mine = row.op >= 0 && scene.selected.has(row.op);
    if (row.kind !== 'fill' && row.op >= 0 && (mine || row.op === scene.hover)) {
      ctx.fillStyle = colours.soft;
      ctx.globalAlpha = mine ? 1 : 0.5;
      ctx.fillRect(0, y, width, row.height);
      ctx.globalAlpha = 1;
    }
    ctx.fillStyle = colours.faint;
    ctx.fillRect(0, y + row.height - 1, width, 1);
    if (row.kind === 'epoch') epochRow(ctx, scene, row, y);
    else if (row.kind === 'fill') fillRow(ctx, scene, row, y);
    else spans(scene, row, y, batches, words);
  }
  batches.paint(ctx, scene.brushes);
  ctx.font = `9.5px ${colours.font}`;
  ctx.textAlign = 'left';
  for (const [word, x, y] of words) {
    ctx.fillStyle = '#ffffff';
    ctx.fillText(word, x, y);
  }
  ctx.restore();
}

function epochRow(ctx: CanvasRenderingContext2D, scene: Scene, row: Row, y: number): void {
  const { colours, model } = scene;
  for (const run of model.roundsOf.get(row.epoch) ?? []) {
    if (run.end < scene.start || run.start > scene.end) continue;
    const [x0, x1] = [Math.max(-2, at(scene, run.start)), Math.min(scene.width + 2, at(scene, run.end))];
    ctx.fillStyle = row.epoch === scene.epoch ? colours.accent : colours.muted;
    ctx.globalAlpha = row.epoch === scene.epoch ? 0.85 : 0.4;
    ctx.fillRect(x0, y + 7, Math.max(1, x1 - x0), row.height - 14);
    ctx.globalAlpha = 1;
  }
}

/** Rectangles by fill, so that each style is set once. */
class Batches {
  private readonly wide: number[][] = KINDS.map(() => []);
  private readonly narrow: number[][] = KINDS.map(() => []);

  add(kind: number, x: number, y: number, w: number, h: number): void {
    (w < NARROW || h < NARROW ? this.narrow : this.wide)[kind]!.push(x, y, w, h);
  }

  paint(ctx: CanvasRenderingContext2D, brushes: Brushes): void {
    for (const [list, styles] of [[this.narrow, brushes.narrow], [this.wide, brushes.wide]] as const) {
      list.forEach((boxes, kind) => {
        if (!boxes.length) return;
        ctx.fillStyle = styles[kind]!;
        ctx.beginPath();
        for (let i = 0; i < boxes.length; i += 4) ctx.rect(boxes[i]!, boxes[i + 1]!, boxes[i + 2]!, boxes[i + 3]!);
        ctx.fill();
      });
    }
    this.wide.forEach((boxes, kind) => {
      if (!kind) return;
      ctx.strokeStyle = brushes.ink[kind]!;
      ctx.lineWidth = 0.6;
      ctx.beginPath();
      for (let i = 0; i < boxes.length; i += 4) ctx.rect(boxes[i]! + 0.3, boxes[i + 1]! + 0.3, Math.max(0.5, boxes[i + 2]! - 0.6), boxes[i + 3]! - 0.6);
      ctx.stroke();
    });
  }
}

function spans(scene: Scene, row: Row, y: number, batches: Batches, words: [string, number, number][]): void {
  const [first, end] = row.lanes;
  const each = (row.height - 4) / (end - first);
  for (let lane = first; lane < end; lane++) {
    const top = y + 2 + (lane - first) * each;
    const block = scene.model.blockOf[lane]!;
    for (const [tile, from, to] of scene.tiles.best(block, scene.start, scene.end)) {
      lanePart(scene, tile, lane - scene.model.blockFirst[block]!, Math.max(from, scene.start), Math.min(to, scene.end), top,
        Math.max(1, each - (each > 6 ? 1 : 0)), batches, words);
    }
  }
}

function lanePart(
  scene: Scene, tile: Tile, lane: number, from: number, to: number, y: number, h: number, batches: Batches, words: [string, number, number][]
): void {
  if (to <= from) return;
  const scale = scene.width / (scene.end - scene.start);
  const last = tile.offsets[lane + 1]!;
  for (let i = firstAfter(tile.end, from, tile.offsets[lane]!, last); i < last && tile.start[i]! < to; i++) {
    const x = (Math.max(from, tile.start[i]!) - scene.start) * scale;
    const w = Math.max(0.5, (Math.min(to, tile.end[i]!) - scene.start) * scale - x);
    if (!tile.share) {
      const kind = tile.kind[i]!;
      batches.add(kind, x, y, w, h);
      if (w > 30 && h > 11 && kind === 0) words.push([`in ${tile.input[i]!}`, Math.max(0, x) + 4, y + h / 2 + 0.5]);
      continue;
    }
    // stacked shares of the time, work at the bottom; what is missing on top is idle
    let base = y + h;
    for (let kind = 0; kind < KINDS.length; kind++) {
      const part = (tile.share[KINDS.length * i + kind]! / 255) * h;
      if (part < 0.3) continue;
      batches.add(kind, x, base - part, w, part);
      base -= part;
    }
  }
}

/** The first span in [low, high) that ends after a cycle. */
function firstAfter(ends: Float64Array, cycle: number, low: number, high: number): number {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle]! <= cycle) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Level of one buffer as steps, what fits as a dashed line. */
function fillRow(ctx: CanvasRenderingContext2D, scene: Scene, row: Row, y: number): void {
  const { fills, colours } = scene;
  if (!fills || row.fill >= fills.column('fill_points').length) return;
  const counts = fills.column('fill_points');
  let from = 0;
  for (let i = 0; i < row.fill; i++) from += counts[i]!;
  const to = from + counts[row.fill]!;
  const [time, level] = [fills.column('point_time'), fills.column('point_level')];
  const capacity = fills.column('fill_capacity')[row.fill]!;
  let most = capacity || 1;
  for (let i = from; i < to; i++) most = Math.max(most, level[i]!);
  const [base, tall] = [y + row.height - 4, row.height - 9];
  const high = (v: number) => base - (v / most) * tall;
  ctx.beginPath();
  ctx.moveTo(at(scene, time[from] ?? scene.start), base);
  for (let i = from; i < to; i++) {
    const x = at(scene, time[i]!);
    const next = i + 1 < to ? at(scene, time[i + 1]!) : scene.width;
    ctx.lineTo(x, high(level[i]!));
    ctx.lineTo(next, high(level[i]!));
  }
  ctx.lineTo(scene.width, base);
  ctx.closePath();
  ctx.globalAlpha = 0.25;
  ctx.fillStyle = colours.accent;
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colours.accent;
  ctx.lineWidth = 1.2;
  ctx.stroke();
  if (capacity) {
    ctx.setLineDash([4, 3]);
    ctx.strokeStyle = colours.bad;
    ctx.beginPath();
    ctx.moveTo(0, high(capacity));
    ctx.lineTo(scene.width, high(capacity));
    ctx.stroke();
    ctx.setLineDash([]);
  }
}
