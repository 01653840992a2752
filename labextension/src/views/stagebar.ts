/**
 * The line on top of the workbench: the stages of a compile and run with their controls, and the few numbers that
 * say how good a placement is.
 */
import { closesAlone, withThousands, h, listBehind, percent, seconds, short } from './dom.js';
import { shortName } from './names.js';
import type { Store } from './store.js';
import { Checks } from './trace/checks.js';
import { DeferredWork } from './drawtimes.js';
import { Ops } from './ops.js';
import { clockText, FORMULAS, inMicroseconds, longTime, shortTime, totalParts } from './numbers.js';
import { onPreferences } from './preferences.js';

const GLYPH = { pending: '○', running: '◐', done: '●', failed: '✕', cancelled: '◌' } as const;
/** By stage, once it is done, and by how another ended. */
const DONE: Record<string, string> = { Run: 'Run complete', Verify: 'Verified', cancelled: 'Cancelled', failed: 'Wrong' };

/** The stages of a compile and run, with progress, time, and ways to stop, pause and step. */
export class StageBar {
  readonly element: HTMLElement;
  private readonly list = h('ol', { 'aria-label': 'Stages' });
  /** The stages in a word, once they are done: it opens their list. */
  private readonly summary = h('button', {
    class: 'tb-stage-summary', 'data-tb-action': 'stages', title: 'Show the stages and their times',
    onclick: () => this.open(!this.opened)
  });
  private readonly box: HTMLElement;
  private opened = false;
  private menuOpen = false;
  private readonly message = h('span', { class: 'tb-message', 'aria-live': 'polite' });
  private readonly device = h('span', { class: 'tb-device' });
  private readonly buttons = h('span', { class: 'tb-run-buttons', role: 'group', 'aria-label': 'Run' });
  private readonly fill = h('i', {});
  private readonly progress = h('div', {
    class: 'tb-progress', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-label': 'Progress'
  }, this.fill);
  private readonly stops: (() => void)[] = [];
  private shown = '';
  /** When the status came that is shown: what a stage takes goes on from there. */
  private heard = performance.now();
  private readonly ticking = setInterval(() => this.tick(), 1000);

  /** @param middle what stands between the stages and the buttons where the page has one line for all; something else
   *  says there why the work failed. */
  constructor(private readonly store: Store, private readonly middle: HTMLElement | null = null) {
    this.box = h('div', { class: 'tb-stage-box' }, middle ? this.summary : '', this.list);
    this.element = h('div', { class: 'tb-stages', 'data-tb-view': 'stages' }, this.box, middle ?? '',
      h('div', { class: 'tb-run-line' }, this.message, this.device, this.buttons), this.progress);
    closesAlone(this.box, this.summary, () => this.opened, () => this.open(false));
    this.stops.push(store.on('status', () => {
      this.heard = performance.now();
      this.render();
    }), store.on('frame', key => {
      if (key === 'summary' || key === 'live' || key === 'ops' || key === 'checks' || key === 'training') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    clearInterval(this.ticking);
  }

  /** How long the stage at work has taken so far, once that is over a second. */
  private tick(): void {
    const running = this.store.status.stages.find(stage => stage.state === 'running');
    if (!running) return;
    const so = (running.elapsed ?? 0) + (performance.now() - this.heard) / 1000;
    for (const mark of this.element.querySelectorAll<HTMLElement>('[data-tb-elapsed]')) {
      mark.textContent = so >= 1 ? `${Math.floor(so)} s` : '';
      mark.dataset['tbElapsed'] = so.toFixed(1);
    }
  }

  private render(): void {
    const { status, frames } = this.store;
    const device = frames.get('summary')?.meta['device'];
    const live = frames.get('live')?.meta;
    const training = frames.get('training')?.meta;
    const trains = status.running && training?.['running'] === true;
    const at = trains ? training : live;
    const [going, paused] = [status.running && at?.['running'] === true, status.running && at?.['paused'] === true];
    const share = status.total > 0 ? Math.min(1, status.done / status.total) : 0;
    this.element.dataset['tbState'] = status.failed ? 'failed' : paused ? 'paused' : status.running ? 'running' : 'idle';
    this.list.replaceChildren(...status.stages.map(stage =>
      h('li', { class: `tb-step tb-${stage.state}`, 'data-tb-step': stage.name, 'data-tb-state': stage.state, title: stage.detail },
        h('span', { class: 'tb-dot', 'aria-label': stage.state, role: 'img' }, GLYPH[stage.state]), stage.name,
        stage.state === 'running' ? h('small', { 'data-tb-elapsed': '' }) : stage.seconds === null ? '' : h('small', {}, seconds(stage.seconds)))));
    this.fold();
    const place = live && going ? `input ${Number(live['input']) + 1} of ${String(live['total'])}, epoch ${String(live['epoch'])}` : '';
    const op = live?.['op'] ? `, ${shortName(live['op'] as string)} done` : '';
    const checks = frames.get('checks');
    const failed = paused && checks ? new Checks(checks) : null;
    const text = trains ? status.message : paused ? `Paused: ${place}${op}` : going ? `Running ${place}${op}` : status.failed && this.middle ? '' : status.message;
    if (!failed?.first) this.message.textContent = text;
    else if (this.message.dataset['tbFailed'] !== failed.first) {
      this.message.replaceChildren(`${text}. `, h('button', {
        class: 'tb-link', 'data-tb-action': 'first-failure', title: `compare ${failed.first} with torch, tile by tile`,
        onclick: () => this.store.select([failed.first], 'run')
      }, `${shortName(failed.first)} differs from torch: PCC ${failed.of(failed.first)!.pcc.toFixed(4)}`));
    }
    if (failed?.first) this.message.dataset['tbFailed'] = failed.first;
    else delete this.message.dataset['tbFailed'];
    this.device.textContent = (device as string | undefined) ?? '';
    this.progress.setAttribute('aria-valuenow', String(Math.round(100 * share)));
    this.progress.hidden = !status.running;
    this.fill.style.width = `${100 * share}%`;
    this.offer(going, paused, trains);
    this.tick();
  }

  /** Once there is a placement, the stages are one word; their list opens below it. */
  private fold(): void {
    const { status, frames } = this.store;
    const folds = this.middle !== null && frames.has('ops') && !status.failed;
    this.element.classList.toggle('tb-folded', folds);
    this.summary.hidden = !folds;
    this.list.hidden = folds && !this.opened;
    const done = status.stages.filter(stage => stage.state === 'done');
    const now = status.stages.find(stage => stage.state === 'running');
    const spent = done.reduce((n, stage) => n + (stage.seconds ?? 0), 0);
    const shown = now ?? status.stages.find(stage => DONE[stage.state]) ?? done.at(-1);
    const state = shown?.state ?? 'pending';
    const words = now?.name ?? DONE[state] ?? DONE[shown?.name ?? ''] ?? (!shown ? 'Not compiled' : status.running ? shown.name : 'Compiled');
    this.summary.className = `tb-stage-summary tb-step tb-${state}`;
    this.summary.setAttribute('aria-expanded', String(this.opened));
    this.summary.replaceChildren(h('span', { class: 'tb-dot', 'aria-hidden': 'true' }, GLYPH[state]), words,
      now ? h('small', { 'data-tb-elapsed': '' }) : spent ? h('small', { title: 'all stages' }, seconds(spent)) : '', h('i', { class: 'tb-caret', 'aria-hidden': 'true' }, '▾'));
  }

  private open(on: boolean): void {
    this.opened = on;
    this.fold();
  }

  /** The buttons stay the same elements while what they offer does: a press is not lost to a report. */
  private offer(going: boolean, paused: boolean, trains: boolean): void {
    const { host, status, frames } = this.store;
    const placed = frames.has('ops');
    const { breaks } = this.store;
    const state = [host.live, status.running, status.cancellable, going, paused, trains, placed, breaks, ...Object.keys(this.store.off)].join();
    if (state === this.shown) return;
    this.shown = state;
    const button = (action: string, text: string, title: string, message: Record<string, unknown>, disabled = false) => {
      const why = this.store.off[String(message['type'])];
      return h('button', {
        class: `tb-button${action === 'cancel' ? ' tb-cancel' : ''}`, 'data-tb-action': action, title: why ?? title, disabled: disabled || why !== undefined,
        onclick: () => host.send(message)
      }, text);
    };
    const brake = h('button', {
      class: 'tb-button', 'data-tb-action': 'run-break', 'aria-pressed': String(breaks), disabled: 'break_on_failure' in this.store.off,
      title: this.store.off['break_on_failure'] ?? 'Compare every op with torch as it runs, and pause after the first that differs',
      onclick: () => host.send({ type: 'break_on_failure', on: !breaks })
    }, 'Break on failure');
    const steps = () => trains ? [button('run-step-input', 'Step', 'Train one step and pause', { type: 'step', of: 'input' })] : [
      button('run-step-op', 'Step op', 'Run the next op and pause', { type: 'step', of: 'op' }),
      button('run-step-input', 'Step input', 'Run to the end of this input and pause', { type: 'step', of: 'input' }),
      button('run-step-epoch', 'Step epoch', 'Run to the end of this epoch and pause', { type: 'step', of: 'epoch' })];
    const made: HTMLElement[] = [];
    if (status.running) this.menuOpen = false;
    if (host.live && status.running) {
      if (paused) made.push(button('run-pause', 'Resume', 'Continue without pausing', { type: 'resume' }), ...steps());
      else if (going) made.push(button('run-pause', 'Pause', trains ? 'Pause before the next training step' : 'Pause before the next op', { type: 'pause' }));
      made.push(button('cancel', status.cancellable ? 'Cancel' : 'Cancelling …', 'Stop at the next safe point', { type: 'cancel' }, !status.cancellable));
    } else if (host.live) {
      if (placed) made.push(this.more(brake, ...steps(), button('check-ops', 'Check ops', 'Compare the tensor of every op with torch', { type: 'check_ops' }),
        button('find-error', 'Find error', 'Search the op that is wrong, stage by stage; where all are right, say which format costs most', { type: 'find_error' })));
      made.push(button('run', 'Run', 'Compile and run again', { type: 'start' }));
    }
    this.buttons.replaceChildren(...made);
  }

  /** Buttons that are not for every day, behind one. */
  private more(...buttons: HTMLElement[]): HTMLElement {
    const list = h('span', { class: 'tb-run-more', role: 'group', 'aria-label': 'Run step by step', hidden: !this.menuOpen }, ...buttons);
    const opener = h('button', {
      class: 'tb-button', 'data-tb-action': 'run-more', title: 'Step through a run, check ops against torch'
    }, 'Debug ▾');
    const [box, show] = listBehind(opener, list, open => (this.menuOpen = open));
    for (const button of buttons) if (!button.hasAttribute('aria-pressed')) button.addEventListener('click', () => show(false));
    return box;
  }
}

/** The few numbers that say how good a placement is. */
export class Metrics {
  readonly element = h('div', { class: 'tb-metrics', 'data-tb-view': 'metrics' });
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    const later = new DeferredWork(() => this.render());
    this.stops.push(() => later.dispose(), store.on('frame', key => {
      if (key !== 'ops' && key !== 'summary') return;
      if (this.element.hidden) this.render(); // the first numbers
      else later.soon();
    }), onPreferences(() => this.render()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('ops');
    const summary = this.store.frames.get('summary')?.meta ?? {};
    const made: HTMLElement[] = [];
    const add = (id: string, value: string, label: string, title: string, state = '') =>
      made.push(h('div', { class: `tb-metric ${state}`, title, 'data-tb-metric': id }, h('b', {}, value), h('span', {}, label)));
    if (frame) {
      const ops = Ops.of(frame);
      const mean = ops.epochTimes.reduce((n, c, e) => n + c * ops.busy(e), 0) / Math.max(1, ops.epochTimes.reduce((n, c) => n + c, 0));
      add('ops', withThousands(ops.count), ops.count === 1 ? 'op' : 'ops', FORMULAS.ops);
      add('epochs', String(ops.epochs), ops.epochs === 1 ? 'epoch' : 'epochs', FORMULAS.epochs);
      const { total } = ops;
      const unit = inMicroseconds() ? `/ input at ${clockText(ops.clock)}` : 'cycles / input';
      const counts = ops.kernelsOnly ? 'kernels only' : `batch of ${ops.batch}${ops.updates ? ', one update' : ''}`;
      add('cycles', shortTime(total, ops.clock), `${unit}, ${counts}`,
        `${longTime(total, ops.clock)} per input. ${ops.kernelsOnly ? FORMULAS.kernels : `${totalParts(ops)} ${FORMULAS.batch}`}`);
      if (total > 0) add('rate', short(ops.clock / total), 'inputs / s', `At ${clockText(ops.clock)}. ${FORMULAS.rate}`);
      add('busy', percent(mean), 'busy', FORMULAS.busy);
    }
    const pcc = summary['pcc'];
    if (typeof pcc === 'number') {
      const wanted = Number(summary['pcc_wanted'] ?? 0.99);
      add('pcc', pcc.toFixed(pcc > 0.9999 ? 6 : 5), 'PCC', `The bar is ${wanted}. ${FORMULAS.pcc}`, pcc >= wanted ? 'tb-good' : 'tb-bad');
    }
    this.element.replaceChildren(...made);
    this.element.hidden = made.length === 0;
  }
}
