/** The names at the left of the rows in sight, as elements: for keyboards, readers and tests. */
import { elide, grouped, h, percent } from '../dom.js';
import type { Frame } from '../frame.js';
import { shortName } from '../grid/draw.js';
import type { Row, TraceModel } from './model.js';
import { KINDS } from './paint.js';

export interface Marks {
  selected: ReadonlySet<number>;
  related: ReadonlySet<number>;
  stalled: ReadonlySet<string>;
  /** "backward" and the like; "" for a model that is not trained. */
  phase: (epoch: number) => string;
  open: (row: Row) => boolean;
  toggle: (row: Row) => void;
  pick: (op: string, toggle: boolean) => void;
  hover: (op: string) => void;
}

export function label(model: TraceModel, row: Row, fills: Frame | null, marks: Marks): HTMLElement {
  const style = `top:${row.top}px;height:${row.height}px`;
  if (row.kind === 'epoch') {
    const [start, end] = model.span(row.epoch);
    return h('div', { class: 'tb-trace-label tb-trace-epoch', style, 'data-tb-epoch': row.epoch }, caret(row, marks, `epoch ${row.epoch}`),
      h('b', {}, `Epoch ${row.epoch}${marks.phase(row.epoch) && `, ${marks.phase(row.epoch)}`}`), h('span', {}, `${grouped(end - start)} cycles`));
  }
  if (row.kind === 'fill') return h('div', { class: 'tb-trace-label tb-trace-fill', style, title: fillText(fills, row.fill, false) }, fillText(fills, row.fill, true));
  const op = model.ops[row.op]!;
  if (row.kind === 'part') {
    const [r, c, rows, cols] = model.cores[row.lanes[0]]!;
    return h('div', { class: 'tb-trace-label tb-trace-part', style }, `cores ${rows}×${cols} at ${r},${c}`);
  }
  const spent = model.spent(op.name);
  const all = spent ? spent.reduce((a, b) => a + b, 0) : 0;
  const waits = spent && all ? `: ${KINDS.map((kind, k) => `${kind} ${percent(spent[k]! / all)}`).join(', ')}` : '';
  const state = `${marks.selected.has(row.op) ? ' tb-selected' : ''}${marks.related.has(row.op) ? ' tb-related' : ''}`;
  const many = op.end - op.first > 1;
  return h('div', { class: `tb-trace-label tb-trace-op${state}`, style },
    many ? caret(row, marks, op.name) : h('span', { class: 'tb-caret' }),
    h('button', {
      type: 'button', class: 'tb-trace-name', 'data-tb-op': op.name, 'data-tb-action': 'trace-op', title: `${op.name}${waits}`,
      'aria-pressed': String(marks.selected.has(row.op)),
      onclick: (event: MouseEvent) => marks.pick(op.name, event.ctrlKey || event.metaKey),
      onpointerenter: () => marks.hover(op.name), onpointerleave: () => marks.hover('')
    }, elide(shortName(op.name), 26)),
    marks.stalled.has(op.name) ? h('span', { class: 'tb-trace-stalled', title: 'a fork-join stall', role: 'img', 'aria-label': 'stalled' }, '⚠') : '');
}

function caret(row: Row, marks: Marks, name: string): HTMLElement {
  const open = marks.open(row);
  return h('button', {
    type: 'button', class: 'tb-caret', 'data-tb-action': row.kind === 'epoch' ? 'trace-epoch' : 'trace-cores', 'aria-expanded': String(open),
    'aria-label': `${open ? 'close' : 'open'} ${name}`, onclick: () => marks.toggle(row)
  }, open ? '▾' : '▸');
}

/** "← matmul_3, 24 tiles fit" */
function fillText(fills: Frame | null, index: number, brief: boolean): string {
  if (!fills || index >= fills.column('fill_points').length) return '';
  const read = (column: string) => fills.strings[fills.column(column)[index]!] ?? '';
  const [producer, consumer, unit] = [read('fill_producer'), read('fill_consumer'), read('fill_unit')];
  const into = consumer === fills.meta['op'];
  const other = into ? producer : consumer;
  const capacity = fills.column('fill_capacity')[index]!;
  const fits = capacity ? `${capacity} ${unit} fit` : unit;
  return brief ? `${into ? '←' : '→'} ${elide(shortName(other), 20)} · ${fits}` : `${into ? `from ${other}` : `to ${other}`}: ${unit} held, ${fits}`;
}
