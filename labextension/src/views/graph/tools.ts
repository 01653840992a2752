/** What one does with the picture of a graph: buttons in the bar, behind one button where there is no room for them. */
import { h } from '../dom.js';

export function button(action: string, label: string, title: string, f: () => void): HTMLButtonElement {
  return h('button', { type: 'button', class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
}

/** [the button that opens them, the tools]; which of the two is seen is a matter of style. */
export function tools(...buttons: HTMLButtonElement[]): [HTMLElement, HTMLElement] {
  const list = h('span', { class: 'tb-tools', role: 'group', 'aria-label': 'View options' }, ...buttons);
  const more = button('graph-more', '⋯', 'More tools', () => open(more.getAttribute('aria-expanded') !== 'true'));
  const open = (on: boolean) => {
    more.setAttribute('aria-expanded', String(on));
    list.classList.toggle('tb-open', on);
  };
  open(false);
  more.classList.add('tb-more');
  list.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || !list.classList.contains('tb-open')) return;
    event.stopPropagation();
    open(false);
    more.focus();
  });
  list.addEventListener('focusout', event => {
    const to = event.relatedTarget as Node | null;
    if (to && to !== more && !list.contains(to)) open(false);
  });
  return [more, list];
}
