/** The grid as a table beside the picture, out of sight: what a screen reader goes through row by row. */
import { h } from '../dom.js';
import type { Ops } from '../ops.js';
import { saidTime } from '../units.js';

export class Twin {
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
    this.element.replaceChildren(h('table', { role: 'grid', 'aria-label': `Ops of epoch ${epoch}`, 'aria-readonly': 'true', 'data-tb-twin': epoch },
      h('tr', { role: 'row' }, ...['op', 'place', 'epoch', 'cycles', 'remark'].map(text => h('th', { role: 'columnheader', scope: 'col' }, text))),
      ...rows));
  }
}
