/** The bar above the timeline with its search, and the legend below it. */
import { h, short } from '../dom.js';
import { isDark } from '../theme.js';
import { KINDS, swatch } from './paint.js';
import type { TraceActions, TraceState } from './state.js';

/** Search: ops by a part of their name, one after the other. */
export class Find {
  readonly input = h('input', {
    type: 'search', class: 'tb-search', placeholder: 'Find an op', 'aria-label': 'Find an op in the timeline; Enter goes to the next', spellcheck: 'false',
    'data-tb-action': 'trace-find', 'data-lm-suppress-shortcuts': 'true'
  });
  readonly count = h('span', { class: 'tb-found', 'aria-live': 'polite', 'data-tb-metric': 'trace-found' });
  private at = -1;
  private readonly matches: number[] = [];

  constructor(private readonly state: Pick<TraceState, 'store' | 'model' | 'time' | 'show'>) {
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
    const ops = this.state.model?.ops ?? [];
    this.matches.splice(0, this.matches.length, ...(wanted ? ops.map((_, i) => i).filter(i => ops[i]!.name.toLowerCase().includes(wanted)) : []));
    this.say();
  }

  private go(step: number): void {
    const { model, store } = this.state;
    if (!model || !this.matches.length) return;
    this.at = (this.at + step + this.matches.length) % this.matches.length;
    const op = model.ops[this.matches[this.at]!]!;
    store.select([op.name], 'find'); // the timeline follows, as grid and graph do
    const round = model.roundsOf.get(op.epoch)?.[0];
    if (round && (round.end < this.state.time.start || round.start > this.state.time.end)) this.state.show(round.start, round.end);
    this.say();
  }

  private say(): void {
    this.count.textContent = !this.input.value.trim() ? '' : this.at < 0 ? `${this.matches.length} ops` : `${this.at + 1} of ${this.matches.length}`;
  }
}

export interface BarParts {
  bar: HTMLElement;
  legend: HTMLElement;
  find: Find;
  /** Cycles and events of the trace. */
  facts: HTMLElement;
}

/** Draws the bar and the legend anew. */
export function dress(parts: BarParts, view: TraceState & TraceActions): void {
  const { store, batch } = view;
  const button = (action: string, text: string, title: string, f: () => void, pressed?: boolean) => h('button', {
    type: 'button', class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f,
    'aria-pressed': pressed === undefined ? undefined : String(pressed)
  }, text);
  const offered = (view.model?.frame.meta['batches'] as number[] | undefined) ?? [1, 8, 64];
  const batches = [...new Set([...offered, batch])].sort((a, b) => a - b);
  const choice = (action: string, text: string, title: string, on: boolean, f: () => void) => h('button', {
    type: 'button', 'data-tb-action': action, title, 'aria-pressed': String(on), onclick: f
  }, text);
  parts.bar.replaceChildren(h('h3', {}, 'Timeline'),
    store.host.live ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Inputs' }, ...batches.map(b =>
      choice(`trace-batch-${b}`, `${b} input${b > 1 ? 's' : ''}`, `Simulate a batch of ${b}`, b === batch, () => view.choose(b, view.whole)))) : '',
    store.host.live && batch > 1 ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Order' },
      choice('trace-whole', 'Pipelined', 'Each epoch processes all inputs before the next epoch starts', view.whole, () => view.choose(batch, true)),
      choice('trace-rounds', 'As emitted', 'The program runs all epochs once per microbatch', !view.whole, () => view.choose(batch, false))) : '',
    parts.find.input, parts.find.count, parts.facts, h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'View options' },
      button('trace-feeders', 'Feeders and readers only', 'Show only the selection, its feeders and its readers (D)', () => view.feeders(), view.shown.only !== null),
      button('trace-unit', view.unit === 'cycles' ? 'cycles' : 'µs',
        `Show ${view.unit === 'cycles' ? `time at the device's clock, ${short(view.model?.clock ?? 0)}Hz` : 'cycles'}`, () => {
          view.unit = view.unit === 'cycles' ? 'time' : 'cycles';
          view.dress();
          view.repaint();
        }),
      button('trace-cursor', '⌶', 'Add a cursor at the playhead (C, or Alt+click). Two cursors, or Shift+drag, show what the ops do between them', () =>
        view.cursors.add(view.player.cycle ?? (view.time.start + view.time.end) / 2)),
      button('trace-play', view.player.playing ? '❚❚' : '▶', view.player.playing ? 'Stop' : 'Play (Space)', () => view.player.play(), view.player.playing !== 0),
      button('trace-out', '−', 'Zoom out', () => view.zoom(1 / 1.6)), button('trace-in', '+', 'Zoom in', () => view.zoom(1.6)),
      button('trace-fit', 'Fit', 'Show the whole timeline (0)', () => view.show(0, view.time.cycles))));
  parts.legend.replaceChildren(
    ...KINDS.map((name, kind) => h('span', { class: 'tb-key' }, swatch(kind, isDark()), name)),
    h('span', { class: 'tb-key' }, '⚠ fork-join stall'),
    h('span', { class: 'tb-key' }, 'zoomed out, bars are stacked: work below, waits above, idle empty'));
}
