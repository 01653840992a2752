/** Arrangements of the workbench under names of the user's: which views stand where, how large, which tab is in front. */
import { h, listBehind } from './dom.js';

/** What is kept of an arrangement. panes: shares of the bars between panes, by their names. */
export interface Layout {
  mode: string;
  tab: string;
  inspector: boolean;
  tall: boolean;
  panes: Record<string, number>;
}

const KEY = 'tbuda-lab:layouts';
const MOST = 20;

/** By name, as far as they are ours; null in a page that may keep nothing. */
export function storedLayouts(): Map<string, Layout> | null {
  let text: string | null;
  try {
    text = localStorage.getItem(KEY);
  } catch {
    return null;
  }
  const found = new Map<string, Layout>();
  try {
    for (const [name, one] of Object.entries(JSON.parse(text ?? '{}') as Record<string, Partial<Layout> | null>)) {
      if (!one || typeof one.mode !== 'string' || typeof one.tab !== 'string') continue;
      const panes = Object.entries(one.panes ?? {}).filter(([, share]) => Number.isFinite(share));
      found.set(name, { mode: one.mode, tab: one.tab, inspector: one.inspector === true, tall: one.tall === true, panes: Object.fromEntries(panes) });
    }
  } catch { // what is kept there is not ours
  }
  return found;
}

/** Keeps a layout under a name, or with null forgets it. Whether the browser took it. */
export function keepLayout(name: string, layout: Layout | null): boolean {
  const all = storedLayouts();
  if (!all) return false;
  all.delete(name);
  if (layout) all.set(name, layout);
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries([...all].slice(-MOST))));
  } catch {
    return false;
  }
  return true;
}

/** The button that lists the layouts. now: the arrangement as it stands; put: arranges. Hidden where nothing can be kept. */
export function layoutMenu(now: () => Layout, put: (layout: Layout | null) => void): HTMLElement {
  const list = h('span', { class: 'tb-run-more tb-layouts', role: 'group', 'aria-label': 'Layouts', hidden: true });
  const opener = h('button', {
    class: 'tb-button', 'data-tb-action': 'layouts', title: 'Arrangements saved by name, in this browser'
  }, 'Layouts ▾');
  const choose = (layout: Layout | null) => {
    put(layout);
    show(false);
    opener.focus();
  };
  const fill = () => {
    const name = h('input', { class: 'tb-input', placeholder: 'Name', maxlength: 40, 'aria-label': 'Name of this arrangement', 'data-tb-action': 'layout-name' });
    const save = () => {
      if (!name.value.trim() || !keepLayout(name.value.trim(), now())) return;
      fill();
      opener.focus();
    };
    name.addEventListener('keydown', event => {
      if (event.key !== 'Escape') event.stopPropagation();
      if (event.key === 'Enter') save();
    });
    list.replaceChildren(
      h('button', { class: 'tb-button', 'data-tb-action': 'layout-usual', title: 'As a new workbench is', onclick: () => choose(null) }, 'Usual'),
      ...[...storedLayouts() ?? []].map(([kept, layout]) => h('span', { class: 'tb-layout', 'data-tb-layout': kept },
        h('button', { class: 'tb-button', 'data-tb-action': 'layout-put', title: `Arrange as ${kept}`, onclick: () => choose(layout) }, kept),
        h('button', {
          class: 'tb-close', 'data-tb-action': 'layout-forget', 'aria-label': `forget ${kept}`, title: 'Forget this layout',
          onclick: () => {
            keepLayout(kept, null);
            fill();
            opener.focus();
          }
        }, '×'))),
      h('span', { class: 'tb-layout' }, name, h('button', { class: 'tb-button', 'data-tb-action': 'layout-save', title: 'Save the arrangement as it stands', onclick: save }, 'Save')));
  };
  const [box, show] = listBehind(opener, list, open => open && fill());
  box.hidden = storedLayouts() === null;
  box.dataset['lmSuppressShortcuts'] = 'true';
  return box;
}
