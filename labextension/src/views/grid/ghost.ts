/**
 * What is drawn while something is dragged (where the pointer is, where the op will land, what it costs), and
 * after a drop that ended elsewhere.
 */
import { h, svg } from '../dom.js';
import type { Cores, Geometry } from './geometry.js';
import { withAnswer } from './legal.js';
import type { Edit } from '../editmessages.js';
import { Ops } from '../ops.js';
import type { Store } from '../store.js';
import { coresOf } from './pictures.js';

/** Edges and corners, corners last: they lie on top. */
const HANDLES = ['e', 's', 'w', 'n', 'se', 'sw', 'ne', 'nw'] as const;
export type Handle = (typeof HANDLES)[number];
const HIT = 24; // px of the drawing: room for a finger
const SEEN = 8;
const STAYS = 400; // px² of cover, or px of way, that a tag bears before it moves to another spot
const ROOMY = 4 * HIT; // a tile this wide and high has handles on all sides

/**
 * Handles on the right, lower and lower right side of a tile; on all sides where the user fixed its place (the place then
 * goes along), and where the tile is large enough for them.
 */
export function drawHandles(name: string, geometry: Geometry, at: Cores, pinned: boolean): SVGGElement {
  const [x, y, w, hgt] = geometry.box(at);
  const all = pinned || Math.min(w, hgt) >= ROOMY;
  return svg('g', { class: 'tb-handles', 'data-tb-handles-of': name }, ...HANDLES.filter(k => all || !/[wn]/.test(k)).map(handle => {
    const along = (less: string, more: string) => (handle.includes(more) ? 1 : handle.includes(less) ? 0 : 0.5);
    const [fx, fy] = [along('w', 'e'), along('n', 's')];
    const [cx, cy] = [x + w * fx, y + hgt * fy];
    const wide = fx === 0.5 ? Math.min(26, w * 0.4) : 0;
    const high = fy === 0.5 ? Math.min(22, hgt * 0.4) : 0;
    const [sw, sh, hw, hh] = [Math.max(SEEN, wide), Math.max(SEEN, high), Math.max(wide, HIT), Math.max(high, HIT)];
    return svg('g', { class: `tb-handle tb-handle-${handle}`, 'data-tb-handle': handle, 'aria-label': `resize ${name}`, role: 'img' },
      svg('rect', { class: 'tb-handle-hit', x: cx - hw / 2, y: cy - hh / 2, width: hw, height: hh }),
      svg('rect', { class: 'tb-handle-mark', x: cx - sw / 2, y: cy - sh / 2, width: sw, height: sh, rx: 3 }));
  }));
}

export interface Picture {
  /** Where the pointer is, and whether that would do. */
  wanted: Cores;
  good: boolean;
  /** Where it will land; null where nothing will happen. */
  lands: Cores | null;
  /** Others must make room. */
  crowded: boolean;
  verdict: string;
  title: string;
  lines: [string, string][];
  note: string;
  /** What is said where it is let go and nothing comes of it; else the note is. */
  refusal?: string;
  /** What is asked for when it is let go here; null where that changes nothing. */
  edit: Edit | null;
  /** The rectangles of a group that moves together. */
  more?: { wanted: Cores[]; lands: Cores[] };
  /** Only the tag is shown: what is dragged is outside the grid. */
  hidden?: boolean;
}

/** What an exact answer adds to a picture. */
interface Exactly {
  lines: [string, string][];
  outlines: { op: string; at: Cores; from?: Cores }[];
  /** Where it will land for certain; null while only the estimate is known. */
  landing?: Cores[] | null;
}

/** What is drawn while something is dragged: where the pointer is, where the op will land, and a tag that says what it costs. */
export class Ghost {
  readonly tag = h('div', { class: 'tb-tag', hidden: true });
  private layer: SVGGElement | null = null;
  private spot = 0; // of the tag, among those around the pointer

  /** Draws into the plane of the grid; `at`: the pointer, in pixels of the view. */
  show(
    plane: SVGGElement, geometry: Geometry, picture: Picture, at: [number, number], room: [number, number],
    exactly: Exactly = { lines: [], outlines: [] }
  ): void {
    if (!this.layer || this.layer.parentNode !== plane) {
      this.layer = svg('g', { class: 'tb-ghosts', 'aria-hidden': 'true' });
      plane.append(this.layer);
    }
    const rect = (cores: Cores, kind: string) => {
      const [x, y, width, height] = geometry.box(cores);
      return svg('rect', { class: kind, x, y, width, height, rx: 5 });
    };
    const { good, crowded } = picture;
    const wanted = picture.hidden ? [] : picture.more?.wanted ?? [picture.wanted];
    const estimate = picture.hidden || !picture.lands ? [] : picture.more?.lands ?? [picture.lands];
    const lands = picture.hidden ? [] : exactly.landing ?? estimate;
    const middle = (cores: Cores): [number, number] => {
      const [x, y, w, hgt] = geometry.box(cores);
      return [x + w / 2, y + hgt / 2];
    };
    this.layer.dataset['tbCertain'] = String(Boolean(exactly.landing));
    this.layer.dataset['tbVerdict'] = picture.verdict;
    this.layer.replaceChildren(
      ...exactly.outlines.flatMap(({ op, at: cores, from }) => {
        const outline = rect(cores, 'tb-displaced');
        outline.dataset['tbDisplaced'] = op;
        outline.dataset['tbCores'] = [cores.row, cores.col, cores.rows, cores.cols].join(',');
        const way = from && svg('path', { class: 'tb-displaced-way', d: `M${middle(from).join(' ')}L${middle(cores).join(' ')}` });
        return way ? [outline, way] : [outline];
      }),
      ...lands.map(cores => {
        const ghost = rect(cores, `tb-ghost${crowded ? ' tb-crowded' : ''}${exactly.landing ? '' : ' tb-estimate'}`);
        ghost.dataset['tbLands'] = [cores.row, cores.col, cores.rows, cores.cols].join(',');
        return ghost;
      }),
      ...wanted.map(cores => rect(cores, `tb-wanted ${good ? 'tb-good' : 'tb-bad'}`)),
      ...(good ? [] : wanted.flatMap(cores => {
        const [x, y, w, hgt] = geometry.box(cores);
        return [svg('path', { class: 'tb-struck', d: strokes(x, y, w, hgt) }),
          svg('circle', { class: 'tb-verdict-ground', cx: x + w - 14, cy: y + 14, r: 9 }),
          svg('path', { class: 'tb-verdict-glyph', d: `M${x + w - 18} ${y + 10}l8 8m0 -8l-8 8` })];
      })));
    this.tag.hidden = false;
    this.tag.dataset['tbVerdict'] = picture.verdict;
    this.tag.classList.toggle('tb-refused', !good && !picture.lands);
    this.tag.replaceChildren(
      h('b', {}, picture.title),
      ...withAnswer(picture.lines, exactly.lines).map(([term, text]) => h('span', {}, term ? h('i', {}, term) : '', h('u', {}, text))),
      picture.note ? h('em', {}, picture.note) : '');
    this.setTag(plane, [...wanted, ...lands, ...exactly.outlines.map(outline => outline.at)].map(cores => geometry.box(cores)), geometry, at, room);
  }

  /** Puts the tag beside the pointer or into a corner of the cores, where it covers least of those boxes of the drawing, of
   *  one core around them, and of what stands above the cores. */
  private setTag(plane: SVGGElement, boxes: [number, number, number, number][], geometry: Geometry, [x, y]: [number, number], room: [number, number]): void {
    const [tw, th] = [this.tag.offsetWidth, this.tag.offsetHeight];
    const [matrix, frame] = [plane.getScreenCTM(), this.tag.offsetParent?.getBoundingClientRect()];
    const [, , wide, high] = geometry.box({ row: 0, col: 0, rows: 1, cols: 1 });
    const kept = matrix && frame ? boxes.map(([bx, by, w, hgt]) => [
      (bx - wide) * matrix.a + matrix.e - frame.left, (by - high) * matrix.d + matrix.f - frame.top, (w + 2 * wide) * matrix.a, (hgt + 2 * high) * matrix.d] as const) : [];
    const ceiling = matrix && frame ? Math.max(0, Math.min(matrix.f - frame.top, room[1] - th)) : 0;
    const [sides, ends] = [[x + 18, x - 18 - tw, room[0], 0], [y + 18, y - 12 - th, room[1], 0]] as const;
    let best: [number, number, number, number] = [Infinity, 0, 0, 0];
    sides.forEach((side, i) => ends.forEach((end, k) => {
      const left = Math.max(0, Math.min(side, room[0] - tw));
      const top = Math.max(ceiling, Math.min(end, room[1] - th));
      const covered = kept.reduce((n, [bx, by, w, hgt]) =>
        n + Math.max(0, Math.min(left + tw, bx + w) - Math.max(left, bx)) * Math.max(0, Math.min(top + th, by + hgt) - Math.max(top, by)), 0);
      const cost = covered + Math.hypot(left + tw / 2 - x, top + th / 2 - y) - (this.spot === 4 * i + k ? STAYS : 0);
      if (cost < best[0]) best = [cost, left, top, 4 * i + k];
    }));
    this.spot = best[3];
    this.tag.style.left = `${best[1]}px`;
    this.tag.style.top = `${best[2]}px`;
  }

  /** The words of the tag, for a screen reader. */
  static words(picture: Picture, exactly: [string, string][] = []): string {
    return [picture.title, ...withAnswer(picture.lines, exactly).map(([term, text]) => `${term} ${text}`), picture.note].filter(Boolean).join(', ');
  }

  hide(): void {
    this.layer?.remove();
    this.layer = null;
    this.tag.hidden = true;
  }
}

/** Diagonal strokes over a rectangle: an illegal shape is told without colour too. */
function strokes(x: number, y: number, w: number, h: number): string {
  const d: string[] = [];
  for (let k = 12; k < w + h; k += 14) {
    const [x0, y0] = k <= h ? [x, y + k] : [x + k - h, y + h];
    const [x1, y1] = k <= w ? [x + k, y] : [x + w, y + k - w];
    d.push(`M${x0} ${y0}L${x1} ${y1}`);
  }
  return d.join('');
}

const WAY = 900; // ms that the frame takes

/** Whether an op came to stand where its ghost was shown; if not, that is said, and a frame goes from there to it. It is
 *  judged when the answer came: pictures before it may be of anything. */
export class DropResult {
  private shown: Cores[] = [];
  private op = '';
  private geometry: Geometry | null = null;
  private plane: SVGGElement | null = null;
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.stop = store.listen('edited', message => {
      const frame = store.frames.get('ops');
      if (message['ok'] && frame && !store.edits?.stale) this.judge(Ops.of(frame), String(message['text']));
      this.op = ''; // refused or not compiled yet, it stands where it stood
    });
  }

  dispose(): void {
    this.stop();
  }

  /** An op was let go; its ghost stood at the first of `shown`. */
  watch(shown: Cores[], op: string): void {
    this.shown = shown;
    this.op = op;
  }

  /** The grid shows a placement. */
  redrawn(geometry: Geometry, plane: SVGGElement): void {
    this.geometry = geometry;
    this.plane = plane;
  }

  private judge(ops: Ops, answer: string): void {
    const op = this.op ? ops.indexOf.get(this.op) : undefined;
    const [promised] = this.shown;
    if (op === undefined || !promised) return;
    const is = coresOf(ops, op);
    const epoch = ops.epochOf(op);
    if (same(promised, is) && epoch === this.store.epoch) return;
    const where = epoch === this.store.epoch ? `at row ${is.row}, column ${is.col}` : `in epoch ${epoch}`;
    this.store.say(true, `${answer}. It stands ${where}: its neighbours left no room at the estimated place`);
    if (epoch !== this.store.epoch || !this.geometry || !this.plane) return;
    const [from, to] = [this.geometry.box(promised), this.geometry.box(is)];
    const frame = svg('rect', { class: 'tb-ghost', x: to[0], y: to[1], width: to[2], height: to[3], rx: 5 });
    this.plane.append(frame);
    const gone = () => frame.remove();
    if (!('animate' in frame) || matchMedia('(prefers-reduced-motion: reduce)').matches) {
      setTimeout(gone, WAY);
      return;
    }
    frame.animate([
      { transform: `translate(${from[0] - to[0]}px, ${from[1] - to[1]}px)` }, { transform: 'none' }
    ], { duration: WAY, easing: 'ease-in-out' }).onfinish = gone;
  }
}

function same(a: Cores, b: Cores): boolean {
  return a.row === b.row && a.col === b.col && a.rows === b.rows && a.cols === b.cols;
}
