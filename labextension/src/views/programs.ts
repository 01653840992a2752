/** The programs of a netlist file as text. */
import { h } from './dom.js';
import type { Store } from './store.js';

export class ProgramsView {
  readonly element = h('section', { class: 'tb-view', 'data-tb-view': 'programs', 'aria-label': 'Programs' });
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.stops.push(store.on('frame', key => {
      if (key === 'programs') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('programs');
    const text = frame ? new TextDecoder().decode(frame.column('text')) : '';
    this.element.replaceChildren(text
      ? h('pre', { class: 'tb-code tb-programs', tabindex: 0 }, text)
      : h('div', { class: 'tb-empty' }, 'The netlist has no programs.'));
  }
}
