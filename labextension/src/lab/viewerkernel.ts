/** What documents share: when they are opened, and one kernel for all of them, found again after a reload. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { Kernel, Session } from '@jupyterlab/services';

const PATH = 'tensix-viewer'; // in the server's folder, so that paths of documents are paths of the kernel
const START = 'import tbuda_lab.widgets.handlers.lab.documents';
const SETTLE = 400; // ms; one save is several events

/** Calls `open` when the file is there, and again after each save. The first reading of a file is a change as well: it
    comes before `ready`, and opens nothing a second time. Returns what ends it. */
export function whenRead(context: Pick<DocumentRegistry.Context, 'ready' | 'fileChanged'>, open: () => void): () => void {
  let timer = 0;
  let ended = false;
  const change = () => {
    clearTimeout(timer);
    timer = window.setTimeout(open, SETTLE);
  };
  void context.ready.then(() => {
    if (ended) return;
    context.fileChanged.connect(change);
    open();
  });
  return () => {
    ended = true;
    clearTimeout(timer);
    context.fileChanged.disconnect(change);
  };
}

/** Started with the first document, shared by the rest. */
export class ViewerKernel {
  private connection: Promise<Session.ISessionConnection> | null = null;

  constructor(private readonly app: JupyterFrontEnd) {}

  /** A kernel that can open documents. Rejects with the reason when there is none. */
  async get(): Promise<Kernel.IKernelConnection> {
    this.connection ??= this.start();
    try {
      const session = await this.connection;
      const kernel = session.kernel;
      if (!kernel || session.isDisposed || kernel.status === 'dead') throw new Error('The kernel of the viewer has stopped.');
      const done = await kernel.requestExecute({ code: START, silent: true, store_history: false }).done;
      if (done.content.status === 'error') {
        throw new Error(`The kernel ${kernel.name} cannot open it: ${done.content.ename}: ${done.content.evalue}`);
      }
      return kernel;
    } catch (error) {
      this.connection = null;
      throw error;
    }
  }

  private async start(): Promise<Session.ISessionConnection> {
    const { sessions, kernelspecs } = this.app.serviceManager;
    await sessions.ready;
    const there = await sessions.findByPath(PATH);
    if (there) return sessions.connectTo({ model: there });
    await kernelspecs.ready;
    const specs = kernelspecs.specs;
    const python = Object.values(specs?.kernelspecs ?? {}).filter(s => s?.language === 'python').map(s => s!.name);
    const name = python.includes(specs?.default ?? '') ? specs!.default : python[0];
    if (!name) throw new Error('No Python kernel is installed.');
    return sessions.startNew({ path: PATH, type: 'console', name: 'Tensix viewer', kernel: { name } });
  }
}
