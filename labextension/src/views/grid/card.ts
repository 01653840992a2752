/** The hover card: what an op is, where it lies, and its netlist entry. */
import { h } from '../dom.js';
import { definition, entry, numbers } from '../facts.js';
import type { NetlistText } from '../netlist.js';
import type { Ops } from '../ops.js';

export class Card {
  readonly element = h('div', { class: 'tb-card', role: 'tooltip', hidden: true });

  show(ops: Ops, op: number, text: NetlistText | null, near: DOMRect, frame: DOMRect): void {
    const written = entry(text, ops.name[op]!);
    this.element.replaceChildren(
      h('header', {}, h('strong', {}, ops.name[op]), h('span', {}, ops.type[op])),
      h('div', { class: 'tb-columns' },
        h('div', {}, definition(numbers(ops, op), 'tb-facts')),
        written ? h('div', {}, h('h4', {}, 'Netlist entry'), written) : ''));
    this.element.hidden = false;
    const { offsetWidth: w, offsetHeight: hgt } = this.element;
    const right = near.right - frame.left + 10;
    const left = right + w > frame.width ? near.left - frame.left - w - 10 : right;
    const top = Math.min(near.top - frame.top, frame.height - hgt - 8);
    this.element.style.left = `${Math.max(6, Math.min(left, frame.width - w - 6))}px`;
    this.element.style.top = `${Math.max(6, top)}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
