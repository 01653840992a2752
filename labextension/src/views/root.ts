/** The element every view stands in: carries the style sheet and follows the theme. */
import documentStyle from './document.raw.css';
import { h } from './dom.js';
import editStyle from './edit.raw.css';
import overlayStyle from './overlay.raw.css';
import chipStyle from './grid/chip.raw.css';
import style from './base.raw.css';
import { isDark, onTheme } from './theme.js';
import { groupTabStops } from './keys.js';
import traceStyle from './trace/view.raw.css';

/** @param more style sheets beside those that every root has. */
export function makeRoot(name: string, child: HTMLElement, more = ''): { root: HTMLElement; dispose: () => void } {
  const root = h('div', { class: 'tb-root', 'data-tb-root': name },
    h('style', {}, style + editStyle + chipStyle + overlayStyle + traceStyle + documentStyle + more), child);
  const theme = () => {
    root.classList.toggle('tb-dark', isDark());
    root.dataset['tbTheme'] = isDark() ? 'dark' : 'light';
  };
  theme();
  const stops = [onTheme(theme), groupTabStops(root)];
  return { root, dispose: () => stops.forEach(stop => stop()) };
}
