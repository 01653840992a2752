/**
 * The load of the NoC links over the grid of an epoch: asked of the kernel while it is shown, drawn beside the middle of the
 * cores. An estimate: netlists assign no NoC.
 */
import { h, percent, short, svg } from '../dom.js';
import { FORMULAS } from '../numbers.js';
import type { Frame } from '../frame.js';
import type { Store } from '../store.js';
import { isDark, loadPaint } from '../theme.js';
import type { Geometry } from './geometry.js';

export type Noc = 'none' | '0' | '1' | 'both';

const LANE = 0.42; // beside the middle of a core, in parts of it: NoC 0 below and right, NoC 1 above and left
const STUB = 9;
const CELL = 46; // height of a core in the drawing

/** One link as words. */
export function linkName(frame: Frame, k: number): string {
  const [noc, axis, x, y] = ['noc', 'axis', 'x', 'y'].map(c => frame.column(`link_${c}`)[k]!) as [number, number, number, number];
  const size = frame.meta['size'] as [number, number];
  const step = noc ? -1 : 1;
  const end = axis ? [x, (y + step + size[1]) % size[1]] : [(x + step + size[0]) % size[0], y];
  return `NoC ${noc} ${x},${y} → ${end.join(',')}`;
}

/** The largest flows over a link: producer, consumer, bytes per input. */
export function usersOf(frame: Frame, k: number): [string, string, number][] {
  const count = Number(frame.meta['users']);
  const [flows, bytes] = [frame.column('use_flow'), frame.column('use_bytes')];
  const name = (column: string, flow: number) => frame.strings[frame.column(`flow_${column}`)[flow]!] ?? '';
  return Array.from({ length: count }, (_, i) => k * count + i).filter(i => flows[i]! >= 0)
    .map(i => [name('producer', flows[i]!), name('consumer', flows[i]!), bytes[i]!]);
}

export class Links {
  private ask = 0;
  private wanted = '';
  private readonly stops: (() => void)[] = [];
  refused = '';

  /** @param came a frame came, or none will. */
  constructor(private readonly store: Store, private readonly came: () => void) {
    this.stops.push(
      store.on('frame', key => {
        if (key === 'ops' && store.host.live) this.wanted = ''; // they were those of another placement
        else if (key.startsWith('links:') && store.host.live) this.arrived(store.frames.get(key)!);
      }),
      store.listen('refused', message => {
        if (message['key'] !== 'links' || message['ask'] !== this.ask) return;
        this.refused = String(message['text']);
        store.drop('links');
        came();
      }));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** The links of an epoch as far as they are here; asks for them once. */
  of(epoch: number, noc: Noc): Frame | null {
    const { store } = this;
    const key = `links:${epoch}:${noc}`;
    if (noc === 'none') {
      if (this.wanted) store.drop('links');
      this.wanted = this.refused = '';
      return null;
    }
    if (key !== this.wanted) {
      this.wanted = key;
      this.refused = '';
      const known = store.host.live ? undefined : store.frames.get(key);
      if (known) store.put(known.as('links'));
      else store.drop('links');
      if (store.host.live) store.host.send({ type: 'need_links', epoch, noc, ask: ++this.ask });
      else if (!known) this.refused = 'This page has no link data';
    }
    return store.frames.get('links') ?? null;
  }

  private arrived(frame: Frame): void {
    if (frame.meta['ask'] !== this.ask || frame.key !== this.wanted) return;
    this.store.put(frame.as('links'));
    this.came();
  }
}

/** Lines over the grid for links that carry `threshold` bytes per cycle or more, the busiest over the others. */
export function drawLinks(frame: Frame, geometry: Geometry, threshold: number): SVGGElement {
  const meta = frame.meta;
  const dark = isDark();
  const [size, columns, rows] = [meta['size'] as [number, number], meta['columns'] as number[], meta['rows'] as number[]];
  const xs = places(columns, size[0], columns.map((_, c) => (c + 0.5) * geometry.cell), geometry.cell);
  const tops = new Map(rows.map((row, r) => [row, geometry.rows.top[r]! + CELL / 2]));
  for (const strip of geometry.rows.strips) if (!tops.has(strip.row)) tops.set(strip.row, strip.y + 9);
  const known = [...tops.keys()].sort((a, b) => a - b);
  const ys = places(known, size[1], known.map(row => tops.get(row)!), CELL);
  const [bytes, loads] = [frame.column('link_bytes'), frame.column('link_load')];
  const group = svg('g', { class: 'tb-noc' });
  for (let k = bytes.length - 1; k >= 0; k--) {
    if (bytes[k]! / Math.max(1, Number(meta['cycles'])) < threshold) continue;
    const [noc, axis, x, y] = ['noc', 'axis', 'x', 'y'].map(c => frame.column(`link_${c}`)[k]!) as [number, number, number, number];
    const load = loads[k]!;
    const users = usersOf(frame, k).map(([from, to, n]) => `${from} → ${to} ${short(n)}B`);
    const more = frame.column('link_flows')[k]! - users.length;
    group.append(svg('path', {
      class: load >= 1 ? 'tb-link-over' : noc ? 'tb-link-back' : '', 'data-tb-noc-link': linkName(frame, k), 'data-tb-load': load.toFixed(3),
      d: line(xs, ys, axis, x, y, noc ? -1 : 1, geometry.cell), stroke: loadPaint(load, dark).edge,
      'stroke-width': (1.2 + 4.3 * Math.min(1, load)).toFixed(1), opacity: load < 0.05 ? 0.45 : 0.95
    }, svg('title', {}, [`${linkName(frame, k)}: ${percent(load)}, ${short(bytes[k]!)}B per input`, ...users, more > 0 ? `and ${more} more` : ''].filter(Boolean).join('\n'))));
  }
  return group;
}

/** What is written on the tiles once more, to lie over the links. */
export function wordsOver(plane: SVGGElement): SVGElement {
  const words = svg('g', { class: 'tb-noc-words', 'aria-hidden': 'true' });
  for (const tile of plane.querySelectorAll<SVGGElement>(':scope > .tb-tiles > .tb-tile')) {
    const copy = svg('g', { class: 'tb-words', style: tile.getAttribute('style') ?? '' });
    copy.append(...[...tile.querySelectorAll(':scope > text')].map(text => text.cloneNode(true)));
    words.append(copy);
  }
  return words;
}

/** Where every node of an axis lies: workers in the middle of their cores, others on the edge between. */
function places(known: readonly number[], count: number, at: readonly number[], size: number): number[] {
  return Array.from({ length: count }, (_, node) => {
    const here = known.indexOf(node);
    if (here >= 0) return at[here]!;
    const before = known.filter(n => n < node).length;
    return before ? at[before - 1]! + size / 2 : at[0]! - size / 2;
  });
}

/** From a node to the next; where the torus goes round, two stubs at the edges. */
function line(xs: number[], ys: number[], axis: number, x: number, y: number, step: number, cell: number): string {
  const [along, at] = axis ? [ys, y] : [xs, x];
  const across = axis ? xs[x]! + step * LANE * cell : ys[y]! + step * LANE * CELL;
  const begin = along[at]!;
  const end = along[(at + step + along.length) % along.length]!;
  const round = at + step < 0 || at + step >= along.length;
  const pieces = round ? [[begin, begin + STUB * step], [end - STUB * step, end]] : [[begin, end]];
  return pieces.map(([a, b]) => (axis ? `M${across} ${a!}V${b!}` : `M${a!} ${across}H${b!}`)).join('');
}

/** What the colours say; `state`: why there are none. */
export function linkLegend(state: string): HTMLElement[] {
  if (state) return [h('span', {}, state)];
  const dark = isDark();
  return [h('span', { title: FORMULAS.links }, 'links, estimated:'),
    ...[0.1, 0.4, 0.7, 1].map(v => h('span', { class: 'tb-key' },
      h('i', { class: 'tb-link-key', style: `height:${1.2 + 4.3 * v}px;background:${loadPaint(v, dark).edge}` }), v === 1 ? '≥ 100 %' : percent(v))),
    h('span', { class: 'tb-key' }, 'NoC 0 → ↓ solid, NoC 1 ← ↑ dashed')];
}
