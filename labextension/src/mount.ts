/** The views by name, and how one is put into a page; for notebooks and for JupyterLab's own tabs. */
import { BringUp } from './views/bringup.js';
import { GraphView } from './views/graph/view.js';
import { GridView } from './views/grid/view.js';
import { Inspector } from './views/inspector.js';
import { late } from './views/lazyview.js';
import { Overlays } from './views/overlays.js';
import { ProblemsView } from './views/problems.js';
import { makeRoot } from './views/root.js';
import type { Store } from './views/store.js';
import type { View } from './views/docks.js';
import { TableView } from './views/table/view.js';

/** Every view by the name that its Python class gives it. */
export const VIEWS: Record<string, new (store: Store) => View> = {
  bringup: BringUp,
  graph: GraphView,
  grid: GridView,
  table: TableView,
  netlist: late('netlist'),
  netlistfile: late('netlistfile'),
  imagefile: late('imagefile'),
  overrides: late('overrides'),
  problems: ProblemsView,
  trace: late('trace'),
  inspector: Inspector,
  diff: late('diff'),
  memory: late('memory'),
  passes: late('passes'),
  cluster: late('cluster'),
  program: late('program'),
  plots: late('plots'),
  profile: late('profile'),
  measured: late('measured'),
  placements: late('placements'),
  explore: late('explore')
};

/** A view in its root. The root carries the session's name, and takes what the menu of JupyterLab asks of a view. */
export function mountView(store: Store, name: string): { root: HTMLElement; dispose: () => void } {
  const began = performance.now();
  const view = new (VIEWS[name] ?? BringUp)(store);
  const { root, dispose } = makeRoot(name, view.element);
  const overlays = new Overlays(root, store);
  const mark = () => {
    if (store.session) root.dataset['tbSession'] = store.session;
  };
  const stop = store.on('status', mark);
  mark();
  root.addEventListener('tb-step-epoch', event => store.stepEpoch((event as CustomEvent<number>).detail));
  requestAnimationFrame(() => (root.dataset['tbDrawMs'] = (performance.now() - began).toFixed(0)));
  return {
    root,
    dispose() {
      stop();
      overlays.dispose();
      view.dispose();
      dispose();
      root.remove();
    }
  };
}
