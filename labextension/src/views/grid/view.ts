/** The core grid of one epoch, with the film strip of all epochs above it. */
import { arrange, h, percent, quantity } from '../dom.js';
import { open, Toast } from '../dialog.js';
import { EditBar } from '../editbar.js';
import { type Turns, turnsOf } from '../names.js';
import { NetlistText } from '../netlisttext.js';
import { Ops } from '../ops.js';
import { onPreferences, preferences } from '../preferences.js';
import { type ColourBy, type Store, syncedTrait, type SyncedTrait } from '../store.js';
import { isDark, onTheme } from '../theme.js';
import { Activity } from '../trace/activity.js';
import { drawLinks, drawPipes, linkList, linkName, Links, pipesOf, wordsOver } from './links.js';
import { AccessibleTable, Card, epochHead } from './card.js';
import { chipsOf, drawChips, drawStrip, nearestOf, siblingOf, together, usualPerRow, wordsAt } from './strip.js';
import { CELL_W, cellWidth, drawEpoch, letterSizes, RULER_X, RULER_Y } from './draw.js';
import { Overlay } from '../graph/paints.js';
import { Editor } from './edit.js';
import { fixedOps, markFixed } from './fixed.js';
import { Geometry, Viewport } from './geometry.js';
import { GridKeys } from './keys.js';
import { opener } from '../graph/bar.js';
import { type Item, NodeMenu } from '../graph/input.js';
import { Legend } from './legend.js';
import { coresOf } from './pictures.js';
import { LazyView } from '../lazyview.js';
import { Suggestions } from './suggest.js';

const COLOURINGS: [ColourBy, string, string][] = [
  ['load', 'Load', 'cycles of the op over cycles of its epoch'],
  ['family', 'Type', 'kind of op'],
  ['epoch', 'Epoch', 'one colour per epoch'],
  ['layer', 'Layer', 'layers that repeat, one colour per layer']
];

export class GridView {
  readonly element: HTMLElement;
  private readonly strip = h('div', { class: 'tb-strip', role: 'group', 'aria-label': 'Epochs' });
  private readonly head = h('div', { class: 'tb-epoch-head', 'aria-live': 'polite' });
  readonly plane: HTMLElement;
  private readonly chips = h('div', { class: 'tb-chip-strip', role: 'group', 'aria-label': 'Chips', hidden: true });
  private readonly modes = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Colour by' });
  private readonly legend: Legend;
  private readonly card: Card;
  readonly lens: Viewport;
  private readonly accessible = new AccessibleTable();
  private readonly bar: EditBar;
  private readonly toast: Toast;
  readonly editor: Editor;
  readonly suggestions: Suggestions;
  private readonly search: LazyView;
  private readonly searchButton = h('button', {
    class: 'tb-button', 'data-tb-action': 'optimise', 'aria-pressed': 'false', title: 'Search for a faster placement', onclick: () => this.toggleSearch()
  }, 'Optimise');
  private readonly keys: GridKeys;
  private readonly activity: Activity;
  private readonly tools = h('span', { class: 'tb-editbar' });
  private readonly stops: (() => void)[] = [];
  private readonly frames = new Map<string, HTMLElement>();
  ops: Ops | null = null;
  /** The placement came that an edit under way leads to; its netlist is still to be made. */
  private ahead = false;
  private full = false;
  /** Epochs that repeat, and those that are shown one by one all the same, by their first epoch. */
  private turns: Turns[] = [];
  private readonly unfolded = new Set<number>();
  private text: NetlistText | null = null;
  private cell = 0;
  private scrolling = 0;
  private size: [number, number] | null = null;
  private readonly perRow: SyncedTrait<number>;
  private readonly chip: SyncedTrait<number | null>;
  private late = false;
  /** Ops whose names have no room stand there with their types. */
  private unnamed = false;
  private readonly links: Links;
  private readonly menu: NodeMenu;
  private readonly linkbox: HTMLElement | null;

  /** @param aside another part of the page lists the links. */
  constructor(readonly store: Store, aside = false) {
    this.plane = h('div', {
      class: 'tb-plane', tabindex: 0, role: 'group', 'data-lm-suppress-shortcuts': 'true', 'data-jp-suppress-context-menu': '',
      'aria-label': 'Core grid. Arrows move between ops, Enter selects, N and P change the epoch, H shows the keyboard shortcuts.'
    });
    this.card = new Card(store);
    this.bar = new EditBar(store);
    this.toast = new Toast(store);
    this.suggestions = new Suggestions(store, () => this.plane.focus({ preventScroll: true }));
    this.search = new LazyView(store, 'search');
    this.search.element.hidden = true;
    this.searchButton.hidden = !store.host.live; // a page that was sent tries single edits
    this.tools.append(this.suggestions.button, this.searchButton, h('button', {
      class: 'tb-button', 'data-tb-action': 'export', title: 'Export (X)', onclick: () => open(this.element, { what: 'export' })
    }, 'Export'), h('button', {
      class: 'tb-button', 'data-tb-action': 'keys', title: 'Keyboard shortcuts (H)', 'aria-label': 'Keyboard shortcuts',
      onclick: () => open(this.element, { what: 'keys', scope: 'grid' })
    }, '?'));
    this.legend = new Legend(store, this);
    this.element = h('section', { class: 'tb-view tb-grid', 'data-tb-view': 'grid', 'aria-label': 'Core grid' },
      h('header', { class: 'tb-bar' }, h('h3', {}, 'Core grid'), h('span', { class: 'tb-spring' }), this.bar.element, this.tools, this.modes, opener(this.legend.element, 'grid-more', 'What is drawn, and zoom')),
      this.strip, this.chips, this.suggestions.element, this.search.element, this.head, this.plane, this.accessible.element, this.toast.element, this.card.element, this.legend.element);
    this.lens = new Viewport(this.plane, () => this.render());
    this.editor = new Editor(store, this.plane, this.element, text => this.toast.speak(text), () => this.legend.displacement.value());
    this.keys = new GridKeys(this);
    this.perRow = syncedTrait(store, 'chips_per_row', 0, () => this.render(true));
    this.chip = syncedTrait<number | null>(store, 'chip', null, chip => this.alone(chip));
    store.chip = this.chip.value();
    this.links = new Links(store, () => this.linksCame());
    this.linkbox = aside ? null : h('div', { class: 'tb-linkbox', hidden: true });
    if (this.linkbox) this.legend.element.after(this.linkbox);
    this.editor.onEnd = () => {
      if (this.late) this.load();
    };
    this.activity = new Activity(store, this.plane);
    this.element.append(this.editor.ghost.tag);
    this.menu = new NodeMenu(store, this.element, () => null, { op: name => this.itemsOf(name), epoch: epoch => this.epochItems(epoch) });
    this.listen();
    this.load();
  }

  /** The panel of the search, whose code comes when it is first wanted. */
  private toggleSearch(): void {
    const { element } = this.search;
    element.hidden = !element.hidden;
    this.searchButton.setAttribute('aria-pressed', String(!element.hidden));
    if (!element.hidden) this.search.lookedAt();
  }

  dispose(): void {
    cancelAnimationFrame(this.scrolling);
    this.stops.forEach(stop => stop());
    [
      this.bar, this.card, this.toast, this.editor, this.suggestions, this.search, this.activity, this.links,
      this.legend, this.perRow, this.chip, this.lens, this.menu
    ].forEach(part => part.dispose());
  }

  private listen(): void {
    const { store, plane } = this;
    this.stops.push(
      store.on('frame', key => {
        if (key !== 'overlay' || !this.ops) return;
        this.ops.overlay = Overlay.of(store.frames.get(key)!);
        this.render(true);
      }),
      store.on('frame', key => {
        if (key === 'ops') {
          this.late = this.editor.dragging || this.keys.moving.active; // it would end the drag that asked for it
          if (!this.late) this.load();
          this.ahead = store.edits?.busy === true;
          this.greyOut(false);
        }
        if (key === 'edits') {
          this.ahead &&= store.edits?.busy === true;
          this.greyOut(false);
          this.tools.hidden = !store.edits;
          if (!this.editor.dragging) this.mark();
        }
        if (key === 'netlist') this.text = NetlistText.of(store.frames.get('netlist')!);
      }),
      store.on('status', () => {
        if (!this.ops) this.render();
      }),
      store.on('asked', () => {
        this.ahead = false;
        this.greyOut(true);
      }),
      store.on('answer', () => this.greyOut(false)),
      store.on('epoch', () => {
        const chip = this.ops?.ofEpoch('chip', store.epoch);
        if (store.chip !== null && chip !== undefined && chip !== store.chip) this.alone(chip); // it was gone to from elsewhere
        else this.render();
      }),
      store.on('colour', () => this.render(true)), onPreferences(() => this.render(true)),
      store.on('selection', source => this.follow(source !== 'grid')),
      store.on('hover', () => this.mark()),
      onTheme(() => this.render(true))
    );
    const opAt = (event: Event) => (event.target as Element).closest<SVGGElement>('[data-tb-op]');
    plane.addEventListener('click', event => {
      const tile = opAt(event);
      const toggle = event.ctrlKey || event.metaKey;
      if (tile) {
        const op = this.ops?.indexOf.get(tile.dataset['tbOp']!);
        store.click(tile.dataset['tbOp']!, toggle, 'grid');
        if (op !== undefined) store.setEpoch(this.ops!.epochOf(op)); // it may stand on another chip
      } else if (!toggle) store.select([], 'grid');
      plane.focus({ preventScroll: true });
    });
    plane.addEventListener('pointerover', event => {
      if (this.editor.dragging || this.keys.moving.active || (event.target as Element).closest('[data-tb-handle]')) return;
      const tile = opAt(event);
      this.editor.offer(tile ? (this.ops?.indexOf.get(tile.dataset['tbOp']!) ?? null) : null);
      store.setHover(tile?.dataset['tbOp'] ?? '');
    });
    plane.addEventListener('pointerleave', event => {
      if (event.pointerType !== 'touch') this.editor.offer(null); // a finger leaves before it comes back to a handle
      store.setHover('');
    });
    plane.addEventListener('keydown', event => this.keys.handle(event));
    this.tools.hidden = !store.edits;
    const resize = new ResizeObserver(() => {
      this.size = [plane.clientWidth, plane.clientHeight];
      if (this.ops && !this.many && (Math.abs(this.fittingWidth(this.ops) - this.cell) > 2 || this.lettersOff(this.ops))) this.render();
      else if (this.ops && this.many && wordsAt(this.size[0], this.perRow.value()) !== this.written) this.render();
    });
    resize.observe(plane);
    this.stops.push(() => resize.disconnect());
  }

  /** Width and height that the drawing may take. Asked of the browser, they'd cost a layout of the whole page. */
  private freeSize(): [number, number] {
    const [width, height] = this.size ?? [this.plane.clientWidth, this.plane.clientHeight];
    return [width - 12, height - 8];
  }

  private fittingWidth(ops: Ops): number {
    return cellWidth(ops, ...this.freeSize());
  }

  /** The drawing stands in another room than its letters were sized for. */
  private lettersOff(ops: Ops): boolean {
    const drawn = Number(this.plane.querySelector<SVGElement>('.tb-cores')?.style.getPropertyValue('--tb-letter'));
    const { best } = letterSizes(ops, this.cell, ...this.freeSize(), this.lens.zoom);
    return drawn > 0 && Math.abs(best / drawn - 1) > 0.05;
  }

  private load(): void {
    this.late = false;
    const frame = this.store.frames.get('ops');
    const netlist = this.store.frames.get('netlist');
    if (netlist && !this.text) this.text = NetlistText.of(netlist);
    const seen = this.ops?.matcher.find(this.store.selection.names).map(op => this.ops!.epochOf(op)) ?? [];
    const away = seen.length > 0 && !seen.includes(this.store.epoch); // another epoch was gone to: an edit there stays in sight
    this.ops = frame ? Ops.of(frame) : null;
    if (this.ops && this.store.epoch >= this.ops.epochs) this.store.setEpoch(Math.max(0, this.ops.epochs - 1));
    if (this.ops && this.store.chip !== null) this.alone(this.store.chip);
    this.render(true);
    this.follow(!away);
  }

  // -- the menu --------------------------------------------------------------------------------------------------
  /** What keys of the grid do to an op, for its menu. */
  private itemsOf(name: string): Item[] {
    const item = (action: string, label: string, why = ''): Item => ({ action: `menu-${action}`, label, key: action, why, run: () => this.keys.doTo(name, action) });
    const [epoch, last] = [this.ops!.epochOf(this.ops!.indexOf.get(name)!), this.ops!.epochs - 1];
    return [
      item('grow', 'Next larger shape'), item('shrink', 'Next smaller shape'), item('move', 'Move with the arrow keys'),
      item('later', 'Into the next epoch', epoch < last ? '' : 'it is the last one'), item('earlier', 'Into the previous epoch', epoch ? '' : 'it is the first one')
    ];
  }

  private epochItems(epoch: number): Item[] {
    const { store, ops } = this;
    const members = ops!.byEpoch[epoch]!.map(op => ops!.name[op]!);
    const own = store.edits!.overrides.some(o => o.field === 'epoch_break' && o.target === members[0] && o.state !== 'off');
    const slowest = ops!.slowestOf(epoch);
    return [
      { action: 'menu-epoch', label: 'Show it', run: () => store.setEpoch(epoch) },
      { action: 'menu-select', label: `Select its ${quantity(members.length, 'op')}`, run: () => store.select(members, 'grid') },
      { action: 'menu-slowest', label: 'Select its slowest op', why: slowest < 0 ? 'it has none' : '', run: () => store.select([ops!.name[slowest]!], 'grid') },
      { action: 'menu-unbreak', label: 'Remove the break before it', key: 'break', why: own ? '' : 'none was set', run: () => store.edit({ do: 'break', op: members[0]!, on: false }) }
    ];
  }

  // -- chips -----------------------------------------------------------------------------------------------------
  private written = true;

  /** All chips of the time are shown. */
  private get many(): boolean {
    return this.perRow.value() > 0 && this.ops !== null && chipsOf(this.ops).length > 1;
  }

  /** Goes through the epochs of one chip; null: of all. */
  private alone(chip: number | null): void {
    const { ops, store } = this;
    store.chip = chip;
    this.chip.tell(chip);
    if (ops && chip !== null && ops.ofEpoch('chip', store.epoch) !== chip) {
      const here = siblingOf(ops, store.epoch, chip);
      const next = here >= 0 ? here : nearestOf(ops, store.epoch, chip);
      if (next >= 0) store.setEpoch(next);
    }
    this.render(true);
  }

  /** The choice between one chip and all of them, and a card for each. */
  private drawChips(ops: Ops): void {
    const { store } = this;
    const all = chipsOf(ops);
    this.chips.hidden = all.length < 2;
    if (this.chips.hidden) {
      this.chips.replaceChildren();
      return;
    }
    const way = (action: string, label: string, title: string, rows: number) => h('button', {
      title, 'data-tb-action': action, 'aria-pressed': String(this.many === rows > 0), onclick: () => {
        this.perRow.tell(rows);
        this.render(true);
      }
    }, label);
    this.chips.replaceChildren(h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Chips shown' },
      way('chips-one', 'One chip', 'The chip of the epoch', 0), way('chips-all', 'All chips', 'All chips that work at the same time', usualPerRow(all.length))),
    ...(this.many ? [] : drawChips(ops, store.chip, chip => this.alone(chip === store.chip ? null : chip))));
  }

  // -- links -----------------------------------------------------------------------------------------------------
  private linksCame(): void {
    const frame = this.store.frames.get('links');
    if (frame?.column('link_load').length) this.toast.speak(`busiest link: ${linkName(frame, 0)}, ${percent(frame.column('link_load')[0]!)} of its capacity`);
    this.render();
  }

  /** Lines for the links of the epoch, where they are wanted and here. */
  private markLinks(ops: Ops): void {
    const plane = this.editor.plane;
    plane?.querySelectorAll(':scope > .tb-noc, :scope > .tb-noc-words').forEach(old => old.remove());
    const frame = this.links.of(this.store.epoch, this.legend.noc.value());
    this.element.dataset['tbNoc'] = frame ? `${String(frame.meta['epoch'])}:${String(frame.meta['noc'])}` : '';
    if (frame && plane && ops.epochs) plane.append(drawLinks(frame, this.editor.geometry!, this.legend.threshold.value()), wordsOver(plane));
    if (!this.linkbox) return;
    const list = linkList(this.store);
    this.linkbox.hidden = !list.length;
    this.linkbox.replaceChildren(...list);
  }

  /** all: the film strip and the chips too. */
  render(all = false): void {
    const { ops, store } = this;
    const dark = isDark();
    this.card.element.hidden = !ops;
    this.modes.replaceChildren(...COLOURINGS.filter(([by]) => by !== 'layer' || (ops?.layers.size ?? 0) > 2).map(([by, label, title]) =>
      h('button', {
        title: `Colour by ${title}`, 'aria-pressed': String(store.colour === by), 'data-tb-action': `colour-${by}`,
        onclick: () => store.setColour(by)
      }, label)));
    if (!ops) {
      this.strip.replaceChildren();
      this.head.textContent = '';
      this.plane.replaceChildren(h('div', { class: 'tb-empty' }, store.status.failed ? 'Nothing is placed.' : 'Epochs appear here once the model is placed.'));
      this.editor.redrawn(null, null, null);
      this.suggestions.redrawn(null, null);
      this.activity.redrawn(null, null, null);
      this.lens.redrawn(null);
      return;
    }
    if (!this.strip.childElementCount) this.size = null; // the strip will take its part
    if (all || !this.strip.childElementCount) {
      arrange(this.strip, drawStrip(ops, store.colour, dark, epoch => store.setEpoch(epoch), this.frames));
      this.turns = turnsOf(ops);
      this.drawChips(ops);
    }
    const epoch = store.epoch;
    this.element.dataset['tbEpoch'] = String(epoch);
    const folded = this.foldStrip(epoch);
    for (const frame of this.strip.querySelectorAll<HTMLElement>('.tb-frame')) {
      const current = frame.dataset['tbEpoch'] === String(epoch);
      frame.hidden = folded.has(Number(frame.dataset['tbEpoch'])) || store.chip !== null && ops.ofEpoch('chip', Number(frame.dataset['tbEpoch'])) !== store.chip;
      if (current) {
        frame.setAttribute('aria-current', 'true');
        cancelAnimationFrame(this.scrolling); // where it stands is known once the page is laid out, which a frame does anyhow
        this.scrolling = requestAnimationFrame(() => show(this.strip, frame));
      } else frame.removeAttribute('aria-current');
    }
    this.head.replaceChildren(...epochHead(store, ops, epoch));
    const { many } = this;
    const [width] = this.freeSize();
    this.written = !many || wordsAt(width, this.perRow.value());
    this.cell = many ? CELL_W : this.fittingWidth(ops);
    const letter = many
      ? letterSizes(ops, CELL_W, (width / this.perRow.value()) - 30, Infinity, 1) : letterSizes(ops, this.cell, ...this.freeSize(), this.lens.zoom);
    const drawing = drawEpoch(ops, epoch, store.colour, dark, this.cell, this.full, this.written ? letter : null);
    this.unnamed = !many && drawing.querySelector('.tb-unnamed') !== null;
    const inside = this.plane.contains(document.activeElement) && document.activeElement !== this.plane;
    const focused = inside ? document.activeElement!.closest<SVGGElement>('.tb-tile')?.dataset['tbOp'] : undefined;
    this.lens.redrawn(many ? null : drawing);
    this.plane.classList.toggle('tb-many', many);
    this.plane.replaceChildren(many
      ? together(ops, epoch, drawing, store.colour, dark, this.perRow.value(), this.written ? letter : null, next => store.setEpoch(next)) : drawing);
    if (inside) { // else what is typed next would go to the notebook
      const tile = [...drawing.querySelectorAll<SVGGElement>('.tb-tile')].find(one => one.dataset['tbOp'] === focused);
      tile?.classList.add('tb-roving');
      (tile ?? this.plane).focus({ preventScroll: true });
    }
    const geometry = new Geometry(ops, this.cell, epoch);
    this.keys.moving.stop();
    this.keys.cursor.hide();
    this.accessible.show(ops, epoch);
    this.editor.redrawn(ops, geometry, drawing);
    this.suggestions.redrawn(this.editor.plane, geometry);
    this.activity.redrawn(ops, geometry, drawing);
    this.legend.draw(ops, many, this.links.refused);
    this.mark();
    this.highlightCritical(ops);
  }

  /** Epochs that repeat are one turn of them, the one with the epoch shown, and how often it comes. Returns those put away. */
  private foldStrip(epoch: number): Set<number> {
    this.strip.querySelectorAll('.tb-turns').forEach(old => old.remove());
    const away = new Set<number>();
    for (const { first, period, times } of this.turns) {
      const open = this.unfolded.has(first);
      const last = first + period * times - 1;
      const turn = epoch >= first && epoch <= last ? Math.floor((epoch - first) / period) : 0;
      for (let e = first; e <= last && !open; e++) if (Math.floor((e - first) / period) !== turn) away.add(e);
      const end = open ? last : first + (turn + 1) * period - 1;
      this.strip.querySelector(`.tb-frame[data-tb-epoch="${end}"]`)?.after(h('button', {
        class: 'tb-turns', 'data-tb-action': 'turns', 'data-tb-turns': `${first}-${last}`, 'aria-expanded': String(open),
        title: open ? 'Fold repeated epochs again' : `Epochs ${first} to ${last} are the same ${period === 1 ? 'epoch' : `${period} epochs`}, ${times} times, for other layers: show all`,
        onclick: () => {
          if (open) this.unfolded.delete(first);
          else this.unfolded.add(first);
          this.render();
        }
      }, h('b', {}, open ? '‹' : `× ${times}`), open ? 'fold' : `${first}–${last}`));
    }
    return away;
  }

  /** Greys the picture while there is a newer one to come. */
  private greyOut(asked: boolean): void {
    const edits = this.store.edits;
    this.plane.classList.toggle('tb-old', asked || (!this.ahead && edits?.busy === true) || (!edits?.busy && edits?.stale === true && !edits.first && this.ops !== null));
  }

  /** Goes to the epoch of the selection when it was made elsewhere. */
  private follow(travel: boolean): void {
    const { ops, store } = this;
    if (ops && travel && preferences().follow) {
      const chosen = ops.matcher.find(store.selection.names);
      if (chosen.length && !chosen.some(op => ops.epochOf(op) === store.epoch)) store.setEpoch(ops.epochOf(chosen[0]!));
      const first = chosen.find(op => ops.epochOf(op) === store.epoch);
      if (first !== undefined && this.editor.geometry) {
        const [x, y, w, hgt] = this.editor.geometry.box(coresOf(ops, first));
        this.lens.reveal(x + RULER_X, y + RULER_Y, w, hgt);
      }
    }
    this.mark();
  }

  /** What is selected, with its edges, and the links. */
  mark(): void {
    const { ops, store } = this;
    if (!ops) return;
    const chosen = new Set(ops.matcher.find(store.selection.names));
    const feeders = new Set<number>();
    const readers = new Set<number>();
    if (chosen.size <= 8) {
      chosen.forEach(op => {
        ops.into(op).forEach(i => feeders.add(i));
        ops.outOf(op).forEach(i => readers.add(i));
      });
    }
    const fixed = fixedOps(store.edits);
    for (const tile of this.plane.querySelectorAll<SVGGElement>('.tb-tile')) {
      const op = ops.indexOf.get(tile.dataset['tbOp']!)!;
      tile.classList.toggle('tb-selected', chosen.has(op));
      tile.classList.toggle('tb-feeds', feeders.has(op) && !chosen.has(op));
      tile.classList.toggle('tb-fed', readers.has(op) && !chosen.has(op));
      tile.classList.toggle('tb-hovered', ops.name[op] === store.hover);
      tile.setAttribute('aria-selected', String(chosen.has(op)));
      markFixed(tile, fixed.get(ops.name[op]!));
    }
    this.editor.plane?.querySelector(':scope > .tb-pipes:not(.tb-critical-edges)')?.remove();
    const pipes = pipesOf(ops, store.epoch, this.legend.pipes.value(), chosen, this.legend.threshold.value());
    if (pipes.length) this.editor.plane?.append(drawPipes(ops, this.editor.geometry!, pipes));
    this.markLinks(ops);
    const touched = new Set([...chosen].map(op => ops.epochOf(op)));
    for (const frame of this.strip.querySelectorAll<HTMLElement>('.tb-frame')) {
      frame.classList.toggle('tb-touched', touched.has(Number(frame.dataset['tbEpoch'])));
    }
    this.plane.classList.toggle('tb-has-selection', touched.has(store.epoch));
    this.showCard(ops, chosen);
  }

  /** The chain of work and waits that decides when the epoch ends, with the edges along it. */
  private highlightCritical(ops: Ops): void {
    const on = this.legend.critical.value();
    this.plane.classList.toggle('tb-lit', on);
    const chain = new Set(on ? (ops.byEpoch[this.store.epoch] ?? []).filter(op => ops.isCritical(op)) : []);
    for (const tile of this.plane.querySelectorAll<SVGGElement>('.tb-tile')) {
      tile.classList.toggle('tb-critical', chain.has(ops.indexOf.get(tile.dataset['tbOp']!)!));
    }
    this.element.dataset['tbCritical'] = on ? String(chain.size) : '';
    this.editor.plane?.querySelector(':scope > .tb-critical-edges')?.remove();
    if (!chain.size) return;
    const edges = pipesOf(ops, this.store.epoch, 'all', chain, 0).filter(([from, to]) => chain.has(from) && chain.has(to));
    if (!edges.length || !this.editor.geometry) return;
    const drawn = drawPipes(ops, this.editor.geometry, edges);
    drawn.classList.add('tb-critical-edges');
    this.editor.plane?.append(drawn);
  }

  /** The card: the op under the pointer, here or in another view, else the selected one. */
  private showCard(ops: Ops, chosen: ReadonlySet<number>): void {
    const op = ops.indexOf.get(this.store.hover) ?? [...chosen][0];
    if (op !== undefined) this.card.show(ops, op);
    else this.card.hint(`${this.unnamed ? 'Zoom in for names. ' : ''}Hover over an op for its main numbers; click it for all of them.`);
  }

  zoom(direction: 1 | -1): void {
    this.lens.step(direction);
  }

  fit(): void {
    this.lens.fit();
  }

  toggleNames(): void {
    this.full = !this.full;
    this.render();
  }
}

/** Scrolls a strip sideways so that a child is in sight, without moving the page. */
function show(strip: HTMLElement, child: HTMLElement): void {
  const [left, right] = [child.offsetLeft - strip.offsetLeft, child.offsetLeft - strip.offsetLeft + child.offsetWidth];
  if (left < strip.scrollLeft) strip.scrollLeft = left - 20;
  else if (right > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = right - strip.clientWidth + 20;
}

