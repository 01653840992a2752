/**
 * Views in cells of notebooks: workbenches compact, whole in a tab beside the notebook unless the settings say
 * otherwise; what a notebook keeps of a view, and how it comes alive again.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { onPage } from './current.js';
import { kernelOf, type Place, type Sessions } from './sessions.js';
import type { Settings } from './settings.js';
import { Sanitizer } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { Widget } from '@lumino/widgets';
import { h } from '../views/dom.js';

const ROOT = '[data-tb-root=bringup][data-tb-session]';
const OPENED = 'tbuda-lab:opened'; // sessions whose tab was opened once: one that somebody closed stays closed
const CELLS_INTERVAL = 150; // ms between two searches of the page

/** Workbenches in cells of notebooks: compact there, whole in a tab beside the notebook, unless the settings say otherwise. */
export class Cells {
  constructor(
    private readonly app: JupyterFrontEnd, private readonly sessions: Sessions, private readonly settings: Settings,
    private readonly open: (place: Place) => void
  ) {
    const look = onPage(app, CELLS_INTERVAL, () => this.arrange());
    sessions.changed.connect(look);
    settings.changed.connect(look);
  }

  private arrange(): void {
    const compact = this.settings.values.place === 'tab';
    for (const widget of this.app.shell.widgets('main')) {
      const connection = kernelOf(widget);
      const kernel = connection?.id;
      for (const root of widget.node.querySelectorAll<HTMLElement>(`.jp-OutputArea ${ROOT}`)) {
        if (root.dataset['tbForm'] === (compact ? 'compact' : 'whole')) continue;
        const place = kernel ? this.sessions.find(kernel, root.dataset['tbSession']!) : null;
        if (compact && !place) { // nothing to open a tab on yet
          if (connection && !root.inert) this.sessions.meet(connection);
          continue;
        }
        root.dataset['tbForm'] = compact ? 'compact' : 'whole';
        root.classList.toggle('tb-compact', compact);
        if (compact && !wasOpened(`${kernel!} ${place!.info.id}`)) this.open(place!);
      }
    }
  }
}

/** Whether this was asked before in this window. */
function wasOpened(key: string): boolean {
  const opened = JSON.parse(sessionStorage.getItem(OPENED) ?? '[]') as string[];
  if (opened.includes(key)) return true;
  sessionStorage.setItem(OPENED, JSON.stringify([...opened, key]));
  return false;
}

const WIDGET = 'application/vnd.jupyter.widget-view+json';
const STORED_START = "<div class='tb-twin'>"; // how our pictures begin, see pictures/fragments.py
const REST = 1000; // ms without work before a picture is made anew
const PICTURES_INTERVAL = 250; // ms between two searches of the page

interface Output {
  toJSON(): { data?: Record<string, unknown> };
}

interface Cell {
  model?: {
    outputs?: { length: number; get(i: number): Output };
    sharedModel: { updateOutputs(from: number, to: number, outputs: unknown[], origin: string): void };
  };
  outputArea?: { widgets: readonly Widget[] };
}

interface Notebook extends Widget {
  content: { widgets: readonly Cell[] };
  context: { model: { dirty: boolean } };
}

/** One of our outputs. */
interface CellOutput {
  cell: Cell;
  at: number;
  json: { data: Record<string, unknown> };
  html: string;
  model: string;
  node: HTMLElement;
}

/**
 * What a notebook keeps of a view, and what is seen of it where no kernel answers: its picture, and how it comes alive
 * again. When work of a session ends, the pictures of its views are made anew.
 */
export class StoredViews {
  private readonly sanitizer = new Sanitizer();
  private readonly watched = new WeakSet<Kernel.IKernelConnection>();
  /** What each session last said of itself, by kernel and name. */
  private readonly said = new Map<string, string>();
  private readonly timers = new Map<string, number>();
  /** Looks at the notebooks on the page, a moment from now. */
  private readonly look: () => void;

  constructor(private readonly app: JupyterFrontEnd, private readonly sessions: Sessions) {
    this.look = onPage(app, PICTURES_INTERVAL, () => this.books().forEach(book => this.seen(book)));
    app.shell.currentChanged?.connect(this.look);
    sessions.changed.connect(() => {
      this.renewPictures();
      this.look();
    });
  }

  private books(): Notebook[] {
    return [...this.app.shell.widgets('main')].filter(w => Array.isArray((w as unknown as Partial<Notebook>).content?.widgets)) as unknown as Notebook[];
  }

  /** The outputs of a notebook that are ours and on the page. */
  private outputs(book: Notebook): CellOutput[] {
    const found: CellOutput[] = [];
    for (const cell of book.content.widgets) {
      const outputs = cell.model?.outputs; // other documents hold widgets that are no cells
      if (!outputs || !cell.outputArea) continue;
      for (let at = 0; at < outputs.length; at++) {
        const json = outputs.get(at).toJSON();
        const node = cell.outputArea.widgets[at]?.node;
        const html = text(json.data?.['text/html']);
        const view = json.data?.[WIDGET] as { model_id?: string } | undefined;
        if (node && view?.model_id && html.startsWith(STORED_START)) found.push({ cell, at, json: json as CellOutput['json'], html, model: view.model_id, node });
      }
    }
    return found;
  }

  /** Shows pictures where views are dead, and takes them away where views came alive. */
  private seen(book: Notebook): void {
    const kernel = kernelOf(book);
    if (kernel && !this.watched.has(kernel)) {
      this.watched.add(kernel);
      kernel.statusChanged.connect((_, status) => {
        // another page's restart is announced by the new process alone: 'starting'
        if (['restarting', 'autorestarting', 'starting'].includes(status)) this.lost(book, 'Kernel restarted: run the cell again.');
        if (status === 'dead' || status === 'terminating') this.lost(book, 'The kernel has ended: run the cell again.');
        this.look();
      });
    }
    if (!kernel) this.lost(book, 'No kernel: run the cell to use this view.');
    for (const { node, html } of this.outputs(book)) {
      const shown = node.querySelector<HTMLElement>('[data-tb-stored]');
      const alive = node.querySelector('[data-tb-root]') !== null;
      if (alive) shown?.remove();
      node.classList.toggle('tb-lab-dead', !alive);
      if (alive || shown) continue;
      const picture = h('div', { class: 'tb-lab-picture' });
      picture.innerHTML = this.sanitizer.sanitize(html);
      node.append(h('div', { class: 'tb-lab-stored', 'data-tb-stored': '' },
        h('p', { class: 'tb-lab-note', role: 'status' }, 'Stored picture. Run the cell to use this view.'), picture));
    }
  }

  /** The views of a notebook have no kernel any more: what they show stays, what they offer is off. */
  private lost(book: Notebook, why: string): void {
    for (const { node } of this.outputs(book)) {
      const root = node.querySelector<HTMLElement>('[data-tb-root]');
      if (!root || root.inert) continue;
      root.inert = true;
      root.before(h('p', { class: 'tb-lab-note tb-lab-lost', role: 'status', 'data-tb-lost': '' }, why));
    }
  }

  // -- pictures of what is there now -------------------------------------------------------------------------------
  /** Sessions whose work has just ended: their pictures are made anew once they rest. */
  private renewPictures(): void {
    for (const kernel of this.sessions.kernels) {
      for (const info of kernel.sessions) {
        const key = `${kernel.kernel.id} ${info.id}`;
        const now = JSON.stringify([info.phase, info.failed, info.epochs, info.cycles, info.undo, info.redo, info.errors, info.warnings]);
        if (info.running || info.busy || this.said.get(key) === now) continue;
        this.said.set(key, now);
        clearTimeout(this.timers.get(key));
        this.timers.set(key, window.setTimeout(() => void this.renew(kernel.kernel.id, info.id), REST));
      }
    }
  }

  private async renew(id: string, session: string): Promise<void> {
    for (const book of this.books()) {
      if (kernelOf(book)?.id !== id) continue;
      for (const { model, node } of this.outputs(book)) {
        if (node.querySelector<HTMLElement>('[data-tb-root]')?.dataset['tbSession'] !== session) continue;
        const answer = await this.sessions.of(id)?.command('picture', session, { view: model });
        // the notebook may have changed while the kernel was asked
        const now = this.outputs(book).find(output => output.model === model);
        if (!answer?.ok || !now || now.html === answer['html']) continue;
        const { json, cell, at } = now;
        const fresh = { ...json, data: { ...json.data, 'text/html': answer['html'] } };
        cell.model?.sharedModel.updateOutputs(at, at + 1, [fresh], 'silent-change'); // the live view stays as it is
        book.context.model.dirty = true;
        node.dataset['tbRenewed'] = String(Number(node.dataset['tbRenewed'] ?? 0) + 1);
      }
    }
  }
}

function text(value: unknown): string {
  return Array.isArray(value) ? value.join('') : typeof value === 'string' ? value : '';
}
