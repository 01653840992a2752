/**
 * Entry for notebooks: an anywidget module. The factory runs once per widget model, so that several views of one
 * model share its frames and selection.
 */
import { type Bring, bringBy } from './views/lazyview.js';
import type { More } from './views/lazybundle.js';
import { Store } from './views/store.js';
import { mountView } from './mount.js';
import type { Host } from './views/host.js';

// More code of this bundle, fetched from the kernel as text and taken into the page the way the bundle came: as a module
// of its own from a blob. It is built with the bundle (`scripts/bundle.mjs`) and uses the bundle's own modules.
const SLOW = 3_000; // ms until the page says what it waits for
const UNANSWERED = 2_000; // ms after which a view without a word of the kernel asks once more
const AGAIN = 10_000; // ms until it asks again: the server may have dropped the message

let core: unknown = null;
let build = '';

/** What the other part takes from the bundle, and the build both must be of. Called by the bundle itself. */
export function provide(modules: unknown, of: string): void {
  core = modules;
  build = of;
}

const fromKernel: Bring = (store, waiting) =>
  text(store, waiting).then(async source => {
    const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    try {
      const found = (await import(url)) as { build: string; default: (modules: unknown) => More };
      if (found.build !== build) throw new Error('The page and the kernel run different versions of tbuda_lab: restart the kernel and run the cell again.');
      return found.default(core);
    } finally {
      URL.revokeObjectURL(url);
    }
  });

function text(store: Store, waiting: (text: string) => void): Promise<BlobPart> {
  if (!store.host.live) return Promise.reject(new Error('No kernel is connected.'));
  return new Promise((resolve, reject) => {
    const ask = () => store.host.send({ type: 'need_more' });
    const timers = [setTimeout(() => waiting('Waiting for the kernel to finish its current work …'), SLOW), setInterval(ask, AGAIN)];
    const stop = store.listen('more', (message, buffers) => {
      stop();
      timers.forEach(clearTimeout);
      if (message['ok'] && buffers[0]) resolve(buffers[0] as BlobPart);
      else reject(new Error(String(message['text'])));
    });
    ask();
  });
}

// Entry for notebooks: an anywidget module. The factory runs once per widget model, so that several views of one model
// share its frames and selection.
bringBy(fromKernel);

/** The part of anywidget's model that is used here. */
interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, f: (...args: never[]) => void): void;
  off(event: string, f: (...args: never[]) => void): void;
}

function hostOf(model: Model): Host {
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
      const made = (store = new Store(hostOf(model)));
      // the first word waits for the cells where JupyterLab had no subshell for it yet
      const again = setTimeout(() => made.session || made.hello(), UNANSWERED);
      return () => {
        clearTimeout(again);
        made.dispose();
      };
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
