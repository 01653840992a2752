/**
 * Entry for notebooks: an anywidget module. The factory runs once per widget model, so that several views of one model
 * share its frames and selection.
 */
import { BringUp, type View } from './views/bringup.js';
import { ClusterView } from './views/cluster/view.js';
import { DiffView } from './views/diff/view.js';
import { GraphView } from './views/graph/view.js';
import { GridView } from './views/grid/view.js';
import type { Host } from './views/host.js';
import { ImageFile } from './views/imagefile.js';
import { Inspector } from './views/inspector.js';
import { MemoryView } from './views/memory/view.js';
import { NetlistView } from './views/netlist.js';
import { NetlistFile } from './views/netlistfile.js';
import { Overlays } from './views/overlays.js';
import { OverridesPanel } from './views/overrides.js';
import { PassStepper } from './views/passes/view.js';
import { ProblemsView } from './views/problems.js';
import { makeRoot } from './views/root.js';
import { Store } from './views/store.js';
import { TableView } from './views/table/view.js';
import { TraceView } from './views/trace/view.js';

/** The part of anywidget's model that is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, f: (...args: never[]) => void): void;
  off(event: string, f: (...args: never[]) => void): void;
}

/** Every view by the name that its Python class gives it. */
export const VIEWS: Record<string, new (store: Store) => View> = {
  bringup: BringUp,
  graph: GraphView,
  grid: GridView,
  table: TableView,
  netlist: NetlistView,
  netlistfile: NetlistFile,
  imagefile: ImageFile,
  overrides: OverridesPanel,
  problems: ProblemsView,
  trace: TraceView,
  inspector: Inspector,
  diff: DiffView,
  memory: MemoryView,
  passes: PassStepper,
  cluster: ClusterView
};

export function hostOf(model: Model): Host {
  return {
    live: true,
    get: name => model.get(name),
    set(name, value) {
      model.set(name, value);
      model.save_changes();
    },
    on(name, f) {
      model.on(`change:${name}`, f);
      return () => model.off(`change:${name}`, f);
    },
    send: message => model.send(message),
    onMessage(f) {
      const handler = (content: unknown, buffers: unknown) =>
        f(content as Record<string, unknown>, (buffers as DataView[] | undefined) ?? []);
      model.on('msg:custom', handler);
      return () => model.off('msg:custom', handler);
    }
  };
}

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

export default () => {
  let store: Store | null = null;
  return {
    initialize({ model }: { model: Model }): () => void {
      store = new Store(hostOf(model));
      return () => store?.dispose();
    },

    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      const { root, dispose } = mountView((store ??= new Store(hostOf(model))), String(model.get('view')));
      const height = Number(model.get('height') ?? 0);
      if (height > 0) root.style.setProperty('--tb-height', `${height}px`);
      el.append(root);
      return dispose;
    }
  };
};
