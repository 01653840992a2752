/**
 * A comm on any kernel connection, and what a view in a tab stands on: a comm for the messages, a map for the
 * values.
 */
import { type Kernel, KernelMessage } from '@jupyterlab/services';
import { type JSONObject, UUID } from '@lumino/coreutils';
import type { Host } from '../views/host.js';

const TARGET = 'tbuda_lab.session';

type Message = Record<string, unknown>;
type Hearer = (message: Message, buffers: DataView[]) => void;

export const OVERLAP = 2_000; // ms in which a comm that moves to another connection hears both

const GONE: Kernel.Status[] = ['restarting', 'autorestarting', 'dead', 'terminating'];

/** The subshell of each kernel that messages of ours are handled in, by the kernel's id: beside the cells. */
const subshells = new Map<string, Promise<string | null>>();

/** The subshell of a kernel for what this page asks; null where the kernel has none, and messages wait for its cells. */
function subshellOf(kernel: Kernel.IKernelConnection): Promise<string | null> {
  const known = subshells.get(kernel.id);
  if (known) return known;
  const made = kernel.requestCreateSubshell({}).done.then(reply => reply.content.subshell_id, () => null);
  subshells.set(kernel.id, made);
  kernel.statusChanged.connect((_, status) => {
    if (GONE.includes(status) || status === 'starting') subshells.delete(kernel.id);
  });
  return made;
}

/**
 * A comm on any kernel connection. JupyterLab lets one connection per kernel handle comms, and that one belongs to the
 * notebook and its widgets; so messages are sent and picked out of the stream here, and nothing is taken from anybody.
 */
export class RawComm {
  private readonly id = UUID.uuid4();
  private readonly hearers = new Set<Hearer>();
  private readonly enders = new Set<() => void>();
  private open = true;
  /** What is sent before the kernel has opened its end: null once it has. It would warn of a comm that it does not know. */
  private unsent: Message[] | null = [];
  private opening = '';
  private subshell: string | null = null;
  /** The process behind the connection, as its messages name it: another one after a restart. */
  private process = '';
  /** The connection that it moves away from, and the messages that came on either meanwhile. */
  private former: Kernel.IKernelConnection | null = null;
  private readonly heard = new Set<string>();

  /** successor: where to go on when the connection ends and its kernel does not; null ends the comm. */
  constructor(
    private connection: Kernel.IKernelConnection, data: Message, private readonly successor: () => Kernel.IKernelConnection | null = () => null
  ) {
    this.listen(connection);
    const begin = (): void => {
      this.opening = this.post('comm_open', { comm_id: this.id, target_name: TARGET, data: data as JSONObject });
    };
    if (!connection.supportsSubshells) begin();
    else {
      void subshellOf(connection).then(subshell => {
        this.subshell = subshell;
        if (this.open) begin();
      });
    }
  }

  get kernel(): Kernel.IKernelConnection {
    return this.connection;
  }

  /** Goes on over another connection to the same kernel, both being connected. The kernel's end stays as it is. Whatever
   *  the kernel says comes on both in the same order, so what came on one is left out on the other. */
  moveTo(kernel: Kernel.IKernelConnection): void {
    if (!this.open || kernel === this.connection) return;
    this.leave();
    const former = this.connection;
    this.former = former;
    former.disposed.disconnect(this.onDisconnect, this);
    former.statusChanged.disconnect(this.onStatus, this);
    this.connection = kernel;
    this.listen(kernel);
    setTimeout(() => {
      if (this.former === former) this.leave();
    }, OVERLAP);
  }

  get isOpen(): boolean {
    return this.open;
  }

  send(data: Message): void {
    if (!this.open) return;
    if (this.unsent) this.unsent.push(data);
    else this.post('comm_msg', { comm_id: this.id, data: data as JSONObject });
  }

  onMessage(f: Hearer): () => void {
    this.hearers.add(f);
    return () => this.hearers.delete(f);
  }

  /** Calls `f` once when the other end closes, or the kernel restarts or goes. */
  onEnd(f: () => void): void {
    this.enders.add(f);
  }

  close(): void {
    if (!this.open) return;
    const alive = !this.kernel.isDisposed && this.kernel.status !== 'dead';
    this.enders.clear();
    this.leaveKernel();
    if (alive && this.opening) this.post('comm_close', { comm_id: this.id, data: {} });
  }

  private listen(kernel: Kernel.IKernelConnection): void {
    kernel.iopubMessage.connect(this.onIOPub, this);
    kernel.statusChanged.connect(this.onStatus, this);
    kernel.disposed.connect(this.onDisconnect, this);
  }

  /** The document is closed that the connection belonged to. Hearers are told once another one stands: they may have
   *  missed messages. */
  private onDisconnect(): void {
    const next = this.successor();
    if (!next) {
      this.end();
      return;
    }
    this.moveTo(next);
    const missed = (): void => this.hearers.forEach(f => f({ type: 'reconnected' }, []));
    void next.info.then(missed, () => undefined); // without an answer there is no kernel, and the list of kernels says so
  }

  /** Hears the connection no more that it has moved away from. */
  private leave(): void {
    this.former?.iopubMessage.disconnect(this.onIOPub, this);
    this.former = null;
    this.heard.clear();
  }

  private post(
    type: 'comm_open' | 'comm_msg' | 'comm_close',
    content: { comm_id: string; target_name?: string; data: JSONObject }
  ): string {
    const message = KernelMessage.createMessage({
      msgType: type,
      channel: 'shell',
      username: this.kernel.username,
      session: this.kernel.clientId,
      ...(this.subshell ? { subshellId: this.subshell } : {}),
      content
    } as KernelMessage.IOptions<KernelMessage.ICommMsgMsg<'shell'>>);
    this.kernel.sendShellMessage(message, false, true);
    return message.header.msg_id;
  }

  /** The kernel has opened its end. */
  private onOpen(): void {
    const unsent = this.unsent ?? [];
    this.unsent = null;
    unsent.forEach(data => this.send(data));
  }

  private onIOPub(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (!this.open) return;
    if (this.former) {
      const { msg_id } = message.header;
      if (this.heard.has(msg_id)) return;
      this.heard.add(msg_id);
    }
    const content = message.content as { comm_id?: string; data?: unknown; execution_state?: string };
    const handled = content.execution_state === 'idle' && this.opening && (message.parent_header as { msg_id?: string }).msg_id === this.opening;
    const { session } = message.header;
    if (this.unsent && (handled || content.comm_id === this.id)) {
      this.process = session;
      this.onOpen();
    }
    // what has no parent may come from the server, which has a name of its own
    if (this.process && session !== this.process && (message.parent_header as { msg_id?: string }).msg_id) {
      this.end();
      return;
    }
    if (content.comm_id !== this.id) return;
    if (message.header.msg_type === 'comm_close') this.leaveKernel();
    else if (message.header.msg_type === 'comm_msg') {
      const buffers = (message.buffers ?? []).map(b => (b instanceof DataView ? b : new DataView(b as ArrayBuffer)));
      const data = content.data as Message;
      this.hearers.forEach(f => f(data, buffers));
      if (data['type'] === 'failed') this.onRefusal();
    }
  }

  /** The kernel leaves it to us to close what it refused. */
  private onRefusal(): void {
    if (!this.open) return;
    this.post('comm_close', { comm_id: this.id, data: {} });
    this.leaveKernel();
  }

  /** A restart over another connection is announced here by the new process alone: its first status is 'starting', if
   *  this connection is there in time to hear it. */
  private onStatus(_: unknown, status: Kernel.Status): void {
    const restarted = status === 'starting' && !this.unsent; // the former process had opened its end
    if (restarted || GONE.includes(status)) this.end();
  }

  /** What the kernel held is gone, its subshells too. */
  end(): void {
    if (this.open) subshells.delete(this.kernel.id);
    this.leaveKernel();
  }

  /** What the kernel held of this comm is gone, or this end was closed. */
  private leaveKernel(): void {
    if (!this.open) return;
    this.open = false;
    this.leave();
    this.kernel.iopubMessage.disconnect(this.onIOPub, this);
    this.kernel.statusChanged.disconnect(this.onStatus, this);
    this.kernel.disposed.disconnect(this.onDisconnect, this);
    const enders = [...this.enders];
    this.hearers.clear();
    this.enders.clear();
    enders.forEach(f => f());
  }
}

/** Whether code of ours has been imported in the kernel: it keeps a comm of that name for us to see. */
export async function hasTarget(kernel: Kernel.IKernelConnection): Promise<boolean> {
  const reply = await kernel.requestCommInfo({ target_name: TARGET });
  return reply.content.status === 'ok' && Object.keys(reply.content.comms).length > 0;
}

/** What a view in a tab stands on: a comm for the messages, a map for the values; the kernel may change the values. */
export class CommHost implements Host {
  readonly live = true;
  private readonly values = new Map<string, unknown>();
  private readonly listeners = new Map<string, Set<() => void>>();

  constructor(private readonly comm: RawComm) {
    comm.onMessage(message => {
      if (message['type'] === 'set') this.put(String(message['name']), message['value']);
    });
  }

  get(name: string): unknown {
    return this.values.get(name);
  }

  set(name: string, value: unknown): void {
    this.values.set(name, value);
    this.comm.send({ type: 'set', name, value });
  }

  on(name: string, f: () => void): () => void {
    const set = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, set);
    set.add(f);
    return () => set.delete(f);
  }

  send(message: Message): void {
    this.comm.send(message);
  }

  onMessage(f: (message: Message, buffers: DataView[]) => void): () => void {
    return this.comm.onMessage((message, buffers) => {
      if (message['type'] !== 'set') f(message, buffers);
    });
  }

  private put(name: string, value: unknown): void {
    this.values.set(name, value);
    this.listeners.get(name)?.forEach(f => f());
  }
}
