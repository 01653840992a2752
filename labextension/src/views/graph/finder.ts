/** The search field of the graph: which nodes match, and from one match to the next. */
import { h } from '../dom.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';
import type { Scene } from './scene.js';

export class Finder {
  readonly input: HTMLInputElement;
  readonly found = h('span', { class: 'tb-found', 'aria-live': 'polite' });
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
    this.input.addEventListener('input', () => this.typed());
    this.input.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.next(event.shiftKey ? -1 : 1);
      if (event.key === 'Escape') {
        this.input.value = '';
        this.typed();
        left();
      }
    });
  }

  /** Searches the scene there is now. */
  search(): void {
    this.at = -1;
    this.matches = matching(this.scene(), this.input.value.trim());
    this.found.textContent = this.matches ? `${this.matches.size} found` : '';
    this.changed();
  }

  dispose(): void {
    this.query.dispose();
  }

  private typed(): void {
    this.query.tell(this.input.value);
    this.search();
  }

  private next(step: number): void {
    const scene = this.scene();
    if (!scene || !this.matches?.size) return;
    const list = [...this.matches];
    this.at = (this.at + step + list.length) % list.length;
    const node = list[this.at]!;
    this.found.textContent = `${this.at + 1} of ${list.length}`;
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
