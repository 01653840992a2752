/** Which session a command means: that of the view last touched, else the latest of the kernel in front, else any. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Signal, type ISignal } from '@lumino/signaling';

import { kernelOf, type Place, type Sessions } from './sessions.js';

export class Current {
  /** The outermost element of the view last touched. */
  root: HTMLElement | null = null;
  private last: { kernel: string; session: string } | null = null;
  private readonly signal = new Signal<this, void>(this);

  constructor(private readonly app: JupyterFrontEnd, private readonly sessions: Sessions) {
    for (const event of ['pointerdown', 'focusin']) {
      document.addEventListener(event, e => this.touched(e.target), { capture: true, passive: true });
    }
    sessions.changed.connect(() => this.signal.emit());
    app.shell.currentChanged?.connect(() => this.signal.emit());
  }

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  get place(): Place | null {
    const here = this.last && this.sessions.find(this.last.kernel, this.last.session);
    const front = kernelOf(this.app.shell.currentWidget);
    if (here && (!front || front.id === here.kernel.kernel.id)) return here;
    const kernel = this.sessions.of(front?.id) ?? (here ? undefined : this.sessions.kernels[0]);
    const info = kernel?.sessions.at(-1);
    return kernel && info ? { kernel, info } : here;
  }

  /** The view that page commands go to: the one last touched, else one of the current session that can be seen. */
  get view(): HTMLElement | null {
    const place = this.place;
    const fits = (e: HTMLElement) => e.isConnected && (!place || e.dataset['tbSession'] === place.info.id);
    if (this.root && fits(this.root)) return this.root;
    const all = [...document.querySelectorAll<HTMLElement>('[data-tb-root][data-tb-session]')].filter(fits);
    return all.find(e => e.dataset['tbRoot'] === 'bringup' && e.offsetParent) ?? all.find(e => e.offsetParent) ?? null;
  }

  choose(kernel: string, session: string): void {
    this.last = { kernel, session };
    this.signal.emit();
  }

  private touched(target: EventTarget | null): void {
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
