/** A view of a session in a tab of its own, outside the notebook. Finds its session again after a reload. */
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { h } from '../views/dom.js';
import { Store } from '../views/store.js';
import { mountView } from '../mount.js';
import { icon, NAMES } from './commands.js';
import { CommHost, type RawComm } from './comm.js';
import { LostEdits, picture } from './lostedits.js';
import type { Place, Sessions } from './sessions.js';

interface TabArguments {
  kernel: string;
  session: string;
  name: string;
  view: string;
}

interface MountedView {
  root: HTMLElement;
  store: Store;
  dispose: () => void;
}

/** A view on a comm; `end` is called when the other end is gone. */
export function mountOnComm(comm: RawComm, view: string, kernel: string, end: () => void): MountedView {
  const store = new Store(new CommHost(comm));
  const mounted = mountView(store, view);
  mounted.root.dataset['tbKernel'] = kernel;
  comm.onEnd(end);
  return {
    root: mounted.root,
    store,
    dispose() {
      mounted.dispose();
      store.dispose();
      comm.close();
    }
  };
}

class TabBody extends Widget {
  private mounted: MountedView | null = null;
  private readonly edits = new LostEdits(offer => {
    this.node.querySelector(':scope > .tb-lab-banner')?.remove();
    if (offer) this.node.prepend(offer);
  });

  constructor(private readonly sessions: Sessions, readonly wanted: TabArguments) {
    super();
    this.addClass('tb-lab-tab');
    this.title.label = `${wanted.name}: ${NAMES[wanted.view] ?? wanted.view}`;
    this.title.icon = icon;
    sessions.changed.connect(this.attach, this);
    this.node.dataset['tbTab'] = wanted.view;
    this.wait();
    this.attach();
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.sessions.changed.disconnect(this.attach, this);
    this.edits.stop();
    this.mounted?.dispose();
    super.dispose();
  }

  private attach(): void {
    if (this.mounted) return;
    const place = this.place();
    if (!place) return;
    this.wanted.session = place.info.id;
    const { kernel } = place.kernel;
    this.mounted = mountOnComm(place.kernel.viewOf(place.info.id), this.wanted.view, kernel.id, () => {
      const last = this.mounted && picture(this.mounted.root);
      this.mounted?.dispose();
      this.mounted = null;
      this.wait(last);
      setTimeout(() => this.attach(), 0);
    });
    if (this.wanted.view === 'bringup') this.mounted.root.classList.add('tb-fills');
    this.node.replaceChildren(this.mounted.root);
    this.edits.follow(this.mounted.store);
  }

  /** The same session, or after a restart of its kernel the one that has its name. */
  private place(): Place | null {
    const { kernel, session, name } = this.wanted;
    const exact = this.sessions.find(kernel, session);
    if (exact?.info.name === name) return exact;
    const there = this.sessions.of(kernel);
    const info = there?.sessions.filter(s => s.name === name).at(-1);
    return there && info ? { kernel: there, info } : null;
  }

  /** last: how it stood when its kernel went. */
  private wait(last: HTMLElement | null = null): void {
    this.node.replaceChildren(h('p', { class: 'tb-lab-note', role: 'status' },
      `${this.wanted.name} is not running. Start its kernel and run the cell that creates the session; this tab then reconnects.${this.edits.onGone()}`),
    ...(last ? [last] : []));
  }
}

export class ViewTab extends MainAreaWidget<TabBody> {
  constructor(sessions: Sessions, wanted: TabArguments) {
    super({ content: new TabBody(sessions, wanted) });
    this.id = `tbuda-tab-${wanted.kernel}-${wanted.session}-${wanted.view}`;
    this.title.closable = true;
  }

  get wanted(): TabArguments {
    return this.content.wanted;
  }
}
