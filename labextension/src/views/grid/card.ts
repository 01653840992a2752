/** Words beside the grid: the card of one op, and the epoch as a table for screen readers. */
import { bytes, grouped, h, percent } from '../dom.js';
import { slowText } from './legal.js';
import type { Ops } from '../ops.js';
import { PreloadButtons } from '../opcontrols.js';
import type { Store } from '../store.js';
import { saidTime } from '../numbers.js';

/** What the op under the pointer, else the selected one, is and costs. It stands below the grid. */
export class Card {
  private readonly preload: PreloadButtons;
  private shown: Ops | null = null;
  readonly element = h('div', { class: 'tb-card', 'data-tb-card': '', 'aria-label': 'Op under the pointer' });

  constructor(store: Store) {
    this.preload = new PreloadButtons(store);
  }

  dispose(): void {
    this.preload.dispose();
  }

  /** The same op again changes nothing: a button that is pointed at stays. */
  show(ops: Ops, op: number): void {
    if (this.shown === ops && this.element.dataset['tbCard'] === ops.name[op]!) return;
    this.shown = ops;
    const fact = (term: string, text: string) => h('span', {}, h('i', {}, term), text);
    const limiter = ops.frame.has('op_limiter_cycles') ? ops.get('limiter_cycles', op) : 0;
    const what = limiter > 0 ? ops.frame.text('op_limiter')[op]! : 'kernel';
    const cycles = limiter > 0 ? limiter : ops.get('cycles', op);
    this.element.dataset['tbCard'] = ops.name[op]!;
    this.element.replaceChildren(
      h('header', {}, h('strong', { title: ops.name[op] }, ops.name[op]), h('span', {}, ops.type[op]), ...this.preload.of(ops, op, false), this.preload.effect),
      h('p', {}, ...[
        fact('at', `${ops.where(op)}, ${ops.get('rows', op)}×${ops.get('cols', op)}`),
        cycles > 0 && fact(limiter > 0 ? 'kernel or transfer' : 'kernel', `${grouped(cycles)} cycles / input, ${percent(ops.load(op))} of the slowest`),
        ops.frame.has('op_bound') && ops.bound(op) !== '' && fact('bound by', what === 'kernel' ? ops.bound(op) : slowText(what)),
        ops.frame.has('op_l1_total') && fact('L1', `${bytes(ops.get('l1_total', op))}, ${percent(ops.get('l1_total', op) / ops.l1)}`),
        fact('format', [ops.df[op], ops.fidelity[op]].filter(Boolean).join(', '))
      ]));
  }

  hint(text: string): void {
    this.element.dataset['tbCard'] = '';
    this.shown = null;
    this.element.replaceChildren(h('p', { class: 'tb-card-hint' }, text));
  }
}

/** The grid as a table that is not seen: a screen reader goes through it row by row. */
export class AccessibleTable {
  readonly element = h('div', { class: 'tb-live' });

  /** A row per op of the epoch: where it stands, how large it is, what it takes. */
  show(ops: Ops | null, epoch: number): void {
    const rows = (ops?.byEpoch[epoch] ?? []).map(op => {
      const said = [
        ops!.name[op]!, ops!.where(op), `epoch ${epoch}`, saidTime(ops!.time(op), ops!.clock),
        ops!.isLimiting(op) ? 'limits the epoch' : ''
      ];
      return h('tr', { role: 'row' }, ...said.map((text, i) => h('td', { role: i ? 'gridcell' : 'rowheader' }, text)));
    });
    this.element.replaceChildren(h('table', { role: 'grid', 'aria-label': `Ops of epoch ${epoch}`, 'aria-readonly': 'true', 'data-tb-table': epoch },
      h('tr', { role: 'row' }, ...['op', 'place', 'epoch', 'cycles', 'remark'].map(text => h('th', { role: 'columnheader', scope: 'col' }, text))),
      ...rows));
  }
}
