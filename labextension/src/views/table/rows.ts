/**
 * Rows and columns of the op table: an op, one of its cores, or the sub-total of an epoch; how a value is read,
 * sorted and written, and which columns are shown.
 */
import { quantity, elide, withThousands, h, percent, short } from '../dom.js';
import { FORMULAS } from '../numbers.js';
import { slowText } from '../grid/legal.js';
import { type OpTimes, us } from '../optimes.js';
import type { Ops } from '../ops.js';
import { preloadText } from '../opcontrols.js';
import { alike, stemOf } from '../names.js';

// The columns of the op table: how a value is read, sorted and written.
interface TableColumn {
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

/** Columns that are there once a measured run is loaded. */
export const MEASURED = new Set(['measured', 'table', 'ratio', 'lost']);

function measured(id: string, label: string, title: string, of: (times: OpTimes) => number): TableColumn {
  const value = (ops: Ops, op: number) => {
    const times = ops.measured?.get(ops.name[op]!);
    const found = times ? of(times) : NaN;
    return Number.isFinite(found) ? found : -1;
  };
  const show = (ops: Ops, op: number) => {
    const found = value(ops, op);
    const guess = (id === 'table' || id === 'ratio') && ops.measured?.get(ops.name[op]!)?.guess ? '~ ' : '';
    return found < 0 ? '' : guess + (id === 'ratio' ? found.toFixed(2) : us(found));
  };
  return { id, label, title, width: 104, text: false, value, show };
}

export const COLUMNS: TableColumn[] = [
  { id: 'name', label: 'Op', title: 'name of the op', width: 310, text: true, value: (o, i) => o.name[i]!, show: (o, i) => elide(o.name[i]!, 40) },
  { id: 'type', label: 'Type', title: 'netlist type', width: 92, text: true, value: (o, i) => o.type[i]!, show: (o, i) => o.type[i]! },
  plain('epoch', 'Epoch', FORMULAS.epochs, 66),
  {
    id: 'cycles', label: 'Kernel', title: FORMULAS.cycles, width: 84, text: false,
    value: (o, i) => o.get('cycles', i), show: (o, i) => (o.get('cycles', i) ? withThousands(o.get('cycles', i)) : '')
  },
  {
    id: 'load', label: 'Load', title: FORMULAS.load, width: 126, text: false,
    value: (o, i) => o.load(i), show: (o, i) => percent(o.load(i))
  },
  {
    id: 'data', label: 'Kernel or transfer', title: FORMULAS.data, width: 196, text: false,
    value: (o, i) => limiter(o, i), show: (o, i) => (limiter(o, i) ? `${withThousands(limiter(o, i))} ${dataText(o, i)}`.trim() : '')
  },
  { id: 'bound', label: 'Bound by', title: FORMULAS.bound, width: 92, text: true, value: boundText, show: boundText },
  {
    id: 'pcc', label: 'PCC', title: `Once ops were checked. ${FORMULAS.pcc}`, width: 106, text: false,
    value: (o, i) => o.checks?.of(o.name[i]!)?.pcc ?? 2, show: (o, i) => pccText(o, i)
  },
  measured('measured', 'Measured µs', 'Time of its kernels in the profile that is loaded', m => m.measured),
  measured('table', 'By table µs', 'What the table of kernels says of ops that run one at a time; ~ is an extrapolation', m => m.table),
  measured('ratio', 'Ratio', 'Measured over the table; ~ where that is an extrapolation', m => m.measured / m.table),
  measured('lost', 'Lost µs', 'Measured beyond the roofline of its cores, DRAM and NoC', m => m.lost),
  { ...pair('grid', 'Grid', FORMULAS.grid, 'rows', 'cols', 60), show: (o, i) => o.shapeText(i).replace(', turned', ' ↷') },
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
    value: (o, i) => o.get('l1_total', i), show: (o, i) => o.l1Text(i, short)
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

// Which columns of the op table are shown: a box for each, in a line that a button opens.
/**
 * [the button, the line, what renews the boxes once other columns are shown]. shown: ids of the columns that are shown,
 * usual: those where none are chosen; choose: takes others, none for the usual ones.
 */
export function chooser(shown: () => string[], usual: () => string[], choose: (ids: string[]) => void): [HTMLElement, HTMLElement, () => void] {
  const place = (id: string) => COLUMNS.findIndex(c => c.id === id);
  const put = (id: string, on: boolean) => {
    const now = shown().filter(other => other !== id);
    const before = now.findIndex(other => place(other) > place(id));
    if (on) now.splice(before < 0 ? now.length : before, 0, id);
    choose(now.join() === usual().join() ? [] : now);
  };
  const fill = () => {
    if (line.hidden) return;
    const now = new Set(shown());
    const at = (document.activeElement as HTMLElement | null)?.dataset['tbAction'];
    line.replaceChildren(...COLUMNS.filter(c => now.has(c.id) || usual().includes(c.id)).map(c => h('label', { class: 'tb-check', title: c.title }, h('input', {
      type: 'checkbox', checked: now.has(c.id), disabled: now.has(c.id) && now.size === 1, 'data-tb-action': `column-${c.id}`,
      onchange: (event: Event) => put(c.id, (event.target as HTMLInputElement).checked)
    }), c.label)));
    if (at?.startsWith('column-')) line.querySelector<HTMLElement>(`[data-tb-action="${at}"]`)?.focus();
  };
  const line = h('div', { class: 'tb-bar', role: 'group', 'aria-label': 'Columns', hidden: true });
  const button = h('button', {
    class: 'tb-button', 'data-tb-action': 'table-columns', 'aria-expanded': 'false', title: 'Choose the columns', onclick: () => {
      line.hidden = !line.hidden;
      button.setAttribute('aria-expanded', String(!line.hidden));
      fill();
    }
  }, 'Columns');
  return [button, line, fill];
}

// The rows of the op table: an op, one of its cores, or the sub-total of an epoch.
export interface Row {
  /** -1 for a sub-total. */
  op: number;
  epoch: number;
  /** Number of the core in its op, row by row; -1 for the whole op. */
  core: number;
  /** Of a row that stands for the same op of several layers: all of them, itself among them. */
  alike?: number[];
  /** It stands for the one of them that is selected. */
  picked?: boolean;
}

/** Ops in their order as rows, those of layers that repeat as one, unless it is among `unfolded` (by the first op's name). */
export function foldedRows(ops: Ops, shown: readonly number[], unfolded: ReadonlySet<string>): Row[] {
  const folds = alike(ops, shown);
  const inside = new Set([...folds.values()].flat());
  const one = (op: number): Row => ({ op, epoch: ops.epochOf(op), core: -1 });
  return shown.flatMap(op => {
    const list = folds.get(op);
    if (list) return unfolded.has(stemOf(ops.name[op]!)) ? [{ ...one(op), alike: list }, ...list.slice(1).map(one)] : [{ ...one(op), alike: list }];
    return inside.has(op) ? [] : [one(op)];
  });
}

/** Ops in the order they are wanted in, as rows: under their epoch, and core by core. */
export function rowsOf(ops: Ops, shown: readonly number[], byEpoch: boolean, perCore: boolean): Row[] {
  const one = (op: number): Row[] => {
    const cores = perCore ? ops.get('rows', op) * ops.get('cols', op) : 0;
    const epoch = ops.epochOf(op);
    return cores ? Array.from({ length: cores }, (_, core) => ({ op, epoch, core })) : [{ op, epoch, core: -1 }];
  };
  if (!byEpoch) return shown.flatMap(one);
  const members = new Map<number, number[]>();
  for (const op of shown) {
    const list = members.get(ops.epochOf(op));
    if (list) list.push(op);
    else members.set(ops.epochOf(op), [op]);
  }
  return [...members.keys()].sort((a, b) => a - b).flatMap(epoch => [{ op: -1, epoch, core: -1 }, ...members.get(epoch)!.flatMap(one)]);
}

/** Row and column of a core of an op. */
export function coreOf(ops: Ops, { op, core }: Row): [number, number] {
  const wide = Math.max(1, ops.get('cols', op));
  return [ops.get('row', op) + Math.floor(core / wide), ops.get('col', op) + (core % wide)];
}

/** The sub-total of an epoch: its slowest op, how long it takes, its cores, how evenly they are at work. */
export function totalRow(ops: Ops, epoch: number, go: (epoch: number) => void): HTMLElement[] {
  const members = ops.byEpoch[epoch] ?? [];
  const slowest = ops.slowestOf(epoch);
  const chips = (ops.frame.meta['chips'] as number[] | undefined)?.length ?? 1;
  const words = [
    ops.phaseOf(epoch), quantity(members.length, 'op'), chips > 1 ? `chip ${ops.ofEpoch('chip', epoch)}` : '',
    ops.epochTimes[epoch] ? `${withThousands(ops.epochTimes[epoch])} cycles / input` : '', ops.boundText(epoch),
    ops.slowestText(epoch), quantity(ops.ofEpoch('cores', epoch), 'core'),
    `${percent(ops.busy(epoch))} busy`
  ].filter(Boolean);
  return [
    h('span', { role: 'gridcell', class: 'tb-cell tb-total-head' }, h('button', {
      class: 'tb-link', tabindex: -1, 'data-tb-action': 'table-epoch', title: 'Show this epoch on the grid', onclick: () => go(epoch)
    }, `Epoch ${epoch}`)),
    h('span', { role: 'gridcell', class: 'tb-cell tb-total-text', title: ops.limitsText(epoch) || (slowest < 0 ? undefined : `slowest kernel: ${ops.name[slowest]!}`) }, words.join(' · '))
  ];
}
