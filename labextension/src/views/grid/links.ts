/**
 * Lines over the grid of an epoch: edges between its ops, the load of the NoC links, and the busiest links as a
 * list. The load is asked of the kernel while it is shown, and drawn beside the middle of the cores. An estimate:
 * netlists assign no NoC.
 */
import { h, percent, short, svg } from '../dom.js';
import { FORMULAS } from '../numbers.js';
import type { Frame } from '../frame.js';
import type { Store } from '../store.js';
import { isDark, loadPaint } from '../theme.js';
import type { Geometry } from './geometry.js';
import { shortName } from '../names.js';
import type { Ops } from '../ops.js';
import { coresOf } from './pictures.js';

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

/**
 * The load of the NoC links over the grid of an epoch: asked of the kernel while it is shown, drawn beside the middle of the
 * cores. An estimate: netlists assign no NoC.
 */
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
        else if (key.startsWith('links:') && store.host.live) this.onFrame(store.frames.get(key)!);
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

  private onFrame(frame: Frame): void {
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

// The busiest links of what the grid shows, and who uses them; of the selected ops, where some are selected.
const LISTED = 8;
const WHO = { '0': 'all over NoC 0', '1': 'all over NoC 1', both: 'each over its shorter NoC' };

/** Nothing where no links are shown. */
export function linkList(store: Store): HTMLElement[] {
  const frame = store.frames.get('links');
  if (!frame) return [];
  const chosen = new Set(store.selection.names);
  const loads = frame.column('link_load');
  const count = loads.length;
  const all = Array.from({ length: count }, (_, k) => k);
  const mine = chosen.size ? all.filter(k => usersOf(frame, k).some(([from, to]) => chosen.has(from) || chosen.has(to))) : all;
  const left = Number(frame.meta['left_out']);
  const said = [WHO[frame.meta['noc'] as keyof typeof WHO], left ? `${short(left)}B per input to and from the host and other chips use no NoC link` : ''].filter(Boolean).join('; ');
  return [
    h('h4', { title: FORMULAS.links }, `Busiest links${chosen.size ? ' of the selection' : ''}, epoch ${String(frame.meta['epoch'])} (estimated)`),
    h('p', { class: 'tb-fix' }, `${said}.`),
    mine.length
      ? h('ol', { class: 'tb-linklist', 'data-tb-links': mine.length }, ...mine.slice(0, LISTED).map(k => {
          const users = usersOf(frame, k);
          const more = frame.column('link_flows')[k]! - users.length;
          return h('li', { 'data-tb-noc-link': linkName(frame, k) },
            h('b', {}, linkName(frame, k)), h('span', { class: loads[k]! >= 1 ? 'tb-over' : '' }, `${loads[k]! >= 1 ? '▲ ' : ''}${percent(loads[k]!)}`),
            h('span', { class: 'tb-linkusers' }, ...users.map(([from, to, bytes]) => h('button', {
              class: 'tb-chip', 'data-tb-action': 'link-user', title: `${from} → ${to}: ${short(bytes)}B per input over this link`,
              onclick: () => store.select([from, to], 'inspector')
            }, `${shortName(from)} → ${shortName(to)} ${short(bytes)}`)), more > 0 ? ` and ${more} more` : ''));
        }))
      : h('p', {}, 'No traffic of the selection uses the NoC.')
  ];
}

// Edges between the ops of an epoch as lines over the grid, as thick as what they carry.
export type ShownLinks = 'none' | 'selected' | 'all';

/** Pipes of an epoch: from, to, bytes per cycle. Those below the threshold are left out. */
export function pipesOf(ops: Ops, epoch: number, shown: ShownLinks, chosen: ReadonlySet<number>, threshold: number): [number, number, number][] {
  if (shown === 'none') return [];
  const cycles = Math.max(1, ops.epochTimes[epoch] ?? 1);
  return (ops.byEpoch[epoch] ?? []).flatMap(from => [...new Set(ops.outOf(from))]
    .filter(to => ops.epochOf(to) === epoch && (shown === 'all' || chosen.has(from) || chosen.has(to)))
    .map(to => [from, to, ops.get('out_bytes', from) / cycles] as [number, number, number])
    .filter(([, , load]) => load >= threshold));
}

export function drawPipes(ops: Ops, geometry: Geometry, pipes: readonly [number, number, number][]): SVGGElement {
  /** Where the way from the middle of an op to that of another leaves its tile. */
  const edge = (op: number, other: number): [number, number] => {
    const [x, y, w, h] = geometry.box(coresOf(ops, op));
    const [u, v, p, q] = geometry.box(coresOf(ops, other));
    const [dx, dy] = [u + p / 2 - x - w / 2, v + q / 2 - y - h / 2];
    const part = Math.min(w / 2 / (Math.abs(dx) || 1e-9), h / 2 / (Math.abs(dy) || 1e-9), 0.5);
    return [x + w / 2 + part * dx, y + h / 2 + part * dy];
  };
  const most = Math.max(...pipes.map(p => p[2]), 1e-9);
  return svg('g', { class: 'tb-pipes', 'pointer-events': 'none' }, ...pipes.map(([from, to, load]) => {
    const [[x, y], [u, v]] = [edge(from, to), edge(to, from)];
    const [dx, dy] = [u - x, v - y];
    const length = Math.hypot(dx, dy) || 1;
    // A bow to the left of the way: there and back are two lines.
    const bow = Math.min(14, length / 4);
    const [mx, my] = [(x + u) / 2 + (dy / length) * bow, (y + v) / 2 - (dx / length) * bow];
    const [ax, ay] = [u - (dx / length) * 7, v - (dy / length) * 7];
    const turn = (Math.atan2(v - my, u - mx) * 180) / Math.PI;
    return svg('g', { class: 'tb-pipe', 'data-tb-pipe': `${ops.name[from]!} → ${ops.name[to]!}` },
      svg('title', {}, `${ops.name[from]!} → ${ops.name[to]!}: ${short(ops.get('out_bytes', from))}B per input, ${load.toFixed(1)} bytes per cycle`),
      svg('path', { d: `M${x} ${y}Q${mx} ${my} ${ax} ${ay}`, 'stroke-width': (1 + 3 * (load / most)).toFixed(1) }),
      svg('path', { class: 'tb-pipe-head', d: 'M0 0l-8 -4v8z', transform: `translate(${u} ${v}) rotate(${turn.toFixed(1)})` }));
  }));
}
