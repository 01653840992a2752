/** What is said about one op, for the hover card and the inspector alike. */
import { bytes, counted, grouped, h, percent, short } from './dom.js';
import { type Formula, FORMULAS } from './formulas.js';
import { slowText } from './grid/legal.js';
import type { NetlistText } from './netlist.js';
import type { Ops } from './ops.js';

/** What the netlist entry does not say: place in time and space, cost. */
export function essentials(ops: Ops, op: number): [string, string][] {
  const wanted = new Set(['epoch', 'place', 'kernel', 'kernel or transfer', 'bound by', 'L1', 'candidates']);
  return numbers(ops, op).filter(([term]) => wanted.has(term));
}

export function numbers(ops: Ops, op: number): [string, string][] {
  const epoch = ops.epochOf(op);
  const t = ops.get('t', op);
  const list: [string, string][] = [
    ['epoch', `${epoch}, chip ${ops.get('chip', op)}`],
    ['place', `${ops.where(op)}${ops.get('transposed', op) ? ', transposed' : ''}`],
    ['grid', `${ops.get('rows', op)} × ${ops.get('cols', op)}, ${counted(ops.get('cores', op), 'core')}`],
    ['kernel', `${grouped(ops.get('cycles', op))} cycles / input`],
    ...withData(ops, op),
    ['mblock', `${ops.get('mblock_m', op)} × ${ops.get('mblock_n', op)}`],
    ['ublock', `${ops.get('ublock_r', op)} × ${ops.get('ublock_c', op)}`],
    ['t', `${t}${ops.stream[op] ? `, streams ${ops.stream[op]}` : ''}`]
  ];
  if (ops.get('m_k', op) > 0) list.push(['m_k / u_kt', `${ops.get('m_k', op)} / ${ops.get('u_kt', op)}`]);
  list.push(['L1', `${bytes(ops.get('l1_total', op))}, ${percent(ops.get('l1_total', op) / ops.l1)}`]);
  list.push(['format', [ops.df[op], ops.fidelity[op]].filter(Boolean).join(', ')]);
  if (ops.get('candidates', op) > 0) list.push(['candidates', `${grouped(ops.get('legal', op))} legal of ${grouped(ops.get('candidates', op))}, fastest ${short(ops.get('fastest', op))} cycles`]);
  return list;
}

/** Where the way of the data takes longer than the kernel: how long, and what it is. A netlist file says nothing of it. */
function withData(ops: Ops, op: number): [string, string][] {
  if (!ops.frame.has('op_limiter_cycles')) return [];
  const [cycles, what] = [ops.get('limiter_cycles', op), ops.frame.text('op_limiter')[op]!];
  if (cycles <= 0) return [];
  const list: [string, string][] = [['kernel or transfer', `${grouped(cycles)} cycles / input, ${percent(ops.load(op))} of the slowest op of its epoch`]];
  if (ops.frame.has('op_bound')) list.push(['bound by', what === 'kernel' ? ops.bound(op) : `${ops.bound(op)}: ${slowText(what)}`]);
  return list;
}

const MEANT: Record<string, Formula> = {
  place: 'place', grid: 'grid', kernel: 'cycles', 'kernel or transfer': 'data', 'bound by': 'bound', mblock: 'mblock', ublock: 'ublock', t: 't', 'm_k / u_kt': 'inner', L1: 'l1',
  format: 'format', candidates: 'candidates', PCC: 'pcc'
};

export function definition(list: [string, string][], name: string): HTMLElement {
  return h('dl', { class: name }, ...list.flatMap(([term, text]) => [
    h('dt', { title: MEANT[term] && FORMULAS[MEANT[term]] }, term), h('dd', {}, text)]));
}

const LONG = 20; // letters beyond which a field takes a line of its own

/** The netlist entry of an op, field by field. */
export function entry(text: NetlistText | null, name: string): HTMLElement | null {
  const fields = text?.fields(name) ?? [];
  if (!fields.length) return null;
  return h('dl', { class: 'tb-entry' }, ...fields.map(([term, value]) =>
    h('div', { class: term.length + value.length > LONG + 8 ? 'tb-long' : '' }, h('dt', {}, term), h('dd', {}, value))));
}
