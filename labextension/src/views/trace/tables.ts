/** The tables below the timeline: what ops do between two cursors, and fork-join stalls. */
import { grouped, h, percent, short } from '../dom.js';
import type { Frame } from '../frame.js';
import { shortName } from '../grid/draw.js';
import type { Store } from '../store.js';
import type { Stall } from './model.js';
import { KIND_KEYS } from './paint.js';

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
  }, h('td', { title: name }, h('button', { type: 'button', class: 'tb-link' }, shortName(name))), h('td', { class: 'tb-right' }, String(epoch[i])),
  ...kinds.map(kind => h('td', { class: 'tb-right', title: `${grouped(kind[i]!)} cycles`, 'data-tb-cycles': kind[i]!.toFixed(1) },
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
      h('button', { type: 'button', class: 'tb-link', 'data-tb-action': 'trace-stall', title: stall.fork, onclick: () => show(stall) },
        `${shortName(stall.fork)} → ${shortName(stall.join)}`),
      ` epoch ${stall.epoch}: waits ${grouped(stall.cycles / batch)} cycles per input for space; the short branch (${way(stall.short)}) fills while the long branch (${way(stall.long)}) is slower `,
      store.host.live ? h('button', {
        type: 'button', class: 'tb-button', 'data-tb-action': 'insert-nop',
        title: `A nop between ${stall.source} and ${stall.target} buffers the short branch`,
        onclick: () => store.edit({ do: 'insert-nop', op: stall.source, to: [stall.target] })
      }, 'Insert buffering nop here') : ''));
}
