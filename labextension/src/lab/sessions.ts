/**
 * The sessions of all running kernels: who has any, what they say, and the way to give them a command; and one
 * kernel for all documents, found again after a reload.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Kernel, Session } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';
import { hasTarget, OVERLAP, RawComm } from './comm.js';
import type { DocumentRegistry } from '@jupyterlab/docregistry';

/** One session as the kernel describes it (`widgets/handlers/lab/sessions.py`). */
export interface SessionInfo {
  id: string;
  name: string;
  device: string;
  phase: string;
  running: boolean;
  failed: boolean;
  done: number;
  total: number;
  message: string;
  stale: boolean;
  busy: boolean;
  undo: string;
  redo: string;
  overrides: number;
  checkpoints: string[];
  errors: number;
  warnings: number;
  epochs: number;
  cycles: number;
  selected: string[];
  journal: string;
}

interface Answer {
  ok: boolean;
  text: string;
  [more: string]: unknown;
}

/** A session and the kernel it lives in. */
export interface Place {
  kernel: KernelSessions;
  info: SessionInfo;
}

const PATIENCE = 60_000; // ms for the answer to a command
const LOOK_AGAIN = 3_000; // ms
const ASK_AGAIN = 15_000; // ms between two questions to a kernel that has not imported us

/** The sessions of all running kernels: who has any, what they say, and the way to give them a command. */
export class KernelSessions {
  sessions: SessionInfo[] = [];
  /** Bytes that the kernel holds; 0 where it does not say. */
  memory = 0;
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private seq = 0;
  /** Of the views that stand on this kernel outside its notebook. */
  private readonly views = new Set<RawComm>();

  /** own: nothing else on the page uses the connection, so it ends with this. */
  constructor(
    readonly title: string, public own: boolean, private readonly comm: RawComm, private readonly changed: () => void,
    private readonly successor: () => Kernel.IKernelConnection | null
  ) {
    comm.onMessage(message => {
      if (message['type'] === 'sessions') {
        this.sessions = message['sessions'] as SessionInfo[];
        this.memory = Number(message['memory'] ?? 0);
        this.changed();
      } else if (message['type'] === 'answer') {
        const seq = Number(message['seq']);
        this.waiting.get(seq)?.(message as unknown as Answer);
        this.waiting.delete(seq);
      } else if (message['type'] === 'reconnected') comm.send({ type: 'resync' });
    });
  }

  get kernel(): Kernel.IKernelConnection {
    return this.comm.kernel;
  }

  /** A comm for a view of a session. */
  viewOf(session: string): RawComm {
    const comm = new RawComm(this.kernel, { open: 'view', session }, this.successor);
    for (const old of this.views) if (!old.isOpen) this.views.delete(old);
    this.views.add(comm);
    return comm;
  }

  /** Goes on over the connection of a document, which is connected, and its views with it; nothing is mounted anew. */
  moveTo(kernel: Kernel.IKernelConnection): void {
    const own = this.own ? this.kernel : null;
    [this.comm, ...this.views].forEach(comm => comm.moveTo(kernel));
    this.own = false;
    if (own) setTimeout(() => own.dispose(), 2 * OVERLAP);
  }

  /** The kernel has been restarted over another connection. */
  onRestart(): void {
    [...this.views, this.comm].forEach(comm => comm.end());
  }

  /** Gives a session a command; the answer says whether it was done. */
  command(name: string, session: string, more: Record<string, unknown> = {}): Promise<Answer> {
    const seq = ++this.seq;
    return new Promise(resolve => {
      this.waiting.set(seq, resolve);
      setTimeout(() => {
        if (this.waiting.delete(seq)) resolve({ ok: false, text: 'The kernel is busy; it has not answered yet.' });
      }, PATIENCE);
      this.comm.send({ ...more, type: 'command', name, session, seq });
    });
  }

  close(): void {
    this.waiting.forEach(f => f({ ok: false, text: 'The kernel has stopped.' }));
    this.waiting.clear();
    this.comm.close();
    if (this.own) this.kernel.dispose();
  }
}

/** Something in the shell that has a kernel: a notebook, a console, a document of ours. */
interface HasKernel {
  sessionContext?: { session: Session.ISessionConnection | null };
  context?: { sessionContext?: { session: Session.ISessionConnection | null } };
}

export function kernelOf(widget: unknown): Kernel.IKernelConnection | null {
  const has = widget as HasKernel | null;
  const context = has?.sessionContext ?? has?.context?.sessionContext;
  return context?.session?.kernel ?? null;
}

/** Follows the running kernels. One list per kernel that has imported `tbuda_lab.widgets`. */
export class Sessions {
  private readonly byKernel = new Map<string, KernelSessions>();
  private readonly asking = new Set<string>();
  private readonly requests = new Map<string, number>();
  private readonly sharing = new WeakSet<Kernel.IKernelConnection>();
  private readonly watched = new WeakSet<Kernel.IKernelConnection>();
  private readonly signal = new Signal<this, void>(this);

  constructor(private readonly app: JupyterFrontEnd) {
    app.serviceManager.sessions.runningChanged.connect(() => this.refresh());
    void app.restored.then(() => {
      this.refresh();
      app.shell.currentChanged?.connect(() => this.refresh());
      setInterval(() => this.refresh(), LOOK_AGAIN); // a notebook may have got its kernel without any of these
    });
  }

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  /** Kernels that have sessions, in the order of their titles. */
  get kernels(): KernelSessions[] {
    return [...this.byKernel.values()].filter(k => k.sessions.length).sort((a, b) => a.title.localeCompare(b.title));
  }

  of(kernel: string | undefined): KernelSessions | undefined {
    return kernel === undefined ? undefined : this.byKernel.get(kernel);
  }

  find(kernel: string, session: string): Place | null {
    const found = this.byKernel.get(kernel);
    const info = found?.sessions.find(s => s.id === session);
    return found && info ? { kernel: found, info } : null;
  }

  /** The session that writes a file, given by its place on the kernel's disk. */
  writing(journal: string): Place | null {
    for (const kernel of this.byKernel.values()) {
      const info = kernel.sessions.find(s => s.journal === journal);
      if (info) return { kernel, info };
    }
    return null;
  }

  refresh(): void {
    const models = [...this.app.serviceManager.sessions.running()];
    const living = new Set(models.map(m => m.kernel?.id));
    for (const [id, kernel] of this.byKernel) {
      if (!living.has(id)) this.forget(id, kernel);
    }
    for (const model of models) {
      const kernel = model.kernel;
      if (!kernel) continue;
      const open = this.connectionInPage(kernel.id);
      const fresh = open !== null && !this.watched.has(open);
      if (open && fresh) {
        this.watch(open, model);
        if (this.byKernel.has(kernel.id)) this.signal.emit(); // its document shows a session now, which may be the current one
      }
      const known = this.byKernel.get(kernel.id);
      if (known) {
        if (known.own && open) void this.share(known, open); // the document has been opened: one connection is enough
      } else if (!this.asking.has(kernel.id) && (fresh || Date.now() - (this.requests.get(kernel.id) ?? 0) > ASK_AGAIN)) {
        this.requests.set(kernel.id, Date.now()); // that of a document also whenever it becomes idle
        void this.ask(open ?? this.connect(kernel.id, kernel.name), model, !open);
      }
    }
  }

  /** A connection that no document has. */
  private connect(id: string, name: string): Kernel.IKernelConnection {
    return this.app.serviceManager.kernels.connectTo({ model: { id, name }, handleComms: false });
  }

  /** Moves to the connection of a document once that is connected: until then views stay on the one they have. */
  private async share(known: KernelSessions, open: Kernel.IKernelConnection): Promise<void> {
    if (this.sharing.has(open)) return;
    this.sharing.add(open);
    await open.info; // it has answered
    if (this.byKernel.get(open.id) === known && known.own && !open.isDisposed) known.moveTo(open);
  }

  private forget(id: string, kernel: KernelSessions): void {
    this.byKernel.delete(id);
    kernel.close();
    this.signal.emit();
  }

  private connectionInPage(id: string): Kernel.IKernelConnection | null {
    for (const area of ['main', 'left', 'right', 'down']) {
      for (const widget of this.app.shell.widgets(area)) {
        const kernel = kernelOf(widget);
        if (kernel?.id === id && !kernel.isDisposed) return kernel;
      }
    }
    return null;
  }

  /** Looks again whenever a cell is done: it may have imported us. A restart is heard here first. */
  private watch(kernel: Kernel.IKernelConnection, model: Session.IModel): void {
    this.watched.add(kernel);
    kernel.statusChanged.connect((_, status) => {
      if (status === 'restarting') this.byKernel.get(kernel.id)?.onRestart();
      if (status === 'idle' && !this.byKernel.has(kernel.id)) void this.ask(kernel, model, false);
    });
  }

  private async ask(kernel: Kernel.IKernelConnection, model: Session.IModel, own: boolean): Promise<void> {
    const id = kernel.id;
    if (this.asking.has(id) || this.byKernel.has(id)) {
      if (own) kernel.dispose();
      return;
    }
    this.asking.add(id);
    let found = false;
    try {
      const late = new Promise<boolean>(resolve => setTimeout(() => resolve(false), PATIENCE)); // an answer may get lost
      found = await Promise.race([hasTarget(kernel), late]);
    } catch {
      // The kernel went away, or the connection was made anew, while it was asked.
    } finally {
      this.asking.delete(id);
    }
    if (found && !kernel.isDisposed && !this.byKernel.has(id)) this.follow(kernel, model, own);
    else if (own && !kernel.isDisposed) kernel.dispose();
  }

  /** A view of ours is alive in a document of this kernel: it need not be asked, which would have to wait for its cells. */
  meet(kernel: Kernel.IKernelConnection): void {
    const model = [...this.app.serviceManager.sessions.running()].find(m => m.kernel?.id === kernel.id);
    if (model && kernel.supportsSubshells && !this.byKernel.has(kernel.id)) this.follow(kernel, model, false);
  }

  /** Keeps the list of a kernel that has us. own: as in `KernelSessions`. */
  private follow(kernel: Kernel.IKernelConnection, model: Session.IModel, own: boolean): void {
    const { id } = kernel;
    let made: KernelSessions | null = null;
    let next: Kernel.IKernelConnection | null = null;
    const successor = (): Kernel.IKernelConnection | null => {
      if (!made || this.byKernel.get(id) !== made || ![...this.app.serviceManager.sessions.running()].some(m => m.kernel?.id === id)) return null;
      if (!next || next.isDisposed) next = this.connect(id, kernel.name); // one for the list and all views
      made.own = true;
      return next;
    };
    const comm = new RawComm(kernel, { open: 'sessions' }, successor);
    made = new KernelSessions(model.path || model.name, own, comm, () => this.signal.emit(), successor);
    this.byKernel.set(id, made);
    comm.onEnd(() => {
      if (this.byKernel.get(id) === made) this.forget(id, made);
    });
  }
}

// What documents share: when they are opened, and one kernel for all of them, found again after a reload.
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
