/** Buttons that keep a parameter of an op in L1, or stream it from DRAM for every input. While one is pointed at or has the
 *  focus, what the model would take then is simulated and shown; a press makes the edit. */
import { h } from './dom.js';
import type { Edit } from './editmessages.js';
import { Exact } from './grid/exact.js';
import type { Ops } from './ops.js';
import type { Store } from './store.js';

/** Operands of an op that are parameters, and whether they wait in L1. */
export function parameters(ops: Ops, op: number): [operand: number, preloaded: boolean][] {
  if (!ops.frame.has('op_parameters')) return [];
  const [are, wait] = [ops.get('parameters', op), ops.get('preloaded', op)];
  return Array.from({ length: 31 }, (_, k): [number, boolean] => [k, ((wait >> k) & 1) === 1]).filter(([k]) => (are >> k) & 1);
}

/** "1 of 2 preloaded" */
export function preloadText(ops: Ops, op: number): string {
  const all = parameters(ops, op);
  const count = all.filter(([, on]) => on).length;
  return !all.length ? '' : count === all.length ? 'preloaded' : count ? `${count} of ${all.length} preloaded` : 'streamed';
}

export class PreloadButtons {
  /** What pressing the button that is pointed at would do. */
  readonly effect = h('span', { class: 'tb-preload-effect', role: 'status', 'data-tb-whatif': '' });
  private readonly exact: Exact;
  private asked = '';

  constructor(private readonly store: Store) {
    this.exact = new Exact(store, () => this.say());
  }

  dispose(): void {
    this.exact.dispose();
  }

  /** A button per parameter. focus: whether the Tab key stops at them. */
  of(ops: Ops, op: number, focus = true): HTMLElement[] {
    const { store } = this;
    if (!store.edits) return [];
    const name = ops.name[op]!;
    return parameters(ops, op).map(([operand, on]) => {
      const edit: Edit = { do: 'prologue', op: name, operand, on: !on };
      const what = `${on ? 'Stream' : 'Preload'} input ${operand}`;
      const look = () => {
        this.asked = what;
        this.exact.watch(edit);
        this.say();
      };
      const leave = () => {
        this.asked = '';
        this.exact.end();
        this.say();
      };
      return h('button', {
        type: 'button', class: 'tb-chip tb-preload', tabindex: focus ? 0 : -1, 'data-tb-action': 'preload', 'data-tb-operand': operand, 'aria-pressed': String(on),
        'aria-label': `input ${operand} of ${name}, ${on ? 'preloaded into L1' : 'streamed from DRAM'}`,
        title: on ? 'Waits in L1 from before the first input. Press to stream it from DRAM for every input' : 'Streamed from DRAM for every input. Press to preload it into L1',
        onpointerenter: look, onfocus: look, onpointerleave: leave, onblur: leave,
        onclick: (event: Event) => {
          event.stopPropagation();
          this.asked = '';
          this.exact.end(true);
          this.say();
          store.edit(edit);
        }
      }, `input ${operand} ${on ? 'in L1' : 'from DRAM'}`);
    });
  }

  private say(): void {
    const lines = this.asked ? this.exact.lines.filter(([term, text]) => term !== 'epochs' || text.includes('(')) : [];
    this.effect.dataset['tbWhatif'] = this.asked ? (lines.some(([term]) => term) ? 'exact' : 'asked') : '';
    this.effect.textContent = this.asked ? [this.asked, ...lines.map(([term, text]) => `${text} ${term}`.trim())].join(' · ') : '';
  }
}
