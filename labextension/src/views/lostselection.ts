/** Selected names that a compile made vanish: taken out of the selection, and told once. */
import { Matcher } from './names.js';
import type { Store } from './store.js';

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
