/** What lies under the pointer while an op is dragged out of the grid: an epoch of the film strip, or a chip. */
export interface Target {
  kind: 'epoch' | 'chip';
  number: number;
  element: Element;
}

export function targetAt(view: HTMLElement, x: number, y: number): Target | null {
  const root = view.closest('.tb-root') ?? view;
  // There is no such thing without a layout.
  const found = typeof document.elementsFromPoint === 'function' ? document.elementsFromPoint(x, y) : [];
  for (const element of found) {
    const epoch = element.closest('.tb-frame[data-tb-epoch]');
    if (epoch && root.contains(epoch)) return { kind: 'epoch', number: Number(epoch.getAttribute('data-tb-epoch')), element: epoch };
    const chip = element.closest('[data-tb-chip]');
    if (chip && root.contains(chip)) return { kind: 'chip', number: Number(chip.getAttribute('data-tb-chip')), element: chip };
  }
  return null;
}

let marked: Element | null = null;

/** Shows where a drop would go; null for nowhere. */
export function mark(target: Target | null): void {
  if (marked === (target?.element ?? null)) return;
  marked?.classList.remove('tb-drop');
  marked = target?.element ?? null;
  marked?.classList.add('tb-drop');
}
