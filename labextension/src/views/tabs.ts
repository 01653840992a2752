/** Panels behind tabs, and what every view is. */
import { h, svg } from './dom.js';
import { onPreferences } from './preferences.js';

/** What stands in a page: it has an element, and ends with `dispose`. */
export interface View {
  readonly element: HTMLElement;
  /** Somebody begins to look. */
  lookedAt?(): void;
  dispose(): void;
}

/** Panels behind tabs; all stay alive, one is seen. */
export class Tabs implements View {
  readonly element: HTMLElement;
  private readonly bar = h('div', { class: 'tb-tabs', role: 'tablist' });
  /** Buttons at the end of the bar. */
  private readonly tools = h('div', { class: 'tb-tab-tools' });
  private readonly buttons = new Map<string, HTMLButtonElement>();
  private readonly panels = new Map<string, View>();
  private readonly stops: (() => void)[] = [];
  front = '';
  /** Hears which panel is in front. */
  shown: (id: string) => void = () => undefined;

  constructor(views: [string, string, View][]) {
    this.element = h('div', { class: 'tb-tabbed' }, h('div', { class: 'tb-tab-bar' }, this.bar, this.tools));
    this.bar.addEventListener('keydown', event => this.step(event));
    for (const [id, label, view] of views) {
      const button = h('button', {
        type: 'button', role: 'tab', 'data-tb-action': `tab-${id}`, onclick: () => this.show(id)
      }, label);
      this.buttons.set(id, button);
      this.panels.set(id, view);
      this.bar.append(button);
      this.element.append(view.element);
    }
    this.show(views[0]![0]);
  }

  /** A button that opens the view in front in a tab of JupyterLab; the extension hears it, and says by its settings that
   *  it is there. */
  detachable(): void {
    const button = h('button', {
      type: 'button', class: 'tb-detach', 'data-tb-action': 'open-tab', title: 'Open this view in a tab of JupyterLab', 'aria-label': 'Open this view in a tab',
      onclick: () => button.dispatchEvent(new CustomEvent('tb-tab', { bubbles: true, detail: this.front === 'ops' ? 'table' : this.front }))
    }, svg('svg', { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' },
      svg('path', { d: 'M4 1.5h6.5V8M8 4H1.5v6.5H8z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.3 })));
    const fill = fullWidth();
    const offer = () => {
      button.hidden = !document.body.dataset['tbPreferences'];
      fill.hidden = !button.hidden;
    };
    offer();
    this.stops.push(onPreferences(offer));
    this.offerTools(button, fill); // a list of tabs holds nothing else
  }

  /** Puts buttons at the end of the bar, after those that stand there. */
  offerTools(...buttons: HTMLElement[]): void {
    this.tools.append(...buttons);
  }

  /** Arrows go from tab to tab: the bar is one stop of the Tab key. */
  private step(event: KeyboardEvent): void {
    const ids = [...this.buttons].filter(([, button]) => !button.hidden).map(([id]) => id);
    const at = ids.indexOf(this.front);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.show(ids[(to + ids.length) % ids.length]!);
    this.buttons.get(this.front)!.focus();
  }

  show(id: string): void {
    if (!this.panels.has(id)) return;
    this.front = id;
    for (const [key, view] of this.panels) {
      view.element.hidden = key !== id;
      this.buttons.get(key)!.setAttribute('aria-selected', String(key === id));
      this.buttons.get(key)!.tabIndex = key === id ? 0 : -1;
    }
    this.panels.get(id)?.lookedAt?.();
    this.shown(id);
  }

  /** Shows or hides a tab; a hidden one that was seen gives way to the first. */
  offer(id: string, there: boolean): void {
    const button = this.buttons.get(id);
    if (!button) return;
    button.hidden = !there;
    if (!there && button.getAttribute('aria-selected') === 'true') this.show([...this.panels.keys()][0]!);
  }

  badge(id: string, count: number): void {
    const button = this.buttons.get(id);
    if (!button) return;
    button.querySelector('.tb-badge')?.remove();
    if (count) button.append(h('span', { class: 'tb-badge' }, String(count)));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.panels.forEach(view => view.dispose());
  }
}

/** Where there is no JupyterLab to open a tab in: the workbench over the whole page, and back. */
function fullWidth(): HTMLButtonElement {
  const button = h('button', {
    type: 'button', class: 'tb-detach', 'data-tb-action': 'full-width', title: 'Full page on or off (Escape)', 'aria-label': 'Full page',
    'aria-pressed': 'false', onclick: () => show(button.getAttribute('aria-pressed') === 'false')
  }, svg('svg', { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' },
    svg('path', { d: 'M1.5 4V1.5H4M8 1.5h2.5V4M10.5 8v2.5H8M4 10.5H1.5V8', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.3 })));
  const leave = (event: Event) => {
    if ((event as KeyboardEvent).key === 'Escape' && !event.defaultPrevented) show(false);
  };
  const show = (on: boolean) => {
    const root = button.closest<HTMLElement>('.tb-root');
    root?.classList.toggle('tb-filling', on);
    root?.[on ? 'addEventListener' : 'removeEventListener']('keydown', leave);
    button.setAttribute('aria-pressed', String(on));
  };
  return button;
}
