/**
 * The bar of the graph: its stages, its orientation, the search field, and tools that hide behind one button where
 * there is no room.
 */
import { closesAlone, h } from '../dom.js';
import type { Frame } from '../frame.js';
import type { Paint } from '../theme.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Direction } from './layout.js';
import type { Scene } from './scene.js';

// What one does with the picture of a graph: buttons in the bar, behind one button where there is no room for them.
export function button(action: string, label: string, title: string, f: () => void): HTMLButtonElement {
  return h('button', { class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
}

/** [the button that opens them, the tools]; which of the two is seen is a matter of style. */
export function tools(...buttons: HTMLButtonElement[]): [HTMLElement, HTMLElement] {
  const list = h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'View options' }, ...buttons);
  return [opener(list, 'graph-more', 'More tools'), list];
}

/** The button that opens a list where there is no room for it; Escape, or the focus that goes on, closes it. */
export function opener(list: HTMLElement, action: string, title: string): HTMLElement {
  const more = button(action, '⋯', title, () => open(more.getAttribute('aria-expanded') !== 'true'));
  const open = (on: boolean) => {
    more.setAttribute('aria-expanded', String(on));
    list.classList.toggle('tb-open', on);
  };
  open(false);
  more.classList.add('tb-more');
  closesAlone(list, more, () => list.classList.contains('tb-open'), () => open(false));
  return more;
}

// The stages whose graphs are shown, and the buttons for them.
type Stage = [name: string, label: string, title: string];

const STAGES: Stage[] = [
  ['traced', 'Traced', 'Model as traced'],
  ['passed', 'Passes', 'Graph after the passes on nD ops'],
  ['lowered', 'Lowered', 'Hardware ops, as placed']
];
const EACH: Stage = ['pass', 'Per pass', 'Show the graph after a pass, with what the pass changed'];
const FILE: Stage[] = [['netlist', 'Ops and queues', 'Netlist of a file']];

/** A graph that is none of the compile's stages. */
export interface Special {
  stage: Stage;
  /** Colours of a node; null for the usual ones. */
  paint(frame: Frame, node: number, dark: boolean): Paint | null;
  legend(dark: boolean): HTMLElement[];
}

/** Those that there can be: of a compile, of a netlist from a file, or a single one. */
export function stagesOf(scenes: ReadonlyMap<string, unknown>, special: Special | null): Stage[] {
  return special ? [special.stage] : scenes.has('netlist') ? FILE : STAGES;
}

/** passes: opens the graphs after each pass; null where there are none. */
export function stageButtons(
  stages: Stage[], there: string[], now: string, show: (stage: string) => void, passes: (() => void) | null
): HTMLElement[] {
  const button = ([name, label, title]: Stage, f: () => void, disabled = false) => h('button', {
    title, 'data-tb-action': `graph-stage-${name}`, 'aria-pressed': String(name === now), disabled, onclick: f
  }, label);
  const buttons = stages.map(stage => button(stage, () => show(stage[0]), !there.includes(stage[0])));
  return passes ? [...buttons, button(EACH, passes)] : buttons;
}

/** How the graph lies: from top to bottom or from left to right, with or without words on its edges; buttons and traits. */
export class Orientation {
  readonly turner: HTMLButtonElement;
  readonly worder: HTMLButtonElement;
  private readonly direction: SyncedTrait<Direction>;
  private readonly words: SyncedTrait<boolean>;

  /** changed: scenes are to lie anew. dressed: is told the direction, for whoever looks from outside. */
  constructor(store: Store, private readonly changed: () => void, private readonly dressed: (direction: Direction) => void) {
    this.turner = button('graph-direction', '⇄', '', () => this.turn());
    this.worder = button('graph-tms', 'TM', 'Show TMs on edges', () => this.put(this.words, !this.words.value()));
    this.direction = syncedTrait<Direction>(store, 'direction', 'TB', () => this.renew());
    this.words = syncedTrait(store, 'show_tms', false, () => this.renew());
  }

  dispose(): void {
    this.direction.dispose();
    this.words.dispose();
  }

  lay(scene: Scene): void {
    scene.lie(this.direction.value(), this.words.value());
  }

  turn(): void {
    this.put(this.direction, this.direction.value() === 'TB' ? 'LR' : 'TB');
  }

  private put<T>(trait: SyncedTrait<T>, value: T): void {
    trait.tell(value);
    this.renew();
  }

  private renew(): void {
    this.dress();
    this.changed();
  }

  /** Says on the buttons, and to the view, how it lies. */
  dress(): void {
    const direction = this.direction.value();
    const turned = direction === 'LR';
    this.turner.textContent = turned ? '⇅' : '⇄';
    this.turner.title = turned ? 'From top to bottom (L)' : 'From left to right (L)';
    this.turner.setAttribute('aria-label', this.turner.title);
    this.worder.setAttribute('aria-pressed', String(this.words.value()));
    this.dressed(direction);
  }
}

/** The search field of the graph: which nodes match, and from one match to the next. */
export class Finder {
  readonly input: HTMLInputElement;
  readonly count = h('span', { class: 'tb-found', 'aria-live': 'polite' });
  matches: Set<number> | null = null;
  private readonly query: SyncedTrait<string>;
  private at = -1;

  /** go: to a node of the scene. changed: other nodes match. left: Escape was pressed. */
  constructor(
    private readonly store: Store, private readonly scene: () => Scene | undefined, private readonly go: (node: number) => void,
    private readonly changed: () => void, left: () => void
  ) {
    this.input = h('input', {
      type: 'search', class: 'tb-search', placeholder: 'Search nodes', 'aria-label': 'Search nodes', spellcheck: 'false',
      'data-tb-action': 'graph-search', 'data-lm-suppress-shortcuts': 'true'
    });
    this.query = syncedTrait(store, 'query', '', text => {
      this.input.value = text;
      this.search();
    });
    this.input.value = this.query.value();
    this.input.addEventListener('input', () => this.onInput());
    this.input.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.next(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        this.input.value = '';
        this.onInput();
        left();
      }
    });
  }

  /** Searches the scene there is now. */
  search(): void {
    this.at = -1;
    this.matches = matching(this.scene(), this.input.value.trim());
    this.count.textContent = this.matches ? `${this.matches.size} found` : '';
    this.changed();
  }

  dispose(): void {
    this.query.dispose();
  }

  private onInput(): void {
    this.query.tell(this.input.value);
    this.search();
  }

  private next(step: number): void {
    const scene = this.scene();
    if (!scene || !this.matches?.size) return;
    const list = [...this.matches];
    this.at = (this.at + step + list.length) % list.length;
    const node = list[this.at]!;
    this.count.textContent = `${this.at + 1} of ${list.length}`;
    this.go(node);
    this.store.select([scene.names[node]!], 'graph');
  }
}

/** Which nodes a search finds: a regular expression without regard to case, or plain text where it is none. */
function matching(scene: Scene | undefined, text: string): Set<number> | null {
  if (!scene || !text) return null;
  const wanted = pattern(text);
  return new Set(scene.names.flatMap((name, i) => (wanted(name) || wanted(scene.types[i]!) ? [i] : [])));
}

function pattern(text: string): (name: string) => boolean {
  try {
    const expression = new RegExp(text, 'i');
    return name => expression.test(name);
  } catch {
    const lower = text.toLowerCase();
    return name => name.toLowerCase().includes(lower);
  }
}
