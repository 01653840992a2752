/** Fork-join stalls in words, each with a way to see it and to repair it. */
import { grouped, h } from '../dom.js';
import { shortName } from '../grid/draw.js';
import type { Store } from '../store.js';
import type { Stall } from './model.js';

export function stallList(store: Store, stalls: readonly Stall[], batch: number, show: (stall: Stall) => void): HTMLElement {
  const list = [...stalls].sort((a, b) => Number(b.critical) - Number(a.critical) || b.cycles - a.cycles).slice(0, 40);
  if (!list.length) return h('div', { class: 'tb-stalls', hidden: true });
  const worst = list.filter(s => s.critical).length;
  return h('details', { class: 'tb-stalls', open: worst > 0 },
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
