/** Which session a command means: that of the view in front, and no other. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { type ISignal, Signal } from '@lumino/signaling';
import { kernelOf, type Place, type Sessions } from './sessions.js';

const VIEWS = '[data-tb-root][data-tb-session]';

/** Calls `look` a moment after what is on the page changes, once for many changes. Returns what asks for one more look. */
export function onPage(app: JupyterFrontEnd, wait: number, look: () => void): () => void {
  let timer = 0;
  const soon = () => {
    timer ||= window.setTimeout(() => {
      timer = 0;
      look();
    }, wait);
  };
  void app.restored.then(() => {
    new MutationObserver(soon).observe(app.shell.node, { childList: true, subtree: true });
    soon();
  });
  return soon;
}

export class Current {
  /** The outermost element of the view last touched. */
  root: HTMLElement | null = null;
  private last: { kernel: string; session: string } | null = null;
  private readonly signal = new Signal<this, void>(this);

  constructor(private readonly app: JupyterFrontEnd, private readonly sessions: Sessions) {
    for (const event of ['pointerdown', 'focusin']) {
      document.addEventListener(event, e => this.onTouch(e.target), { capture: true, passive: true });
    }
    sessions.changed.connect(() => this.signal.emit());
    app.shell.currentChanged?.connect(() => this.signal.emit());
  }

  get onChange(): ISignal<this, void> {
    return this.signal;
  }

  /** The session of the view in front: the one last touched there, else the only one there. Null where there is none, or
   *  several and none of them was touched. */
  get place(): Place | null {
    const front = this.app.shell.currentWidget;
    if (!front) return null;
    const here = kernelOf(front)?.id;
    const shown = new Map<string, Place>();
    for (const root of front.node.querySelectorAll<HTMLElement>(VIEWS)) {
      const kernel = root.dataset['tbKernel'] ?? here;
      const place = kernel ? this.sessions.find(kernel, root.dataset['tbSession']!) : null;
      if (place) shown.set(`${place.kernel.kernel.id} ${place.info.id}`, place);
    }
    const { last } = this;
    const touched = last && (shown.get(`${last.kernel} ${last.session}`) ?? (last.kernel === here ? this.sessions.find(last.kernel, last.session) : null));
    if (touched) return touched;
    if (shown.size) return shown.size === 1 ? [...shown.values()][0]! : null;
    const kernel = this.sessions.of(here);
    return kernel?.sessions.length === 1 ? { kernel, info: kernel.sessions[0]! } : null;
  }

  /** The view that page commands go to: the one last touched, else one of the current session that can be seen. */
  get view(): HTMLElement | null {
    const place = this.place;
    const fits = (e: HTMLElement) => e.isConnected && (!place || e.dataset['tbSession'] === place.info.id);
    if (this.root && this.app.shell.currentWidget?.node.contains(this.root) && fits(this.root)) return this.root;
    const front = this.app.shell.currentWidget?.node ?? document.body;
    const all = [...front.querySelectorAll<HTMLElement>(VIEWS)].filter(fits);
    return all.find(e => e.dataset['tbRoot'] === 'bringup' && e.offsetParent) ?? all.find(e => e.offsetParent) ?? null;
  }

  choose(kernel: string, session: string): void {
    this.last = { kernel, session };
    this.signal.emit();
  }

  private onTouch(target: EventTarget | null): void {
    const root = target instanceof Element ? target.closest<HTMLElement>('[data-tb-root]') : null;
    if (!root) return;
    this.root = root;
    const session = root.dataset['tbSession'];
    const kernel = root.dataset['tbKernel'] ?? this.kernelAround(root);
    if (session && kernel) this.choose(kernel, session);
  }

  private kernelAround(element: Element): string | undefined {
    for (const area of ['main', 'right', 'left', 'down']) {
      for (const widget of this.app.shell.widgets(area)) {
        if (widget.node.contains(element)) return kernelOf(widget)?.id;
      }
    }
    return undefined;
  }
}
