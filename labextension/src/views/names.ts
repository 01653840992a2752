/** Names of ops across stages, and selected names that vanished. */
import type { Store } from './store.js';

/**
 * Names across stages. An op keeps its name from stage to stage unless it is decomposed: `x` becomes `x.dc.<op>.<k>`.
 * A selection made in one stage is shown in another on the nodes that share the original name.
 */
export function original(name: string): string {
  const at = name.indexOf('.dc.');
  return at < 0 ? name : name.slice(0, at);
}

/** Names of `present` that stand for `wanted`: the same name if it is there, else all of the same origin. */
export class Matcher {
  private readonly byName = new Map<string, number>();
  private readonly byOriginal = new Map<string, number[]>();

  constructor(names: readonly string[]) {
    names.forEach((name, i) => {
      this.byName.set(name, i);
      const key = original(name);
      const list = this.byOriginal.get(key);
      if (list) list.push(i);
      else this.byOriginal.set(key, [i]);
    });
  }

  find(wanted: readonly string[]): number[] {
    const found = new Set<number>();
    for (const name of wanted) {
      const exact = this.byName.get(name);
      if (exact !== undefined) found.add(exact);
      else this.byOriginal.get(original(name))?.forEach(i => found.add(i));
    }
    return [...found];
  }
}

/** Selected names that a compile made vanish: taken out of the selection, and told once. */
export class LostSelection {
  names: string[] = [];
  private before: Matcher | null = null;
  private readonly stop: () => void;

  constructor(private readonly store: Store, private readonly changed: () => void) {
    this.stop = store.on('frame', key => {
      if (key === 'ops') this.compare();
    });
    this.compare();
  }

  dispose(): void {
    this.stop();
  }

  private compare(): void {
    const frame = this.store.frames.get('ops');
    if (!frame) return;
    const { before } = this;
    const now = (this.before = new Matcher(frame.text('op_name')));
    if (!before) return;
    const chosen = this.store.selection.names;
    const gone = chosen.filter(name => before.find([name]).length && !now.find([name]).length);
    if (gone.length || this.names.length) {
      this.names = gone;
      if (gone.length) this.store.select(chosen.filter(name => !gone.includes(name)), 'lost');
      this.changed();
    }
  }
}
