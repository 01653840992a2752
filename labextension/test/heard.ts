/** A page of one view, and what it told its host. */
import { StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';

/** A host that remembers what the page told it and sent. */
export class Heard extends StaticHost {
  override readonly live = true as never;
  readonly told: [string, unknown][] = [];
  readonly sent: Record<string, unknown>[] = [];
  private asking = false;
  override set(name: string, value: unknown): void {
    if (!this.asking && name !== 'selection') this.told.push([name, value]);
    super.set(name, value);
  }
  override send(message?: Record<string, unknown>): void {
    if (message) this.sent.push(message);
  }
  /** Python sets a trait. */
  ask(name: string, value: unknown): void {
    this.asking = true;
    super.set(name, value);
    this.asking = false;
  }
}

export function alone(view: string, traits: Record<string, unknown>): { host: Heard; store: Store } {
  const host = new Heard({ view, ...traits });
  return { host, store: new Store(host) };
}
