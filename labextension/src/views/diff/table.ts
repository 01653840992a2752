/** The ops and queues that differ, one per row, with absolute and relative columns. */
import { grouped, h } from '../dom.js';
import { type Class, type DiffData, GLYPHS, signed } from './data.js';

const COLUMNS: [string, string, string][] = [
  ['op', 'Op', 'Name of the op'],
  ['what', 'Differs', 'Classes of the difference'],
  ['from', 'Cycles / input before', ''],
  ['to', 'after', ''],
  ['delta', 'Δ', 'Cycles after minus cycles before'],
  ['share', 'Δ %', 'Change as a share of the cycles before'],
  ['before', 'Placed before', 'Grid, first row and column, epoch'],
  ['after', 'after', 'Grid, first row and column, epoch']
];
const SIDES = ['a', 'b'] as const;
const COUNTED = (data: DiffData) => `Cycles per input, ${data.counts}: the time of the model that the op decides`;
const RIGHT = new Set(['from', 'to', 'delta', 'share']);

export interface Sorting {
  by: string;
  down: boolean;
}

/** Ops that differ in one of the wanted classes, in the order asked for. */
export function ranked(data: DiffData, wanted: ReadonlySet<Class>, { by, down }: Sorting): number[] {
  const ops = data.changed.filter(op => data.classes(op).some(c => wanted.has(c)));
  const value = (op: number): number | string => {
    if (by === 'op') return data.names[op]!;
    if (by === 'what') return data.classes(op).join(' ');
    if (by === 'before' || by === 'after') return data.get(by === 'before' ? 'a' : 'b', 'epoch', op);
    if (by === 'from' || by === 'to') return data.cycles(by === 'from' ? 'a' : 'b', op);
    if (by === 'share') return Math.abs(data.ratio(op) ?? Infinity);
    return Math.abs(data.delta(op));
  };
  const keys = new Map(ops.map(op => [op, value(op)]));
  return ops.sort((x, y) => {
    const [a, b] = [keys.get(x)!, keys.get(y)!];
    return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1) || x - y;
  });
}

export function head(data: DiffData, sorting: Sorting, sort: (by: string) => void): HTMLElement {
  return h('tr', {}, ...COLUMNS.map(([id, label, title]) => {
    const active = sorting.by === id;
    return h('th', {
      scope: 'col', title: title || COUNTED(data), class: RIGHT.has(id) ? 'tb-right' : '', 'aria-sort': active ? (sorting.down ? 'descending' : 'ascending') : 'none'
    }, h('button', { type: 'button', 'data-tb-action': `diff-sort-${id}`, onclick: () => sort(id) }, label,
      active ? h('i', { class: 'tb-arrow' }, sorting.down ? '▼' : '▲') : ''));
  }));
}

export function row(data: DiffData, op: number): HTMLElement {
  const kinds = data.classes(op);
  const cycles = (side: 'a' | 'b') => (data.has(side, op) ? grouped(data.cycles(side, op)) : '–');
  const delta = data.delta(op);
  const tone = delta > 0 ? ' tb-worse' : delta < 0 ? ' tb-better' : '';
  const alone = SIDES.filter(side => data.has(side, op)).map(side => grouped(data.get(side, 'limit', op))).join(' → ');
  const number = (text: string, extra = '') => h('td', { class: `tb-right${extra}`, title: `Own kernel or slowest transfer: ${alone} cycles per input` }, text);
  return h('tr', { 'data-tb-op': data.names[op], 'data-tb-change': kinds.join(' ') },
    h('td', { title: data.names[op]! }, data.names[op]),
    h('td', {}, ...kinds.map(k => h('span', { class: `tb-class tb-mini tb-d-${k}`, title: k, role: 'img', 'aria-label': k }, GLYPHS[k]))),
    number(cycles('a')), number(cycles('b')),
    number(change(delta), tone),
    number(signed(data.ratio(op)), tone),
    h('td', {}, data.text('a', op)), h('td', {}, data.text('b', op)));
}

/** What the model takes more or less beyond the rows: with it they add up to the change of the model. */
export function rest(data: DiffData): HTMLElement | string {
  const [of, cycles] = data.rest;
  if (!cycles) return '';
  const tone = cycles > 0 ? ' tb-worse' : ' tb-better';
  return h('tr', { 'data-tb-rest': cycles }, h('td', {}, of), ...['', '', ''].map(() => h('td', {})), h('td', { class: `tb-right${tone}` }, change(cycles)),
    ...['', '', ''].map(() => h('td', {})));
}

function change(delta: number): string {
  const whole = Math.round(delta);
  return whole ? `${whole > 0 ? '+' : '−'}${grouped(Math.abs(whole))}` : '0';
}

/** Queues that are new, gone or elsewhere. */
export function queues(data: DiffData): HTMLElement | null {
  const names = data.frame.text('queue_name');
  if (!names.length) return null;
  const [what, a, b] = ['queue_what', 'queue_a', 'queue_b'].map(c => data.frame.text(c));
  return h('table', { class: 'tb-list tb-diff-queues' },
    h('thead', {}, h('tr', {}, ...['Queue', 'Differs', 'Before', 'After'].map(t => h('th', { scope: 'col', class: 'tb-title' }, t)))),
    h('tbody', {}, ...names.map((name, i) => h('tr', { 'data-tb-queue': name, 'data-tb-change': what![i] },
      h('td', { title: name }, name), h('td', {}, h('span', { class: `tb-class tb-d-${what![i]!}` }, what![i])),
      h('td', {}, a![i] || '–'), h('td', {}, b![i] || '–')))));
}
