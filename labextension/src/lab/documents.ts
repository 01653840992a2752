/** Documents in tabs: session files, TTI images and PEF programs by double click, netlists by *Open With*. */
import type { View } from '../views/docks.js';
import { factList, h } from '../views/dom.js';
import type { Store } from '../views/store.js';
import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget, TextModelFactory } from '@jupyterlab/docregistry';
import type { Contents } from '@jupyterlab/services';
import { yamlIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import { VIEWS } from '../mount.js';
import { icon } from './commands.js';
import { mountPreview, PreviewError } from './preview.js';
import { RawComm } from './comm.js';
import { type Sessions, ViewerKernel, whenRead } from './sessions.js';
import { mountOnComm } from './tab.js';

/** The edits of a session as its file has them: device, steps, checkpoints, overrides, and how to go on with them. */
class JournalFile implements View {
  readonly element = h('div', { class: 'tb-document', 'data-tb-view': 'journal' });
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.stop = store.on('frame', () => this.render());
    this.render();
  }

  dispose(): void {
    this.stop();
  }

  private render(): void {
    const meta = this.store.frames.get('journal')?.meta;
    if (!meta) return;
    const steps = meta['steps'] as [string, string][];
    const undone = meta['undone'] as string[];
    const checkpoints = meta['checkpoints'] as string[];
    const python = String(meta['python']);
    const resume = `session = Session.open(${JSON.stringify(meta['path'])}, model, inputs)\nBringUp(session)`;
    this.element.replaceChildren(
      h('h3', {}, String(meta['name'])),
      factList([['device', String(meta['device'])], ...(meta['options'] as [string, string][]),
        ['checkpoints', checkpoints.join(', ') || 'none']]),
      h('h4', {}, `Edits (${steps.length})`),
      steps.length + undone.length
        ? h('ol', { class: 'tb-steps' },
            ...steps.map(([label, source]) => h('li', { 'data-tb-step': label }, label, ' ', h('small', {}, source))),
            ...undone.map(label => h('li', { class: 'tb-undone', 'data-tb-undone': label }, label, ' ', h('small', {}, 'undone'))))
        : h('p', {}, 'No edits.'),
      h('h4', {}, 'Overrides as Python'),
      python ? this.code(python, 'copy-python') : h('p', {}, 'None.'),
      h('h4', {}, 'Continue this session'),
      h('p', {}, 'A session file holds the edits, not the model. Open it with the model, in a notebook:'),
      this.code(`from tbuda_lab.core.session import Session\nfrom tbuda_lab.widgets import BringUp\n\n${resume}`, 'copy-resume'));
  }

  private code(text: string, action: string): HTMLElement {
    return h('div', { class: 'tb-snippet' }, h('pre', { class: 'tb-code', tabindex: 0 }, text), h('button', {
      class: 'tb-button', 'data-tb-action': action, onclick: () => void (navigator.clipboard as Clipboard | undefined)?.writeText(text)
    }, 'Copy'));
  }
}

type Kind = 'netlist' | 'image' | 'journal' | 'program' | 'profile';
type Mount = { root: HTMLElement; dispose: () => void };

const VIEW: Record<Kind, string> = { netlist: 'netlistfile', image: 'imagefile', journal: 'journalfile', program: 'bringup', profile: 'measured' };

class Body extends Widget {
  private mounted: Mount | null = null;
  private readonly banner = h('div', { class: 'tb-lab-banner', role: 'status', hidden: true });
  private readonly place = h('div');
  private run = 0;
  private readonly stopReading: () => void;
  private journal = '';
  private live = '';
  private trouble = '';

  constructor(private readonly contents: Contents.IManager, private readonly context: DocumentRegistry.Context,
              private readonly kind: Kind, private readonly kernel: ViewerKernel, private readonly sessions: Sessions) {
    super();
    this.addClass('tb-lab-tab');
    this.node.dataset['tbDocument'] = kind;
    this.node.append(this.banner, this.place);
    this.stopReading = whenRead(context, () => void this.open());
    if (kind === 'journal') sessions.changed.connect(this.follow, this);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.stopReading();
    this.run++;
    this.sessions.changed.disconnect(this.follow, this);
    this.mounted?.dispose();
    super.dispose();
  }

  private async open(): Promise<void> {
    if (this.isDisposed || this.live) return;
    const run = ++this.run;
    const { contents } = this;
    const path = this.context.path;
    if (!this.mounted) this.preview();
    if (contents.driveName(path)) {
      this.say('The kernel cannot read files of this drive.', true);
      return;
    }
    if (!this.mounted || this.mounted.root.dataset['tbRoot'] === 'preview') this.say('Starting a kernel…');
    try {
      const kernel = await this.kernel.get();
      if (run !== this.run) return;
      const comm = new RawComm(kernel, { open: this.kind, path: contents.localPath(path) });
      const ready = await new Promise<boolean>((resolve, reject) => {
        comm.onMessage(message => {
          if (message['type'] === 'ready') resolve(true);
          if (message['type'] === 'failed') reject(new Error(String(message['text'])));
        });
        comm.onEnd(() => resolve(false));
      });
      if (run !== this.run) {
        comm.close();
        return;
      }
      if (!ready) throw new Error('The kernel of the viewer has stopped.');
      if (this.kind === 'journal') {
        comm.onMessage((message) => {
          if (message['type'] !== 'frame' || message['key'] !== 'journal') return;
          const header = message['header'] as { meta: Record<string, unknown> };
          this.journal = String(header.meta['absolute']);
          this.follow();
        });
      }
      this.mount(mountOnComm(comm, VIEW[this.kind], kernel.id, () => {
        if (run === this.run && !this.isDisposed) this.say('The kernel of the viewer has stopped. Its last result stays on the screen.', true);
      }));
      this.say('');
    } catch (error) {
      if (run !== this.run) return;
      const said = error instanceof Error ? error.message : String(error);
      const seen = this.mounted?.root.dataset['tbRoot'] === 'preview' ? 'Preview without a kernel: no graph, cycles or checks.' : '';
      this.say([said, this.trouble || seen].filter(Boolean).join('\n'), true);
    }
  }

  /** A session that is writing this file is shown itself, with all its views. */
  private follow(): void {
    const found = this.journal ? this.sessions.writing(this.journal) : null;
    const key = found ? `${found.kernel.kernel.id} ${found.info.id}` : '';
    if (key === this.live || this.isDisposed) return;
    this.live = key;
    this.run++;
    if (!found) {
      void this.open();
      return;
    }
    const { kernel, info } = found;
    this.mount(mountOnComm(kernel.viewOf(info.id), 'bringup', kernel.kernel.id, () => {
      this.live = '';
      void this.open();
    }));
    this.say(`Live: ${info.name} in ${kernel.title}`);
  }

  private preview(): void {
    if (this.kind !== 'netlist') return;
    this.trouble = '';
    try {
      this.mount(mountPreview(this.context.model.toString(), this.context.localPath.split('/').at(-1)!));
    } catch (error) {
      if (!(error instanceof PreviewError)) throw error;
      this.trouble = error.message;
    }
  }

  private mount(mounted: Mount): void {
    this.mounted?.dispose();
    this.mounted = mounted;
    this.place.replaceChildren(mounted.root);
  }

  private say(text: string, bad = false): void {
    this.banner.hidden = !text;
    this.banner.classList.toggle('tb-lab-bad', bad);
    this.banner.dataset['tbBanner'] = bad ? 'failed' : text ? 'working' : '';
    this.banner.replaceChildren(h('span', {}, text), ...(bad ? [h('button', {
      class: 'tb-lab-button', 'data-tb-action': 'try-again', onclick: () => void this.open()
    }, 'Try again')] : []));
  }
}

class Factory extends ABCWidgetFactory<DocumentWidget<Body>> {
  constructor(options: DocumentRegistry.IWidgetFactoryOptions<DocumentWidget<Body>>,
              private readonly contents: Contents.IManager, private readonly kind: Kind,
              private readonly kernel: ViewerKernel, private readonly sessions: Sessions) {
    super(options);
  }

  protected override createNewWidget(context: DocumentRegistry.Context): DocumentWidget<Body> {
    const content = new Body(this.contents, context, this.kind, this.kernel, this.sessions);
    const widget = new DocumentWidget<Body>({ content, context });
    widget.title.icon = icon;
    return widget;
  }
}

/** A model without content: the kernel reads the file, however large it is. */
class NoContent extends TextModelFactory {
  override get name(): string {
    return 'tbuda-no-content';
  }

  override get fileFormat(): 'text' {
    return null as unknown as 'text'; // the context then asks the server for no content
  }
}

export function addDocuments(app: JupyterFrontEnd, sessions: Sessions, restorer: ILayoutRestorer | null): void {
  VIEWS['journalfile'] = JournalFile; // a notebook has the session itself
  const { docRegistry } = app;
  const kernel = new ViewerKernel(app);
  docRegistry.addModelFactory(new NoContent());
  docRegistry.addFileType({
    name: 'tbuda-session', displayName: 'Tensix session', extensions: ['.buda.json'], icon, fileFormat: 'text',
    contentType: 'file', mimeTypes: ['application/vnd.tbuda-session+json']
  });
  docRegistry.addFileType({
    name: 'tbuda-tti', displayName: 'TTI image', extensions: ['.tti'], icon, fileFormat: 'base64', contentType: 'file',
    mimeTypes: ['application/x-tti']
  });
  docRegistry.addFileType({
    name: 'tbuda-pef', displayName: 'PEF program', extensions: ['.pef'], icon, fileFormat: 'base64', contentType: 'file',
    mimeTypes: ['application/x-pef']
  });
  docRegistry.addFileType({
    name: 'tbuda-profile', displayName: 'Measured profile', extensions: [], pattern: '.*ops_perf.*\\.csv$', icon, fileFormat: 'base64', contentType: 'file',
    mimeTypes: ['text/csv']
  });
  // A pattern decides before an extension does, so the type also has to say that the file is YAML: the text editor
  // stays its default, and the grid is offered beside it.
  docRegistry.addFileType({
    name: 'tbuda-netlist', displayName: 'Buda netlist', extensions: [], pattern: '.*netlist.*\\.ya?ml$', fileFormat: 'text',
    contentType: 'file', mimeTypes: ['text/x-yaml'], icon: yamlIcon
  });
  /** others: types of file that it is offered for beside their own viewer. */
  const add = (name: string, label: string, kind: Kind, fileType: string, isDefault: boolean, modelName: string, others: string[] = []) => {
    const factory = new Factory({
      name, label, fileTypes: [fileType, ...others], defaultFor: isDefault ? [fileType] : [], modelName, readOnly: kind !== 'netlist',
      preferKernel: false, canStartKernel: false
    }, app.serviceManager.contents, kind, kernel, sessions);
    docRegistry.addWidgetFactory(factory as unknown as DocumentRegistry.WidgetFactory);
    const tracker = new WidgetTracker<DocumentWidget<Body>>({ namespace: name });
    factory.widgetCreated.connect((_, widget) => {
      widget.context.pathChanged.connect(() => void tracker.save(widget));
      void tracker.add(widget);
    });
    if (restorer) {
      void restorer.restore(tracker, {
        command: 'docmanager:open', args: widget => ({ path: widget.context.path, factory: name }), name: widget => widget.context.path
      });
    }
  };
  add('tbuda-session', 'Tensix session', 'journal', 'tbuda-session', true, 'tbuda-no-content');
  add('tbuda-tti', 'TTI image', 'image', 'tbuda-tti', true, 'tbuda-no-content');
  add('tbuda-pef', 'PEF program', 'program', 'tbuda-pef', true, 'tbuda-no-content');
  add('tbuda-profile', 'Measured profile', 'profile', 'tbuda-profile', true, 'tbuda-no-content', ['csv', 'tsv']);
  add('tbuda-netlist', 'Netlist grid', 'netlist', 'tbuda-netlist', false, 'text');
}
