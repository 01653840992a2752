/** The hover card: what an op is, where it lies, and its netlist entry. */
import { h } from '../dom.js';
import { definition, entry, essentials, numbers } from '../facts.js';
import type { NetlistText } from '../netlist.js';
import type { Ops } from '../ops.js';

export class Card {
  readonly element = h('div', { class: 'tb-card', role: 'tooltip', hidden: true });

  show(ops: Ops, op: number, text: NetlistText | null, near: DOMRect, frame: DOMRect): void {
    const written = entry(text, ops.name[op]!);
    this.element.replaceChildren(
      h('header', {}, h('strong', {}, ops.name[op]), h('span', {}, ops.type[op])),
      definition(written ? essentials(ops, op) : numbers(ops, op), 'tb-facts'),
      ...(written ? [h('h4', {}, 'Netlist entry'), written] : [])
    );
    this.element.hidden = false;
    const [left, top] = beside(
      { x: near.left - frame.left, y: near.top - frame.top, w: near.width, h: near.height },
      this.element.offsetWidth, this.element.offsetHeight, frame.width, frame.height
    );
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}

const GAP = 8;
const OVERHANG = 60; // how far a card may reach below its view

/** Where a card of w x h stands so that the tile stays in sight: right, left, below, above, else below all the same. */
export function beside(
  tile: { x: number; y: number; w: number; h: number }, w: number, h: number, width: number, height: number
): [number, number] {
  const y = Math.max(0, Math.min(tile.y, height + OVERHANG - h));
  const x = Math.max(0, Math.min(tile.x, width - w));
  if (tile.x + tile.w + GAP + w <= width) return [tile.x + tile.w + GAP, y];
  if (tile.x - GAP - w >= 0) return [tile.x - GAP - w, y];
  if (tile.y + tile.h + GAP + h <= height + OVERHANG) return [x, tile.y + tile.h + GAP];
  if (tile.y - GAP - h >= 0) return [x, tile.y - GAP - h];
  return [x, tile.y + tile.h + GAP];
}
