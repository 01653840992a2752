/** What the stages had to say, errors first; a place that names an op selects it. */
import { h } from './dom.js';
import { Lost } from './lost.js';
import type { Store } from './store.js';

const GLYPH: Record<string, string> = { error: '✕', warning: '!', note: 'i' };

export class ProblemsView {
  readonly element = h('section', { class: 'tb-view tb-problems', 'data-tb-view': 'problems', 'aria-label': 'Problems' });
  private readonly stops: (() => void)[] = [];
  private readonly lost: Lost;

  constructor(private readonly store: Store, private readonly counted: (count: number) => void = () => undefined) {
    this.lost = new Lost(store, () => this.render());
    this.stops.push(() => this.lost.dispose(), store.on('frame', key => {
      if (key === 'problems') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('problems');
    const gone = this.lost.names;
    const count = (frame ? frame.column('severity').length : 0) + (gone.length ? 1 : 0);
    this.counted(count);
    if (!count) {
      this.element.replaceChildren(h('div', { class: 'tb-empty' }, 'Nothing to report.'));
      return;
    }
    const [severity, where, rule, message, fix] = ['severity', 'where', 'rule', 'message', 'fix'].map(c => frame?.text(c) ?? []);
    const vanished = gone.length
      ? [h('li', { class: 'tb-problem tb-note', 'data-tb-vanished': gone.join(' ') },
          h('span', { class: 'tb-glyph', 'aria-label': 'note', role: 'img' }, 'i'),
          h('div', {}, `Selected before, and gone since the last compile: ${gone.join(', ')}.`))]
      : [];
    this.element.replaceChildren(h('ul', {}, ...vanished, ...severity!.map((level, i) =>
      h('li', { class: `tb-problem tb-${level}` },
        h('span', { class: 'tb-glyph', 'aria-label': level, role: 'img' }, GLYPH[level] ?? '·'),
        h('div', {},
          h('div', {},
            where![i] ? h('button', {
              type: 'button', class: 'tb-link', 'data-tb-action': 'select-problem',
              onclick: () => this.store.select([where![i]!], 'problems')
            }, where![i]) : '', ' ', message![i], h('code', {}, rule![i])),
          fix![i] ? h('div', { class: 'tb-fix' }, fix![i]) : '')))));
  }
}
