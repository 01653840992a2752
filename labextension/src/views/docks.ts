/** How the workbench is arranged: graph, grid or both above, which tab is in front below, whether the inspector stands beside. */
import { h } from './dom.js';
import type { Store } from './store.js';
import { syncedTrait, type SyncedTrait } from './syncedtrait.js';

/** The mirror of `DockTraits` in tbuda_lab/widgets/views/workbench.py. */
interface Open {
  tab: string;
  inspector: boolean;
  /** The tabs have all the room: graph and grid are put away. */
  tall?: boolean;
}

const NARROW = 860; // px; as base.raw.css has it
const MODES = [['graph', 'Graph', 'Show only the graph'], ['split', 'Both', 'Show graph and core grid'], ['grid', 'Grid', 'Show only the core grid']] as const;

export class Docks {
  readonly element: HTMLElement;
  /** Gives the tabs all the room, or takes it back. */
  readonly taller: HTMLButtonElement;
  /** There is no room for graph and grid side by side: both means the grid. */
  private narrow = false;
  private readonly mode: SyncedTrait<string>;
  private readonly docks: SyncedTrait<Open>;

  /** above: shows the views of a mode. below: shows a tab, and the inspector or not. */
  constructor(store: Store, private readonly above: (mode: string) => void, private readonly below: (open: Open) => void) {
    this.mode = syncedTrait(store, 'mode', 'split', () => this.arrange());
    this.docks = syncedTrait<Open>(store, 'docks', { tab: 'ops', inspector: true }, () => this.arrange());
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { type: 'button', 'data-tb-action': action, title, onclick: f }, label);
    this.taller = h('button', {
      type: 'button', class: 'tb-tall-button', 'data-tb-action': 'dock-tall', 'aria-label': 'Tabs over graph and grid',
      onclick: () => this.put({ ...this.docks.value(), tall: !this.docks.value().tall })
    });
    this.element = h('div', { class: 'tb-docks', role: 'group', 'aria-label': 'Arrangement' },
      h('button', {
        type: 'button', class: 'tb-button tb-compact-only', 'data-tb-action': 'open-workbench', title: 'Open the whole workbench in a tab beside the notebook',
        onclick: () => this.element.dispatchEvent(new CustomEvent('tb-tab', { bubbles: true, detail: 'bringup' }))
      }, 'Open workbench'),
      h('button', {
        type: 'button', class: 'tb-button tb-compact-only', 'data-tb-action': 'show-here', title: 'Show the whole workbench in this cell',
        onclick: () => this.element.closest('.tb-root')?.classList.remove('tb-compact')
      }, 'Show here'),
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Views above the tabs' },
        ...MODES.map(([id, label, title]) => button(`mode-${id}`, label, title, () => {
          this.mode.tell(id);
          this.arrange();
        }))),
      h('div', { class: 'tb-segmented' }, button('dock-inspector', 'Inspector', 'Show or hide the inspector beside the tabs', () =>
        this.put({ ...this.docks.value(), inspector: !this.docks.value().inspector }))));
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
    this.press();
  }

  arrange(): void {
    const [mode, docks] = [this.mode.value(), this.docks.value()];
    this.above(mode);
    this.below(docks);
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
      button.setAttribute('aria-pressed', String(action === 'dock-inspector' ? this.docks.value().inspector : action === `mode-${shown}`));
      if (action === 'mode-split') button.hidden = this.narrow;
    }
  }

  private put(docks: Open): void {
    this.docks.tell(docks);
    this.arrange();
  }
}
