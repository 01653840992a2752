/** The side bar with the sessions of all kernels, and the status bar with the current one. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Widget } from '@lumino/widgets';
import { bytes, withThousands, h, PressGuard } from '../views/dom.js';
import { COMMAND, icon } from './commands.js';
import type { Current } from './current.js';
import type { KernelSessions, SessionInfo, Sessions } from './sessions.js';
import { DEVICES, type Settings } from './settings.js';

/** The left panel: the sessions of all kernels, what state they are in, their checkpoints; and the device for new ones. */
export class Sidebar extends Widget {
  private readonly pressed = new PressGuard(this.node, () => this.draw());

  constructor(private readonly app: JupyterFrontEnd, private readonly sessions: Sessions, private readonly current: Current,
              private readonly settings: Settings) {
    super();
    this.id = 'tbuda-sidebar';
    this.addClass('tb-lab-sidebar');
    this.title.icon = icon;
    this.title.caption = 'Tensix';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Tensix sessions');
    for (const signal of [sessions.changed, current.onChange, settings.changed]) signal.connect(this.update, this);
    this.draw();
  }

  /** Folded away it is not drawn: to keep its place it must ask how far it is scrolled, which lays out the whole page. */
  protected override onUpdateRequest(): void {
    if (this.isVisible) this.pressed.ask();
  }

  protected override onBeforeShow(): void {
    this.draw();
  }

  private draw(): void {
    const focused = this.node.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset['tbKey'] : undefined;
    const top = this.node.scrollTop;
    const kernels = this.sessions.kernels;
    this.node.replaceChildren(
      h('header', {},
        h('h2', {}, 'Tensix'),
        h('label', {}, 'Device for new sessions ',
          h('select', { 'data-tb-action': 'default-device', 'data-tb-key': 'device', onchange: (event: Event) =>
            void this.settings.set('device', (event.target as HTMLSelectElement).value) },
          ...DEVICES.map(d => h('option', { value: d, selected: d === this.settings.values.device }, d)))),
        this.button('new', 'New session', 'new-session', () => void this.app.commands.execute(COMMAND.newSession))),
      ...(kernels.length ? kernels.map(k => this.kernel(k)) : [
        h('p', { class: 'tb-lab-note' }, 'No sessions. A cell with ', h('code', {}, 'BringUp(model, inputs)'), ' creates one.')]));
    this.node.scrollTop = top;
    if (focused) this.node.querySelector<HTMLElement>(`[data-tb-key="${CSS.escape(focused)}"]`)?.focus();
  }

  private kernel(kernel: KernelSessions): HTMLElement {
    return h('section', { 'data-tb-kernel': kernel.kernel.id },
      h('h3', { title: kernel.title }, kernel.title),
      h('ul', {}, ...kernel.sessions.map(s => this.session(kernel, s))));
  }

  private session(kernel: KernelSessions, s: SessionInfo): HTMLElement {
    const key = `${kernel.kernel.id}-${s.id}`;
    const is = this.current.place;
    const mine = is?.kernel === kernel && is.info.id === s.id;
    const run = (command: string, args = {}) => () =>
      void this.app.commands.execute(command, { ...args, kernel: kernel.kernel.id, session: s.id });
    const chip = (show: unknown, name: string, kind: string, text: string) =>
      Boolean(show) && h('span', { class: `tb-lab-chip ${kind}`, [`data-tb-${name}`]: text }, text);
    const facts = [s.device, s.running ? `${s.phase}, ${Math.round(100 * s.done / Math.max(1, s.total))} %` : s.phase,
      s.epochs ? `${s.epochs} epoch${s.epochs > 1 ? 's' : ''}` : '', s.cycles ? `${withThousands(s.cycles)} cycles/input` : ''].filter(Boolean);
    return h('li', { class: mine ? 'tb-lab-current' : '', 'data-tb-session-row': s.name, 'aria-current': mine ? 'true' : undefined },
      h('button', {
        class: 'tb-lab-plain tb-lab-name', 'data-tb-action': 'choose-session', 'data-tb-key': `${key}-name`,
        title: 'Make it the current session and show its notebook', onclick: () => {
          this.current.choose(kernel.kernel.id, s.id);
          void this.app.commands.execute('docmanager:open', { path: kernel.title }).catch(() => undefined);
        }
      }, s.name),
      chip(s.stale, 'stale', 'tb-lab-warn', 'stale'),
      chip(s.errors, 'errors', 'tb-lab-bad', `${s.errors} error${s.errors > 1 ? 's' : ''}`),
      chip(s.warnings, 'warnings', 'tb-lab-warn', `${s.warnings} warning${s.warnings > 1 ? 's' : ''}`),
      h('p', {}, facts.join(' · ')),
      h('div', { class: 'tb-lab-buttons' },
        this.button(`${key}-bench`, 'Workbench', 'open-workbench', run(COMMAND.openWorkbench)),
        this.button(`${key}-grid`, 'Grid', 'open-grid', run(COMMAND.openGrid)),
        s.running
          ? this.button(`${key}-cancel`, 'Cancel', 'session-cancel', run(COMMAND.cancel))
          : this.button(`${key}-run`, 'Run', 'session-run', run(COMMAND.run)),
        this.button(`${key}-check`, 'Checkpoint…', 'session-checkpoint', run(COMMAND.checkpoint))),
      s.checkpoints.length > 0 && h('ul', { class: 'tb-lab-checkpoints', 'aria-label': `checkpoints of ${s.name}` },
        ...s.checkpoints.map(name => h('li', { 'data-tb-checkpoint': name }, name, ' ',
          this.button(`${key}-diff-${name}`, 'compare', 'checkpoint-diff', run(COMMAND.diff, { checkpoint: name }))))));
  }

  private button(key: string, label: string, action: string, onclick: () => void): HTMLElement {
    return h('button', { class: 'tb-lab-button', 'data-tb-action': action, 'data-tb-key': key, onclick }, label);
  }
}

/** The status bar: what the current session is doing, how far it is, a way to stop it, and whether edits wait. */
export class StatusItem extends Widget {
  private readonly pressed = new PressGuard(this.node, () => this.draw());

  constructor(private readonly app: JupyterFrontEnd, private readonly current: Current, private readonly reveal: () => void) {
    super();
    this.addClass('tb-lab-status');
    this.node.dataset['tbStatus'] = '';
    current.onChange.connect(this.changed, this);
    this.draw();
  }

  override dispose(): void {
    this.current.onChange.disconnect(this.changed, this);
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
    const phase = info.running ? `${info.phase} ${share} %` : info.failed ? 'failed' : info.cycles ? `${withThousands(info.cycles)} cycles/input` : info.phase;
    this.node.dataset['tbState'] = state;
    this.node.replaceChildren(h('span', { class: 'tb-lab-status-line' },
      h('button', {
        class: 'tb-lab-plain', 'data-tb-action': 'status-session', onclick: this.reveal,
        title: `${info.name} on ${info.device}: ${info.epochs} epochs, ${info.overrides} overrides${info.message ? `. ${info.message}` : ''}`
      }, `${info.name}: ${phase}`),
      info.running && h('progress', { max: 100, value: share, 'aria-label': `${info.name}, ${info.phase}` }),
      info.stale && h('span', { class: 'tb-lab-chip tb-lab-warn', 'data-tb-stale': 'stale', title: 'Some edits are not compiled yet' }, 'stale'),
      info.errors > 0 && h('span', { class: 'tb-lab-chip tb-lab-bad', 'data-tb-errors': info.errors }, `${info.errors} error${info.errors > 1 ? 's' : ''}`),
      place.kernel.memory > 0 && h('span', { 'data-tb-memory': place.kernel.memory, title: 'Memory of the kernel of this session' },
        bytes(place.kernel.memory)),
      info.running && h('button', {
        class: 'tb-lab-plain', 'data-tb-action': 'status-cancel', title: 'Cancel the work', 'aria-label': `cancel ${info.name}`,
        onclick: () => void this.app.commands.execute(COMMAND.cancel, { kernel: place.kernel.kernel.id, session: info.id })
      }, '✕')));
  }
}
