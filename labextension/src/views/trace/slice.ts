/** What the ops did between the two cursors: a table below the timeline. Its rows select ops in all views. */
import { grouped, h, percent, short } from '../dom.js';
import type { Frame } from '../frame.js';
import { shortName } from '../grid/draw.js';
import type { Store } from '../store.js';

const SHOWN = 40;
const KINDS = ['compute', 'input', 'space', 'dram'] as const;
const TITLES = ['Works', 'Waits for input', 'Waits for space', 'Waits for DRAM'];

export function sliceTable(store: Store, frame: Frame, words: (cycles: number) => string): HTMLElement {
  const [start, end] = [Number(frame.meta['start']), Number(frame.meta['end'])];
  const names = frame.text('op');
  const [epoch, inputs] = [frame.column('epoch'), frame.column('inputs')];
  const kinds = KINDS.map(kind => frame.column(kind));
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
