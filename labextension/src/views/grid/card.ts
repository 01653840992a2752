/** Words beside the grid: the line above the epoch, the card of one op, and the epoch as a table for screen readers. */
import { bytes, quantity, withThousands, h, percent } from '../dom.js';
import { slowText } from './legal.js';
import type { Frame } from '../frame.js';
import type { Ops } from '../ops.js';
import { guessText, opTimes, timesText } from '../optimes.js';
import { PreloadButtons } from '../opcontrols.js';
import type { Store } from '../store.js';
import { FORMULAS, longTime, partsText, saidTime } from '../numbers.js';

/** What the op under the pointer, else the selected one, is and costs. It stands below the grid. */
export class Card {
  private readonly preload: PreloadButtons;
  private shown: Ops | null = null;
  private run: Frame | undefined;
  readonly element = h('div', { class: 'tb-card', 'data-tb-card': '', 'aria-label': 'Op under the pointer' });

  constructor(private readonly store: Store) {
    this.preload = new PreloadButtons(store);
  }

  dispose(): void {
    this.preload.dispose();
  }

  /** The same op again changes nothing: a button that is pointed at stays. */
  show(ops: Ops, op: number): void {
    const run = this.store.frames.get('measured');
    if (this.shown === ops && this.run === run && this.element.dataset['tbCard'] === ops.name[op]!) return;
    this.shown = ops;
    this.run = run;
    const times = opTimes(run)?.get(ops.name[op]!);
    const took = timesText(times);
    const fact = (term: string, text: string) => h('span', {}, h('i', {}, term), text);
    const limiter = ops.frame.has('op_limiter_cycles') ? ops.get('limiter_cycles', op) : 0;
    const what = limiter > 0 ? ops.frame.text('op_limiter')[op]! : 'kernel';
    const cycles = limiter > 0 ? limiter : ops.get('cycles', op);
    this.element.dataset['tbCard'] = ops.name[op]!;
    this.element.replaceChildren(
      h('header', {}, h('strong', { title: ops.name[op] }, ops.name[op]), h('span', {}, ops.type[op]), ...this.preload.of(ops, op, false), this.preload.effect),
      h('p', {}, ...[
        took !== '' && h('span', { title: `Measured, one op at a time, beside the table of kernels${guessText(times)}` }, h('i', {}, 'measured'), took),
        fact('at', `${ops.where(op)}, ${ops.shapeText(op)}`),
        cycles > 0 && fact(limiter > 0 ? 'kernel or transfer' : 'kernel', `${withThousands(cycles)} cycles / input`),
        cycles > 0 && fact('', `${percent(ops.load(op))} of the slowest`),
        ops.frame.has('op_bound') && ops.bound(op) !== '' && fact('bound by', what === 'kernel' ? ops.bound(op) : slowText(what)),
        ops.frame.has('op_l1_total') && fact('L1', ops.l1Text(op, size => `${bytes(size)},`)),
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
        ops!.isLimiting(op) ? 'worth enlarging' : ops!.slowestOf(epoch) === op ? 'the slowest' : ''
      ];
      return h('tr', { role: 'row' }, ...said.map((text, i) => h('td', { role: i ? 'gridcell' : 'rowheader' }, text)));
    });
    this.element.replaceChildren(h('table', { role: 'grid', 'aria-label': `Ops of epoch ${epoch}`, 'aria-readonly': 'true', 'data-tb-table': epoch },
      h('tr', { role: 'row' }, ...['op', 'place', 'epoch', 'cycles', 'remark'].map(text => h('th', { role: 'columnheader', scope: 'col' }, text))),
      ...rows));
  }
}

/** The line above an epoch: its time, what bounds it, how much of the grid works. */
export function epochHead(store: Store, ops: Ops, epoch: number): (HTMLElement | string)[] {
  const chips = (ops.frame.meta['chips'] as number[]).length;
  const cores = ops.ofEpoch('cores', epoch);
  const slowest = ops.slowestOf(epoch);
  return [ // one line: what comes last goes first where it is narrow
    h('b', {}, `Epoch ${epoch}`), h('span', {}, `of ${ops.epochs}`), h('span', { class: 'tb-phase', 'data-tb-phase': ops.phaseOf(epoch) || undefined }, ops.phaseOf(epoch)),
    h('span', {}, (ops.frame.meta['graphs'] as string[] | undefined)?.[epoch] ?? ''),
    chips > 1 ? h('span', {}, `chip ${ops.ofEpoch('chip', epoch)}`) : '',
    ops.epochTimes[epoch] ? h('span', { title: ops.kernelsOnly ? FORMULAS.kernels : FORMULAS.epoch, 'data-tb-epoch-time': '' },
      `${longTime(ops.epochTimes[epoch], ops.clock)} / input${ops.kernelsOnly ? ', kernels only' : ''}`) : '',
    ops.boundOf(epoch) ? h('span', { class: 'tb-bound', 'data-tb-bound': ops.boundOf(epoch), title: partsText(ops, epoch) }, ops.boundText(epoch)) : '',
    slowest < 0 ? '' : h('button', {
      class: 'tb-link', 'data-tb-action': 'select-bottleneck', title: `${ops.name[slowest]!}\n${ops.limitsText(epoch)}`,
      onclick: () => store.select([ops.name[slowest]!], 'grid')
    }, ops.slowestText(epoch)),
    h('span', { title: FORMULAS.ops }, quantity(ops.ofEpoch('ops', epoch), 'op')),
    h('span', { title: FORMULAS.used }, `${percent(cores / (ops.rows * ops.cols))} of cores`),
    ops.epochTimes[epoch] ? h('span', { title: FORMULAS.busy }, `${percent(ops.busy(epoch))} busy`) : ''
  ];
}
