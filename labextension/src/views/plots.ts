/** Plots of the session. The kernel makes them with Bokeh; they stand in a frame of their own. */
import { h } from './dom.js';
import type { Frame } from './frame.js';
import type { Store } from './store.js';
import { isDark, onTheme } from './theme.js';
import { LazyFrames } from './lazyframes.js';

const text = (frame: Frame) => new TextDecoder().decode(frame.column('text'));

let library = ''; // BokehJS, sent once a page

export class PlotsView {
  readonly element: HTMLElement;
  private readonly note = h('div', { class: 'tb-empty', role: 'status' });
  private readonly frame = h('iframe', { title: 'Plots of the session', sandbox: 'allow-scripts allow-downloads', hidden: true });
  private readonly stops: (() => void)[] = [];
  private readonly frames: LazyFrames;
  private lastFrame: Frame | null = null;

  constructor(private readonly store: Store) {
    this.element = h('section', { class: 'tb-view tb-plots', 'data-tb-view': 'plots', 'aria-label': 'Plots' }, this.note, this.frame);
    this.say(store.host.live ? store.frames.has('ops') ? 'Drawing plots …' : 'Plots appear here once the model is placed.' : 'Plots need a kernel; none is connected.');
    this.frames = new LazyFrames(store, this.element, {
      keys: ['plots'], ready: () => store.frames.has('ops'), question: () => ({ type: 'plots', dark: isDark(), library: !library }),
      paint: () => this.draw(), onSize: () => this.ask()
    });
    const renew = () => {
      this.frames.requested = false;
      this.ask();
    };
    this.stops.push(
      () => this.frames.dispose(),
      store.on('frame', key => {
        if (key === 'ops' || key === 'training') renew();
        else if (key === 'bokehjs') library = text(store.frames.get(key)!);
        if (key === 'bokehjs' || key === 'plots') this.frames.draw();
      }),
      onTheme(renew));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** Asks for plots of the newest placement while somebody looks. */
  private ask(): void {
    if (!this.frames.ask()) return;
    if (this.frame.hidden) this.say('Drawing …');
    this.element.dataset['tbState'] = 'working';
  }

  /** Both have to be there; either may come first. */
  private draw(): void {
    if (this.frames.refusal) {
      this.say(this.frames.refusal);
      return;
    }
    const plots = this.store.frames.get('plots');
    if (!plots || !library || plots === this.lastFrame) return;
    this.lastFrame = plots;
    const ground = isDark() ? '#1c222b' : '#fff';
    this.frame.onload = () => (this.element.dataset['tbState'] = 'ready');
    this.frame.srcdoc = `<!DOCTYPE html><meta charset="utf-8"><style>body{margin:8px;background:${ground}}</style><script>${library.replaceAll('</script', '<\\/script')}</script>${text(plots)}`;
    this.frame.hidden = false;
    this.note.hidden = true;
  }

  private say(said: string): void {
    this.note.textContent = said;
    this.note.hidden = false;
    this.frame.hidden = true;
    this.element.dataset['tbState'] = 'empty';
  }
}
