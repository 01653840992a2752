/** "Why here?": the chosen candidate against the next best, what stands against each, and the edit that would change it. */
import { copy, Dialog } from './dialog.js';
import { withThousands, h, percent, short } from './dom.js';
import type { Edit } from './editmessages.js';
import { Ops } from './ops.js';
import type { Store } from './store.js';

interface Alternative {
  grid: [number, number];
  cores: number;
  cycles: number;
  limiter_cycles: number;
  /** Of the model with this shape, simulated; null where no placement has it. */
  time: number | null;
  l1_bytes: number;
  against: string;
  edit: Edit;
  /** The call that does the same. */
  python: string;
}

interface Reasons extends Record<string, unknown> {
  ok: boolean;
  op: string;
  text: string;
  epoch: number;
  grid: [number, number];
  cycles: number;
  limiter_cycles: number;
  limited_by: string;
  l1_bytes: number;
  cores: number;
  legal: number;
  total: number;
  limiter_op: string;
  limiter: string;
  time: number;
  epoch_time: number;
  epoch_bound: string;
  limits: string;
  picked: string;
  overrides: string[];
  refused: [string, number, string, string][];
  next_best: Alternative[];
}

export class WhyPanel {
  readonly dialog = new Dialog('why', 'Why here?', () => this.left());
  private readonly stops: (() => void)[] = [];
  private op = '';

  constructor(private readonly store: Store) {
    this.stops.push(
      store.listen('why', message => {
        if (message['op'] === this.op && this.dialog.open) this.render(message as Reasons);
      }),
      store.on('frame', key => {
        if (key === 'ops' && this.dialog.open) this.ask();
      }));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  show(op: string): void {
    this.op = op;
    this.dialog.rename(`Why here? ${op}`);
    this.dialog.body.replaceChildren(h('p', { class: 'tb-wait' }, 'Asking the kernel …'));
    this.dialog.show();
    this.ask();
  }

  private ask(): void {
    this.store.host.send({ type: 'why', op: this.op });
  }

  private left(): void {
    this.op = '';
  }

  private render(r: Reasons): void {
    const { store } = this;
    if (!r.ok) {
      this.dialog.body.replaceChildren(h('p', { class: 'tb-refusal' }, r.text));
      return;
    }
    const frame = store.frames.get('ops');
    const l1 = frame ? Ops.of(frame).l1 : 0;
    const share = (bytes: number) => (l1 ? percent(bytes / l1) : `${short(bytes)}B`);
    const head: [string, string][] = [['Grid', ''], ['Cores', ''], ['Kernel', 'Cycles per input of the kernel alone'],
      ['Kernel or transfer', 'Cycles per input of its kernel or its slowest transfer'], ['Model', 'Cycles per input of the whole model, simulated for the batch of the session'],
      ['L1', 'Of the op as it is placed what its fullest core takes, of other shapes (≈) the estimate of their candidates'], ['Verdict', ''], ['', '']];
    const row = (cells: (string | HTMLElement)[], name: string) => h('tr', { class: name },
      ...cells.slice(0, 7).map((c, i) => h('td', { class: i > 0 && i < 6 ? 'tb-right' : '' }, c)), h('td', { class: 'tb-doings' }, ...cells.slice(7)));
    const chosen = row([
      r.grid.join('×'), withThousands(r.cores), withThousands(r.cycles), withThousands(r.limiter_cycles), withThousands(r.time), share(r.l1_bytes),
      r.overrides.includes('op_size') ? 'chosen by your override' : 'chosen', ''
    ], 'tb-chosen');
    const others = r.next_best.map(a => row([
      a.grid.join('×'), withThousands(a.cores), withThousands(a.cycles), withThousands(a.limiter_cycles), a.time === null ? '–' : withThousands(a.time), `≈ ${share(a.l1_bytes)}`, a.against,
      h('button', {
        class: 'tb-button', 'data-tb-action': 'apply-alternative', disabled: !store.edits || store.edits.busy || a.time === null, title: a.time === null ? a.against : '',
        'aria-label': `give ${r.op} ${a.grid.join(' by ')} cores`, onclick: () => store.edit(a.edit)
      }, 'Apply'), h('button', {
        class: 'tb-button', 'data-tb-action': 'copy-alternative', title: a.python, 'aria-label': `copy the Python call that gives ${r.op} ${a.grid.join(' by ')} cores`,
        onclick: () => copy(a.python, (ok, text) => store.say(ok, text))
      }, 'Copy Python')
    ], ''));
    this.dialog.body.replaceChildren(
      h('p', { class: 'tb-why-sentence' }, `Epoch ${r.epoch}: ${r.limits}`),
      h('table', { class: 'tb-plain tb-why-table' },
        h('thead', {}, h('tr', {}, ...head.map(([t, title], i) => h('th', { scope: 'col', title, class: i > 0 && i < 6 ? 'tb-right' : '' }, t)))), h('tbody', {}, chosen, ...others)),
      h('p', {}, r.picked),
      h('details', { class: 'tb-why-more' }, h('summary', {}, 'All that is known'), h('p', {}, r.text)),
      r.overrides.length === 0 ? '' : h('p', {}, h('button', {
        class: 'tb-button', 'data-tb-action': 'clear-overrides', disabled: !store.edits || store.edits.busy,
        onclick: () => store.edit({ do: 'clear', op: r.op })
      }, 'Clear overrides')),
      r.refused.length === 0 ? '' : h('details', {}, h('summary', {}, `${withThousands(r.total - r.legal)} of ${withThousands(r.total)} candidates are illegal`),
        h('ul', {}, ...r.refused.map(([name, count, meaning, remedy]) =>
          h('li', {}, h('b', {}, `${withThousands(count)} × ${name}`), ` ${meaning}${remedy ? `; ${remedy}` : ''}`)))));
  }
}
