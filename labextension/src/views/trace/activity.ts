/**
 * The cursor of the timeline, shared by the views of one store, and what lies over the tiles of the core grid:
 * what every op does at that cycle, the progress of a run, how ops compare with torch.
 */
import type { Frame } from '../frame.js';
import type { Store } from '../store.js';
import { elide, freshId, h, svg } from '../dom.js';
import { shortName } from '../names.js';
import type { Geometry } from '../grid/geometry.js';
import type { Ops } from '../ops.js';
import { isDark } from '../theme.js';
import { Checks } from './checks.js';
import { kindPaints, KINDS, patterns } from './paint.js';

/** What one lane does: the cores it stands on, the input it is at. */
export interface Doing {
  op: string;
  cores: [number, number, number, number];
  kind: number;
  input: number;
}

export interface Moment {
  cycle: number;
  epoch: number | null;
  doing: Doing[];
}

/** The cursor of the timeline, shared by the views of one store: what every op does at one cycle. */
export class Playhead {
  moment: Moment | null = null;
  /** Timelines of this store, which move it. */
  private drivers = 0;
  private readonly listeners = new Set<() => void>();

  set(moment: Moment | null): void {
    this.moment = moment;
    this.listeners.forEach(f => f());
  }

  /** Whether a timeline of this store moves it; otherwise moments come from a timeline elsewhere. */
  get driven(): boolean {
    return this.drivers > 0;
  }

  /** A timeline moves it from now on; returns the way to stop it. */
  drive(): () => void {
    this.drivers++;
    return () => {
      this.drivers--;
      if (!this.driven) this.set(null);
    };
  }

  on(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }
}

/** A moment as the kernel tells it; of several epochs at work the preferred one, if it is among them. */
export function momentOf(frame: Frame, preferred: number): Moment {
  const epochs = frame.meta['epochs'] as number[];
  const [row, col, rows, cols, kind, input] = ['row', 'col', 'rows', 'cols', 'kind', 'input'].map(c => frame.column(c));
  const doing = frame.text('op').map((op, i): Doing => ({
    op, cores: [row![i]!, col![i]!, rows![i]!, cols![i]!], kind: kind![i]!, input: input![i]!
  }));
  return { cycle: Number(frame.meta['cycle']), epoch: epochs.includes(preferred) ? preferred : (epochs[0] ?? null), doing };
}

const HEADS = new WeakMap<Store, Playhead>();

export function playheadOf(store: Store): Playhead {
  const head = HEADS.get(store) ?? new Playhead();
  HEADS.set(store, head);
  return head;
}

const BAND = 12; // height of the band that says what a tile does
const QUEUES = 8; // queues whose level is shown

/** What lies over the tiles of the core grid: a moment of the timeline, the progress of a run, how ops compare with torch. */
export class Activity {
  private readonly stops: (() => void)[] = [];
  private ops: Ops | null = null;
  private geometry: Geometry | null = null;
  private drawing: SVGSVGElement | null = null;
  private readonly queues = h('div', { class: 'tb-queue-levels', role: 'group', 'aria-label': 'Levels of queues', hidden: true });
  private running = false;
  private epoch = -1;
  /** The epoch that was there when the run began. */
  private before = 0;

  constructor(private readonly store: Store, private readonly plane: HTMLElement) {
    plane.after(this.queues);
    this.stops.push(
      playheadOf(store).on(() => this.moment()),
      store.on('frame', key => {
        if (key === 'live') this.onLive();
        if (key === 'checks') this.checks();
        if (key === 'moment') this.elsewhere();
      }));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** The grid was drawn anew. */
  redrawn(ops: Ops | null, geometry: Geometry | null, drawing: SVGSVGElement | null): void {
    [this.ops, this.geometry, this.drawing] = [ops, geometry, drawing];
    this.moment();
    this.progress();
    this.checks();
  }

  /** The timeline of another cell moved its playhead. */
  private elsewhere(): void {
    const head = playheadOf(this.store);
    if (head.driven) return;
    const moment = momentOf(this.store.frames.get('moment')!, this.store.epoch);
    if (moment.epoch !== null) this.store.setEpoch(moment.epoch);
    head.set(moment);
  }

  /** The grid goes along with the run from epoch to epoch, and back at its end; a person may look elsewhere meanwhile. */
  private onLive(): void {
    const meta = this.store.frames.get('live')!.meta;
    const [running, epoch] = [meta['running'] === true, Number(meta['epoch'])];
    if (running !== this.running) {
      this.running = running;
      if (running) this.before = this.store.epoch;
      else if (this.store.epoch === this.epoch) this.store.setEpoch(this.before); // nobody looked elsewhere: as it was
      this.moment();
    }
    if (running && epoch !== this.epoch) {
      this.epoch = epoch;
      this.store.setEpoch(epoch);
    }
    if (!running) this.epoch = -1;
    this.progress();
  }

  private tile(op: string): SVGGElement | null {
    return this.drawing?.querySelector<SVGGElement>(`.tb-tile[data-tb-op="${CSS.escape(op)}"]`) ?? null;
  }

  private layer(name: string): SVGGElement | null {
    const plane = this.drawing?.querySelector<SVGGElement>('.tb-tiles')?.parentElement as SVGGElement | null | undefined;
    if (!plane) return null;
    plane.querySelector(`:scope > .${name}`)?.remove();
    const made = svg('g', { class: name, 'pointer-events': 'none' });
    plane.append(made);
    return made;
  }

  /** Bands in the tiles: what each op does at the playhead. */
  private moment(): void {
    const { geometry, store, plane } = this;
    const moment: Moment | null = playheadOf(store).moment;
    const layer = this.layer('tb-doing');
    const running = store.frames.get('live')?.meta['running'] === true;
    const here = moment !== null && !running && moment.epoch === store.epoch && geometry !== null && layer !== null;
    plane.classList.toggle('tb-at-moment', here);
    this.drawing?.querySelectorAll<SVGGElement>('.tb-tile').forEach(tile => {
      tile.classList.remove('tb-active');
      delete tile.dataset['tbDoing'];
    });
    if (!here) return;
    const dark = isDark();
    const id = freshId('doing');
    layer.append(patterns(id, dark));
    const paints = kindPaints(dark);
    for (const doing of moment.doing) {
      const tile = this.tile(doing.op);
      if (!tile) continue;
      tile.classList.add('tb-active');
      tile.dataset['tbDoing'] = KINDS[doing.kind]!;
      const [row, col, rows, cols] = doing.cores;
      const [x, y, w, h] = geometry.box({ row, col, rows, cols });
      const top = y + h - BAND - 2;
      layer.append(svg('rect', { x: x + 2, y: top, width: w - 4, height: BAND, rx: 3, fill: `url(#${id}-${doing.kind})`, stroke: paints[doing.kind]!.ink }));
      if (w > 40 && doing.input >= 0) layer.append(svg('text', { x: x + w / 2, y: top + BAND - 3, 'text-anchor': 'middle' }, `input ${doing.input}`));
    }
  }

  /** Queues that hold something, the fullest first. */
  private levels(frame: Frame | undefined): void {
    const known = this.store.frames.get('queues');
    this.queues.hidden = !known || frame?.meta['running'] !== true;
    if (!known || !frame || this.queues.hidden) return;
    const [names, entries, level] = [known.text('queue_name'), known.column('queue_entries'), frame.column('level')];
    const held = names.map((name, i) => ({ name, level: level[i] ?? 0, entries: entries[i]! })).filter(q => q.level > 0)
      .sort((a, b) => b.level / b.entries - a.level / a.entries).slice(0, QUEUES);
    this.queues.replaceChildren(h('b', {}, 'Queues'), ...held.map(q =>
      h('span', { class: 'tb-queue-level', 'data-tb-queue': q.name, title: `${q.name}: ${q.level} of ${q.entries} entries` },
        h('span', {}, elide(shortName(q.name), 18)), h('i', {}, h('b', { style: `width:${(100 * q.level) / q.entries}%` })), `${q.level}/${q.entries}`)),
      held.length ? '' : h('span', {}, 'all empty'));
  }

  /** Progress of the run as a fill of each tile; the op at work has a frame. */
  private progress(): void {
    const { ops, geometry, store } = this;
    const frame: Frame | undefined = store.frames.get('live');
    const layer = this.layer('tb-progress-layer');
    this.drawing?.querySelectorAll('.tb-now').forEach(tile => tile.classList.remove('tb-now'));
    this.plane.toggleAttribute('data-tb-running', frame?.meta['running'] === true);
    this.levels(frame);
    if (!ops || !geometry || !layer || frame?.meta['running'] !== true) return;
    const done = frame.column('done');
    const total = Math.max(1, Number(frame.meta['total']));
    const checks = store.frames.get('checks');
    const bad = new Set(checks ? new Checks(checks).failures : []);
    for (const op of ops.byEpoch[store.epoch] ?? []) {
      const tile = this.tile(ops.name[op]!);
      const share = Math.min(1, (done[op] ?? 0) / total);
      tile?.setAttribute('data-tb-done', String(Math.round(100 * share)));
      if (ops.name[op] === frame.meta['op']) tile?.classList.add('tb-now');
      if (!share || !ops.get('rows', op) || bad.has(ops.name[op]!)) continue; // what differs from torch is red
      const at = { row: ops.get('row', op), col: ops.get('col', op), rows: ops.get('rows', op), cols: ops.get('cols', op) };
      const [x, y, w, h] = geometry.box(at);
      layer.append(svg('rect', { class: 'tb-done-share', x, y, width: w * share, height: h, rx: 4 }),
        svg('rect', { class: 'tb-done-bar', x, y: y + h - 4, width: w * share, height: 4, rx: 2 }));
    }
    for (const name of (frame.meta['stalled'] as string[] | undefined) ?? []) {
      const op = ops.indexOf.get(name);
      if (op === undefined || ops.epochOf(op) !== store.epoch) continue;
      const [x, y] = geometry.box({ row: ops.get('row', op), col: ops.get('col', op), rows: 1, cols: 1 });
      layer.append(svg('text', { class: 'tb-live-stall', x: x + 5, y: y + 13 }, '⚠'));
    }
  }

  /** Badges: the correlation of each op with torch. */
  private checks(): void {
    const { ops, geometry, store } = this;
    const layer = this.layer('tb-checks');
    const frame = store.frames.get('checks');
    if (!ops || !geometry || !layer || !frame) return;
    const checks = new Checks(frame);
    this.drawing?.querySelectorAll('.tb-failed').forEach(tile => tile.classList.remove('tb-failed'));
    for (const op of ops.byEpoch[store.epoch] ?? []) {
      const check = checks.of(ops.name[op]!);
      if (!check || !ops.get('rows', op)) continue;
      const at = { row: ops.get('row', op), col: ops.get('col', op), rows: ops.get('rows', op), cols: ops.get('cols', op) };
      const [x, y, w] = geometry.box(at);
      const first = check.op === checks.first;
      const look = `tb-check tb-check-${check.good ? 'good' : 'bad'}${first ? ' tb-check-first' : ''}`;
      const tile = this.tile(check.op);
      tile?.setAttribute('data-tb-pcc', check.pcc.toFixed(5));
      tile?.classList.toggle('tb-failed', !check.good);
      layer.append(svg('g', { class: look, transform: `translate(${x + w - 9} ${y + 9})` },
        svg('circle', { r: first ? 8 : 6 }), svg('text', { y: 3.5 }, check.good ? '✓' : '✕')));
    }
  }
}
