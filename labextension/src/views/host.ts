/**
 * What a view may ask of the place it stands in: a notebook widget, a JupyterLab document, or a static page.
 * Values are small and synced; everything bulky comes as messages.
 */
export interface Host {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  /** Calls `f` when the value changes; returns the way to stop it. */
  on(name: string, f: () => void): () => void;
  send(message: Record<string, unknown>): void;
  onMessage(f: (message: Record<string, unknown>, buffers: DataView[]) => void): () => void;
  /** False where no kernel listens: nothing can be run, cancelled or fetched. */
  readonly live: boolean;
  /** Whether edits can be tried without a kernel, by tables that the page has. */
  readonly whatIf?: boolean;
}

/** A host without a kernel: values live in a map, messages go nowhere. */
export class StaticHost implements Host {
  readonly live = false;
  private readonly values: Map<string, unknown>;
  private readonly listeners = new Map<string, Set<() => void>>();

  constructor(values: Record<string, unknown> = {}) {
    this.values = new Map(Object.entries(values));
  }

  get(name: string): unknown {
    return this.values.get(name);
  }

  set(name: string, value: unknown): void {
    this.values.set(name, value);
    this.listeners.get(name)?.forEach(f => f());
  }

  on(name: string, f: () => void): () => void {
    const set = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, set);
    set.add(f);
    return () => set.delete(f);
  }

  // eslint-disable-next-line @typescript-eslint/no-unused-vars -- who overrides it listens
  send(_message?: Record<string, unknown>): void {
    // Nobody listens.
  }

  // eslint-disable-next-line @typescript-eslint/no-unused-vars -- who overrides it speaks
  onMessage(_f: (message: Record<string, unknown>, buffers: DataView[]) => void): () => void {
    return () => undefined;
  }
}
