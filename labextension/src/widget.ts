/**
 * Entry for notebooks: an anywidget module. The factory runs once per widget model, so that several views of one model
 * share its frames and selection.
 */
import { mountView } from './mount.js';
import { fromKernel, provide } from './views/fetched.js';
import type { Host } from './views/host.js';
import { bringBy } from './views/lazyview.js';
import { Store } from './views/store.js';

export { provide }; // the last lines of the bundle call it

bringBy(fromKernel);

/** The part of anywidget's model that is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, f: (...args: never[]) => void): void;
  off(event: string, f: (...args: never[]) => void): void;
}

export function hostOf(model: Model): Host {
  return {
    live: true,
    get: name => model.get(name),
    set(name, value) {
      model.set(name, value);
      model.save_changes();
    },
    on(name, f) {
      model.on(`change:${name}`, f);
      return () => model.off(`change:${name}`, f);
    },
    send: message => model.send(message),
    onMessage(f) {
      const handler = (content: unknown, buffers: unknown) =>
        f(content as Record<string, unknown>, (buffers as DataView[] | undefined) ?? []);
      model.on('msg:custom', handler);
      return () => model.off('msg:custom', handler);
    }
  };
}

export default () => {
  let store: Store | null = null;
  return {
    initialize({ model }: { model: Model }): () => void {
      store = new Store(hostOf(model));
      return () => store?.dispose();
    },

    render({ model, el }: { model: Model; el: HTMLElement }): () => void {
      const { root, dispose } = mountView((store ??= new Store(hostOf(model))), String(model.get('view')));
      const height = Number(model.get('height') ?? 0);
      if (height > 0) root.style.setProperty('--tb-height', `${height}px`);
      el.append(root);
      return dispose;
    }
  };
};
