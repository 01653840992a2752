/** The search for a faster placement: seconds, a live curve, stop and keep; what it changed as a list to take a part of. */
import { h, quantity, seconds, short, svg } from '../dom.js';
import { changeText } from '../numbers.js';
import type { View } from '../docks.js';
import type { Store } from '../store.js';

type Change = [kind: string, text: string, op: string, epoch: number, gain: number | null];

interface SearchState {
  running: boolean;
  seconds: number;
  elapsed: number;
  kept: boolean;
  changes: Change[];
}

const [WIDTH, HEIGHT] = [260, 64];
const USUAL = 20; // seconds

/** The best so far over time, as steps: what was found holds until something better is. */
export function curvePath(time: ArrayLike<number>, cycles: ArrayLike<number>, end: number, width = WIDTH, height = HEIGHT): string {
  const values = Array.from(cycles);
  const [most, least] = [Math.max(...values), Math.min(...values)];
  const x = (t: number) => (Math.min(1, t / Math.max(end, 1e-9)) * width).toFixed(1);
  const y = (c: number) => (most > least ? 3 + (1 - (c - least) / (most - least)) * (height - 6) : height / 2).toFixed(1);
  const down = (c: number) => (height - Number(y(c))).toFixed(1);
  return values.map((c, i) => `${i ? `H${x(time[i]!)}V` : `M${x(time[i]!)} `}${down(c)}`).join('') + `H${x(end)}`;
}

export class SearchPanel implements View {
  readonly element: HTMLElement;
  private readonly budget = h('input', { type: 'number', min: 1, max: 3600, value: USUAL, 'aria-label': 'Seconds to search', 'data-tb-action': 'search-seconds' });
  private readonly state = h('div', { class: 'tb-search-state' });
  private readonly list = h('div', { class: 'tb-search-changes', 'data-lm-suppress-shortcuts': 'true' });
  private readonly stops: (() => void)[] = [];
  /** Numbers of the changes that are not wanted. */
  private readonly left = new Set<number>();
  private of = '';

  constructor(private readonly store: Store) {
    const head = h('div', { class: 'tb-search-head' },
      h('label', {}, 'Search for ', this.budget, ' s'),
      this.button('search-start', 'Start', 'Look for a faster placement; the best so far is shown on the grid', () => this.start()),
      this.button('search-enough', 'Stop and keep', 'End the search and keep the best that it has found', () => store.host.send({ type: 'optimise_enough' })),
      this.button('search-cancel', 'Cancel', 'End the search and keep the placement from before', () => store.host.send({ type: 'cancel' })));
    this.element = h('div', { class: 'tb-suggestions tb-searching', 'data-tb-view': 'search', role: 'group', 'aria-label': 'Search for a faster placement' }, head, this.state, this.list);
    this.stops.push(store.on('frame', key => {
      if (key === 'search' || key === 'edits') this.render();
    }), store.on('status', () => this.render()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private button(action: string, label: string, title: string, onclick: () => void): HTMLButtonElement {
    return h('button', { class: 'tb-button', 'data-tb-action': action, title, onclick }, label);
  }

  private start(): void {
    this.left.clear();
    this.store.ask({ type: 'optimise', seconds: Math.max(1, Number(this.budget.value) || USUAL) });
  }

  private render(): void {
    const { store } = this;
    const frame = store.frames.get('search');
    const said = frame?.meta as unknown as SearchState | undefined;
    const running = said?.running === true;
    const shown = (action: string, on: boolean) => (this.element.querySelector<HTMLElement>(`[data-tb-action="${action}"]`)!.hidden = !on);
    const start = this.element.querySelector<HTMLButtonElement>('[data-tb-action="search-start"]')!;
    shown('search-start', !running);
    shown('search-enough', running);
    shown('search-cancel', running);
    this.budget.disabled = running;
    const why = store.status.running ? 'Other work is going on.' : !store.edits || store.edits.stale ? 'Nothing is placed yet.' : store.off['optimise'] ?? '';
    start.disabled = why !== '' || store.edits?.busy === true;
    start.title = why || 'Look for a faster placement; the best so far is shown on the grid';
    this.element.dataset['tbState'] = running ? 'running' : said ? 'ended' : 'new';
    if (!frame || !said) {
      this.state.replaceChildren(h('p', { class: 'tb-note' }, 'Other cuts, shapes and lowerings are tried. The result is one edit: undo takes it back.'));
      this.list.replaceChildren();
      return;
    }
    const [time, cycles, step] = [frame.column('time'), frame.column('cycles'), frame.column('step')];
    const [first, best] = [cycles[0]!, cycles[cycles.length - 1]!];
    const end = running ? Math.max(said.seconds, said.elapsed) : said.elapsed;
    const gain = first > best ? changeText(first, best) : ', no gain yet';
    this.state.replaceChildren(
      svg('svg', { class: 'tb-curve', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: 'img', 'aria-label': `Best so far over time: ${short(first)} to ${short(best)} cycles per input` },
        svg('path', { d: curvePath(time, cycles, end), class: 'tb-curve-line' }),
        ...(running ? [svg('line', { x1: WIDTH * said.elapsed / end, x2: WIDTH * said.elapsed / end, y1: 0, y2: HEIGHT, class: 'tb-curve-now' })] : [])),
      h('div', {},
        h('b', { 'data-tb-best': best }, `${short(first)} → ${short(best)} cycles per input${running || first > best ? gain : ', no gain'}`),
        h('p', { class: 'tb-note', role: 'status' }, running ? `${seconds(said.elapsed)} of ${seconds(said.seconds)}, step ${step[step.length - 1]!}`
          : said.kept ? `kept after ${seconds(said.elapsed)}; undo takes it back` : `ended after ${seconds(said.elapsed)}: the placement is as it was`)));
    this.renderChanges(said);
  }

  private renderChanges(said: SearchState): void {
    const { changes } = said;
    const key = JSON.stringify(changes);
    if (key !== this.of) this.left.clear();
    this.of = key;
    if (said.running || !said.kept || !changes.length) {
      this.list.replaceChildren();
      return;
    }
    const kept = changes.length - this.left.size;
    const top = this.list.scrollTop;
    this.list.replaceChildren(
      h('div', { class: 'tb-search-head' }, h('span', {}, `${quantity(changes.length, 'change')}:`),
        h('button', { class: 'tb-link', 'data-tb-action': 'search-none', onclick: () => this.chooseAll(changes, false) }, 'none'),
        h('button', { class: 'tb-link', 'data-tb-action': 'search-all', onclick: () => this.chooseAll(changes, true) }, 'all'),
        h('button', {
          class: 'tb-button', 'data-tb-action': 'search-take', disabled: kept === 0 || kept === changes.length || this.store.edits?.busy === true,
          title: 'Keep the chosen changes alone, as edits of the placement from before', onclick: () => this.take(changes)
        }, `Keep ${kept} alone`)),
      ...changes.map(([kind, text, op, , gain], i) => h('label', { class: 'tb-change-row', 'data-tb-change': i },
        h('input', { type: 'checkbox', checked: !this.left.has(i), onchange: (event: Event) => this.choose(i, (event.target as HTMLInputElement).checked) }),
        h('i', { class: 'tb-hint-kind' }, kind),
        h('span', { title: text, onclick: () => op && this.store.select([op], 'search') }, text),
        h('span', { class: gain !== null && gain > 0 ? 'tb-gain' : 'tb-note' }, gain === null ? 'only with others' : Math.round(gain) === 0 ? 'nothing alone' : `${gain > 0 ? '−' : '+'}${short(Math.abs(Math.round(gain)))} cycles alone`))));
    this.list.scrollTop = top;
  }

  private choose(at: number, on: boolean): void {
    if (on) this.left.delete(at);
    else this.left.add(at);
    this.render();
  }

  private chooseAll(changes: Change[], on: boolean): void {
    this.left.clear();
    if (!on) changes.forEach((_, i) => this.left.add(i));
    this.render();
  }

  private take(changes: Change[]): void {
    this.store.ask({ type: 'optimise_take', take: changes.map((_, i) => i).filter(i => !this.left.has(i)) });
  }
}
