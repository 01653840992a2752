/** The columns of the op table: how a value is read, sorted and written. */
import { elide, grouped, percent, short } from '../dom.js';
import type { Ops } from '../ops.js';

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
  { id: 'name', label: 'Op', title: 'name of the op', width: 310, text: true, value: (o, i) => o.name[i]!, show: (o, i) => elide(o.name[i]!, 44) },
  { id: 'type', label: 'Type', title: 'netlist type', width: 92, text: true, value: (o, i) => o.type[i]!, show: (o, i) => o.type[i]! },
  plain('epoch', 'Epoch', 'epoch: ops that are on the grid together', 66),
  {
    id: 'cycles', label: 'Cycles', title: 'cycles per input, one core', width: 84, text: false,
    value: (o, i) => o.get('cycles', i), show: (o, i) => (o.get('cycles', i) ? grouped(o.get('cycles', i)) : '')
  },
  {
    id: 'load', label: 'Load', title: 'cycles over those of the slowest op of the epoch', width: 126, text: false,
    value: (o, i) => o.load(i), show: (o, i) => percent(o.load(i))
  },
  {
    id: 'pcc', label: 'PCC', title: 'correlation of the output with torch, once ops were checked', width: 106, text: false,
    value: (o, i) => o.checks?.of(o.name[i]!)?.pcc ?? 2, show: (o, i) => pccText(o, i)
  },
  pair('grid', 'Grid', 'rows × columns of cores', 'rows', 'cols', 60),
  {
    id: 'at', label: 'At', title: 'row, column of the top left core', width: 50, text: false,
    value: (o, i) => o.get('row', i) * 64 + o.get('col', i), show: (o, i) => `${o.get('row', i)},${o.get('col', i)}`
  },
  plain('t', 't', 'tiles of macro blocks in time', 46),
  pair('mblock', 'mblock', 'macro block: rows × columns of ublocks', 'mblock_m', 'mblock_n', 78),
  pair('ublock', 'ublock', 'micro block: rows × columns of tiles', 'ublock_r', 'ublock_c', 76),
  {
    id: 'inner', label: 'm_k/u_kt', title: 'inner blocks of a matmul: count / tiles each', width: 88, text: false,
    value: (o, i) => o.get('m_k', i) * 1000 + o.get('u_kt', i),
    show: (o, i) => (o.get('m_k', i) ? `${o.get('m_k', i)}/${o.get('u_kt', i)}` : '')
  },
  {
    id: 'l1', label: 'L1', title: 'bytes of L1 per core', width: 108, text: false,
    value: (o, i) => o.get('l1_total', i), show: (o, i) => `${short(o.get('l1_total', i))} ${percent(o.get('l1_total', i) / o.l1)}`
  },
  { id: 'df', label: 'Format', title: 'data format of the output', width: 84, text: true, value: (o, i) => o.df[i]!, show: (o, i) => o.df[i]! },
  { id: 'stream', label: 't-stream', title: 'direction of t-streaming', width: 84, text: true, value: (o, i) => o.stream[i]!, show: (o, i) => o.stream[i]! },
  plain('chip', 'Chip', 'chip', 60)
];

function pccText(ops: Ops, op: number): string {
  const check = ops.checks?.of(ops.name[op]!);
  return check ? `${check.good ? '✓' : '✕'} ${check.pcc.toFixed(5)}` : '';
}
