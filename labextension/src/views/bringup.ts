/** The workbench: stages on top, graph and grid side by side, tables and the inspector below. */
import { Docks } from './docks.js';
import { h, svg } from './dom.js';
import { Failure } from './failure.js';
import { GraphView } from './graph/view.js';
import { GridView } from './grid/view.js';
import { Inspector } from './inspector.js';
import { LateView } from './late.js';
import { Metrics } from './metrics.js';
import { NetlistView } from './netlist.js';
import { OverridesPanel } from './overrides.js';
import { onPreferences } from './preferences.js';
import { ProblemsView } from './problems.js';
import { StageBar } from './stagebar.js';
import type { Store } from './store.js';
import { TableView } from './table/view.js';

export interface View {
  readonly element: HTMLElement;
  /** Somebody begins to look. */
  lookedAt?(): void;
  dispose(): void;
}

/** Panels behind tabs; all stay alive, one is seen. */
export class Tabs implements View {
  readonly element: HTMLElement;
  private readonly bar = h('div', { class: 'tb-tabs', role: 'tablist' });
  private readonly buttons = new Map<string, HTMLButtonElement>();
  private readonly panels = new Map<string, View>();
  private readonly stops: (() => void)[] = [];
  front = '';
  /** Hears which panel is in front. */
  shown: (id: string) => void = () => undefined;

  constructor(views: [string, string, View][]) {
    this.element = h('div', { class: 'tb-tabbed' }, this.bar);
    for (const [id, label, view] of views) {
      const button = h('button', {
        type: 'button', role: 'tab', 'data-tb-action': `tab-${id}`, onclick: () => this.show(id)
      }, label);
      this.buttons.set(id, button);
      this.panels.set(id, view);
      this.bar.append(button);
      this.element.append(view.element);
    }
    this.show(views[0]![0]);
  }

  /** A button that opens the view in front in a tab of JupyterLab; the extension hears it, and says by its settings that
   *  it is there. */
  detachable(): void {
    const button = h('button', {
      type: 'button', class: 'tb-detach', 'data-tb-action': 'open-tab', title: 'Open this view in a tab of JupyterLab', 'aria-label': 'open this view in a tab',
      onclick: () => button.dispatchEvent(new CustomEvent('tb-tab', { bubbles: true, detail: this.front === 'ops' ? 'table' : this.front }))
    }, svg('svg', { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' },
      svg('path', { d: 'M4 1.5h6.5V8M8 4H1.5v6.5H8z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.3 })));
    const fill = fullWidth();
    const offer = () => {
      button.hidden = !document.body.dataset['tbPreferences'];
      fill.hidden = !button.hidden;
    };
    offer();
    this.stops.push(onPreferences(offer));
    this.bar.after(button, fill); // a list of tabs holds nothing else
  }

  show(id: string): void {
    if (!this.panels.has(id)) return;
    this.front = id;
    for (const [key, view] of this.panels) {
      view.element.hidden = key !== id;
      this.buttons.get(key)!.setAttribute('aria-selected', String(key === id));
    }
    this.panels.get(id)?.lookedAt?.();
    this.shown(id);
  }

  /** Shows or hides a tab; a hidden one that was seen gives way to the first. */
  offer(id: string, there: boolean): void {
    const button = this.buttons.get(id);
    if (!button) return;
    button.hidden = !there;
    if (!there && button.getAttribute('aria-selected') === 'true') this.show([...this.panels.keys()][0]!);
  }

  badge(id: string, count: number): void {
    const button = this.buttons.get(id);
    if (!button) return;
    button.querySelector('.tb-badge')?.remove();
    if (count) button.append(h('span', { class: 'tb-badge' }, String(count)));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.panels.forEach(view => view.dispose());
  }
}

/** Where there is no JupyterLab to open a tab in: the workbench over the whole page, and back. */
function fullWidth(): HTMLButtonElement {
  const button = h('button', {
    type: 'button', class: 'tb-detach', 'data-tb-action': 'full-width', title: 'Over the whole page, or back (Escape)', 'aria-label': 'over the whole page',
    'aria-pressed': 'false', onclick: () => show(button.getAttribute('aria-pressed') === 'false')
  }, svg('svg', { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' },
    svg('path', { d: 'M1.5 4V1.5H4M8 1.5h2.5V4M10.5 8v2.5H8M4 10.5H1.5V8', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.3 })));
  const leave = (event: Event) => {
    if ((event as KeyboardEvent).key === 'Escape' && !event.defaultPrevented) show(false);
  };
  const show = (on: boolean) => {
    const root = button.closest<HTMLElement>('.tb-root');
    root?.classList.toggle('tb-filling', on);
    root?.[on ? 'addEventListener' : 'removeEventListener']('keydown', leave);
    button.setAttribute('aria-pressed', String(on));
  };
  return button;
}

export class BringUp implements View {
  readonly element: HTMLElement;
  private readonly views: View[];
  private readonly stops: (() => void)[] = [];

  constructor(store: Store) {
    const stages = new StageBar(store, true);
    const metrics = new Metrics(store);
    const graph = new GraphView(store);
    const grid = new GridView(store, true);
    const table = new TableView(store);
    const netlist = new NetlistView(store);
    const badges = new Map<string, number>();
    let show: (id: string, count: number) => void = (id, count) => badges.set(id, count);
    const problems = new ProblemsView(store, n => show('problems', n));
    const overrides = new OverridesPanel(store, n => show('overrides', n));
    const tabs = new Tabs([
      ['ops', 'Ops', table], ['profile', 'Profile', new LateView(store, 'profile')], ['trace', 'Timeline', new LateView(store, 'trace')], ['netlist', 'Netlist', netlist], ['overrides', 'Overrides', overrides],
      ['memory', 'Memory', new LateView(store, 'memory')], ['diff', 'Diff', new LateView(store, 'diff')], ['passes', 'Passes', new LateView(store, 'passes')],
      ['plots', 'Plots', new LateView(store, 'plots')], ['cluster', 'Cluster', new LateView(store, 'cluster')], ['program', 'Program', new LateView(store, 'program')], ['problems', 'Problems', problems]
    ]);
    tabs.detachable();
    show = (id, count) => tabs.badge(id, count);
    badges.forEach((count, id) => show(id, count));
    const cluster = () => tabs.offer('cluster', ((store.frames.get('ops')?.meta['chips'] as number[] | undefined)?.length ?? 1) > 1);
    const program = () => tabs.offer('program', store.frames.has('program'));
    cluster();
    program();
    this.stops.push(store.on('frame', key => {
      if (key === 'ops') cluster();
      if (key === 'program') program();
    }));
    const inspector = new Inspector(store);
    const failure = new Failure(store, () => tabs.show('problems'));
    this.views = [stages, metrics, failure, graph, grid, tabs, inspector];
    const upper = h('div', { class: 'tb-upper' }, graph.element, grid.element);
    const lower = h('div', { class: 'tb-lower' }, tabs.element, inspector.element);
    // A model that could not even be traced leaves nothing to look at: no empty panes below the reason.
    const fold = () => {
      upper.hidden = lower.hidden = store.status.failed && ![...store.frames.keys()].some(key => key === 'ops' || key.startsWith('graph:'));
    };
    this.stops.push(store.on('status', fold), store.on('frame', fold));
    const docks = new Docks(store, mode => {
      graph.element.hidden = mode === 'grid';
      grid.element.hidden = mode === 'graph';
      upper.dataset['tbMode'] = mode;
    }, open => {
      if (tabs.front !== open.tab) tabs.show(open.tab);
      inspector.element.hidden = !open.inspector;
      if (store.frames.has('ops')) cluster(); // before, nobody knows whether there are several chips
    });
    docks.arrange();
    tabs.shown = id => docks.front(id);
    this.stops.push(() => docks.dispose());
    this.element = h('div', { class: 'tb-bringup', 'data-tb-view': 'bringup' },
      stages.element, h('div', { class: 'tb-topline' }, metrics.element, docks.element), failure.element, upper, lower);
    fold();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.views.forEach(view => view.dispose());
  }
}
