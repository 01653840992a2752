/** The bar above the timeline and the legend below it. */
import { h, short } from '../dom.js';
import { isDark } from '../theme.js';
import { KINDS, swatch } from './paint.js';
import type { TraceView } from './view.js';

export function dress(view: TraceView): void {
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
  view.bar.replaceChildren(h('h3', {}, 'Timeline'),
    store.host.live ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Inputs' }, ...batches.map(b =>
      choice(`trace-batch-${b}`, `${b} input${b > 1 ? 's' : ''}`, `Simulate a batch of ${b}`, b === batch, () => view.choose(b, view.whole)))) : '',
    store.host.live && batch > 1 ? h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Order' },
      choice('trace-whole', 'Pipelined', 'Each epoch processes all inputs before the next epoch starts', view.whole, () => view.choose(batch, true)),
      choice('trace-rounds', 'As emitted', 'The program runs all epochs once per microbatch', !view.whole, () => view.choose(batch, false))) : '',
    view.find.input, view.find.count, view.facts, h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'View options' },
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
  view.legend.replaceChildren(
    ...KINDS.map((name, kind) => h('span', { class: 'tb-key' }, swatch(kind, isDark()), name)),
    h('span', { class: 'tb-key' }, '⚠ fork-join stall'),
    h('span', { class: 'tb-key' }, 'zoomed out, bars are stacked: work below, waits above, idle empty'));
}
