/** Ops that the user fixed look fixed: a corner in a colour of their own. */
import { svg } from '../dom.js';
import type { Edits } from '../store.js';

/** What the user fixed of each op, in words; what is switched off is left out. */
export function fixedOps(edits: Edits | null): Map<string, string> {
  const found = new Map<string, string[]>();
  for (const { field, state, names } of edits?.overrides ?? []) {
    const what = FIXED[field];
    if (what && state !== 'off') for (const name of names) found.set(name, [...(found.get(name) ?? []), what]);
  }
  return new Map([...found].map(([name, what]) => [name, what.join(', ')]));
}

const FIXED: Record<string, string> = { op_size: 'size', op_placement: 'place', chip: 'chip' };

/** A corner in the colour of fixed ops, and the words of it. */
export function markFixed(tile: SVGGElement, what: string | undefined): void {
  if ((what ?? '') === (tile.dataset['tbFixed'] ?? '')) return;
  tile.querySelector('.tb-fixed-mark')?.remove();
  tile.classList.toggle('tb-fixed', what !== undefined);
  const said = (tile.getAttribute('aria-label') ?? '').replace(/, [^,]*(?:, [^,]*)* fixed by you$/, '');
  if (what === undefined) {
    delete tile.dataset['tbFixed'];
    tile.setAttribute('aria-label', said);
    return;
  }
  tile.dataset['tbFixed'] = what;
  tile.setAttribute('aria-label', `${said}, ${what} fixed by you`);
  const body = tile.querySelector('.tb-body')!;
  const [x, y, w, hgt] = ['x', 'y', 'width', 'height'].map(a => Number(body.getAttribute(a))) as [number, number, number, number];
  const side = Math.min(12, w / 3, hgt / 3);
  body.after(svg('path', { class: 'tb-fixed-mark', d: `M${x + w - side} ${y}H${x + w}V${y + side}z` }, svg('title', {}, `${what} fixed by you`)));
}
