/** The legend below the grid: what the colours mean, and what is drawn over the cores. */
import { h } from '../dom.js';
import type { Ops } from '../ops.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, loadPaint } from '../theme.js';
import { linkLegend, type Noc, type ShownLinks } from './links.js';
import type { Displacement } from './pictures.js';

/** What the legend asks of the view: to draw again, to draw only the lines again, to zoom. */
interface GridActions {
  render(): void;
  mark(): void;
  zoom(direction: 1 | -1): void;
  fit(): void;
}

export class Legend {
  readonly element = h('div', { class: 'tb-legend' });
  readonly pipes: SyncedTrait<ShownLinks>;
  /** Bytes per cycle below which links and edges are hidden. */
  readonly threshold: SyncedTrait<number>;
  readonly critical: SyncedTrait<boolean>;
  readonly displacement: SyncedTrait<Displacement>;
  readonly noc: SyncedTrait<Noc>;

  constructor(private readonly store: Store, private readonly act: GridActions) {
    const changed = () => act.render();
    this.pipes = syncedTrait<ShownLinks>(store, 'show_pipes', 'none', changed);
    this.threshold = syncedTrait(store, 'link_threshold', 0, changed);
    this.critical = syncedTrait(store, 'show_critical', false, changed);
    this.displacement = syncedTrait<Displacement>(store, 'displacement', 'free', changed);
    this.noc = syncedTrait<Noc>(store, 'noc', 'none', changed);
  }

  dispose(): void {
    [this.pipes, this.threshold, this.critical, this.displacement, this.noc].forEach(trait => trait.dispose());
  }

  /** many: all chips of a time are shown. refused: why there is no load of links. */
  draw(ops: Ops, many: boolean, refused: string): void {
    const { store } = this;
    const dark = isDark();
    this.element.replaceChildren(
      ...(store.colour === 'load'
        ? [h('span', { class: 'tb-colour-key tb-wide-key' }, 'cycles against the slowest op'), ...[0.1, 0.4, 0.7, 1].map(v => {
            const paint = loadPaint(v, dark);
            return h('span', { class: 'tb-key tb-colour-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }),
              `${100 * v} %`);
          }), h('span', { class: 'tb-key tb-colour-key' }, '▲ worth enlarging')]
        : []),
      h('span', { class: 'tb-key tb-colour-key tb-wide-key' }, h('i', { class: 'tb-swatch-in' }), 'feeds the selection'),
      h('span', { class: 'tb-key tb-colour-key tb-wide-key' }, h('i', { class: 'tb-swatch-out' }), 'fed by it'),
      ...(store.edits?.overrides.some(o => /^op_(?:size|placement)$/.test(o.field) && o.state !== 'off')
        ? [h('span', { class: 'tb-key tb-colour-key' }, h('i', { class: 'tb-swatch-fixed' }), 'fixed by you')] : []), h('span', { class: 'tb-spring' }),
      ops.layers.size > 2 ? this.layers(ops) : '',
      ...(this.noc.value() === 'none' ? [] : linkLegend(refused)),
      ops.byEpoch[store.epoch]?.some(op => ops.isCritical(op)) ? h('button', {
        class: 'tb-button tb-small', 'data-tb-action': 'critical-path', 'aria-pressed': String(this.critical.value()),
        title: 'Highlight the ops whose work and waits decide when the epoch ends', onclick: () => {
          this.critical.tell(!this.critical.value());
          this.act.render();
        }
      }, 'Critical path') : '',
      store.edits || hasLinks(store) ? this.choice('NoC links', 'noc', this.noc, ['none', '0', '1', 'both'],
        'Show the load of NoC links: all traffic on one NoC, or each transfer on the NoC with the shorter route (estimate)') : '',
      this.noc.value() !== 'none' || this.pipes.value() !== 'none' ? this.least() : '',
      this.choice('Edges', 'show_pipes', this.pipes, ['none', 'selected', 'all'], 'Show edges between ops of the epoch'),
      store.edits ? this.choice('On collision', 'displacement', this.displacement, ['free', 'push', 'swap', 'evict'],
        'What to do when an op is dropped on others', { free: 'find free space', push: 'move neighbours', swap: 'swap places', evict: 'move them to the next epoch' }) : '',
      many ? '' : h('span', { class: 'tb-segmented tb-small', role: 'group', 'aria-label': 'Zoom' },
        ...([['grid-out', '−', 'Zoom out (−)', () => this.act.zoom(-1)], ['grid-in', '+', 'Zoom in (+, Ctrl and wheel)', () => this.act.zoom(1)],
          ['grid-fit', 'Fit', 'Fit the whole grid (0)', () => this.act.fit()]] as const).map(([action, label, title, f]) =>
          h('button', { 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label))));
  }

  /** The layers that repeat, as a list: choosing one selects its ops and goes to its first epoch. */
  private layers(ops: Ops): HTMLElement {
    const { store } = this;
    const chosen = store.selection.names.map(name => ops.layer(ops.indexOf.get(name) ?? -1));
    const now = new Set(chosen).size === 1 ? chosen[0]! : -1;
    const epochsOf = (members: readonly number[]): [number, number] => {
      const epochs = members.map(op => ops.epochOf(op));
      return [Math.min(...epochs), Math.max(...epochs)];
    };
    return h('label', { class: 'tb-key tb-choice', title: 'Go to a layer: selects its ops and shows its first epoch', style: '--tb-letters:5' }, 'Layer', h('select', {
      'data-tb-action': 'go-to-layer', onchange: (event: Event) => {
        const members = ops.layers.get(Number((event.target as HTMLSelectElement).value));
        if (!members) return;
        store.select(members.map(op => ops.name[op]!), 'layers');
        store.setEpoch(epochsOf(members)[0]);
      }
    }, h('option', { value: '', selected: now < 0 }, '–'), ...[...ops.layers].map(([layer, members]) => {
      const [first, last] = epochsOf(members);
      return h('option', { value: layer, selected: layer === now }, `${layer}: ${members.length} ops, epoch${first === last ? ` ${first}` : `s ${first} to ${last}`}`);
    })));
  }

  /** A trait of the view as a choice. */
  private choice<T extends string>(label: string, action: string, trait: SyncedTrait<T>, values: T[], title: string, words: Partial<Record<T, string>> = {}): HTMLElement {
    return h('label', { class: 'tb-key tb-choice', title, style: `--tb-letters:${label.length}` }, label, h('select', {
      'data-tb-action': action, onchange: (event: Event) => {
        trait.tell((event.target as HTMLSelectElement).value as T);
        this.act.render();
      }
    }, ...values.map(value => h('option', { value, selected: value === trait.value() }, words[value] ?? value))));
  }

  /** The least load that is drawn. */
  private least(): HTMLElement {
    return h('label', { class: 'tb-key', title: 'Hide links and edges with less traffic, in bytes per cycle (a link carries 32)' }, 'from', h('input', {
      type: 'number', min: 0, step: 1, value: this.threshold.value(), 'data-tb-action': 'link_threshold', 'data-lm-suppress-shortcuts': 'true', onchange: (event: Event) => {
        const value = Number((event.target as HTMLInputElement).value);
        this.threshold.tell(Number.isFinite(value) && value > 0 ? value : 0);
        this.act.mark();
      }
    }), 'B/cycle');
  }
}

/** A page without a kernel has the links of some epochs in its frames. */
function hasLinks(store: Store): boolean {
  return [...store.frames.keys()].some(key => key.startsWith('links:'));
}
