/**
 * What stands around the timeline: the bar with its search, the legend, the tables of what ops do between two
 * cursors and of fork-join stalls.
 */
import { withThousands, h, percent, short } from '../dom.js';
import { isDark } from '../theme.js';
import { KIND_KEYS, KINDS, swatch } from './paint.js';
import type { TraceActions, TraceState } from './state.js';
import type { Frame } from '../frame.js';
import { shortName } from '../names.js';
import type { Store } from '../store.js';
import type { Stall } from './model.js';

// The bar above the timeline with its search, and the legend below it.
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

interface BarParts {
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
    class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f,
    'aria-pressed': pressed === undefined ? undefined : String(pressed)
  }, text);
  const offered = (view.model?.frame.meta['batches'] as number[] | undefined) ?? [1, 8, 64];
  const batches = [...new Set([...offered, batch])].sort((a, b) => a - b);
  const choice = (action: string, text: string, title: string, on: boolean, f: () => void) => h('button', {
    'data-tb-action': action, title, 'aria-pressed': String(on), onclick: f
  }, text);
  parts.bar.replaceChildren(h('h3', {}, 'Timeline'),
    store.host.live ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Inputs' }, ...batches.map(b =>
      choice(`trace-batch-${b}`, `${b} input${b > 1 ? 's' : ''}`, `Simulate a batch of ${b}`, b === batch, () => view.choose(b, view.whole)))) : '',
    store.host.live && batch > 1 ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Order' },
      choice('trace-whole', 'Pipelined', 'Each epoch processes all inputs before the next epoch starts', view.whole, () => view.choose(batch, true)),
      choice('trace-rounds', 'As emitted', 'The program runs all epochs once per microbatch', !view.whole, () => view.choose(batch, false))) : '',
    parts.find.input, parts.find.count, parts.facts, h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'View options' },
      button('trace-feeders', 'Feeders and readers only', 'Show only the selection, its feeders and its readers (Q)', () => view.feeders(), view.shown.only !== null),
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

// The tables below the timeline: what ops do between two cursors, and fork-join stalls.
const SHOWN = 40;
const TITLES = ['Works', 'Waits for input', 'Waits for space', 'Waits for DRAM', 'Waits for host'];

/** What the ops did between the two cursors. Its rows select ops in all views. */
export function sliceTable(store: Store, frame: Frame, words: (cycles: number) => string): HTMLElement {
  const [start, end] = [Number(frame.meta['start']), Number(frame.meta['end'])];
  const names = frame.text('op');
  const [epoch, inputs] = [frame.column('epoch'), frame.column('inputs')];
  const kinds = KIND_KEYS.map(kind => frame.column(kind));
  const whole = Math.max(1, end - start);
  const rows = names.slice(0, SHOWN).map((name, i) => h('tr', {
    'data-tb-op': name, class: store.selection.names.includes(name) ? 'tb-selected' : undefined, onclick: () => store.select([name], 'slice')
  }, h('td', { title: name }, h('button', { class: 'tb-link' }, shortName(name))), h('td', { class: 'tb-right' }, String(epoch[i])),
  ...kinds.map(kind => h('td', { class: 'tb-right', title: `${withThousands(kind[i]!)} cycles`, 'data-tb-cycles': kind[i]!.toFixed(1) },
    kind[i]! >= 0.5 ? `${short(kind[i]!)} (${percent(kind[i]! / whole)})` : '')),
  h('td', { class: 'tb-right' }, String(inputs[i]))));
  return h('div', { class: 'tb-slice', 'data-tb-slice': `${start}-${end}` },
    h('p', { class: 'tb-found' }, `Between the cursors: ${words(end - start)}, ${names.length} ops at work`,
      names.length > SHOWN ? `, the ${SHOWN} with most work:` : ''),
    h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...['Op', 'Epoch', ...TITLES, 'Inputs'].map(text => h('th', { scope: 'col' }, h('span', { class: 'tb-cell' }, text))))),
      h('tbody', {}, ...rows)));
}

/** Fork-join stalls in words, each with a way to see it and to repair it. room: whether the list may be open below the
 *  lanes. */
export function stallList(store: Store, stalls: readonly Stall[], batch: number, room: boolean, show: (stall: Stall) => void): HTMLElement {
  const list = [...stalls].sort((a, b) => Number(b.critical) - Number(a.critical) || b.cycles - a.cycles).slice(0, 40);
  if (!list.length) return h('div', { class: 'tb-stalls', hidden: true });
  const worst = list.filter(s => s.critical).length;
  return h('details', { class: 'tb-stalls', open: room && worst > 0 },
    h('summary', { 'data-tb-action': 'trace-stalls' }, `${stalls.length} fork-join stall${stalls.length > 1 ? 's' : ''}`,
      worst ? `, ${worst} of them slow${worst > 1 ? '' : 's'} an epoch down` : ', none slows its epoch down'),
    h('ul', {}, ...list.map(stall => entry(store, stall, batch, show))));
}

function entry(store: Store, stall: Stall, batch: number, show: (stall: Stall) => void): HTMLElement {
  const way = (names: string) => (names ? names.split(' → ').map(shortName).join(' → ') : 'a direct edge');
  return h('li', { class: stall.critical ? 'tb-critical' : '', 'data-tb-stall': stall.fork },
    h('span', { class: 'tb-glyph', role: 'img', 'aria-label': stall.critical ? 'slows the epoch down' : 'harmless' }, stall.critical ? '!' : 'i'),
    h('div', {},
      h('button', { class: 'tb-link', 'data-tb-action': 'trace-stall', title: stall.fork, onclick: () => show(stall) },
        `${shortName(stall.fork)} → ${shortName(stall.join)}`),
      ` epoch ${stall.epoch}: waits ${withThousands(stall.cycles / batch)} cycles per input for space; the short branch (${way(stall.short)}) fills while the long branch (${way(stall.long)}) is slower `,
      store.host.live ? h('button', {
        class: 'tb-button', 'data-tb-action': 'insert-nop',
        title: `A nop between ${stall.source} and ${stall.target} buffers the short branch`,
        onclick: () => store.edit({ do: 'insert-nop', op: stall.source, to: [stall.target] })
      }, 'Insert buffering nop here') : ''));
}
