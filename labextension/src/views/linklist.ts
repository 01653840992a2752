/** The busiest links of what the grid shows, and who uses them; of the selected ops, where some are selected. */
import { h, percent, short } from './dom.js';
import { FORMULAS } from './numbers.js';
import { linkName, usersOf } from './grid/links.js';
import { shortName } from './grid/draw.js';
import type { Store } from './store.js';

const LISTED = 8;
const WHO = { '0': 'all over NoC 0', '1': 'all over NoC 1', both: 'each over its shorter NoC' };

/** Nothing where no links are shown. */
export function linkList(store: Store): HTMLElement[] {
  const frame = store.frames.get('links');
  if (!frame) return [];
  const chosen = new Set(store.selection.names);
  const loads = frame.column('link_load');
  const count = loads.length;
  const all = Array.from({ length: count }, (_, k) => k);
  const mine = chosen.size ? all.filter(k => usersOf(frame, k).some(([from, to]) => chosen.has(from) || chosen.has(to))) : all;
  const left = Number(frame.meta['left_out']);
  const said = [WHO[frame.meta['noc'] as keyof typeof WHO], left ? `${short(left)}B per input to and from the host and other chips use no NoC link` : ''].filter(Boolean).join('; ');
  return [
    h('h4', { title: FORMULAS.links }, `Busiest links${chosen.size ? ' of the selection' : ''}, epoch ${String(frame.meta['epoch'])} (estimated)`),
    h('p', { class: 'tb-fix' }, `${said}.`),
    mine.length
      ? h('ol', { class: 'tb-linklist', 'data-tb-links': mine.length }, ...mine.slice(0, LISTED).map(k => {
          const users = usersOf(frame, k);
          const more = frame.column('link_flows')[k]! - users.length;
          return h('li', { 'data-tb-noc-link': linkName(frame, k) },
            h('b', {}, linkName(frame, k)), h('span', { class: loads[k]! >= 1 ? 'tb-over' : '' }, `${loads[k]! >= 1 ? '▲ ' : ''}${percent(loads[k]!)}`),
            h('span', { class: 'tb-linkusers' }, ...users.map(([from, to, bytes]) => h('button', {
              type: 'button', class: 'tb-chip', 'data-tb-action': 'link-user', title: `${from} → ${to}: ${short(bytes)}B per input over this link`,
              onclick: () => store.select([from, to], 'inspector')
            }, `${shortName(from)} → ${shortName(to)} ${short(bytes)}`)), more > 0 ? ` and ${more} more` : ''));
        }))
      : h('p', {}, 'No traffic of the selection uses the NoC.')
  ];
}
