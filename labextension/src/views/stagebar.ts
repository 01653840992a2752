/** The stages of a compile and run, with progress, time, and a way to stop. */
import { h, seconds } from './dom.js';
import type { Store } from './store.js';

const GLYPH = { pending: '○', running: '◐', done: '●', failed: '✕', cancelled: '◌' } as const;

export class StageBar {
  readonly element = h('div', { class: 'tb-stages', 'data-tb-view': 'stages' });
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.stops.push(store.on('status', () => this.render()), store.on('frame', key => {
      if (key === 'summary') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const { status, host } = this.store;
    const device = this.store.frames.get('summary')?.meta['device'];
    const share = status.total > 0 ? Math.min(1, status.done / status.total) : 0;
    this.element.dataset['tbState'] = status.failed ? 'failed' : status.running ? 'running' : 'idle';
    this.element.replaceChildren(
      h('ol', { 'aria-label': 'Stages' }, ...status.stages.map(stage =>
        h('li', { class: `tb-step tb-${stage.state}`, 'data-tb-step': stage.name, 'data-tb-state': stage.state, title: stage.detail },
          h('span', { class: 'tb-dot', 'aria-label': stage.state, role: 'img' }, GLYPH[stage.state]), stage.name,
          stage.seconds === null ? '' : h('small', {}, seconds(stage.seconds))))),
      h('span', { class: 'tb-message', 'aria-live': 'polite' }, status.message),
      typeof device === 'string' ? h('span', { class: 'tb-device' }, device) : '',
      host.live
        ? status.running
          ? h('button', {
              type: 'button', class: 'tb-button tb-cancel', 'data-tb-action': 'cancel', disabled: !status.cancellable,
              onclick: () => host.send({ type: 'cancel' })
            }, 'Cancel')
          : h('button', {
              type: 'button', class: 'tb-button', 'data-tb-action': 'run', title: 'Compile and run again',
              onclick: () => host.send({ type: 'start' })
            }, 'Run')
        : '',
      h('div', { class: 'tb-progress', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-label': 'Progress',
        'aria-valuenow': Math.round(100 * share), hidden: !status.running },
      h('i', { style: `width:${100 * share}%` })));
  }
}
