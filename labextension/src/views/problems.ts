/** What the stages had to say, errors first, and why there is no result while the last work failed. */
import { quantity, h } from './dom.js';
import { LostSelection } from './names.js';
import { type Store, syncedTrait, type SyncedTrait } from './store.js';

const GLYPH: Record<string, string> = { error: '✕', warning: '!', note: 'i' };
const REST = 250; // ms without typing until Python is told

/** What the stages had to say, errors first; a place that names an op selects it. */
export class ProblemsView {
  readonly element = h('section', { class: 'tb-view tb-problems', 'data-tb-view': 'problems', 'aria-label': 'Problems' });
  private readonly list = h('div', { class: 'tb-problem-list' });
  private readonly input = h('input', {
    type: 'search', class: 'tb-search', placeholder: 'Filter problems', 'aria-label': 'Filter problems', spellcheck: 'false',
    'data-tb-action': 'problems-filter', 'data-lm-suppress-shortcuts': 'true'
  });
  private readonly count = h('span', { class: 'tb-found', 'aria-live': 'polite' });
  private readonly bar = h('header', { class: 'tb-bar' }, this.input, this.count);
  private readonly filter: SyncedTrait<string>;
  private readonly stops: (() => void)[] = [];
  private readonly lost: LostSelection;

  constructor(private readonly store: Store, private readonly counted: (count: number) => void = () => undefined) {
    this.element.append(this.bar, this.list);
    this.filter = syncedTrait(store, 'filter', '', text => {
      this.input.value = text;
      this.render();
    }, { rest: REST });
    this.input.value = this.filter.value();
    this.input.addEventListener('input', () => {
      this.filter.tell(this.input.value);
      this.render();
    });
    this.lost = new LostSelection(store, () => this.render());
    this.stops.push(() => this.filter.dispose(), () => this.lost.dispose(), store.on('frame', key => {
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
    this.counted(frame?.text('severity').filter(s => s !== 'note').length ?? 0); // notes are listed, and no problems
    this.bar.hidden = !count;
    if (!count) {
      this.list.replaceChildren(h('div', { class: 'tb-empty' }, 'Nothing to report.'));
      return;
    }
    const columns = ['severity', 'where', 'rule', 'message', 'fix'].map(c => frame?.text(c) ?? []);
    const [severity, where, rule, message, fix] = columns;
    const wanted = this.input.value.trim().toLowerCase();
    const kept = severity!.map((_, i) => i).filter(i => columns.map(c => c[i]).join(' ').toLowerCase().includes(wanted)); // as in `twins.problems_html`
    this.count.textContent = wanted ? `${kept.length} of ${quantity(severity!.length, 'problem')}${severity!.includes('note') ? ' and notes' : ''}` : '';
    const vanished = gone.length
      ? [h('li', { class: 'tb-problem tb-note', 'data-tb-vanished': gone.join(' ') },
          h('span', { class: 'tb-glyph', 'aria-label': 'note', role: 'img' }, 'i'),
          h('div', {}, `No longer in the model after the last compile: ${gone.join(', ')}.`))]
      : [];
    const lines = (of: (severity: string) => boolean) => kept.filter(i => of(severity![i]!)).map(i =>
      h('li', { class: `tb-problem tb-${severity![i]!}` },
        h('span', { class: 'tb-glyph', 'aria-label': severity![i], role: 'img' }, GLYPH[severity![i]!] ?? '·'),
        h('div', {},
          h('div', {},
            where![i] ? h('button', {
              class: 'tb-link', 'data-tb-action': 'select-problem',
              onclick: () => this.store.select([where![i]!], 'problems')
            }, where![i]) : '', ' ', message![i], h('code', {}, rule![i])),
          fix![i] ? h('div', { class: 'tb-fix' }, fix![i]) : '')));
    const problems = lines(s => s !== 'note');
    const notes = [...vanished, ...lines(s => s === 'note')];
    this.list.replaceChildren(
      problems.length ? h('ul', { 'aria-label': 'Problems' }, ...problems) : wanted ? '' : h('div', { class: 'tb-empty' }, 'No problems.'),
      notes.length ? h('h4', { class: 'tb-notes-title' }, 'Notes') : '',
      notes.length ? h('ul', { 'aria-label': 'Notes', 'data-tb-notes': '' }, ...notes) : '');
  }
}

const MOST = 4;

/** Why there is no result: what failed, where, and what would work. Stands above the views while the last work failed. */
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
      more > 0 ? h('button', { class: 'tb-link', 'data-tb-action': 'all-problems', onclick: this.all }, `and ${more} more`) : '');
  }
}
