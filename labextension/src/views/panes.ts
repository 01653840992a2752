/** Bars between panes: dragged, or moved by arrow keys. Where they stood is remembered by the browser, for all workbenches. */
import { h } from './dom.js';

const KEY = 'tbuda-lab:panes';
const STEP = 0.02; // of the room, by an arrow key

export interface Bar {
  /** Under which the share is remembered, and the custom property that carries it: `--tb-share-<name>`. */
  name: string;
  label: string;
  /** Whether the panes stand side by side. */
  across: boolean;
  /** Share of the first pane where nobody moved the bar. */
  share: number;
  /** Least and largest share of the first pane. */
  range: [number, number];
}

function remembered(): Record<string, number> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Record<string, number>;
  } catch { // a page that may keep nothing, or what is kept is not ours
    return {};
  }
}

function remember(name: string, share: number): void {
  try {
    localStorage.setItem(KEY, JSON.stringify({ ...remembered(), [name]: share }));
  } catch { // then it is forgotten with the page
  }
}

/** The bar between two panes of `room`; a double click puts it back where it was at first. */
export function splitter(room: HTMLElement, { name, label, across, share: usual, range: [least, most] }: Bar): HTMLElement {
  const bar = h('div', {
    class: `tb-splitter ${across ? 'tb-across' : 'tb-down'}`, role: 'separator', tabindex: 0, 'aria-label': label, 'data-tb-splitter': name,
    'aria-orientation': across ? 'vertical' : 'horizontal', 'aria-valuemin': Math.round(100 * least), 'aria-valuemax': Math.round(100 * most),
    'data-lm-suppress-shortcuts': 'true', title: 'Drag to resize; double-click to reset'
  });
  let share = usual;
  const put = (next: number, keep = true) => {
    share = Math.max(least, Math.min(most, next));
    room.style.setProperty(`--tb-share-${name}`, share.toFixed(4));
    bar.setAttribute('aria-valuenow', String(Math.round(100 * share)));
    if (keep) remember(name, share);
  };
  const kept = remembered()[name];
  put(typeof kept === 'number' && Number.isFinite(kept) ? kept : usual, false);
  const at = (event: PointerEvent) => {
    const box = room.getBoundingClientRect();
    put(across ? (event.clientX - box.left) / box.width : (event.clientY - box.top) / box.height);
  };
  bar.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    event.preventDefault();
    bar.setPointerCapture(event.pointerId);
    bar.addEventListener('pointermove', at);
  });
  for (const end of ['pointerup', 'pointercancel'] as const) bar.addEventListener(end, () => bar.removeEventListener('pointermove', at));
  bar.addEventListener('dblclick', () => put(usual));
  bar.addEventListener('keydown', event => {
    const by = { ArrowLeft: across ? -1 : 0, ArrowRight: across ? 1 : 0, ArrowUp: across ? 0 : -1, ArrowDown: across ? 0 : 1 }[event.key];
    if (!by && event.key !== 'Home') return;
    event.preventDefault();
    event.stopPropagation();
    put(by ? share + by * STEP : usual);
  });
  return bar;
}
