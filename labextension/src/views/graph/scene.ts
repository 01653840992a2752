/** A graph frame with what is open: positions, edge geometry, hit testing, paths of values. No drawing here. */
import type { Frame } from '../frame.js';
import { type Direction, ENTRY, EXIT, GROUP, LANE, NODE, place, Structure, type Layout } from './layout.js';

interface Segment {
  net: number;
  /** Whether the end is a box (arrow head) rather than a lane or port. */
  arrow: boolean;
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

export class Scene {
  readonly structure: Structure;
  readonly names: string[];
  readonly labels: string[];
  readonly types: string[];
  readonly shapes: string[];
  readonly kinds: ArrayLike<number>;
  readonly home: ArrayLike<number>;
  readonly groupPaths: string[];
  readonly groupLabels: string[];
  readonly groupClasses: string[];
  readonly groupParent: ArrayLike<number>;
  readonly groupLeaves: ArrayLike<number>;
  /** Layers that a group folds because they repeat the one before them; 0 for any other group. */
  readonly groupRepeats: ArrayLike<number>;
  readonly indexOf = new Map<string, number>();
  readonly opened: Set<number>;
  layout!: Layout;
  /** Which way it lies, and whether TMs are written on its edges: `lie` sets both. */
  direction: Direction = 'TB';
  words = false;
  private readonly tms = new Map<string, string>();
  /** Segments of open groups, in frame order; the key is the segment's number. */
  segments = new Map<number, Segment>();
  /** Lanes of open groups: the vertical lines of values that pass a rank by. */
  lanes: number[] = [];

  private readonly segGroup: ArrayLike<number>;
  private readonly segSource: ArrayLike<number>;
  private readonly segTarget: ArrayLike<number>;
  private readonly segNet: ArrayLike<number>;
  private readonly itemGroup: ArrayLike<number>;
  readonly itemOfNode: Int32Array;
  readonly itemOfGroup: Int32Array;
  private readonly ports = new Map<string, number>();
  private readonly arrivals = new Map<string, number>();
  private readonly arrivalsAt = new Map<number, number[]>();
  private readonly laneFrom = new Map<number, number>();

  constructor(readonly frame: Frame) {
    this.structure = new Structure(frame);
    this.names = frame.text('node_name');
    this.labels = frame.text('node_label');
    this.types = frame.text('node_type');
    this.shapes = frame.text('node_shape');
    this.kinds = frame.column('node_kind');
    this.home = frame.column('node_group');
    this.groupPaths = frame.text('group_path');
    this.groupLabels = frame.text('group_label');
    this.groupClasses = frame.text('group_class');
    this.groupParent = frame.column('group_parent');
    this.groupLeaves = frame.column('group_leaves');
    this.groupRepeats = frame.column('group_repeats');
    this.segGroup = frame.column('seg_group');
    this.segSource = frame.column('seg_source');
    this.segTarget = frame.column('seg_target');
    this.segNet = frame.column('seg_net');
    this.itemGroup = frame.column('item_group');
    this.names.forEach((name, i) => this.indexOf.set(name, i));
    this.itemOfNode = new Int32Array(this.names.length).fill(-1);
    this.itemOfGroup = new Int32Array(this.groupPaths.length).fill(-1);
    const { kind, ref, count } = this.structure;
    for (let i = 0; i < count; i++) {
      if (kind[i] === NODE) this.itemOfNode[ref[i]!] = i;
      else if (kind[i] === GROUP) this.itemOfGroup[ref[i]!] = i;
      else if (kind[i] !== LANE) this.ports.set(`${kind[i]!},${this.itemGroup[i]!},${ref[i]!}`, i);
    }
    for (let s = 0; s < this.segTarget.length; s++) {
      const target = this.segTarget[s]!;
      this.arrivals.set(`${target},${this.segNet[s]!}`, s);
      if (kind[target] === LANE && ref[target] === this.segNet[s]) this.laneFrom.set(target, s);
      const list = this.arrivalsAt.get(target);
      if (list) list.push(s);
      else this.arrivalsAt.set(target, [s]);
    }
    const [source, target, tms] = frame.has('edge_tms') ? [frame.column('edge_source'), frame.column('edge_target'), frame.text('edge_tms')] : [[], [], []];
    tms.forEach((text, k) => this.tms.set(`${source[k]!},${target[k]!}`, text));
    this.opened = new Set([0, ...((frame.meta['open'] as number[] | undefined) ?? [])]);
    this.update();
  }

  /** Works positions and edges out again after a change of `opened`. */
  update(): void {
    this.layout = place(this.structure, this.opened, this.direction, this.words);
    this.segments = new Map();
    this.lanes = [...this.laneFrom.keys()].filter(lane => this.layout.visible[lane]);
    for (let s = 0; s < this.segGroup.length; s++) {
      if (!this.isShown(this.segGroup[s]!)) continue;
      const from = this.tail(this.segSource[s]!, this.segNet[s]!);
      const to = this.head(this.segTarget[s]!, this.segNet[s]!);
      const kind = this.structure.kind[this.segTarget[s]!];
      const open = kind === GROUP && this.opened.has(this.structure.ref[this.segTarget[s]!]!);
      this.segments.set(s, {
        net: this.segNet[s]!,
        arrow: kind === NODE || (kind === GROUP && !open),
        x0: from[0],
        y0: from[1],
        x1: to[0],
        y1: to[1]
      });
    }
  }

  /** Lays the graph out another way. Returns whether that changed anything. */
  lie(direction: Direction, words: boolean): boolean {
    if (direction === this.direction && words === this.words) return false;
    [this.direction, this.words] = [direction, words];
    this.update();
    return true;
  }

  get turned(): boolean {
    return this.direction === 'LR';
  }

  /** What is done to a tensor on the last piece of an edge, where it arrives at a node; a line for each time it is read. */
  wordsOn(s: number): string {
    const target = this.segTarget[s]!;
    return this.structure.kind[target] === NODE ? (this.tms.get(`${this.segNet[s]!},${this.structure.ref[target]!}`) ?? '') : '';
  }

  /** The middle of the curve of a segment. */
  middle({ x0, y0, x1, y1 }: Segment): [number, number] {
    return [(x0 + x1) / 2, (y0 + y1) / 2];
  }

  /** How far the curve of a segment goes straight on from its ends. */
  bend({ x0, y0, x1, y1 }: Segment): number {
    return Math.max(8, Math.abs(this.turned ? x1 - x0 : y1 - y0) * 0.5);
  }

  /** Whether the inside of a group is on screen: it and all around it are open. */
  isShown(group: number): boolean {
    for (let g = group; g >= 0; g = this.groupParent[g]!) if (!this.opened.has(g)) return false;
    return true;
  }

  box(item: number): [number, number, number, number] {
    const b = this.layout.boxes;
    return [b[4 * item]!, b[4 * item + 1]!, b[4 * item + 2]!, b[4 * item + 3]!];
  }

  /** The box at which the graph begins: of the first node, or of the closed group that it is in. */
  first(): [number, number, number, number] {
    return this.names.length ? this.box(this.standIn(0)) : [0, 0, this.layout.width, this.layout.height];
  }

  /** The item that stands for a node: itself, or the outermost closed group around it. */
  standIn(node: number): number {
    let item = this.itemOfNode[node]!;
    for (let g = this.home[node]!; g > 0; g = this.groupParent[g]!) {
      if (!this.opened.has(g)) item = this.itemOfGroup[g]!;
    }
    return item;
  }

  /** Opens every group around a node. Returns whether anything changed. */
  reveal(node: number): boolean {
    let changed = false;
    for (let g = this.home[node]!; g > 0; g = this.groupParent[g]!) {
      if (!this.opened.has(g)) {
        this.opened.add(g);
        changed = true;
      }
    }
    if (changed) this.update();
    return changed;
  }

  toggle(group: number): void {
    if (group === 0) return;
    if (this.opened.has(group)) this.opened.delete(group);
    else this.opened.add(group);
    this.update();
  }

  /** Opens every group; layers that repeat stay folded, unless all else is open already. */
  openAll(): void {
    const before = this.shownGroups();
    const fold = (g: number) => this.groupRepeats[g]! > 0 && !this.opened.has(g);
    this.groupPaths.forEach((_, g) => {
      if (!fold(g)) this.opened.add(g);
    });
    if (this.shownGroups() === before) this.groupPaths.forEach((_, g) => this.opened.add(g));
    this.update();
  }

  private shownGroups(): number {
    return this.groupPaths.filter((_, g) => this.isShown(g)).length;
  }

  closeAll(): void {
    this.opened.clear();
    this.opened.add(0);
    this.update();
  }

  /** Names of the ops inside a group, at any depth. */
  inside(group: number): string[] {
    return this.names.filter((_, n) => {
      for (let g = this.home[n]!; g >= 0; g = this.groupParent[g]!) if (g === group) return true;
      return false;
    });
  }

  /** The topmost thing at a world point: a node, else the innermost group; null on empty ground. */
  hit(x: number, y: number): { kind: 'node' | 'group'; ref: number; header: boolean } | null {
    let group = 0;
    for (;;) {
      let inner = -1;
      for (const item of this.structure.members[group]!) {
        const kind = this.structure.kind[item];
        if (kind !== NODE && kind !== GROUP) continue;
        const [bx, by, bw, bh] = this.box(item);
        if (x < bx || y < by || x > bx + bw || y > by + bh) continue;
        const ref = this.structure.ref[item]!;
        if (kind === NODE) return { kind: 'node', ref, header: false };
        if (!this.opened.has(ref)) return { kind: 'group', ref, header: true };
        inner = ref;
        break;
      }
      if (inner < 0) {
        if (group === 0) return null;
        const [, by] = this.box(this.itemOfGroup[group]!);
        return { kind: 'group', ref: group, header: y < by + 24 };
      }
      group = inner;
    }
  }

  /**
   * The edge nearest to a world point, within `reach`: the node whose value it carries, and the node it ends at (-1 where
   * it goes on to several or into a group).
   */
  edgeAt(x: number, y: number, reach: number): { source: number; target: number } | null {
    let best: { source: number; target: number } | null = null;
    let least = reach * reach;
    for (const [s, segment] of this.segments) {
      const { net, x0, y0, x1, y1 } = segment;
      const bend = this.bend(segment);
      const [aside, on] = this.turned ? [bend, 0] : [0, bend];
      if (x < Math.min(x0, x1) - aside - reach || x > Math.max(x0, x1) + aside + reach) continue;
      if (y < Math.min(y0, y1) - on - reach || y > Math.max(y0, y1) + on + reach) continue;
      for (let k = 0; k <= 16; k++) {
        const t = k / 16;
        const [a, b, c, d] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3];
        const px = a * x0 + b * (x0 + aside) + c * (x1 - aside) + d * x1;
        const py = a * y0 + b * (y0 + on) + c * (y1 - on) + d * y1;
        const off = (px - x) ** 2 + (py - y) ** 2;
        if (off < least) {
          least = off;
          const item = this.segTarget[s]!;
          best = { source: net, target: this.structure.kind[item] === NODE ? this.structure.ref[item]! : -1 };
        }
      }
    }
    return best;
  }

  /** Segments that carry the value of a node to its readers. */
  outgoing(node: number): number[] {
    return [...this.segments.keys()].filter(s => this.segNet[s] === node);
  }

  /** Segments on the way from the producers to a node, walked backwards through ports and lanes. */
  incoming(node: number): number[] {
    const path: number[] = [];
    for (const start of this.arrivalsAt.get(this.itemOfNode[node]!) ?? []) {
      const net = this.segNet[start]!;
      let s: number | undefined = start;
      while (s !== undefined) {
        path.push(s);
        const source: number = this.segSource[s]!;
        const kind = this.structure.kind[source];
        if (kind === LANE) s = this.arrivals.get(`${source},${net}`);
        else if (kind === ENTRY) s = this.arrivals.get(`${this.itemOfGroup[this.itemGroup[source]!]!},${net}`);
        else if (kind === GROUP) {
          const exit = this.ports.get(`${EXIT},${this.structure.ref[source]!},${net}`);
          s = exit === undefined ? undefined : this.arrivals.get(`${exit},${net}`);
        } else s = undefined;
      }
    }
    return path.filter(s => this.segments.has(s));
  }

  /** The segment that arrives at a lane. */
  into(lane: number): number | undefined {
    return this.laneFrom.get(lane);
  }

  private tail(item: number, net: number): [number, number] {
    const kind = this.structure.kind[item];
    const ref = this.structure.ref[item]!;
    if (kind === GROUP && this.opened.has(ref)) {
      const port = this.ports.get(`${EXIT},${ref},${net}`);
      if (port !== undefined) return this.bottom(port);
    }
    return this.bottom(item);
  }

  private head(item: number, net: number): [number, number] {
    const kind = this.structure.kind[item];
    const ref = this.structure.ref[item]!;
    const [x, y, w, h] = this.box(item);
    const port = kind === GROUP && this.opened.has(ref) ? this.ports.get(`${ENTRY},${ref},${net}`) : undefined;
    const [px, py, pw, ph] = port === undefined ? [x, y, w, h] : this.box(port);
    return this.turned ? [x, py + ph / 2] : [px + pw / 2, y];
  }

  private bottom(item: number): [number, number] {
    const [x, y, w, h] = this.box(item);
    const entry = this.structure.kind[item] === ENTRY;
    return this.turned ? [entry ? x : x + w, y + h / 2] : [x + w / 2, entry ? y : y + h];
  }
}
