/**
 * How the workbench is arranged: panels behind tabs, graph and grid above, bars between panes; and what every view
 * is.
 */
import { h, svg } from './dom.js';
import { type Layout, layoutMenu } from './layouts.js';
import { onPreferences } from './preferences.js';
import { type Store, syncedTrait, type SyncedTrait } from './store.js';

// Panels behind tabs, and what every view is.
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
        role: 'tab', 'data-tb-action': `tab-${id}`, onclick: () => this.show(id)
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
      class: 'tb-detach', 'data-tb-action': 'open-tab', title: 'Open this view in a tab of JupyterLab', 'aria-label': 'Open this view in a tab',
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
    class: 'tb-detach', 'data-tb-action': 'full-width', title: 'Full page on or off (Escape)', 'aria-label': 'Full page',
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

// Bars between panes: dragged, or moved by arrow keys. Where they stood is remembered by the browser, for all workbenches.
const KEY = 'tbuda-lab:panes';
const STEP = 0.02; // of the container, by an arrow key

interface Bar {
  /** Under which the share is remembered, and the custom property that carries it: `--tb-share-<name>`. */
  name: string;
  label: string;
  /** Whether the panes stand side by side. */
  across: boolean;
  /** Share of the first pane where nobody moved the bar. */
  share: number;
  /** Least and largest share of the first pane. */
  range: [number, number];
}

/** Puts the bars below an element where a layout has them, those that it does not name where they are at first. */
function putSizes(root: Element | null, sizes: Record<string, number>): void {
  for (const bar of root?.querySelectorAll<HTMLElement>('[data-tb-splitter]') ?? []) {
    bar.dispatchEvent(new CustomEvent('tb-share', { detail: sizes[bar.dataset['tbSplitter']!] ?? null }));
  }
}

function storedSizes(): Record<string, number> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, number>;
  } catch { // a page that may keep nothing, or what is kept is not ours
    return {};
  }
}

function remember(name: string, share: number): void {
  try {
    localStorage.setItem(KEY, JSON.stringify({ ...storedSizes(), [name]: share }));
  } catch { // then it is forgotten with the page
  }
}

/** The bar between two panes of `container`; a double click puts it back where it was at first. */
export function splitter(container: HTMLElement, { name, label, across, share: usual, range: [least, most] }: Bar): HTMLElement {
  const bar = h('div', {
    class: `tb-splitter ${across ? 'tb-across' : 'tb-down'}`, role: 'separator', tabindex: 0, 'aria-label': label, 'data-tb-splitter': name,
    'aria-orientation': across ? 'vertical' : 'horizontal', 'aria-valuemin': Math.round(100 * least), 'aria-valuemax': Math.round(100 * most),
    'data-lm-suppress-shortcuts': 'true', title: 'Drag to resize; double-click to reset'
  });
  let share = usual;
  const put = (next: number, keep = true) => {
    share = Math.max(least, Math.min(most, next));
    container.style.setProperty(`--tb-share-${name}`, share.toFixed(4));
    bar.setAttribute('aria-valuenow', String(Math.round(100 * share)));
    if (keep) remember(name, share);
  };
  const kept = storedSizes()[name];
  put(typeof kept === 'number' && Number.isFinite(kept) ? kept : usual, false);
  const at = (event: PointerEvent) => {
    const box = container.getBoundingClientRect();
    put(across ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height);
  };
  bar.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    event.preventDefault();
    bar.setPointerCapture(event.pointerId);
    bar.addEventListener('pointermove', at);
  });
  for (const end of ['pointerup', 'pointercancel'] as const) bar.addEventListener(end, () => bar.removeEventListener('pointermove', at));
  bar.addEventListener('dblclick', () => put(usual));
  bar.addEventListener('tb-share', event => put((event as CustomEvent<number | null>).detail ?? usual));
  bar.addEventListener('keydown', event => {
    const by = { ArrowLeft: across ? -1 : 0, ArrowRight: across ? 1 : 0, ArrowUp: across ? 0 : -1, ArrowDown: across ? 0 : 1 }[event.key];
    if (!by && event.key !== 'Home') return;
    event.preventDefault();
    event.stopPropagation();
    put(by ? share + by * STEP : usual);
  });
  return bar;
}

/** The mirror of `DockTraits` in tbuda_lab/widgets/views/workbench.py. */
interface Open {
  tab: string;
  inspector: boolean;
  /** The tabs have the full height: graph and grid are hidden. */
  tall?: boolean;
}

const NARROW = 860; // px; as base.raw.css has it
const MODES = [['graph', 'Graph', 'Show only the graph'], ['split', 'Both', 'Show graph and core grid'], ['grid', 'Grid', 'Show only the core grid'],
  ['graphs', 'Two graphs', 'Show two stages of the graph side by side']] as const;

/** How the workbench is arranged: graph, grid or both above, which tab is in front below, whether the inspector stands beside. */
export class Docks {
  readonly element: HTMLElement;
  /** Gives the tabs the full height, or takes it back. */
  readonly taller: HTMLButtonElement;
  /** There is no room for graph and grid side by side: both means the grid. */
  private narrow = false;
  /** In a narrow workbench the inspector takes height from the grid: there it comes when it is asked for. */
  private inspectorAsked = false;
  private readonly mode: SyncedTrait<string>;
  private readonly docks: SyncedTrait<Open>;

  /** above: shows the views of a mode. below: shows a tab, and the inspector or not. */
  constructor(store: Store, private readonly above: (mode: string) => void, private readonly below: (open: Open) => void) {
    this.mode = syncedTrait(store, 'mode', 'split', () => this.arrange());
    this.docks = syncedTrait<Open>(store, 'docks', { tab: 'ops', inspector: true }, () => this.arrange());
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { 'data-tb-action': action, title, onclick: f }, label);
    this.taller = h('button', {
      class: 'tb-tall-button', 'data-tb-action': 'dock-tall', 'aria-label': 'Tabs over graph and grid',
      onclick: () => this.put({ ...this.docks.value(), tall: !this.docks.value().tall })
    });
    this.element = h('div', { class: 'tb-docks', role: 'group', 'aria-label': 'Arrangement' },
      h('button', {
        class: 'tb-button tb-compact-only', 'data-tb-action': 'open-workbench', title: 'Open the whole workbench in a tab beside the notebook',
        onclick: () => this.element.dispatchEvent(new CustomEvent('tb-tab', { bubbles: true, detail: 'bringup' }))
      }, 'Open workbench'),
      h('button', {
        class: 'tb-button tb-compact-only', 'data-tb-action': 'show-here', title: 'Show the whole workbench in this cell',
        onclick: () => this.element.closest('.tb-root')?.classList.remove('tb-compact')
      }, 'Show here'),
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Views above the tabs' },
        ...MODES.map(([id, label, title]) => button(`mode-${id}`, label, title, () => {
          this.mode.tell(id);
          this.arrange();
        }))),
      h('div', { class: 'tb-segmented' }, button('dock-inspector', 'Inspector', 'Show or hide the inspector beside the tabs', () =>
        this.toggleInspector())),
      layoutMenu(() => this.layout, layout => this.putLayout(layout)));
  }

  dispose(): void {
    this.mode.dispose();
    this.docks.dispose();
  }

  /** Another tab came to the front. */
  front(tab: string): void {
    this.docks.tell({ ...this.docks.value(), tab });
  }

  /** width: that of the workbench, px. */
  fit(width: number): void {
    const narrow = width > 0 && width < NARROW;
    if (narrow === this.narrow) return;
    this.narrow = narrow;
    this.arrange();
  }

  private get inspector(): boolean {
    return this.narrow ? this.inspectorAsked : this.docks.value().inspector;
  }

  private toggleInspector(): void {
    if (this.narrow) {
      this.inspectorAsked = !this.inspectorAsked;
      this.arrange();
    } else this.put({ ...this.docks.value(), inspector: !this.docks.value().inspector });
  }

  arrange(): void {
    const [mode, docks] = [this.mode.value(), this.docks.value()];
    this.above(mode);
    this.below({ ...docks, inspector: this.inspector });
    const tall = docks.tall === true;
    this.taller.setAttribute('aria-pressed', String(tall));
    this.taller.title = tall ? 'Show graph and grid again' : 'Give the tabs the full height';
    this.taller.textContent = tall ? '⌄' : '⌃';
    this.press();
  }

  private press(): void {
    const shown = this.narrow && this.mode.value() === 'split' ? 'grid' : this.mode.value();
    for (const button of this.element.querySelectorAll<HTMLElement>('.tb-segmented button')) {
      const action = button.dataset['tbAction'];
      button.setAttribute('aria-pressed', String(action === 'dock-inspector' ? this.inspector : action === `mode-${shown}`));
      if (action === 'mode-split') button.hidden = this.narrow;
    }
  }

  private get layout(): Layout {
    const { tab, inspector, tall } = this.docks.value();
    return { mode: this.mode.value(), tab, inspector, tall: tall === true, panes: storedSizes() };
  }

  /** null: as a new workbench is. */
  private putLayout(layout: Layout | null): void {
    const { mode, tab, inspector, tall, panes } = layout ?? { mode: 'split', tab: 'ops', inspector: true, tall: false, panes: {} };
    this.mode.tell(MODES.some(([id]) => id === mode) ? mode : 'split');
    putSizes(this.element.closest('.tb-bringup'), panes);
    this.put({ tab, inspector, tall });
  }

  private put(docks: Open): void {
    this.docks.tell(docks);
    this.arrange();
  }
}
