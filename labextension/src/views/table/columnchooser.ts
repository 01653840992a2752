/** Which columns of the op table are shown: a box for each, in a line that a button opens. */
import { h } from '../dom.js';
import { COLUMNS } from './columns.js';

/**
 * [the button, the line, what renews the boxes once other columns are shown]. shown: ids of the columns that are shown,
 * usual: those where none are chosen; choose: takes others, none for the usual ones.
 */
export function chooser(shown: () => string[], usual: () => string[], choose: (ids: string[]) => void): [HTMLElement, HTMLElement, () => void] {
  const place = (id: string) => COLUMNS.findIndex(c => c.id === id);
  const put = (id: string, on: boolean) => {
    const now = shown().filter(other => other !== id);
    const before = now.findIndex(other => place(other) > place(id));
    if (on) now.splice(before < 0 ? now.length : before, 0, id);
    choose(now.join() === usual().join() ? [] : now);
  };
  const fill = () => {
    if (line.hidden) return;
    const now = new Set(shown());
    const at = (document.activeElement as HTMLElement | null)?.dataset['tbAction'];
    line.replaceChildren(...COLUMNS.filter(c => now.has(c.id) || usual().includes(c.id)).map(c => h('label', { class: 'tb-check', title: c.title }, h('input', {
      type: 'checkbox', checked: now.has(c.id), disabled: now.has(c.id) && now.size === 1, 'data-tb-action': `column-${c.id}`,
      onchange: (event: Event) => put(c.id, (event.target as HTMLInputElement).checked)
    }), c.label)));
    if (at?.startsWith('column-')) line.querySelector<HTMLElement>(`[data-tb-action="${at}"]`)?.focus();
  };
  const line = h('div', { class: 'tb-bar', role: 'group', 'aria-label': 'Columns', hidden: true });
  const button = h('button', {
    type: 'button', class: 'tb-button', 'data-tb-action': 'table-columns', 'aria-expanded': 'false', title: 'Choose the columns', onclick: () => {
      line.hidden = !line.hidden;
      button.setAttribute('aria-expanded', String(!line.hidden));
      fill();
    }
  }, 'Columns');
  return [button, line, fill];
}
