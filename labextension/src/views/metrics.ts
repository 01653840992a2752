/** The few numbers that say how good a placement is. */
import { DeferredWork } from './deferredwork.js';
import { grouped, h, percent, short } from './dom.js';
import { Ops } from './ops.js';
import { FORMULAS } from './formulas.js';
import { onPreferences } from './preferences.js';
import type { Store } from './store.js';
import { clockText, inMicroseconds, longTime, shortTime, totalParts } from './units.js';

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
      add('ops', grouped(ops.count), ops.count === 1 ? 'op' : 'ops', FORMULAS.ops);
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
