/** A netlist file: what the check says, op graph and core grids side by side, ops, queues, programs and text below. */
import { Tabs, type View } from './tabs.js';
import { grouped, h } from './dom.js';
import { FindingsView } from './findings.js';
import { GraphView } from './graph/view.js';
import { GridView } from './grid/view.js';
import { Inspector } from './inspector.js';
import { MemoryView } from './memory/view.js';
import { NetlistView } from './netlist.js';
import { ProgramsView } from './programs.js';
import { QueueTable } from './queues.js';
import type { Store } from './store.js';
import { TableView } from './table/view.js';

export class NetlistFile implements View {
  readonly element: HTMLElement;
  private readonly views: View[];
  private readonly tabs: Tabs;
  private readonly head = h('header', { class: 'tb-file-head' });
  private readonly upper: HTMLElement;
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    store.setColour('family'); // cycles are estimates here, and what limits an epoch is not what a file is opened for
    const tabs = this.tabs = new Tabs([
      ['ops', 'Ops', new TableView(store)], ['queues', 'Queues', new QueueTable(store)],
      ['memory', 'Memory', new MemoryView(store)], ['programs', 'Programs', new ProgramsView(store)], ['netlist', 'Text', new NetlistView(store)]
    ]);
    this.views = [new FindingsView(store), new GraphView(store), new GridView(store, true), tabs, new Inspector(store)];
    const [findings, graph, grid, , inspector] = this.views as [View, View, View, View, View];
    this.upper = h('div', { class: 'tb-upper' }, graph.element, grid.element);
    this.element = h('div', { class: 'tb-bringup tb-file', 'data-tb-view': 'netlistfile' },
      this.head, findings.element,
      this.upper,
      h('div', { class: 'tb-lower' }, tabs.element, inspector.element));
    this.stops.push(
      store.on('frame', key => {
        this.arrived(key);
      }),
      store.on('line', () => tabs.show('netlist')));
    this.empty();
    this.render();
  }

  dispose(): void {
    this.views.forEach(view => view.dispose());
    this.stops.forEach(stop => stop());
  }

  private arrived(key: string): void {
    if (key === 'summary' || key === 'findings') this.render();
    if (key === 'ops' || key === 'netlist') this.empty();
  }

  /** A file without ops is its text. */
  private empty(): void {
    const frames = this.store.frames;
    this.upper.hidden = frames.has('netlist') && !frames.has('ops');
    if (this.upper.hidden) this.tabs.show('netlist');
  }

  private render(): void {
    const summary = this.store.frames.get('summary')?.meta ?? {};
    const checked = this.store.frames.has('findings'); // a file that is opening has no verdict yet
    const found = this.store.frames.get('findings')?.meta ?? {};
    const counts = (summary['counts'] as [number, string][] | undefined) ?? [];
    const [errors, warnings] = [Number(found['errors'] ?? 0), Number(found['warnings'] ?? 0)];
    const verdict = errors ? `${grouped(errors)} error${errors > 1 ? 's' : ''}` : warnings ? `valid, ${grouped(warnings)} warning${warnings > 1 ? 's' : ''}` : 'valid';
    this.head.replaceChildren(
      h('h3', {}, (summary['name'] as string | undefined) ?? ''),
      h('div', { class: 'tb-metrics' },
        checked && h('div', { class: `tb-metric ${errors ? 'tb-bad' : 'tb-good'}`, 'data-tb-metric': 'verdict' }, h('b', {}, verdict)),
        ...counts.map(([count, what]) => h('div', { class: 'tb-metric' }, h('b', {}, grouped(count)), h('span', {}, what)))),
      h('p', {}, (summary['device'] as string | undefined) ?? ''));
  }
}
