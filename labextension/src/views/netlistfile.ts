/**
 * Netlist files and TTI images, read only: what the check says, op graph and core grids side by side, ops, queues,
 * programs and text below.
 */
import { factList, withThousands, h } from './dom.js';
import type { Store } from './store.js';
import { Tabs, type View } from './docks.js';
import { GraphView } from './graph/view.js';
import { GridView } from './grid/view.js';
import { Inspector } from './inspector.js';
import { MemoryView } from './memory/view.js';
import { NetlistView } from './netlist.js';
import { ProgramsView, QueueTable } from './queues.js';
import { TableView } from './table/view.js';

const GLYPH: Record<string, string> = { error: '✕', warning: '!', note: 'i' };
const MOST = 300;

/** What the check of a netlist file found: each finding with its line; a click shows op or queue and line. */
class FindingsView {
  readonly element = h('section', { class: 'tb-view tb-problems tb-findings', 'data-tb-view': 'findings', 'aria-label': 'Findings' });
  private readonly stops: (() => void)[] = [];
  private most = MOST;

  constructor(private readonly store: Store) {
    this.stops.push(store.on('frame', key => {
      if (key === 'findings') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('findings');
    const count = frame ? frame.column('severity').length : 0;
    this.element.dataset['tbFindings'] = String(count);
    if (!frame || !count) {
      this.element.replaceChildren(frame ? h('div', { class: 'tb-valid' }, h('span', { 'aria-hidden': 'true' }, '✓'), 'Valid: no findings.') : '');
      return;
    }
    const [severity, where, target, rule, message, fix] = ['severity', 'where', 'target', 'rule', 'message', 'fix'].map(c => frame.text(c));
    const line = frame.column('line');
    const shown = Math.min(count, this.most);
    this.element.replaceChildren(
      h('ul', {}, ...Array.from({ length: shown }, (_, i) =>
        h('li', { class: `tb-problem tb-${severity![i]!}` },
          h('span', { class: 'tb-glyph', 'aria-label': severity![i], role: 'img' }, GLYPH[severity![i]!] ?? '·'),
          h('div', {},
            h('div', {},
              line[i] ? h('button', {
                class: 'tb-link', 'data-tb-action': 'goto-line', 'data-tb-line': line[i],
                onclick: () => this.go(target![i]!, line[i]!)
              }, `line ${line[i]}`) : '', line[i] ? ' · ' : '', h('b', {}, where![i]), ': ', message![i], h('code', {}, rule![i])),
            fix![i] ? h('div', { class: 'tb-fix' }, fix![i]) : '')))),
      ...(shown < count ? [h('button', {
        class: 'tb-button', 'data-tb-action': 'all-findings', onclick: () => {
          this.most = Infinity;
          this.render();
        }
      }, `Show all ${withThousands(count)}`)] : []));
  }

  private go(target: string, line: number): void {
    if (target) this.store.select([target], 'findings');
    this.store.setLine(line);
  }
}

/** A netlist file: what the check says, op graph and core grids side by side, ops, queues, programs and text below. */
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
        this.onFrame(key);
      }),
      store.on('line', () => tabs.show('netlist')));
    this.empty();
    this.render();
  }

  dispose(): void {
    this.views.forEach(view => view.dispose());
    this.stops.forEach(stop => stop());
  }

  private onFrame(key: string): void {
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
    const verdict = errors ? `${withThousands(errors)} error${errors > 1 ? 's' : ''}` : warnings ? `valid, ${withThousands(warnings)} warning${warnings > 1 ? 's' : ''}` : 'valid';
    this.head.replaceChildren(
      h('h3', {}, (summary['name'] as string | undefined) ?? ''),
      h('div', { class: 'tb-metrics' },
        checked && h('div', { class: `tb-metric ${errors ? 'tb-bad' : 'tb-good'}`, 'data-tb-metric': 'verdict' }, h('b', {}, verdict)),
        ...counts.map(([count, what]) => h('div', { class: 'tb-metric' }, h('b', {}, withThousands(count)), h('span', {}, what)))),
      h('p', {}, (summary['device'] as string | undefined) ?? ''));
  }
}

/** A TTI image, read only: what its manifest says, its files, and the netlist in it. */
export class ImageFile implements View {
  readonly element: HTMLElement;
  private readonly head = h('section', { class: 'tb-view tb-facts', 'data-tb-view': 'image', 'aria-label': 'Manifest' });
  private readonly missing = h('p', { hidden: true }, 'There is no netlist in this image.');
  private readonly netlist: NetlistFile;
  /** What the head shows: made anew only for another manifest, so that a press is not lost. */
  private shown = '';
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.netlist = new NetlistFile(store);
    this.element = h('div', { class: 'tb-document' }, this.head, this.netlist.element);
    this.stop = store.on('frame', key => {
      if (key === 'image' || key === 'netlist') this.render();
    });
    this.render();
  }

  dispose(): void {
    this.stop();
    this.netlist.dispose();
  }

  private render(): void {
    const meta = this.store.frames.get('image')?.meta;
    this.missing.hidden = this.store.frames.has('netlist');
    this.netlist.element.hidden = !this.missing.hidden;
    const text = JSON.stringify(meta ?? '');
    if (!meta || text === this.shown) return;
    this.shown = text;
    const files = meta['files'] as [string, number][];
    const more = Number(meta['more']);
    const open = this.head.querySelector('details')?.open ?? false;
    this.head.replaceChildren(
      factList(meta['facts'] as [string, string][]),
      h('details', { open }, h('summary', { 'data-tb-action': 'image-files' }, `${withThousands(files.length + more)} files`),
        h('table', { class: 'tb-plain' }, h('tbody', {}, ...files.map(([name, size]) =>
          h('tr', {}, h('td', {}, name), h('td', {}, `${withThousands(size)} bytes`))))),
        more > 0 && h('p', {}, `and ${withThousands(more)} more`)),
      this.missing);
  }
}
