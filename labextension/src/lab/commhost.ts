/** What a view in a tab stands on: a comm for the messages, a map for the values; the kernel may change the values. */
import type { Host } from '../views/host.js';
import type { Message, RawComm } from './rawcomm.js';

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
