/** The columns of the op table: how a value is read, sorted and written. */
import { elide, grouped, percent, short } from '../dom.js';
import { FORMULAS } from '../numbers.js';
import { slowText } from '../grid/legal.js';
import type { Ops } from '../ops.js';
import { preloadText } from '../opcontrols.js';

export interface TableColumn {
  id: string;
  label: string;
  title: string;
  width: number;
  text: boolean;
  value: (ops: Ops, op: number) => number | string;
  show: (ops: Ops, op: number) => string;
}

const plain = (id: string, label: string, title: string, width: number): TableColumn => ({
  id, label, title, width, text: false,
  value: (ops, op) => ops.get(id, op),
  show: (ops, op) => String(ops.get(id, op))
});

const pair = (id: string, label: string, title: string, a: string, b: string, width: number): TableColumn => ({
  id, label, title, width, text: false,
  value: (ops, op) => ops.get(a, op) * ops.get(b, op),
  show: (ops, op) => `${ops.get(a, op)}×${ops.get(b, op)}`
});

export const COLUMNS: TableColumn[] = [
  { id: 'name', label: 'Op', title: 'name of the op', width: 310, text: true, value: (o, i) => o.name[i]!, show: (o, i) => elide(o.name[i]!, 40) },
  { id: 'type', label: 'Type', title: 'netlist type', width: 92, text: true, value: (o, i) => o.type[i]!, show: (o, i) => o.type[i]! },
  plain('epoch', 'Epoch', FORMULAS.epochs, 66),
  {
    id: 'cycles', label: 'Kernel', title: FORMULAS.cycles, width: 84, text: false,
    value: (o, i) => o.get('cycles', i), show: (o, i) => (o.get('cycles', i) ? grouped(o.get('cycles', i)) : '')
  },
  {
    id: 'load', label: 'Load', title: FORMULAS.load, width: 126, text: false,
    value: (o, i) => o.load(i), show: (o, i) => percent(o.load(i))
  },
  {
    id: 'data', label: 'Kernel or transfer', title: FORMULAS.data, width: 196, text: false,
    value: (o, i) => limiter(o, i), show: (o, i) => (limiter(o, i) ? `${grouped(limiter(o, i))} ${dataText(o, i)}`.trim() : '')
  },
  { id: 'bound', label: 'Bound by', title: FORMULAS.bound, width: 92, text: true, value: boundText, show: boundText },
  {
    id: 'pcc', label: 'PCC', title: `Once ops were checked. ${FORMULAS.pcc}`, width: 106, text: false,
    value: (o, i) => o.checks?.of(o.name[i]!)?.pcc ?? 2, show: (o, i) => pccText(o, i)
  },
  pair('grid', 'Grid', FORMULAS.grid, 'rows', 'cols', 60),
  {
    id: 'at', label: 'At', title: FORMULAS.place, width: 50, text: false,
    value: (o, i) => o.get('row', i) * 64 + o.get('col', i), show: (o, i) => `${o.get('row', i)},${o.get('col', i)}`
  },
  plain('t', 't', FORMULAS.t, 46),
  pair('mblock', 'mblock', FORMULAS.mblock, 'mblock_m', 'mblock_n', 78),
  pair('ublock', 'ublock', FORMULAS.ublock, 'ublock_r', 'ublock_c', 76),
  {
    id: 'inner', label: 'm_k/u_kt', title: FORMULAS.inner, width: 88, text: false,
    value: (o, i) => o.get('m_k', i) * 1000 + o.get('u_kt', i),
    show: (o, i) => (o.get('m_k', i) ? `${o.get('m_k', i)}/${o.get('u_kt', i)}` : '')
  },
  {
    id: 'l1', label: 'L1', title: FORMULAS.l1, width: 108, text: false,
    value: (o, i) => o.get('l1_total', i), show: (o, i) => `${short(o.get('l1_total', i))} ${percent(o.get('l1_total', i) / o.l1)}`
  },
  { id: 'weights', label: 'Parameters', title: FORMULAS.preload, width: 176, text: true, value: preloadText, show: preloadText },
  { id: 'df', label: 'Format', title: FORMULAS.format, width: 84, text: true, value: (o, i) => o.df[i]!, show: (o, i) => o.df[i]! },
  { id: 'stream', label: 't-stream', title: 'direction of t-streaming', width: 84, text: true, value: (o, i) => o.stream[i]!, show: (o, i) => o.stream[i]! },
  plain('chip', 'Chip', 'chip', 60),
  {
    id: 'override', label: 'Override', title: 'overrides made for the op, or for a pattern that matches it', width: 130, text: true,
    value: (o, i) => o.overridden.get(o.name[i]!)?.join(', ') ?? '', show: (o, i) => elide(o.overridden.get(o.name[i]!)?.join(', ') ?? '', 20)
  }
];

function limiter(ops: Ops, op: number): number {
  return ops.frame.has('op_limiter_cycles') ? ops.get('limiter_cycles', op) : 0;
}

/** What the op itself is bounded by; "" where nobody simulated it. */
function boundText(ops: Ops, op: number): string {
  return ops.frame.has('op_bound') ? ops.bound(op) : '';
}

function dataText(ops: Ops, op: number): string {
  const what = ops.frame.text('op_limiter')[op]!;
  return what === 'kernel' ? '' : slowText(what);
}

function pccText(ops: Ops, op: number): string {
  const check = ops.checks?.of(ops.name[op]!);
  return check ? `${check.good ? '✓' : '✕'} ${check.pcc.toFixed(5)}` : '';
}
