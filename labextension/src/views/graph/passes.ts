/**
 * The graph after any pass, inside the view of the graph: which passes there are, which one is shown, steps from one to
 * the next that changed something. The kernel runs them again and lays a graph out when it is asked for; a page without a
 * kernel has some at hand.
 */
import { h } from '../dom.js';
import type { Frame } from '../frame.js';
import { type Store, syncedTrait, type SyncedTrait } from '../store.js';

const KINDS = ['added', 'removed', 'changed'] as const;

export class Passes {
  /** The row under the bar: previous, which one, next, what it did. */
  readonly element: HTMLElement;
  private readonly choice = h('select', { 'data-tb-action': 'graph-pass', 'aria-label': 'Pass' });
  private readonly said = h('span', { class: 'tb-found', 'aria-live': 'polite' });
  private readonly stops: (() => void)[] = [];
  private readonly name: SyncedTrait<string>;
  private ask = 0;
  private label = '';
  private list: Frame | undefined;

  /** @param show puts the graph of a pass in front, or, without one, the stages. */
  constructor(private readonly store: Store, private readonly show: (frame: Frame | null) => void) {
    const step = (by: number, text: string, title: string) => h('button', {
      class: 'tb-button', title, 'aria-label': title, 'data-tb-action': by < 0 ? 'graph-pass-previous' : 'graph-pass-next', onclick: () => this.step(by)
    }, text);
    this.element = h('div', { class: 'tb-bar tb-pass-bar', hidden: true }, step(-1, '‹', 'Previous pass that changed something (,)'), this.choice,
      step(1, '›', 'Next pass that changed something (.)'), this.said);
    this.choice.addEventListener('change', () => this.want(this.choice.value));
    this.name = syncedTrait(store, 'pass_name', '', name => this.follow(name));
    this.stops.push(
      () => this.name.dispose(),
      store.on('frame', key => {
        if (key === 'graph:pass') this.onFrame(store.frames.get(key)!);
        else if (key === 'passlist') this.fill(store.frames.get(key));
        else if (key === 'graph:traced' || key === 'graph:passed') this.onOutdated();
      }),
      store.listen('refused', message => {
        if (message['key'] === 'graph:pass' && message['ask'] === this.ask) this.said.textContent = String(message['text']);
      }));
    this.onOutdated();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** Whether there are any to look at. */
  get there(): boolean {
    const { frames, host } = this.store;
    return host.live ? frames.has('graph:traced') : frames.has('passes') && this.labelsAtHand().length > 0;
  }

  /** Shows the pass that was seen last, else the first that changed something. */
  open(): void {
    if (!this.store.host.live) this.fill(this.store.frames.get('passes'));
    this.want(this.label || (this.store.host.live ? '' : (this.labelsAtHand()[0] ?? '')));
  }

  /** The stages are shown again. */
  close(): void {
    this.ask++;
    this.element.hidden = true;
    this.name.tell('');
  }

  /** To the next pass that changed something, or the one before. */
  step(by: number): void {
    const labels = this.labels.filter((label, k) => label === this.label || this.count(k) > 0);
    const at = labels.indexOf(this.label);
    const next = labels[Math.max(0, Math.min(labels.length - 1, at + by))];
    if (next !== undefined && next !== this.label) this.want(next);
  }

  private want(label: string): void {
    this.element.hidden = false;
    const { host, frames } = this.store;
    this.ask++;
    if (host.live) {
      if (this.label !== label || !label) this.said.textContent = 'Running the passes again …';
      host.send({ type: 'need_pass', pass: label, ask: this.ask });
    } else {
      const frame = frames.get(`passgraph:${this.labels.indexOf(label)}:after`);
      if (frame) this.onFrame(frame);
    }
  }

  private onFrame(frame: Frame): void {
    const asked = frame.meta['ask'];
    if (typeof asked === 'number' && asked !== this.ask) return; // something else was asked since
    this.label = String(frame.meta['label']);
    this.element.hidden = false;
    this.choice.value = this.label;
    const index = this.labels.indexOf(this.label);
    const counts = KINDS.map(kind => [kind, this.list?.column(`step_${kind}`)[index] ?? 0] as const).filter(([, n]) => n);
    const what = counts.length ? counts.map(([kind, n]) => `${n} ${kind}`).join(', ') : 'changed nothing';
    this.said.textContent = `${index + 1} of ${this.labels.length}: ${what}`;
    this.said.title = String(frame.meta['doc']);
    this.name.tell(this.label);
    this.show(frame);
  }

  private follow(name: string): void {
    if (name === (this.element.hidden ? '' : this.label)) return;
    if (!name) this.show(null);
    else if (this.there) this.want(name);
  }

  /** Other passes ran: what is shown, or was to be, is asked for anew. */
  private onOutdated(): void {
    const name = this.element.hidden ? this.name.value() : this.label;
    if (name && this.there && this.store.host.live) this.want(name);
  }

  private fill(frame: Frame | undefined): void {
    if (!frame || frame === this.list) return;
    this.list = frame;
    const kept = this.store.host.live ? null : new Set(this.labelsAtHand());
    this.choice.replaceChildren(...this.labels.map((label, k) => {
      const marks = [['+', 'added'], ['−', 'removed'], ['~', 'changed']].map(([glyph, kind]) => {
        const n = frame.column(`step_${kind!}`)[k]!;
        return n ? ` ${glyph!}${n}` : '';
      }).join('');
      return h('option', { value: label, disabled: kept !== null && !kept.has(label) }, `${k} ${label}${marks && `  ${marks}`}`);
    }));
    this.choice.value = this.label;
  }

  private get labels(): string[] {
    return this.list?.text('step_label') ?? [];
  }

  private count(k: number): number {
    return KINDS.reduce((sum, kind) => sum + this.list!.column(`step_${kind}`)[k]!, 0);
  }

  /** Labels of the passes that a page without a kernel has the graph of. */
  private labelsAtHand(): string[] {
    const labels = this.store.frames.get('passes')?.text('step_label') ?? [];
    return labels.filter((_, k) => this.store.frames.has(`passgraph:${k}:after`));
  }
}
