/** The status bar: what the current session is doing, how far it is, a way to stop it, and whether edits wait. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Widget } from '@lumino/widgets';

import { bytes, grouped, h } from '../views/dom.js';
import { COMMAND } from './commands.js';
import type { Current } from './current.js';
import { PressGuard } from './pressguard.js';

export class StatusItem extends Widget {
  private readonly pressed = new PressGuard(this.node, () => this.draw());

  constructor(private readonly app: JupyterFrontEnd, private readonly current: Current, private readonly reveal: () => void) {
    super();
    this.addClass('tb-lab-status');
    this.node.dataset['tbStatus'] = '';
    current.changed.connect(this.changed, this);
    this.draw();
  }

  override dispose(): void {
    this.current.changed.disconnect(this.changed, this);
    super.dispose();
  }

  private changed(): void {
    this.pressed.ask();
  }

  private draw(): void {
    if (this.isDisposed) return;
    const place = this.current.place;
    const info = place?.info;
    this.node.hidden = !info;
    if (!info) return;
    const share = info.total ? Math.round(100 * info.done / info.total) : 0;
    const state = info.failed ? 'failed' : info.running ? 'running' : 'idle';
    const phase = info.running ? `${info.phase} ${share} %` : info.failed ? 'failed' : info.cycles ? `${grouped(info.cycles)} cycles/input` : info.phase;
    this.node.dataset['tbState'] = state;
    this.node.replaceChildren(h('span', { class: 'tb-lab-status-line' },
      h('button', {
        type: 'button', class: 'tb-lab-plain', 'data-tb-action': 'status-session', onclick: this.reveal,
        title: `${info.name} on ${info.device}: ${info.epochs} epochs, ${info.overrides} overrides${info.message ? `. ${info.message}` : ''}`
      }, `${info.name}: ${phase}`),
      info.running && h('progress', { max: 100, value: share, 'aria-label': `${info.name}, ${info.phase}` }),
      info.stale && h('span', { class: 'tb-lab-chip tb-lab-warn', 'data-tb-stale': 'stale', title: 'Some edits are not compiled yet' }, 'stale'),
      info.errors > 0 && h('span', { class: 'tb-lab-chip tb-lab-bad', 'data-tb-errors': info.errors }, `${info.errors} error${info.errors > 1 ? 's' : ''}`),
      place.kernel.memory > 0 && h('span', { 'data-tb-memory': place.kernel.memory, title: 'Memory of the kernel of this session' },
        bytes(place.kernel.memory)),
      info.running && h('button', {
        type: 'button', class: 'tb-lab-plain', 'data-tb-action': 'status-cancel', title: 'Cancel the work', 'aria-label': `cancel ${info.name}`,
        onclick: () => void this.app.commands.execute(COMMAND.cancel, { kernel: place.kernel.kernel.id, session: info.id })
      }, '✕')));
  }
}
