/** Paints a scene on a canvas. Everything is in world units under one transform; lines keep their width on screen. */
import { elide } from '../dom.js';
import type { Paint } from '../theme.js';
import { GROUP, HEADER, LABEL_CHARS, NODE } from './layout.js';
import type { Scene } from './scene.js';

export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Colours {
  text: string;
  muted: string;
  line: string;
  surface: string;
  group: string;
  groupEdge: string;
  accent: string;
  incoming: string;
  outgoing: string;
  font: string;
}

export interface Look {
  colours: Colours;
  paint: (node: number) => Paint;
  selected: ReadonlySet<number>;
  hover: number;
  /** How a node compares with torch: true good, false bad, null not compared. */
  badge?: (node: number) => boolean | null;
  /** Nodes that the search keeps; null when nothing is searched. */
  matches: ReadonlySet<number> | null;
}

const HAIRLINE = 0.6; // below this scale an edge is one pixel wide, which is drawn several times as fast as 1.1
const BENT = 2; // pixels from side to side below which an edge is a straight line
const WORDS = 24; // letters of what is said on an edge
const PATH = 64; // edges in one path, and boxes in one step
const SMALL = 7; // pixels of height below which a box is a plain rectangle
const NODE_KIND_OP = 3; // index of "op" in the frame's kinds

/** A rectangle of a canvas in its own pixels: x, y, width, height. */
export type Part = readonly [number, number, number, number];

/** Draws a part of the canvas, all of it where none is given, and nothing outside it. */
export function draw(
  ctx: CanvasRenderingContext2D, scene: Scene, camera: Camera, look: Look, ratio: number, part?: Part
): void {
  const work = drawing(ctx, scene, camera, look, ratio, part);
  while (!work.next().done);
}

/** The same in small steps, each a fraction of a millisecond; the context is the drawing's until the last. */
export function* drawing(
  ctx: CanvasRenderingContext2D, scene: Scene, camera: Camera, look: Look, ratio: number,
  part: Part = [0, 0, ctx.canvas.width, ctx.canvas.height]
): Generator<void> {
  const [left, top, width, height] = part;
  ctx.save();
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.clearRect(left, top, width, height);
  const k = camera.scale * ratio;
  ctx.setTransform(k, 0, 0, k, camera.x * ratio, camera.y * ratio);
  const view = {
    left: (left / ratio - camera.x) / camera.scale,
    top: (top / ratio - camera.y) / camera.scale,
    right: ((left + width) / ratio - camera.x) / camera.scale,
    bottom: ((top + height) / ratio - camera.y) / camera.scale
  };
  const seen = (x: number, y: number, w: number, h: number) =>
    x <= view.right && y <= view.bottom && x + w >= view.left && y + h >= view.top;
  const hair = 1 / camera.scale;
  groups(ctx, scene, look, seen, hair);
  yield;
  yield* edges(ctx, scene, look, camera, seen, hair);
  if (camera.scale * 11 > 4.5) heads(ctx, scene, look, seen);
  if (scene.words && camera.scale * 9 > 4.5) words(ctx, scene, look, seen);
  yield;
  yield* boxes(ctx, scene, look, camera, seen, hair);
  ctx.restore();
}

type Seen = (x: number, y: number, w: number, h: number) => boolean;

function groups(ctx: CanvasRenderingContext2D, scene: Scene, look: Look, seen: Seen, hair: number): void {
  const { colours } = look;
  const visit = (group: number) => {
    for (const item of scene.structure.members[group]!) {
      if (scene.structure.kind[item] !== GROUP) continue;
      const ref = scene.structure.ref[item]!;
      if (!scene.opened.has(ref)) continue;
      const [x, y, w, h] = scene.box(item);
      if (!seen(x, y, w, h)) continue;
      ctx.fillStyle = colours.group;
      roundedRectangle(ctx, x, y, w, h, 8);
      ctx.fill();
      ctx.strokeStyle = colours.groupEdge;
      ctx.lineWidth = hair;
      ctx.stroke();
      visit(ref);
    }
  };
  visit(0);
}

/** Labels of open groups, over the edges that enter through the head. */
function heads(ctx: CanvasRenderingContext2D, scene: Scene, look: Look, seen: Seen): void {
  const { colours } = look;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'left';
  for (const group of scene.opened) {
    if (group === 0 || !scene.isShown(group)) continue;
    const [x, y, w] = scene.box(scene.itemOfGroup[group]!);
    if (!seen(x, y, w, HEADER)) continue;
    const middle = y + HEADER / 2 + 1;
    const room = Math.floor((w - 30) / 6.3);
    const label = elide(scene.groupLabels[group]!, room);
    const kind = scene.groupClasses[group]!;
    const both = kind !== '' && room > label.length + kind.length + 3;
    ctx.font = `600 10.5px ${colours.font}`;
    const wide = ctx.measureText(label).width;
    ctx.fillStyle = colours.group;
    ctx.fillRect(x + 4, y + 3, wide + 20, HEADER - 6);
    caret(ctx, x + 11, middle - 0.5, true, colours.muted);
    ctx.fillStyle = colours.muted;
    ctx.fillText(label, x + 20, middle);
    if (both) {
      ctx.font = `400 9.5px ${colours.font}`;
      ctx.fillStyle = colours.group;
      ctx.fillRect(x + 24 + wide, y + 3, ctx.measureText(kind).width + 6, HEADER - 6);
      ctx.globalAlpha = 0.75;
      ctx.fillStyle = colours.muted;
      ctx.fillText(kind, x + 27 + wide, middle);
      ctx.globalAlpha = 1;
    }
  }
}

/** The TMs of edges, on the middle of the piece that arrives at the consumer. */
function words(ctx: CanvasRenderingContext2D, scene: Scene, look: Look, seen: Seen): void {
  const { colours } = look;
  ctx.font = `400 9px ${colours.font}`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  for (const [s, segment] of scene.segments) {
    const text = scene.wordsOn(s);
    if (!text) continue;
    const [x, y] = scene.middle(segment);
    if (!seen(x - 60, y - 7, 120, 14)) continue;
    const line = elide(text.replaceAll('\n', ' | '), WORDS);
    const wide = ctx.measureText(line).width + 8;
    ctx.fillStyle = colours.surface;
    ctx.globalAlpha = 0.9;
    roundedRectangle(ctx, x - wide / 2, y - 6.5, wide, 13, 4);
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.muted;
    ctx.fillText(line, x, y + 0.5);
  }
}

function* edges(
  ctx: CanvasRenderingContext2D, scene: Scene, look: Look, camera: Camera, seen: Seen, hair: number
): Generator<void> {
  const { colours } = look;
  const incoming = new Set<number>();
  const outgoing = new Set<number>();
  for (const node of look.selected.size <= 8 ? look.selected : []) {
    scene.incoming(node).forEach(s => incoming.add(s));
    scene.outgoing(node).forEach(s => outgoing.add(s));
  }
  const strokes: [string, number, (s: number) => boolean][] = [
    [colours.line, 1.1, s => !incoming.has(s) && !outgoing.has(s)],
    [colours.incoming, 2.2, s => incoming.has(s)],
    [colours.outgoing, 2.2, s => outgoing.has(s) && !incoming.has(s)]
  ];
  for (const [colour, width, wanted] of strokes) {
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = width === 1.1 && camera.scale < HAIRLINE ? hair : Math.min(width * Math.max(hair, 0.6), width * 3);
    ctx.globalAlpha = width === 1.1 && look.matches ? 0.35 : 1;
    const straight = Math.max(0.5, BENT * hair);
    let held = 0;
    ctx.beginPath();
    const full = () => {
      // A rasterizer without a graphics card is slow on one path with all edges: the cost of a path grows faster than it.
      if (++held % PATH) return false;
      ctx.stroke();
      ctx.beginPath();
      return true;
    };
    const { turned } = scene;
    for (const [s, segment] of scene.segments) {
      const { x0, y0, x1, y1 } = segment;
      const bend = scene.bend(segment);
      const [aside, on] = turned ? [bend, 0] : [0, bend];
      if (!seen(Math.min(x0, x1 - aside), Math.min(y0, y1 - on), Math.abs(x1 - x0) + 2 * aside, Math.abs(y1 - y0) + 2 * on)) continue;
      if (!wanted(s)) continue;
      ctx.moveTo(x0, y0);
      if (Math.abs(turned ? y0 - y1 : x0 - x1) < straight) ctx.lineTo(x1, y1);
      else ctx.bezierCurveTo(x0 + aside, y0 + on, x1 - aside, y1 - on, x1, y1);
      if (full()) yield;
    }
    for (const item of scene.lanes) {
      const [x, y, w, h] = scene.box(item);
      if (!seen(x, y, w, h) || !laneWanted(scene, item, wanted)) continue;
      ctx.moveTo(turned ? x : x + w / 2, turned ? y + h / 2 : y);
      ctx.lineTo(turned ? x + w : x + w / 2, turned ? y + h / 2 : y + h);
      if (full()) yield;
    }
    ctx.stroke();
    yield;
    if (camera.scale < 0.35) continue;
    ctx.beginPath();
    for (const [s, { arrow, x1, y1 }] of scene.segments) {
      if (!arrow || !seen(x1 - 6, y1 - 6, 12, 12) || !wanted(s)) continue;
      ctx.moveTo(x1, y1);
      ctx.lineTo(turned ? x1 - 6 : x1 - 3.2, turned ? y1 - 3.2 : y1 - 6);
      ctx.lineTo(turned ? x1 - 6 : x1 + 3.2, turned ? y1 + 3.2 : y1 - 6);
    }
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

function laneWanted(scene: Scene, item: number, wanted: (s: number) => boolean): boolean {
  const s = scene.into(item);
  return s !== undefined && wanted(s);
}

function* boxes(
  ctx: CanvasRenderingContext2D, scene: Scene, look: Look, camera: Camera, seen: Seen, hair: number
): Generator<void> {
  const readable = camera.scale * 11 > 4.5;
  const rich = camera.scale * 9 > 4.5;
  ctx.textBaseline = 'middle';
  let drawn = 0;
  for (let item = 0; item < scene.structure.count; item++) {
    if (!scene.layout.visible[item]) continue;
    const kind = scene.structure.kind[item];
    const ref = scene.structure.ref[item]!;
    if (kind === GROUP ? scene.opened.has(ref) : kind !== NODE) continue;
    const [x, y, w, h] = scene.box(item);
    if (!seen(x - 6, y - 6, w + 12, h + 12)) continue;
    if (!(++drawn % PATH)) yield;
    if (kind === GROUP) drawClosedGroup(ctx, scene, look, ref, [x, y, w, h], hair, readable);
    else {
      node(ctx, scene, look, ref, [x, y, w, h], hair, readable, rich);
      const good = look.badge?.(ref) ?? null;
      if (good !== null) badge(ctx, good, x + w - 4, y + 3, readable);
    }
  }
  ctx.globalAlpha = 1;
}

function drawClosedGroup(
  ctx: CanvasRenderingContext2D, scene: Scene, look: Look, ref: number,
  [x, y, w, h]: [number, number, number, number], hair: number, readable: boolean
): void {
  const { colours } = look;
  const chosen = [...look.selected].filter(n => scene.standIn(n) === scene.itemOfGroup[ref]).length;
  const found = look.matches ? [...look.matches].filter(n => scene.standIn(n) === scene.itemOfGroup[ref]).length : 1;
  ctx.globalAlpha = found ? 1 : 0.45;
  ctx.lineWidth = hair;
  ctx.strokeStyle = colours.groupEdge;
  ctx.fillStyle = colours.surface;
  for (const shift of [5, 2.5]) {
    roundedRectangle(ctx, x + shift, y + shift, w, h, 7);
    ctx.fill();
    ctx.stroke();
  }
  roundedRectangle(ctx, x, y, w, h, 7);
  ctx.fill();
  ctx.fillStyle = colours.group;
  ctx.fill();
  if (chosen) {
    ctx.strokeStyle = colours.accent;
    ctx.lineWidth = 2.4 * Math.max(hair, 0.7);
  }
  ctx.stroke();
  if (readable) {
    caret(ctx, x + 12, y + h / 2, false, colours.muted);
    ctx.textAlign = 'left';
    ctx.fillStyle = colours.text;
    ctx.font = `600 11px ${colours.font}`;
    ctx.fillText(elide(scene.groupLabels[ref]!, LABEL_CHARS), x + 22, y + h / 2 - 6);
    ctx.fillStyle = colours.muted;
    ctx.font = `400 9.5px ${colours.font}`;
    const kind = scene.groupClasses[ref]!;
    const leaves = scene.groupLeaves[ref]!;
    ctx.fillText(elide(`${leaves} nodes${kind ? ` · ${kind}` : ''}`, Math.floor((w - 26) / 5.2)), x + 22, y + h / 2 + 8);
  }
  ctx.globalAlpha = 1;
}

function node(
  ctx: CanvasRenderingContext2D, scene: Scene, look: Look, ref: number,
  [x, y, w, h]: [number, number, number, number], hair: number, readable: boolean, rich: boolean
): void {
  const { colours } = look;
  const paint = look.paint(ref);
  const pill = scene.kinds[ref] !== NODE_KIND_OP;
  ctx.globalAlpha = look.matches && !look.matches.has(ref) ? 0.45 : 1;
  const radius = pill ? h / 2 : 5;
  if (look.selected.has(ref)) {
    ctx.fillStyle = colours.accent;
    const ring = Math.max(3, 3 * hair);
    roundedRectangle(ctx, x - ring, y - ring, w + 2 * ring, h + 2 * ring, radius + ring);
    ctx.fill();
  }
  ctx.fillStyle = paint.fill;
  if (h < SMALL * hair && look.hover !== ref) {
    if (h < 4 * hair) ctx.fillStyle = paint.edge; // too small for an outline: all of it is one
    ctx.fillRect(x, y, w, h);
    if (h >= 4 * hair) {
      ctx.strokeStyle = paint.edge;
      ctx.lineWidth = hair;
      ctx.strokeRect(x, y, w, h);
    }
    ctx.globalAlpha = 1;
    return;
  }
  roundedRectangle(ctx, x, y, w, h, radius);
  ctx.fill();
  ctx.strokeStyle = look.hover === ref ? colours.accent : paint.edge;
  ctx.lineWidth = (look.hover === ref ? 2 : 1) * Math.max(hair, 0.7);
  ctx.stroke();
  if (readable) {
    ctx.textAlign = 'center';
    ctx.fillStyle = paint.text;
    ctx.font = `600 11px ${colours.font}`;
    const label = elide(scene.labels[ref]!, LABEL_CHARS);
    ctx.fillText(label, x + w / 2, y + h / 2 + (rich ? -6 : 0));
    if (rich) {
      ctx.font = `400 9px ${colours.font}`;
      ctx.globalAlpha *= 0.8;
      const type = scene.types[ref]!;
      const shape = scene.shapes[ref]!;
      const full = `${type}  ${shape}`;
      const room = Math.floor((w - 8) / 5.3);
      ctx.fillText(full.length <= room ? full : elide(shape, room), x + w / 2, y + h / 2 + 8);
    }
  }
  ctx.globalAlpha = 1;
}

function caret(ctx: CanvasRenderingContext2D, x: number, y: number, open: boolean, colour: string): void {
  ctx.fillStyle = colour;
  ctx.beginPath();
  if (open) {
    ctx.moveTo(x - 4, y - 2.5);
    ctx.lineTo(x + 4, y - 2.5);
    ctx.lineTo(x, y + 3);
  } else {
    ctx.moveTo(x - 2.5, y - 4);
    ctx.lineTo(x + 3, y);
    ctx.lineTo(x - 2.5, y + 4);
  }
  ctx.fill();
}

function roundedRectangle(ctx: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, r: number): void {
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, Math.min(r, w / 2, h / 2));
}

/** Green tick or red cross at the corner of a node. */
function badge(ctx: CanvasRenderingContext2D, good: boolean, x: number, y: number, readable: boolean): void {
  ctx.globalAlpha = 1;
  ctx.fillStyle = good ? '#1b7f4b' : '#c0271d';
  ctx.beginPath();
  ctx.arc(x, y, good ? 5 : 7, 0, 2 * Math.PI);
  ctx.fill();
  if (!readable) return;
  ctx.strokeStyle = '#ffffff';
  ctx.lineWidth = 1.4;
  ctx.beginPath();
  if (good) {
    ctx.moveTo(x - 2.3, y + 0.2);
    ctx.lineTo(x - 0.6, y + 2);
    ctx.lineTo(x + 2.4, y - 1.8);
  } else {
    ctx.moveTo(x - 2.4, y - 2.4);
    ctx.lineTo(x + 2.4, y + 2.4);
    ctx.moveTo(x + 2.4, y - 2.4);
    ctx.lineTo(x - 2.4, y + 2.4);
  }
  ctx.stroke();
}
