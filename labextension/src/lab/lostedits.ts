/** What a tab keeps of a session whose kernel may go: its last picture, and its edits as the file that Export writes. */
import { h } from '../views/dom.js';
import type { Store } from '../views/store.js';

const MOST = 48 * 1024; // bytes of a file that a page sends

/** How many edits, in words. */
function edits(count: number): string {
  return count === 1 ? 'one edit' : `${count} edits`;
}

/** The picture of a view as it stands: nothing in it does anything, nothing finds it as a view. */
export function picture(root: HTMLElement): HTMLElement {
  const copy = root.cloneNode(true) as HTMLElement;
  const drawn = root.querySelectorAll('canvas');
  copy.querySelectorAll('canvas').forEach((canvas, i) => {
    if (drawn[i]!.width && drawn[i]!.height) canvas.getContext('2d')?.drawImage(drawn[i]!, 0, 0);
  });
  copy.inert = true;
  copy.dataset['tbGone'] = copy.dataset['tbRoot'];
  delete copy.dataset['tbRoot'];
  delete copy.dataset['tbSession'];
  return copy;
}

/** The edits of the session that a tab shows. After a restart of its kernel they are offered to the session that comes. */
export class LostEdits {
  /** What is offered: those of the session before. */
  private lost: { count: number; file: string } | null = null;
  private known: { count: number; file: string } | null = null;
  private stops: (() => void)[] = [];

  /** show: puts the offer above the view, or takes it away. */
  constructor(private readonly show: (offer: HTMLElement | null) => void) {}

  /** Follows a session that the tab shows from now on. */
  follow(store: Store): void {
    this.stop();
    this.lost = this.known;
    this.known = null;
    this.stops = [
      store.on('frame', key => {
        if (key === 'edits') this.onEdits(store);
      }),
      store.listen('code', message => {
        if (message['ok'] && store.edits?.overrides.length) this.known = { count: store.edits.overrides.length, file: String(message['json']) };
      })
    ];
  }

  /** Its kernel has gone; returns what a person may read of its edits. */
  onGone(): string {
    this.stop();
    this.known ??= this.lost; // nobody took the offer
    return this.known ? ` Its ${edits(this.known.count)} will be offered to it.` : '';
  }

  stop(): void {
    this.stops.forEach(stop => stop());
    this.stops = [];
  }

  private onEdits(store: Store): void {
    const count = store.edits?.overrides.length ?? 0;
    if (count) store.host.send({ type: 'code' });
    else this.known = null;
    const offered = this.lost && count < this.lost.count && this.lost.file.length <= MOST;
    if (!offered) this.lost = null; // they came by the journal, or were made again
    this.show(this.lost ? this.offer(store, this.lost) : null);
  }

  private offer(store: Store, lost: { count: number; file: string }): HTMLElement {
    return h('div', { class: 'tb-lab-banner', role: 'status', 'data-tb-lost-edits': lost.count },
      h('span', {}, `Before its kernel restarted, this session had ${edits(lost.count)}.`),
      h('button', {
        class: 'jp-mod-styled jp-mod-accept', 'data-tb-action': 'restore-edits',
        onclick: () => store.edit({ do: 'load', file: 'edits before the restart', text: lost.file })
      }, 'Make them again'),
      h('button', {
        class: 'jp-mod-styled', 'data-tb-action': 'forget-edits', onclick: () => {
          this.lost = null;
          this.show(null);
        }
      }, 'Forget them'));
  }
}
