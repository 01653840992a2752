/** The workbench: one line of state on top, graph and grid side by side, tables and the inspector below; bars between them. */
import { Docks, splitter, Tabs, type View } from './docks.js';
import { h } from './dom.js';
import { Failure, ProblemsView } from './problems.js';
import { SecondGraph } from './graph/second.js';
import { GraphView } from './graph/view.js';
import { GridView } from './grid/view.js';
import { Inspector } from './inspector.js';
import { LazyView } from './lazyview.js';
import { Metrics, StageBar } from './stagebar.js';
import type { Store } from './store.js';
import { TableView } from './table/view.js';

export class BringUp implements View {
  readonly element: HTMLElement;
  private readonly views: View[];
  private readonly stops: (() => void)[] = [];

  constructor(store: Store) {
    const metrics = new Metrics(store);
    const stages = new StageBar(store, metrics.element);
    const graph = new GraphView(store);
    const grid = new GridView(store, true);
    const table = new TableView(store);
    const badges = new Map<string, number>();
    let show: (id: string, count: number) => void = (id, count) => badges.set(id, count);
    const problems = new ProblemsView(store, n => show('problems', n));
    const tabs = new Tabs([
      ['ops', 'Ops', table], ['profile', 'Profile', new LazyView(store, 'profile')], ['measured', 'Measured', new LazyView(store, 'measured')], ['trace', 'Timeline', new LazyView(store, 'trace')], ['netlist', 'Netlist', new LazyView(store, 'netlist')], ['overrides', 'Overrides', new LazyView(store, 'overrides')], ['placements', 'Placements', new LazyView(store, 'placements')], ['explore', 'Explore', new LazyView(store, 'explore')],
      ['memory', 'Memory', new LazyView(store, 'memory')], ['diff', 'Diff', new LazyView(store, 'diff')], ['passes', 'Passes', new LazyView(store, 'passes')],
      ['plots', 'Plots', new LazyView(store, 'plots')], ['cluster', 'Cluster', new LazyView(store, 'cluster')], ['program', 'Program', new LazyView(store, 'program')], ['problems', 'Problems', problems]
    ]);
    tabs.detachable();
    show = (id, count) => tabs.badge(id, count);
    badges.forEach((count, id) => show(id, count));
    const cluster = () => tabs.offer('cluster', ((store.frames.get('ops')?.meta['chips'] as number[] | undefined)?.length ?? 1) > 1);
    const program = () => tabs.offer('program', store.frames.has('program'));
    const measured = () => tabs.offer('measured', store.frames.has('measured'));
    const overrides = () => tabs.badge('overrides', store.edits?.overrides.length ?? 0);
    cluster();
    program();
    measured();
    overrides();
    this.stops.push(store.on('frame', key => {
      if (key === 'ops') cluster();
      if (key === 'program') program();
      if (key === 'measured') measured();
      if (key === 'edits') overrides();
    }));
    const inspector = new Inspector(store);
    const failure = new Failure(store, () => tabs.show('problems'));
    this.views = [stages, metrics, failure, graph, grid, tabs, inspector];
    const upper = h('div', { class: 'tb-upper' });
    const lower = h('div', { class: 'tb-lower' });
    upper.append(graph.element,
      splitter(upper, { name: 'graph', label: 'Width of the graph', across: true, share: 0.47, range: [0.15, 0.85] }), grid.element);
    lower.append(tabs.element,
      splitter(lower, { name: 'tabs', label: 'Width of the tabs', across: true, share: 0.77, range: [0.3, 0.9] }), inspector.element);
    const panes = h('div', { class: 'tb-panes' });
    panes.append(upper, splitter(panes, { name: 'upper', label: 'Height of graph and grid', across: false, share: 0.64, range: [0.15, 0.9] }), lower);
    // A model that could not even be traced leaves nothing to look at: no empty panes below the reason.
    const fold = () => {
      panes.hidden = store.status.failed && ![...store.frames.keys()].some(key => key === 'ops' || key.startsWith('graph:'));
    };
    this.stops.push(store.on('status', fold), store.on('frame', fold));
    let second: SecondGraph | null = null; // made when it is first wanted
    const docks = new Docks(store, mode => {
      graph.element.hidden = mode === 'grid';
      grid.element.hidden = mode === 'graph' || mode === 'graphs';
      if (mode === 'graphs' && !second) {
        second = new SecondGraph(store);
        this.views.push(second);
        upper.append(second.element);
      }
      if (second) second.element.hidden = mode !== 'graphs';
      upper.dataset['tbMode'] = mode;
    }, open => {
      if (tabs.front !== open.tab) tabs.show(open.tab);
      inspector.element.hidden = !open.inspector;
      panes.classList.toggle('tb-tall', open.tall === true);
      if (store.frames.has('ops')) cluster(); // before, nobody knows whether there are several chips
    });
    tabs.offerTools(docks.taller);
    docks.arrange();
    tabs.shown = id => docks.front(id);
    const width = new ResizeObserver(() => docks.fit((panes.closest('.tb-root') ?? panes).clientWidth));
    width.observe(panes);
    this.stops.push(() => docks.dispose(), () => width.disconnect());
    panes.addEventListener('tb-front', event => tabs.show((event as CustomEvent<string>).detail));
    this.element = h('div', { class: 'tb-bringup', 'data-tb-view': 'bringup' },
      h('div', { class: 'tb-head' }, stages.element, docks.element), failure.element, panes);
    fold();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.views.forEach(view => view.dispose());
  }
}
