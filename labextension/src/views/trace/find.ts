/** Search in the timeline: ops by a part of their name, one after the other. */
import { h } from '../dom.js';
import type { TraceView } from './view.js';

export class Find {
  readonly input = h('input', {
    type: 'search', class: 'tb-search', placeholder: 'Find an op', 'aria-label': 'Find an op in the timeline; Enter goes to the next', spellcheck: 'false',
    'data-tb-action': 'trace-find', 'data-lm-suppress-shortcuts': 'true'
  });
  readonly count = h('span', { class: 'tb-found', 'aria-live': 'polite', 'data-tb-metric': 'trace-found' });
  private at = -1;
  private readonly found: number[] = [];

  constructor(private readonly view: TraceView) {
    this.input.addEventListener('input', () => this.search());
    this.input.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.go(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        this.input.value = '';
        this.search();
      }
      event.stopPropagation();
    });
  }

  private search(): void {
    const wanted = this.input.value.trim().toLowerCase();
    this.at = -1;
    const ops = this.view.model?.ops ?? [];
    this.found.splice(0, this.found.length, ...(wanted ? ops.map((_, i) => i).filter(i => ops[i]!.name.toLowerCase().includes(wanted)) : []));
    this.say();
  }

  private go(step: number): void {
    const { model, store } = this.view;
    if (!model || !this.found.length) return;
    this.at = (this.at + step + this.found.length) % this.found.length;
    const op = model.ops[this.found[this.at]!]!;
    store.select([op.name], 'find'); // the timeline follows, as grid and graph do
    const round = model.roundsOf.get(op.epoch)?.[0];
    if (round && (round.end < this.view.time.start || round.start > this.view.time.end)) this.view.show(round.start, round.end);
    this.say();
  }

  private say(): void {
    this.count.textContent = !this.input.value.trim() ? '' : this.at < 0 ? `${this.found.length} ops` : `${this.at + 1} of ${this.found.length}`;
  }
}
