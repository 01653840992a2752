/**
 * A netlist without a kernel: its YAML is parsed in the page, and what can be read off is put into frames and
 * shown: grids, ops, queues, programs, text. No check, no estimates, no graph: those come from the kernel.
 */
import { load } from 'js-yaml';
import { type Column, Frame } from '../views/frame.js';
import { Tabs, type View } from '../views/docks.js';
import { withThousands, h } from '../views/dom.js';
import { GridView } from '../views/grid/view.js';
import { StaticHost } from '../views/host.js';
import { Inspector } from '../views/inspector.js';
import { NetlistView } from '../views/netlist.js';
import { ProgramsView, QueueTable } from '../views/queues.js';
import { makeRoot } from '../views/root.js';
import { Store } from '../views/store.js';
import { TableView } from '../views/table/view.js';

export const MOST_BYTES = 4 << 20;
const GRIDS: Record<string, [number, number]> = { grayskull: [10, 12], wormhole_b0: [10, 8], wormhole: [10, 8], blackhole: [10, 14] };
const MOST_SIDE = 64;

type Table = Record<string, unknown>;

/**
 * A netlist without a kernel: its YAML is parsed in the page, and what can be read off is put into frames. No check, no
 * estimates, no graph: those come from the kernel.
 */
export class PreviewError extends Error {}

/** Frames of a netlist's text. Throws `PreviewError` that says why there are none. */
export function previewFrames(text: string, name: string): Frame[] {
  if (new TextEncoder().encode(text).length > MOST_BYTES) throw new PreviewError('The file is larger than 4 MB: it needs a kernel.');
  let document: unknown;
  try {
    document = load(text);
  } catch (error) {
    throw new PreviewError(`Not YAML: ${error instanceof Error ? error.message : String(error)}`);
  }
  const root = table(document);
  if (!root['graphs'] && !root['queues']) throw new PreviewError('This YAML is not a netlist: it has neither graphs nor queues.');
  const graphs = Object.entries(table(root['graphs'])).map(([title, graph]) => ({ title, graph: table(graph) }));
  const ops = graphs.flatMap(({ title, graph }, epoch) =>
    Object.entries(graph).filter(([, v]) => isTable(v) && 'type' in v).map(([op, v]) => ({ name: op, epoch, title, op: table(v) })));
  const queues = Object.entries(table(root['queues'])).map(([queue, v]) => ({ name: queue, queue: table(v) }));
  const arch = word([table(root['devices'])['arch']].flat()[0]);
  const frames = [
    summary(name, arch, [[ops.length, 'ops'], [graphs.length, graphs.length === 1 ? 'graph' : 'graphs'], [queues.length, 'queues']]),
    queuesFrame(queues, ops),
    textFrame('programs', section(text, 'programs')),
    linesFrame(text, [...queues.map(q => q.name), ...ops.map(o => o.name)])
  ];
  if (ops.length) frames.push(opsFrame(arch, graphs, ops));
  return frames;
}

interface FileOp {
  name: string;
  epoch: number;
  title: string;
  op: Table;
}

function opsFrame(arch: string, graphs: { title: string; graph: Table }[], ops: FileOp[]): Frame {
  const b = new Builder();
  const [deviceRows, deviceCols] = GRIDS[arch] ?? [10, 8];
  const boxes = ops.map(({ op }) => box(op));
  const chips = graphs.map(({ graph }) => number([graph['target_device']].flat()[0]));
  const each = (key: string) => ops.map(({ op }) => number(op[key]));
  const pair = (key: string, k: number) => ops.map(({ op }) => number(list(op[key])[k]));
  b.text('op_name', ops.map(o => o.name));
  b.text('op_type', ops.map(o => word(o.op['type'])));
  b.text('op_module', ops.map(o => o.title));
  b.text('op_location', ops.map(() => ''));
  b.text('op_df', ops.map(o => word(o.op['out_df'])));
  b.text('op_fidelity', ops.map(o => word(o.op['math_fidelity'])));
  b.text('op_stream', ops.map(() => ''));
  b.put('op_epoch', Uint32Array.from(ops, o => o.epoch));
  b.put('op_chip', Uint16Array.from(ops, o => chips[o.epoch]!));
  ['row', 'col', 'rows', 'cols'].forEach((key, k) => b.put(`op_${key}`, Uint16Array.from(boxes, q => q[k]!)));
  b.put('op_transposed', Uint8Array.from(ops, o => Number(Boolean(o.op['grid_transpose']))));
  for (const key of ['cycles', 'fastest', 'l1_input', 'l1_output', 'l1_param', 'l1_intermed', 'l1_total']) {
    b.put(`op_${key}`, new Float64Array(ops.length));
  }
  for (const key of ['candidates', 'legal']) b.put(`op_${key}`, new Uint32Array(ops.length));
  b.put('op_cores', Int32Array.from(boxes, q => q[2] * q[3]));
  b.put('op_t', Int32Array.from(each('t')));
  ['mblock_m', 'mblock_n'].forEach((key, k) => b.put(`op_${key}`, Int32Array.from(pair('mblock', k))));
  ['ublock_r', 'ublock_c'].forEach((key, k) => b.put(`op_${key}`, Int32Array.from(pair('ublock', k))));
  for (const key of ['m_k', 'u_kt']) b.put(`op_${key}`, Int32Array.from(ops, o => number(table(o.op['attributes'])[key])));
  b.put('op_buf_size_mb', Int32Array.from(each('buf_size_mb')));
  const members = graphs.map((_, e) => ops.map((o, i) => (o.epoch === e ? i : -1)).filter(i => i >= 0));
  b.put('epoch_temporal', Uint32Array.from(graphs, (_, e) => e));
  b.put('epoch_chip', Uint16Array.from(chips));
  b.put('epoch_cycles', new Float64Array(graphs.length));
  b.put('epoch_ops', Uint32Array.from(members, m => m.length));
  b.put('epoch_cores', Uint32Array.from(members, m => m.reduce((sum, i) => sum + boxes[i]![2] * boxes[i]![3], 0)));
  b.put('epoch_busy', new Float32Array(graphs.length));
  const index = new Map(ops.map((o, i) => [o.name, i]));
  const edges = ops.flatMap((o, i) => list(o.op['inputs']).map(source => [index.get(word(source)), i] as const))
    .filter((pair): pair is readonly [number, number] => pair[0] !== undefined);
  b.put('edge_source', Uint32Array.from(edges, e => e[0]));
  b.put('edge_target', Uint32Array.from(edges, e => e[1]));
  const rows = Math.min(MOST_SIDE, Math.max(deviceRows, ...boxes.map(q => q[0] + q[2])));
  const cols = Math.min(MOST_SIDE, Math.max(deviceCols, ...boxes.map(q => q[1] + q[3])));
  return b.frame('ops', {
    device: arch || 'arch not given', arch, rows, cols, device_rows: deviceRows, device_cols: deviceCols, harvested: [],
    physical: Array.from({ length: rows }, (_, r) => r), chips: [...new Set(chips)].sort((x, y) => x - y), clock_hz: 1e9, l1: 1 << 20,
    graphs: graphs.map(g => g.title), total_cycles: 0, directions: graphs.map(() => 'fwd')
  });
}

/** (row, column, rows, columns), cut to what can be drawn; no cores where the file has no place. */
function box(op: Table): [number, number, number, number] {
  const [row, col] = list(op['grid_loc']).map(number);
  let [rows, cols] = list(op['grid_size']).map(number);
  if (row === undefined || col === undefined || row >= MOST_SIDE || col >= MOST_SIDE) return [0, 0, 0, 0];
  if (op['grid_transpose']) [rows, cols] = [cols, rows];
  return [row, col, Math.min(rows ?? 0, MOST_SIDE - row), Math.min(cols ?? 0, MOST_SIDE - col)];
}

function queuesFrame(queues: { name: string; queue: Table }[], ops: FileOp[]): Frame {
  const b = new Builder();
  const readers = new Map<string, string[]>();
  for (const { name, op } of ops) {
    for (const source of list(op['inputs'])) readers.set(word(source), [...(readers.get(word(source)) ?? []), name]);
  }
  const field = (key: string) => queues.map(({ queue }) => word(queue[key]));
  b.text('queue_name', queues.map(q => q.name));
  b.text('queue_type', field('type'));
  b.text('queue_group', queues.map(({ queue }) => (queue['input'] === 'HOST' ? 'from the host' : 'written by an op')));
  b.text('queue_producer', field('input'));
  b.text('queue_readers', queues.map(({ name }) => (readers.get(name) ?? []).join(', ')));
  b.text('queue_df', field('df'));
  const times = (parts: unknown[]) => parts.map(number).join('×');
  b.text('queue_shape', queues.map(({ queue: q }) => {
    const [g, m, u] = [list(q['grid_size']), list(q['mblock']), list(q['ublock'])];
    const side = (k: number) => number(g[k]) * number(m[k]) * number(u[k]);
    return times([q['t'], side(0), side(1)]);
  }));
  b.text('queue_grid', queues.map(({ queue }) => times(list(queue['grid_size']))));
  b.text('queue_place', field('loc'));
  b.text('queue_chip', field('target_device'));
  b.put('queue_entries', Uint32Array.from(queues, ({ queue }) => number(queue['entries'])));
  b.put('queue_bytes', new Float64Array(queues.length));
  return b.frame('queues', { count: queues.length });
}

function linesFrame(text: string, names: string[]): Frame {
  const lines = text.split('\n');
  const wanted = new Set(names);
  const entries: [string, number, number][] = [];
  for (let k = 0; k < lines.length; k++) {
    const name = /^\s+['"]?([^\s'":{}]+)['"]?\s*:/.exec(lines[k]!)?.[1];
    if (name === undefined || !wanted.delete(name)) continue;
    const indent = lines[k]!.search(/\S/);
    let end = k + 1;
    while (end < lines.length && lines[end]!.trim() && !lines[end]!.trim().startsWith('#') && lines[end]!.search(/\S/) > indent) end++;
    entries.push([name, k, end - k]);
  }
  const b = new Builder();
  b.put('text', new TextEncoder().encode(text));
  b.text('entry_name', entries.map(e => e[0]));
  b.put('entry_line', Uint32Array.from(entries, e => e[1]));
  b.put('entry_lines', Uint32Array.from(entries, e => e[2]));
  return b.frame('netlist', { lines: lines.length, path: '' });
}

function textFrame(key: string, text: string): Frame {
  const b = new Builder();
  b.put('text', new TextEncoder().encode(text));
  return b.frame(key, {});
}

function summary(name: string, arch: string, counts: [number, string][]): Frame {
  return new Builder().frame('summary', { name, device: `arch ${arch || 'not given'}`, counts });
}

/** The lines of a top-level key. */
function section(text: string, key: string): string {
  const lines = text.split('\n');
  const from = lines.findIndex(line => line.startsWith(`${key}:`));
  if (from < 0) return '';
  const rest = lines.slice(from + 1);
  const to = rest.findIndex(line => /^[^\s#-]/.test(line));
  return (to < 0 ? rest : rest.slice(0, to)).join('\n').trimEnd();
}

function isTable(value: unknown): value is Table {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function table(value: unknown): Table {
  return isTable(value) ? value : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
}

function word(value: unknown): string {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : value ? JSON.stringify(value) : '';
}

function number(value: unknown): number {
  const n = Number(value);
  return Number.isFinite(n) ? Math.min(Math.max(Math.trunc(n), 0), 0xffff) : 0;
}

const CODES = new Map<unknown, string>([
  [Uint8Array, 'u1'], [Uint16Array, 'u2'], [Uint32Array, 'u4'], [Int32Array, 'i4'], [Float32Array, 'f4'], [Float64Array, 'f8']
]);

/** Packs columns as the kernel does. */
class Builder {
  private readonly strings = [''];
  private readonly numbers = new Map([['', 0]]);
  private readonly columns: [string, Column][] = [];

  put(name: string, column: Column): void {
    this.columns.push([name, column]);
  }

  text(name: string, values: string[]): void {
    this.put(name, Uint32Array.from(values, value => {
      let n = this.numbers.get(value);
      if (n === undefined) {
        n = this.strings.push(value) - 1;
        this.numbers.set(value, n);
      }
      return n;
    }));
  }

  frame(key: string, meta: Record<string, unknown>): Frame {
    let size = 0;
    const described = this.columns.map(([name, column]) => {
      const at = size;
      size += Math.ceil(column.byteLength / 8) * 8;
      return { name, dtype: CODES.get(column.constructor)!, offset: at, length: column.length };
    });
    const buffer = new Uint8Array(size);
    this.columns.forEach(([, column], k) =>
      buffer.set(new Uint8Array(column.buffer, column.byteOffset, column.byteLength), described[k]!.offset));
    return new Frame({ key, meta, strings: this.strings, columns: described }, buffer.buffer);
  }
}

// The static preview of a netlist: grids, ops, queues, programs, text. The graph and the check need a kernel.
/** Throws `PreviewError` for a text that is not a netlist. */
export function mountPreview(text: string, name: string): { root: HTMLElement; dispose: () => void } {
  const frames = previewFrames(text, name);
  const store = new Store(new StaticHost());
  frames.forEach(frame => store.put(frame));
  store.setColour('family');
  const drawn = store.frames.has('ops');
  const grid = new GridView(store);
  const table = new TableView(store);
  const tabs = new Tabs([
    ...(drawn ? [['ops', 'Ops', table] as [string, string, View]] : []),
    ['queues', 'Queues', new QueueTable(store)], ['programs', 'Programs', new ProgramsView(store)],
    ['netlist', 'Text', new NetlistView(store)]
  ]);
  const inspector = new Inspector(store);
  const meta = store.frames.get('summary')!.meta;
  const counts = meta['counts'] as [number, string][];
  const body = h('div', { class: 'tb-bringup tb-file', 'data-tb-view': 'preview' },
    h('header', { class: 'tb-file-head' }, h('h3', {}, name),
      h('div', { class: 'tb-metrics' }, ...counts.map(([n, what]) =>
        h('div', { class: 'tb-metric' }, h('b', {}, withThousands(n)), h('span', {}, what)))),
      h('p', {}, String(meta['device']))),
    drawn && h('div', { class: 'tb-upper tb-alone' }, grid.element),
    h('div', { class: 'tb-lower' }, tabs.element, inspector.element));
  const { root, dispose } = makeRoot('preview', body);
  return {
    root,
    dispose() {
      [grid, table, tabs, inspector].forEach(view => view.dispose());
      dispose();
      store.dispose();
      root.remove();
    }
  };
}
