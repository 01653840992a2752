/** All keyboard shortcuts, as they are bound. */
import { Dialog } from './dialog.js';
import { h } from './dom.js';
import { chordsOf, KEYS } from './keys.js';

const NAMES: Record<string, string> = { ArrowLeft: '←', ArrowRight: '→', ArrowUp: '↑', ArrowDown: '↓', Escape: 'Esc' };

export class KeySheet {
  readonly dialog = new Dialog('keys', 'Keyboard shortcuts');

  show(): void {
    const groups = [...new Set(KEYS.map(k => k.group))];
    this.dialog.body.replaceChildren(...groups.map(group =>
      h('section', {}, h('h4', {}, group), h('dl', { class: 'tb-keys' }, ...KEYS.filter(k => k.group === group).flatMap(binding => {
        const chords = chordsOf(binding);
        const shown = chords.length > 4 ? [`${chords[0]!} … ${chords.at(-1)!}`] : chords;
        const where = binding.scope === 'both' ? '' : ` (${binding.scope})`;
        return [
          h('dt', { 'data-tb-key': binding.action }, ...(shown.length ? shown.map(keys) : [h('i', {}, 'none')])),
          h('dd', {}, binding.does + where)
        ];
      })))),
      h('section', {}, h('h4', {}, 'Mouse'), h('dl', { class: 'tb-keys' },
        ...([
          ['edge of an op', 'resize: lands on the nearest legal shape'], ['Alt while dragging', 'no snapping: says why a shape is illegal'],
          ['body of an op', 'move: in the grid, onto an epoch of the film strip, onto a chip'], ['T while dragging', 'transpose the op'],
          ['drag over empty cores', 'select ops with a rectangle'], ['Alt+drag of a selected op', 'moves the whole selection'],
          ['Ctrl+click', 'adds to the selection'], ['right click in the graph', 'commands of an op or edge']
        ] as const).flatMap(([what, does]) => [h('dt', {}, h('i', {}, what)), h('dd', {}, does)]))));
    this.dialog.show();
  }
}

function keys(chord: string): HTMLElement {
  return h('kbd', {}, chord.split('+').map(part => NAMES[part] ?? part).join('+') || '+');
}
