/** Why there is no result: what failed, where, and what would work. Stands above the views while the last work failed. */
import { h } from './dom.js';
import type { Store } from './store.js';

const MOST = 4;

export class Failure {
  readonly element = h('section', { class: 'tb-failure', 'data-tb-view': 'failure', role: 'alert', hidden: true });
  private readonly stops: (() => void)[] = [];

  /** @param all shows all problems. */
  constructor(private readonly store: Store, private readonly all: () => void) {
    this.stops.push(store.on('status', () => this.render()), store.on('frame', key => {
      if (key === 'problems') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const { status, frames } = this.store;
    this.element.hidden = !status.failed;
    if (!status.failed) {
      this.element.replaceChildren(); // a later failure is announced anew
      return;
    }
    const stage = status.stages.find(s => s.state === 'failed')?.name;
    const frame = frames.get('problems');
    const [severity, where, message, fix] = ['severity', 'where', 'message', 'fix'].map(c => frame?.text(c) ?? []);
    const errors = severity!.map((level, i) => (level === 'error' ? i : -1)).filter(i => i >= 0);
    const placed = frames.has('ops') && !['Run', 'Verify'].includes(stage ?? ''); // else it is the placement that failed
    const more = errors.length - MOST;
    this.element.replaceChildren(
      h('h4', {}, stage ? `${stage} failed` : 'Failed', placed ? h('small', {}, ' The views show the last placement that worked.') : ''),
      errors.length
        ? h('ul', {}, ...errors.slice(0, MOST).map(i => h('li', {},
            h('div', {}, where![i] && where![i] !== 'model' ? h('b', {}, `${where![i]}: `) : '', message![i]),
            fix![i] ? h('div', { class: 'tb-fix' }, h('span', { 'aria-hidden': 'true' }, '→ '), fix![i]) : '')))
        : h('p', {}, status.message),
      more > 0 ? h('button', { type: 'button', class: 'tb-link', 'data-tb-action': 'all-problems', onclick: this.all }, `and ${more} more`) : '');
  }
}
