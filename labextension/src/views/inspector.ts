/** All about what is selected: origin, numbers, operands, readers, netlist entry. */
import { bytes, quantity, withThousands, h, percent, short } from './dom.js';
import { type Formula, FORMULAS } from './numbers.js';
import { slowText } from './grid/legal.js';
import { NetlistText } from './netlisttext.js';
import { Ops } from './ops.js';
import { open } from './dialog.js';
import { opTimes } from './optimes.js';
import { shortName } from './names.js';
import { OpControls, PreloadButtons } from './opcontrols.js';
import { linkList } from './grid/links.js';
import type { Store } from './store.js';
import { Compare, errorCard } from './trace/checks.js';

/** Numbers of an op: its place in time and space, its cost, its blocks. */
export function numbers(ops: Ops, op: number): [string, string][] {
  const epoch = ops.epochOf(op);
  const t = ops.get('t', op);
  const list: [string, string][] = [
    ['epoch', `${epoch}, chip ${ops.get('chip', op)}`],
    ['place', ops.where(op)],
    ['grid', `${ops.shapeText(op)}, ${quantity(ops.get('cores', op), 'core')}`],
    ['kernel', `${withThousands(ops.get('cycles', op))} cycles / input`],
    ...withData(ops, op),
    ['mblock', `${ops.get('mblock_m', op)} × ${ops.get('mblock_n', op)}`],
    ['ublock', `${ops.get('ublock_r', op)} × ${ops.get('ublock_c', op)}`],
    ['t', `${t}${ops.stream[op] ? `, streams ${ops.stream[op]}` : ''}`]
  ];
  if (ops.get('m_k', op) > 0) list.push(['m_k / u_kt', `${ops.get('m_k', op)} / ${ops.get('u_kt', op)}`]);
  list.push(['L1', ops.l1Text(op, size => `${bytes(size)},`)]);
  list.push(['format', [ops.df[op], ops.fidelity[op]].filter(Boolean).join(', ')]);
  if (ops.get('candidates', op) > 0) list.push(['candidates', `${withThousands(ops.get('legal', op))} legal of ${withThousands(ops.get('candidates', op))}, fastest ${short(ops.get('fastest', op))} cycles`]);
  return list;
}

/** Where the way of the data takes longer than the kernel: how long, and what it is. A netlist file says nothing of it. */
function withData(ops: Ops, op: number): [string, string][] {
  if (!ops.frame.has('op_limiter_cycles')) return [];
  const [cycles, what] = [ops.get('limiter_cycles', op), ops.frame.text('op_limiter')[op]!];
  if (cycles <= 0) return [];
  const list: [string, string][] = [['kernel or transfer', `${withThousands(cycles)} cycles / input, ${percent(ops.load(op))} of the slowest op of its epoch`]];
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

export class Inspector {
  readonly element = h('aside', { class: 'tb-view tb-inspector', 'data-tb-view': 'inspector', 'aria-label': 'Selection' });
  private readonly stops: (() => void)[] = [];
  private ops: Ops | null = null;
  private text: NetlistText | null = null;
  private readonly opControls: OpControls;
  private readonly compare: Compare;
  private readonly preload: PreloadButtons;

  constructor(private readonly store: Store) {
    this.opControls = new OpControls(store);
    this.compare = new Compare(store);
    this.preload = new PreloadButtons(store);
    this.stops.push(store.on('selection', () => this.render()), store.on('frame', key => this.load(key)));
    for (const key of store.frames.keys()) this.load(key);
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.opControls.dispose();
    this.compare.dispose();
    this.preload.dispose();
  }

  private load(key: string): void {
    const frame = this.store.frames.get(key)!;
    if (key === 'links' || key === 'errors' || key === 'measured') this.render();
    if (key === 'ops') this.ops = Ops.of(frame);
    else if (key === 'netlist') this.text = NetlistText.of(frame);
    else if (!key.startsWith('graph:')) return;
    this.render();
  }

  private render(): void {
    const names = this.store.selection.names;
    const links = names.length ? [] : linkList(this.store);
    if (!names.length) {
      this.element.replaceChildren(...(links.length ? links : [h('div', { class: 'tb-empty' }, 'Select an op in the graph, the grid or the table.')]));
      return;
    }
    const chosen = this.ops?.matcher.find(names) ?? [];
    this.element.replaceChildren(...(names.length === 1 ? this.one(names[0]!, chosen) : this.many(names, chosen)), ...linkList(this.store));
  }

  private one(name: string, chosen: number[]): (HTMLElement | string)[] {
    const { ops } = this;
    const made: (HTMLElement | string)[] = [h('header', {}, h('strong', { title: name }, name))];
    const op = chosen[0];
    if (ops && op !== undefined && chosen.length === 1) {
      this.compare.offer(ops.name[op]!);
      made.push(this.compare.element, errorCard(this.store, ops.name[op]!) ?? '', measuredCard(this.store, ops.name[op]!) ?? '');
    }
    made.push(...this.origin(name));
    if (ops && chosen.length > 1) {
      made.push(h('h4', {}, `Placed as ${chosen.length} ops`), this.links(chosen));
    } else if (ops && op !== undefined) {
      made.push(definition(numbers(ops, op), 'tb-facts'));
      const parameters = this.preload.of(ops, op);
      if (parameters.length) made.push(h('h4', {}, 'Parameters'), h('div', { class: 'tb-chips' }, ...parameters), this.preload.effect);
      this.opControls.offer(ops.name[op]!);
      made.push(this.opControls.element);
      if (this.store.edits) {
        made.push(h('p', {}, h('button', {
          class: 'tb-link', 'data-tb-action': 'why', onclick: () => open(this.element, { what: 'why', op: ops.name[op]! })
        }, 'Why here?')));
      }
      if (ops.into(op).length) made.push(h('h4', { class: 'tb-in' }, 'Fed by'), this.links(ops.into(op)));
      if (ops.outOf(op).length) made.push(h('h4', { class: 'tb-out' }, 'Feeds'), this.links(ops.outOf(op)));
    }
    const written = entry(this.text, ops && op !== undefined ? ops.name[op]! : name);
    if (written && chosen.length < 2) made.push(h('h4', {}, 'Netlist entry'), written);
    return made;
  }

  private many(names: string[], chosen: number[]): HTMLElement[] {
    const { ops } = this;
    const made = [h('header', {}, h('strong', {}, `${names.length} nodes selected`))];
    if (ops && chosen.length) {
      const sum = (column: string) => chosen.reduce((n, op) => n + ops.get(column, op), 0);
      const epochs = [...new Set(chosen.map(op => ops.epochOf(op)))].sort((a, b) => a - b);
      made.push(definition([
        ['ops placed', String(chosen.length)],
        ['epochs', epochs.length > 12 ? `${epochs.length}` : epochs.join(', ')],
        ['cores', withThousands(sum('cores'))],
        ['cycles × cores', short(chosen.reduce((n, op) => n + ops.get('cycles', op) * ops.get('cores', op), 0))],
        ['worth enlarging', String(chosen.filter(op => ops.isLimiting(op)).length)]
      ], 'tb-facts'), this.links(chosen.slice(0, 60)));
    }
    return made;
  }

  /** Where the node comes from, from whichever graph frame knows it; its shape, attributes and operands. */
  private origin(name: string): HTMLElement[] {
    for (const stage of ['lowered', 'passed', 'traced', 'netlist']) {
      const frame = this.store.frames.get(`graph:${stage}`);
      const node = frame ? frame.text('node_name').indexOf(name) : -1;
      if (!frame || node < 0) continue;
      const read = (column: string) => frame.strings[frame.column(column)[node]!] ?? '';
      const facts: [string, string][] = [['type', read('node_type')], ['shape', read('node_shape')]];
      if (read('node_attributes')) facts.push(['attributes', read('node_attributes')]);
      if (read('node_module')) facts.push(['module', read('node_module')]);
      if (read('node_source_op')) facts.push(['from', read('node_source_op')]);
      if (read('node_location')) facts.push(['source', read('node_location')]);
      if (read('node_operands')) facts.push(['operands', read('node_operands')]);
      return [definition(facts, 'tb-facts')];
    }
    return [];
  }

  private links(ops: number[]): HTMLElement {
    const all = this.ops!;
    return h('div', { class: 'tb-chips' }, ...ops.map(op =>
      h('button', {
        class: 'tb-chip', title: all.name[op]!, 'data-tb-action': 'select-op',
        onclick: () => this.store.select([all.name[op]!], 'inspector'),
        onpointerenter: () => this.store.setHover(all.name[op]!),
        onpointerleave: () => this.store.setHover('')
      }, shortName(all.name[op]!))));
  }
}

/** What a measured run says of an op: how long it took, what the table of kernels and the placement say, what is lost. */
export function measuredCard(store: Store, op: string): HTMLElement | null {
  const frame = store.frames.get('measured');
  const at = frame?.has('op_measured') ? frame.text('op_name').indexOf(op) : -1;
  if (!frame || at < 0) return null;
  const times = opTimes(frame)?.get(op);
  const rows = [['measured', 'measured'], ['by the table of kernels', 'table'], ['in this placement', 'pipelined'], ['lost', 'lost']]
    .map(([term, column]): [string, number] => [term!, frame.column(`op_${column!}`)[at]!])
    .filter(([, ns]) => Number.isFinite(ns))
    .map(([term, ns]): [string, string] => [term, `${times?.guess && term.startsWith('by') ? '~ ' : ''}${withThousands(Math.round(ns))} ns`]);
  if (times && times.table > 0 && times.measured > 0) rows.push(['measured / by table', `${times.guess && '~ '}${(times.measured / times.table).toFixed(2)}`]);
  if (times?.guess) rows.push(['~ extrapolated', times.guess]);
  if (!rows.some(([term]) => term === 'measured')) return null;
  const own = definition(rows, 'tb-facts');
  return h('div', { class: 'tb-compare', 'data-tb-measured': op }, h('h4', {}, `Measured: ${frame.meta['name'] as string}`), own);
}
