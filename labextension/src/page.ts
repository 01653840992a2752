/**
 * Entry for static pages, and the report on them: summary, the graph of each stage, every epoch, the ops, the
 * warnings. Frames stand in the page as base64; nothing is fetched, no kernel is asked.
 */
import { goToPlace, placeText } from './views/place.js';
import type { CLOSER_VIEWS, CloserName } from './views/closerviews.js';
import { Tabs, type View } from './views/docks.js';
import { withThousands, h, percent } from './views/dom.js';
import { GraphView } from './views/graph/view.js';
import { drawEpoch } from './views/grid/draw.js';
import { GridView } from './views/grid/view.js';
import { Inspector } from './views/inspector.js';
import { Metrics, StageBar } from './views/stagebar.js';
import { NetlistView } from './views/netlist.js';
import { Ops } from './views/ops.js';
import { ProblemsView } from './views/problems.js';
import { type Status, Store } from './views/store.js';
import { TableView } from './views/table/view.js';
import { isDark, onTheme } from './views/theme.js';
import { Frame, type FrameHeader } from './views/frame.js';
import { StaticHost } from './views/host.js';
import { SharedHost, type Tables } from './views/sharedhost.js';
import { WhyPanel } from './views/why.js';
import type { Opening } from './views/dialog.js';
import { makeRoot } from './views/root.js';
import { Sheets } from './views/overlays.js';

/** The views that look closer and compare: a second script of the pages that show one of them. */
export interface Closer {
  CLOSER_VIEWS: typeof CLOSER_VIEWS;
}

/** The report: summary, the graph of each stage, every epoch, the ops, the warnings, one below the other. */
class ReportPage implements View {
  readonly element: HTMLElement;
  private readonly views: View[] = [];
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store, title: string, closer: Closer | undefined) {
    const keep = <V extends View>(view: V): V => {
      this.views.push(view);
      return view;
    };
    const look = (name: CloserName, title: string) => closer && store.frames.has(name) &&
      section(name, title, keep(new closer.CLOSER_VIEWS[name].make(store)).element);
    const summary = store.frames.get('summary')?.meta ?? {};
    const pages = summary['pages'] as string[] | undefined;
    const section = (page: string, name: string, ...children: (HTMLElement | false)[]) =>
      (!pages || pages.includes(page)) && h('section', { 'data-tb-section': name.toLowerCase().split(' ')[0]! }, h('h2', {}, name), ...children);
    const severities = store.frames.get('problems')?.text('severity') ?? [];
    const notes = severities.filter(s => s === 'note').length;
    this.element = h('div', { class: 'tb-page' },
      h('header', {}, h('h1', {}, title), h('p', {}, [summary['device'], summary['options']].filter(Boolean).join(' · '))),
      section('epochs', 'Graph and epochs', h('div', { class: 'tb-upper' }, keep(new GraphView(store)).element, keep(new GridView(store, true)).element)),
      section('summary', 'Summary', keep(new Metrics(store)).element, keep(new StageBar(store)).element, this.outputs(summary)),
      section('summary', `Problems (${severities.length - notes})${notes ? ` and notes (${notes})` : ''}`, keep(new ProblemsView(store)).element),
      section('ops', 'Ops and netlist', h('div', { class: 'tb-lower' },
        keep(new Tabs([['ops', 'Ops', new TableView(store)], ['netlist', 'Netlist', new NetlistView(store)]])).element,
        keep(new Inspector(store)).element)),
      look('measured', 'Measured'), look('cluster', 'Cluster'), look('memory', 'Memory'), look('diff', 'Diff'), look('trace', 'Timeline'), look('passes', 'Passes'),
      section('epochs', 'All epochs', this.gallery()));
  }

  dispose(): void {
    this.views.forEach(view => view.dispose());
    this.stops.forEach(stop => stop());
  }

  private outputs(summary: Record<string, unknown>): HTMLElement | false {
    const outputs = (summary['outputs'] as { name: string; pcc: number; max_abs: number }[] | undefined) ?? [];
    const line = (tag: 'th' | 'td', cells: string[]) => h('tr', {}, ...cells.map(text => h(tag, {}, text)));
    return outputs.length > 0 && h('table', { class: 'tb-plain' },
      h('thead', {}, line('th', ['Output', 'PCC against torch', 'largest difference'])),
      h('tbody', {}, ...outputs.map(o => line('td', [o.name, o.pcc.toFixed(6), o.max_abs.toPrecision(3)]))));
  }

  /** Every epoch as its own picture, for reading on and for paper. */
  private gallery(): HTMLElement {
    const box = h('div', { class: 'tb-gallery', 'data-tb-view': 'gallery' });
    const frame = this.store.frames.get('ops');
    if (!frame) return box;
    const ops = Ops.of(frame);
    const render = () => box.replaceChildren(...ops.byEpoch.map((members, epoch) =>
      h('figure', { 'data-tb-epoch': epoch },
        h('figcaption', {}, `Epoch ${epoch} · ${members.length} ops · ${withThousands(ops.epochTimes[epoch]!)} cycles · ${percent(ops.busy(epoch))} busy`),
        drawEpoch(ops, epoch, this.store.colour, isDark()))));
    box.addEventListener('click', event => {
      const tile = (event.target as Element).closest<SVGElement>('[data-tb-op]');
      if (tile) this.store.click(tile.dataset['tbOp']!, event.ctrlKey || event.metaKey, 'gallery');
    });
    render();
    this.stops.push(onTheme(render), this.store.on('colour', render));
    return box;
  }
}

/** A page with one view: a netlist file, or a comparison as `tbuda diff --html` writes it, below its title. */
class ViewPage implements View {
  readonly element: HTMLElement;
  private readonly view: View;

  constructor(store: Store, name: CloserName, { CLOSER_VIEWS }: Closer, title?: string) {
    this.view = new CLOSER_VIEWS[name].make(store);
    this.element = title === undefined ? this.view.element
      : h('div', { class: 'tb-page tb-diff-page' }, h('header', {}, h('h1', {}, title)), this.view.element);
  }

  dispose(): void {
    this.view.dispose();
  }
}

// Entry for static pages: frames stand in the page as base64; nothing is fetched, no kernel is asked.
interface EmbeddedFrame {
  header: FrameHeader;
  data: string;
}

interface EmbeddedData {
  title: string;
  status: Status;
  frames: EmbeddedFrame[];
  /** Of a page that was sent: what the reader can try without a kernel. */
  tables?: Tables & { legal: EmbeddedFrame[] };
}

/** The panels of a page that has answers to "why here?". */
class SharedSheets extends Sheets {
  private readonly why: WhyPanel;

  constructor(root: HTMLElement, store: Store) {
    super(root);
    this.why = new WhyPanel(store);
    this.element.append(this.why.dialog.element);
  }

  override dispose(): void {
    this.why.dispose();
    super.dispose();
  }

  protected override open(asked: Opening): void {
    if (asked.what === 'why' && asked.op) this.why.show(asked.op);
    else super.open(asked);
  }
}

function decode(data: string): ArrayBuffer {
  return Uint8Array.from(atob(data), c => c.charCodeAt(0)).buffer;
}

/** Mounts the report into `el` from what the page embeds. */
function mount(el: HTMLElement, embedded: EmbeddedData, closer: Closer | undefined): void {
  const { tables } = embedded;
  const shared = tables && new SharedHost(new Map(tables.legal.map(({ header, data }) => [String(header.meta['op']), new Frame(header, decode(data))])), tables);
  const store = new Store(shared ?? new StaticHost());
  store.status = embedded.status;
  for (const { header, data } of embedded.frames) store.put(new Frame(header, decode(data)));
  shared?.attach(store);
  if (typeof location === 'object') {
    goToPlace(store, location.hash);
    const told = () => {
      const text = placeText(store);
      if (location.hash !== text) history.replaceState(null, '', text);
    };
    store.on('epoch', told);
    store.on('selection', told);
    addEventListener('hashchange', () => goToPlace(store, location.hash));
  }
  const alone = store.frames.has('diff') && !store.frames.has('ops');
  const page = closer && store.frames.has('findings') ? new ViewPage(store, 'netlistfile', closer)
    : closer && alone ? new ViewPage(store, 'diff', closer, embedded.title) : new ReportPage(store, embedded.title, closer);
  const styles = new Set(closer ? Object.values(closer.CLOSER_VIEWS).map(({ style }) => style) : []);
  const { root } = makeRoot('page', page.element, [...styles].join(''));
  if (shared) new SharedSheets(root, store);
  else new Sheets(root);
  el.append(root);
  el.dataset['tbReady'] = 'true';
}

/** Shows what stands in the page; `closer`: the views of the second script, where there is one. Called by the bundle. */
export function start(closer: Closer | undefined): void {
  const data = document.getElementById('tb-data');
  const place = document.getElementById('tb-report');
  if (!data || !place) return;
  if (data.dataset['packed']) {
    void unpack(data.textContent).then(text => mount(place, JSON.parse(text) as EmbeddedData, closer));
  } else mount(place, JSON.parse(data.textContent) as EmbeddedData, closer);
}

/** The text of a page that was packed, to be sent. */
async function unpack(packed: string): Promise<string> {
  return await new Response(new Response(decode(packed)).body!.pipeThrough(new DecompressionStream('deflate'))).text();
}
