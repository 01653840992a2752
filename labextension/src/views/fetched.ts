/**
 * More code of this bundle, fetched from the kernel as text and taken into the page the way the bundle came: as a module
 * of its own from a blob. It is built with the bundle (`scripts/bundle.mjs`) and uses the bundle's own modules.
 */
import type { Bring } from './lazyview.js';
import type { More } from './lazybundle.js';
import type { Store } from './store.js';

const SLOW = 3_000; // ms until the page says what it waits for
const AGAIN = 10_000; // ms until it asks again: the server may have dropped the message

let core: unknown = null;
let build = '';

/** What the other part takes from the bundle, and the build both must be of. Called by the bundle itself. */
export function provide(modules: unknown, of: string): void {
  core = modules;
  build = of;
}

export const fromKernel: Bring = (store, waiting) =>
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
