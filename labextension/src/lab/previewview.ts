/** The static preview of a netlist: grids, ops, queues, programs, text. The graph and the check need a kernel. */
import { Tabs, type View } from '../views/docks.js';
import { grouped, h } from '../views/dom.js';
import { GridView } from '../views/grid/view.js';
import { StaticHost } from '../views/host.js';
import { Inspector } from '../views/inspector.js';
import { NetlistView } from '../views/netlist.js';
import { ProgramsView, QueueTable } from '../views/queues.js';
import { makeRoot } from '../views/root.js';
import { Store } from '../views/store.js';
import { TableView } from '../views/table/view.js';
import { previewFrames } from './preview.js';

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
        h('div', { class: 'tb-metric' }, h('b', {}, grouped(n)), h('span', {}, what)))),
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
