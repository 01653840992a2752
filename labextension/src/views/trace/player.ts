/** The playhead of the timeline: where it stands, what the grid shows for it, and how it plays. */
import { due } from '../drawtimes.js';
import { fromTiles } from './tiles.js';
import { type Moment, momentOf, type Playhead, playheadOf } from './shared.js';
import type { TraceRequests } from './tracerequests.js';
import type { TraceElements, TraceState } from './state.js';

type PlayerView = Pick<TraceState, 'store' | 'model' | 'tiles' | 'time' | 'moved' | 'repaint'> & Pick<TraceElements, 'element'>;

const PLAY = 12; // seconds in which a window goes by

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
      view.moved();
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
