/** The passes one by one: what each changed, and the graph before and after it. */
import { h, seconds } from './dom.js';
import type { Frame } from './frame.js';
import { changeLegend, changePaint, CHANGES } from './graph/paints.js';
import { GraphView } from './graph/view.js';
import { StaticHost } from './host.js';
import { Store, syncedTrait, type SyncedTrait } from './store.js';
import { onTheme } from './theme.js';
import { LazyFrames } from './lazyframes.js';

const GLYPHS: Record<string, string> = { added: '+', changed: '~', removed: '−' };

type Side = 'before' | 'after';

export class PassStepper {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar' });
  private readonly list = h('ol', { class: 'tb-passes-list', 'aria-label': 'Passes' });
  private readonly notes = h('div', { class: 'tb-passes-notes', tabindex: 0 });
  private readonly empty = h('div', { class: 'tb-empty' });
  private readonly inner = new Store(new StaticHost());
  private readonly graph: GraphView;
  private readonly stops: (() => void)[] = [];
  private readonly frames: LazyFrames;
  private readonly name: SyncedTrait<string>;
  /** The graph drawn. */
  private lastGraph: Frame | undefined;
  private shown = { index: -1, side: 'after' as Side };
  private idle = false;

  constructor(private readonly store: Store) {
    this.graph = new GraphView(this.inner, {
      stage: ['pass', 'Pass', 'the graph of the pass shown'],
      paint: (frame, node, dark) => changePaint(frame.column('node_change')[node]!, dark),
      legend: dark => changeLegend([1, 2, 3, 0], dark)
    });
    this.graph.element.dataset['tbView'] = 'passgraph'; // `graph` is the one of the session
    this.element = h('section', {
      class: 'tb-view tb-passes', 'data-tb-view': 'passes', 'aria-label': 'Passes', tabindex: -1, 'data-lm-suppress-shortcuts': 'true'
    }, this.bar, h('div', { class: 'tb-passes-body' }, this.list, this.graph.element, this.notes), this.empty);
    this.frames = new LazyFrames(store, this.element, {
      keys: ['passes', 'passgraph'], ready: () => store.frames.has('graph:traced') || store.frames.has('ops'),
      question: () => ({ type: 'want', key: 'passes' }), paint: () => this.render(), onSize: () => this.ask()
    });
    const draw = () => this.frames.draw();
    this.name = syncedTrait(store, 'pass_name', '', () => this.follow(), { of: 'passes' }); // of a workbench it is the graph's
    this.stops.push(
      () => this.frames.dispose(), () => this.name.dispose(),
      store.on('frame', key => {
        if (key === 'passes') {
          this.follow();
          draw();
        } else if (key === 'passgraph') this.onFrame();
        else if (key === 'graph:traced') {
          this.frames.requested = false;
          this.ask();
        }
      }),
      store.on('selection', draw),
      this.inner.on('selection', source => {
        if (source !== 'outside') store.select(this.inner.selection.names, 'passes');
      }),
      onTheme(draw));
    this.element.addEventListener('keydown', event => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !(event.target as Element).closest('.tb-passes-list')) return;
      event.preventDefault();
      event.stopPropagation();
      this.go(step);
      this.list.querySelector<HTMLElement>('[aria-current] button')?.focus();
    });
    this.onFrame();
    draw();
    this.ask();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.graph.dispose();
    this.inner.dispose();
  }

  /** Asks for the passes once somebody looks: they are run again for it. */
  private ask(): void {
    if (this.frames.ask()) this.frames.draw(); // it says that they run
  }

  private get steps(): Frame | undefined {
    return this.store.frames.get('passes');
  }

  /** A step to another pass; those that did nothing are passed over unless they are shown. */
  private go(by: number): void {
    const shown = this.visible();
    const at = shown.indexOf(this.shown.index);
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + by))];
    if (next !== undefined) this.want(next, this.shown.side);
  }

  private visible(): number[] {
    const steps = this.steps;
    if (!steps) return [];
    return Array.from(steps.column('step_before'), (_, k) => k).filter(k => this.idle || this.count(k) > 0 || k === this.shown.index);
  }

  private count(step: number): number {
    return ['added', 'removed', 'changed'].reduce((sum, key) => sum + this.steps!.column(`step_${key}`)[step]!, 0);
  }

  /** To the pass that Python names. */
  private follow(): void {
    const name = this.name.value();
    const index = name ? (this.steps?.text('step_label').indexOf(name) ?? -1) : -1;
    if (index >= 0 && index !== this.shown.index) this.want(index, this.shown.side);
  }

  private want(index: number, side: Side): void {
    this.shown = { index, side };
    const label = this.steps?.text('step_label')[index];
    if (label !== undefined) this.name.tell(label);
    const kept = this.graphAtHand(index, side);
    if (kept) this.store.put(kept.as('passgraph'));
    else if (this.store.host.live) this.store.host.send({ type: 'want', key: 'passgraph', index, side });
    this.frames.draw();
  }

  /** The graph of a pass that a page without a kernel has at hand. */
  private graphAtHand(index: number, side: string): Frame | undefined {
    return this.store.frames.get(`passgraph:${index}:${side}`);
  }

  private lacks(index: number, side: string): boolean {
    return !this.store.host.live && !this.graphAtHand(index, side);
  }

  private onFrame(): void {
    const frame = this.store.frames.get('passgraph');
    if (!frame) return;
    this.shown = { index: Number(frame.meta['index']), side: frame.meta['side'] as Side };
    this.frames.draw();
  }

  private render(): void {
    const steps = this.steps;
    const { refusal: refused } = this.frames;
    const graph = this.store.frames.get('passgraph');
    if (graph !== this.lastGraph) this.inner.put(graph!.as('graph:pass'));
    this.lastGraph = graph;
    this.inner.select(this.store.selection.names, 'outside');
    this.element.dataset['tbPass'] = String(this.shown.index);
    this.element.dataset['tbSide'] = this.shown.side;
    this.empty.hidden = steps !== undefined && !refused;
    this.empty.textContent = this.frames.waiting('Running the passes again …', 'The passes appear here once the model is traced.');
    this.bar.hidden = this.graph.element.hidden = !steps;
    if (!steps) return;
    const button = (action: string, label: string, title: string, f: () => void) =>
      h('button', { class: 'tb-button', 'data-tb-action': action, title, 'aria-label': title, onclick: f }, label);
    const side = (name: Side, label: string) => h('button', {
      'data-tb-action': `pass-${name}`, 'aria-pressed': String(this.shown.side === name), disabled: this.lacks(this.shown.index, name), onclick: () => this.want(this.shown.index, name)
    }, label);
    const names = steps.text('step_name');
    const docs = steps.text('step_doc');
    const at = this.shown.index;
    const box = h('input', { type: 'checkbox', 'data-tb-action': 'pass-idle', onchange: () => {
      this.idle = box.checked;
      this.render();
    } });
    box.checked = this.idle;
    this.bar.replaceChildren(h('h3', {}, 'Passes'),
      button('pass-previous', '‹', 'Previous pass', () => this.go(-1)), button('pass-next', '›', 'Next pass', () => this.go(1)),
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Graph' }, side('before', 'Before'), side('after', 'After')),
      h('b', {}, at < 0 ? '' : names[at]), h('span', { class: 'tb-found' }, at < 0 ? '' : docs[at]),
      h('span', { class: 'tb-spring' }), h('label', { class: 'tb-check' }, box, 'show passes that changed nothing'));
    this.list.replaceChildren(...this.visible().map(k => this.step(steps, names, k)));
    const error = (steps.meta['error'] as string | undefined) ?? '';
    if (error) this.list.append(h('li', { class: 'tb-pass-error' }, error));
    this.note();
  }

  private step(steps: Frame, names: string[], k: number): HTMLElement {
    const get = (key: string) => steps.column(`step_${key}`)[k]!;
    const marks = (['added', 'removed', 'changed'] as const).filter(key => get(key)).map(key =>
      h('span', { class: `tb-pass-${key}`, title: key }, `${GLYPHS[key]!}${get(key)}`));
    return h('li', k === this.shown.index ? { 'aria-current': 'step' } : {},
      h('button', { 'data-tb-action': 'pass', 'data-tb-step': k, disabled: this.lacks(k, this.shown.side) && this.lacks(k, 'after'), onclick: () => this.want(k, this.shown.side) },
        h('span', { class: 'tb-pass-name' }, `${k} ${names[k]!}`),
        h('span', { class: 'tb-pass-nodes' }, `${get('before')} → ${get('after')}`),
        h('span', { class: 'tb-pass-marks' }, ...marks), h('span', { class: 'tb-pass-time' }, seconds(get('seconds')))));
  }

  /** What changed, node by node. */
  private note(): void {
    const frame = this.store.frames.get('passgraph');
    if (!frame) {
      this.notes.replaceChildren();
      return;
    }
    const [names, texts] = [frame.text('change_name'), frame.text('change_text')];
    const what = frame.column('change_what');
    const total = Number(frame.meta['changes']);
    this.notes.replaceChildren(
      h('p', {}, total ? `${total} node${total > 1 ? 's' : ''} differ${total > 1 ? '' : 's'}` : 'This pass changed nothing.'),
      h('ul', {}, ...names.map((name, k) => {
        const kind = CHANGES[what[k]!]!;
        return h('li', { 'data-tb-change': kind },
          h('span', { class: `tb-pass-${kind}`, role: 'img', 'aria-label': kind }, GLYPHS[kind] ?? ''),
          h('div', {}, h('button', {
            class: 'tb-link', 'data-tb-action': 'select-node', 'data-tb-op': name, onclick: () => this.store.select([name], 'pass-list')
          }, name), texts[k] ? h('div', { class: 'tb-fix' }, texts[k]) : ''));
      })),
      total > names.length ? h('p', {}, `and ${total - names.length} more`) : '');
  }
}
