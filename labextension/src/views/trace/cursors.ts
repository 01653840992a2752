/**
 * Two cursors with the distance between them, and the playhead: where it stands, what the grid shows for it, how
 * it plays.
 */
import { h } from '../dom.js';
import { due } from '../drawtimes.js';
import { fromTiles, type TraceRequests } from './tiles.js';
import { type Moment, momentOf, type Playhead, playheadOf } from './activity.js';
import type { TraceElements, TraceState } from './state.js';

/** Two cursors and the distance between them. */
export class Cursors {
  readonly element = h('div', { class: 'tb-cursors' });
  private readonly at: number[] = [];
  private moved = -1;

  /** text: how a distance is written. changed: called when somebody put, moved or took away a cursor. */
  constructor(
    private readonly place: { toX: (cycle: number) => number; toCycle: (x: number) => number; width: () => number },
    private readonly text: (cycles: number) => string,
    private readonly changed: () => void = () => undefined
  ) {}

  get all(): readonly number[] {
    return this.at;
  }

  /** A new cursor; a third one takes the place of the nearer. */
  add(cycle: number): void {
    if (this.at.length < 2) this.at.push(cycle);
    else this.at[Math.abs(this.at[0]! - cycle) <= Math.abs(this.at[1]! - cycle) ? 0 : 1] = cycle;
    this.changed();
    this.render();
  }

  clear(): void {
    this.put([]);
    this.changed();
  }

  /** Somebody put these. */
  stand(cycles: readonly number[]): void {
    this.put(cycles);
    this.changed();
  }

  /** These, and no others. */
  put(cycles: readonly number[]): void {
    this.at.splice(0, this.at.length, ...cycles.slice(0, 2));
    this.render();
  }

  render(): void {
    const { toX, width } = this.place;
    const inside = (x: number) => x >= -1 && x <= width() + 1;
    this.element.replaceChildren(...this.at.map((cycle, i) => {
      const x = toX(cycle);
      const made = h('div', {
        class: 'tb-cursor', tabindex: 0, role: 'slider', 'data-tb-cursor': 'ab'[i]!, style: `left:${x}px`, hidden: !inside(x),
        'aria-label': `cursor ${'AB'[i]!}`, 'aria-valuenow': Math.round(cycle), 'aria-valuetext': this.text(cycle)
      }, h('i', {}, 'AB'[i]));
      this.drag(made, i);
      return made;
    }));
    if (this.at.length === 2) {
      const [a, b] = [...this.at].sort((p, q) => p - q) as [number, number];
      const middle = Math.max(70, Math.min(width() - 70, (toX(a) + toX(b)) / 2));
      const [left, right] = [Math.max(0, toX(a)), Math.min(width(), toX(b))];
      if (right > left) this.element.append(h('div', { class: 'tb-between', style: `left:${left}px;width:${right - left}px` }));
      this.element.append(h('output', { class: 'tb-bubble', 'data-tb-difference': Math.round(b - a), style: `left:${middle}px` }, `Δ ${this.text(b - a)}`));
    }
    if (this.moved >= 0) this.element.querySelectorAll<HTMLElement>('.tb-cursor')[this.moved]?.focus();
  }

  private drag(handle: HTMLElement, i: number): void {
    handle.addEventListener('pointerdown', event => {
      if (event.button || event.shiftKey) return;
      event.stopPropagation();
      event.preventDefault();
      const origin = this.element.getBoundingClientRect().left;
      const move = (e: PointerEvent) => {
        this.at[i] = this.place.toCycle(e.clientX - origin);
        this.changed();
        this.render();
      };
      const up = () => {
        window.removeEventListener('pointermove', move);
        window.removeEventListener('pointerup', up);
      };
      window.addEventListener('pointermove', move);
      window.addEventListener('pointerup', up);
    });
    handle.addEventListener('keydown', event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === 'Delete') this.at.splice(i, 1);
      else if (step) this.at[i] = this.place.toCycle(this.place.toX(this.at[i]!) + step * (event.altKey ? 1 : 8));
      else return;
      event.preventDefault();
      event.stopPropagation();
      this.changed();
      this.moved = step ? i : -1;
      this.render();
      this.moved = -1;
    });
  }
}

type PlayerView = Pick<TraceState, 'store' | 'model' | 'tiles' | 'time' | 'onTimeChange' | 'repaint'> & Pick<TraceElements, 'element'>;

const PLAY = 12; // seconds in which a window goes by

/** The playhead of the timeline: where it stands, what the grid shows for it, and how it plays. */
export class Player {
  cycle: number | null = null;
  /** The next step, 0 while it stands. */
  playing = 0;
  private readonly shared: Playhead;
  private readonly leave: () => void;

  /** changed: it began or ended to play. */
  constructor(private readonly view: PlayerView, private readonly asking: TraceRequests, private readonly changed: () => void) {
    this.shared = playheadOf(view.store);
    this.leave = this.shared.drive();
  }

  dispose(): void {
    cancelAnimationFrame(this.playing);
    this.leave();
  }

  /** Puts the playhead on a cycle; the grid shows that moment. travel: bring it into sight. */
  seek(cycle: number, travel: boolean): void {
    const { view } = this;
    const { model, time, store } = view;
    if (!model || !Number.isFinite(cycle)) return;
    this.cycle = Math.max(0, Math.min(model.cycles - 1, cycle));
    if (travel && (this.cycle < time.start || this.cycle > time.end)) {
      time.show(this.cycle - time.width / 2, this.cycle + time.width / 2);
      view.onTimeChange();
    }
    if (store.host.live) this.asking.moment(this.cycle);
    else if (view.tiles) this.tell({ cycle: this.cycle, epoch: model.epochAt(this.cycle, store.epoch), doing: fromTiles(model, view.tiles, this.cycle) });
    view.repaint();
  }

  /** Takes the playhead away; the grid is as before. */
  lift(): void {
    this.cycle = null;
    this.shared.set(null);
    delete this.view.element.dataset['tbCycle'];
    this.view.repaint();
  }

  /** The kernel's answer about a cycle. */
  came(): void {
    const { model, store } = this.view;
    const frame = store.frames.get('moment');
    if (!model || !frame || this.cycle === null || Number(frame.meta['rev']) !== model.rev) return;
    this.tell(momentOf(frame, store.epoch));
  }

  private tell(moment: Moment): void {
    if (moment.epoch !== null) this.view.store.setEpoch(moment.epoch);
    this.shared.set(moment);
    this.view.element.dataset['tbCycle'] = String(Math.round(moment.cycle));
  }

  play(): void {
    const { view } = this;
    if (this.playing) {
      this.stop();
      return;
    }
    let before = performance.now();
    this.cycle ??= view.time.start;
    const step = (now: number) => {
      if (!due(before, now)) {
        this.playing = requestAnimationFrame(step);
        return;
      }
      const next = (this.cycle ?? 0) + ((now - before) / 1000 / PLAY) * view.time.width;
      before = now;
      if (!view.model || next >= view.model.cycles - 1) {
        this.stop();
        return;
      }
      this.seek(next, true);
      this.playing = requestAnimationFrame(step);
    };
    this.playing = requestAnimationFrame(step);
    this.changed();
  }

  private stop(): void {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.changed();
  }
}
