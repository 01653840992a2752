/** Pointer, wheel and keys of the timeline. */
import { HEAD, OVERVIEW } from './draw.js';
import type { Row } from './model.js';
import type { TraceActions, TraceElements, TraceState } from './state.js';

type GestureView = TraceState & TraceActions & TraceElements;

/** The wheel scrolls the page until the view has the focus; with Ctrl it always zooms. */
export function wheel(view: GestureView, event: WheelEvent): void {
  const focused = view.stage.contains(document.activeElement);
  const over = event.target !== view.scroller && !view.scroller.contains(event.target as Node);
  if (!view.model || !over || !(event.ctrlKey || event.metaKey || focused)) return;
  event.preventDefault();
  const x = event.clientX - view.canvas.getBoundingClientRect().left;
  if (event.deltaX && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    view.time.pan(event.deltaX / Math.max(1, view.size.width));
    view.onTimeChange();
  } else view.zoom(Math.exp(-event.deltaY * 0.0022), view.toCycle(x));
}

export function rowAt(view: Pick<GestureView, 'canvas' | 'scroller' | 'rows'>, event: MouseEvent): Row | null {
  const seen = event.clientY - view.canvas.getBoundingClientRect().top - HEAD;
  const still = view.rows.find(r => r.pinned && seen >= r.top && seen < r.top + r.height);
  const y = seen + view.scroller.scrollTop;
  return still ?? (y < view.scroller.scrollTop ? null : (view.rows.find(r => y >= r.top && y < r.top + r.height) ?? null));
}

export function press(view: GestureView, event: PointerEvent): void {
  const { model } = view;
  if (!model || event.button) return;
  view.stage.focus({ preventScroll: true });
  const box = view.canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const whole = (px: number) => (px / Math.max(1, view.size.width)) * model.cycles;
  if (event.altKey) {
    view.cursors.add(view.toCycle(x));
    return;
  }
  if (event.shiftKey) {
    stretch(view, event, x);
    return;
  }
  const mode = y < OVERVIEW ? 'overview' : y < HEAD ? 'seek' : 'pan';
  const [start, end, scroll] = [view.time.start, view.time.end, view.scroller.scrollTop];
  let far = false;
  const move = (e: PointerEvent) => {
    const dx = e.clientX - event.clientX;
    far ||= Math.hypot(dx, e.clientY - event.clientY) > 4;
    if (mode === 'overview') {
      const middle = whole(e.clientX - box.left);
      view.time.show(middle - (end - start) / 2, middle + (end - start) / 2);
      view.onTimeChange();
    } else if (mode === 'seek') view.player.seek(view.toCycle(e.clientX - box.left), false);
    else if (far) {
      const by = (dx / Math.max(1, view.size.width)) * (end - start);
      view.time.show(start - by, end - by);
      view.scroller.scrollTop = scroll - (e.clientY - event.clientY);
      view.onTimeChange();
    }
  };
  const up = (e: PointerEvent) => {
    move(e);
    window.removeEventListener('pointermove', move);
    window.removeEventListener('pointerup', up);
    if (mode !== 'pan' || far) return;
    const row = rowAt(view, e);
    if (row?.kind === 'epoch') view.store.setEpoch(row.epoch);
    else if (row) view.store.click(model.ops[row.op]!.name, e.ctrlKey || e.metaKey, 'trace');
    else view.store.select([], 'trace');
    const cycle = view.toCycle(x);
    if (!row || model.roundsOf.get(row.epoch)?.some(r => r.start <= cycle && cycle < r.end)) view.player.seek(cycle, false);
  };
  window.addEventListener('pointermove', move);
  window.addEventListener('pointerup', up);
  if (mode !== 'pan') move(event);
}

/** Shift and a drag: a stretch of time, of which the table below says what the ops do. */
function stretch(view: Pick<GestureView, 'canvas' | 'cursors' | 'toCycle'>, event: PointerEvent, x: number): void {
  const from = view.toCycle(x);
  const left = view.canvas.getBoundingClientRect().left;
  const move = (e: PointerEvent) => {
    if (Math.abs(e.clientX - event.clientX) > 4) view.cursors.stand([from, view.toCycle(e.clientX - left)]);
  };
  const up = (e: PointerEvent) => {
    move(e); // a page at work is told of few moves on the way
    window.removeEventListener('pointermove', move);
    window.removeEventListener('pointerup', up);
  };
  window.addEventListener('pointermove', move);
  window.addEventListener('pointerup', up);
}

export function key(view: GestureView, event: KeyboardEvent): void {
  const { model } = view;
  if (!model || event.ctrlKey || event.metaKey || event.altKey || (event.target as Element).tagName === 'INPUT') return;
  const rest = { Enter: 1, ' ': 1 }[event.key] && (event.target as Element).tagName === 'BUTTON';
  if (rest) return;
  const actions: Record<string, () => void> = {
    '+': () => view.zoom(1.6), '=': () => view.zoom(1.6), '-': () => view.zoom(1 / 1.6), '0': () => view.show(0, model.cycles),
    w: () => view.zoom(1.6), s: () => view.zoom(1 / 1.6), a: () => pan(view, -0.15), d: () => pan(view, 0.15), // as in Perfetto
    ArrowLeft: () => pan(view, -0.15), ArrowRight: () => pan(view, 0.15),
    ArrowUp: () => (view.scroller.scrollTop -= 40), ArrowDown: () => (view.scroller.scrollTop += 40),
    f: () => view.fitEpoch(), ' ': () => view.player.play(), c: () => view.cursors.add(view.player.cycle ?? (view.time.start + view.time.end) / 2),
    x: () => view.cursors.clear(), q: () => view.feeders(), k: () => view.pin([...view.selectedOps()].map(op => model.ops[op]!.name)),
    n: () => nextEpoch(view, 1), p: () => nextEpoch(view, -1),
    Escape: () => {
      view.shown = { ...view.shown, only: null };
      view.store.select([], 'trace');
      view.player.lift();
      view.layout();
    }
  };
  const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

function pan(view: Pick<GestureView, 'time' | 'onTimeChange'>, share: number): void {
  view.time.pan(share);
  view.onTimeChange();
}

function nextEpoch(view: Pick<GestureView, 'model' | 'store' | 'fitEpoch'>, step: number): void {
  const { model } = view;
  const next = model?.epochs[model.epochs.indexOf(view.store.epoch) + step];
  if (next !== undefined) {
    view.store.setEpoch(next);
    view.fitEpoch();
  }
}
