/**
 * A comm on any kernel connection. JupyterLab lets one connection per kernel handle comms, and that one belongs to the
 * notebook and its widgets; so messages are sent and picked out of the stream here, and nothing is taken from anybody.
 */
import { KernelMessage, type Kernel } from '@jupyterlab/services';
import { UUID, type JSONObject } from '@lumino/coreutils';

export const TARGET = 'tbuda_lab.session';

export type Message = Record<string, unknown>;
type Hearer = (message: Message, buffers: DataView[]) => void;

export class RawComm {
  private readonly id = UUID.uuid4();
  private readonly hearers = new Set<Hearer>();
  private readonly enders = new Set<() => void>();
  private open = true;
  /** What is sent before the kernel has opened its end: null once it has. It would warn of a comm that it does not know. */
  private unsent: Message[] | null = [];
  private readonly opening: string;

  constructor(readonly kernel: Kernel.IKernelConnection, data: Message) {
    kernel.iopubMessage.connect(this.received, this);
    kernel.statusChanged.connect(this.changed, this);
    kernel.disposed.connect(this.end, this);
    this.opening = this.post('comm_open', { comm_id: this.id, target_name: TARGET, data: data as JSONObject });
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
    this.end();
    if (alive) this.post('comm_close', { comm_id: this.id, data: {} });
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
      content
    } as KernelMessage.IOptions<KernelMessage.ICommMsgMsg<'shell'>>);
    this.kernel.sendShellMessage(message, false, true);
    return message.header.msg_id;
  }

  /** The kernel has opened its end. */
  private opened(): void {
    const unsent = this.unsent ?? [];
    this.unsent = null;
    unsent.forEach(data => this.send(data));
  }

  private received(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (!this.open) return;
    const content = message.content as { comm_id?: string; data?: unknown; execution_state?: string };
    const handled = content.execution_state === 'idle' && (message.parent_header as { msg_id?: string }).msg_id === this.opening;
    if (this.unsent && (handled || content.comm_id === this.id)) this.opened();
    if (content.comm_id !== this.id) return;
    if (message.header.msg_type === 'comm_close') this.end();
    else if (message.header.msg_type === 'comm_msg') {
      const buffers = (message.buffers ?? []).map(b => (b instanceof DataView ? b : new DataView(b as ArrayBuffer)));
      const data = content.data as Message;
      this.hearers.forEach(f => f(data, buffers));
      if (data['type'] === 'failed') this.refused();
    }
  }

  /** The kernel leaves it to us to close what it refused. */
  private refused(): void {
    if (!this.open) return;
    this.post('comm_close', { comm_id: this.id, data: {} });
    this.end();
  }

  private changed(_: unknown, status: Kernel.Status): void {
    if (['restarting', 'autorestarting', 'dead', 'terminating'].includes(status)) this.end();
  }

  private end(): void {
    if (!this.open) return;
    this.open = false;
    this.kernel.iopubMessage.disconnect(this.received, this);
    this.kernel.statusChanged.disconnect(this.changed, this);
    this.kernel.disposed.disconnect(this.end, this);
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
