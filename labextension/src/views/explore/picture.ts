/**
 * The picture of an exploration: front, facts of what is chosen, parallel coordinates, effects and table, linked. It draws
 * what it is given and fetches nothing; the workbench, a notebook and a page use the same.
 */
import { h, svg } from '../dom.js';
import { type Ask, axisWord, brief, effectsOf, paretoFront, type Picture, type Trial, type Value, valueText } from './data.js';
import { drawFront } from './front.js';
import { type Brush, drawLines, isBrushed } from './lines.js';

const LISTED = 40, MORE = 200; // rows of the table at first, and that a click adds: they are half of what drawing takes
const DRAWN = 12; // epochs of a small picture

export class ExplorePicture {
  readonly element: HTMLElement;
  private picture: Picture | null = null;
  private x = '';
  private y = '';
  private chosen: number[] = [];
  private listed = LISTED;
  private readonly brush: Brush = new Map();
  private readonly head = h('div', { class: 'tx-head' });
  private readonly front = h('div', { class: 'tx-front' });
  private readonly note = h('div', { class: 'tx-note', role: 'status' });
  private readonly lines = h('div', { class: 'tx-lines' });
  private readonly effects = h('div', { class: 'tx-effects' });
  private readonly rows = h('div', { class: 'tx-table' });
  private readonly tip = h('div', { class: 'tx-tip', hidden: true });
  private width = 0;
  private readonly resize = new ResizeObserver(() => {
    const now = this.element.clientWidth;
    if (now === this.width) return;
    this.width = now;
    this.redraw();
  });

  /** send: what clicks ask for; null where nobody answers. tools: what stands behind the bar's own buttons. */
  constructor(private readonly send: ((ask: Ask) => void) | null, private readonly tools: HTMLElement[] = []) {
    this.element = h('div', { class: 'tx-root' }, this.head, h('div', { class: 'tx-upper' }, this.front, this.note), this.lines, this.effects, this.rows, this.tip);
    this.resize.observe(this.element);
  }

  dispose(): void {
    this.resize.disconnect();
  }

  show(picture: Picture): void {
    this.picture = picture;
    const named = (name: string, other: string | undefined) => (picture.names.includes(name) ? name : other ?? picture.names[0] ?? '');
    this.y = named(this.y, picture.objectives[0]);
    this.x = named(this.x, picture.objectives[1] ?? picture.names.find(name => name !== picture.objectives[0]));
    this.redraw();
  }

  private redraw(): void {
    const { picture } = this;
    if (!picture) return;
    const began = performance.now();
    const focused = document.activeElement?.getAttribute('data-tx-focus');
    const shown = picture.trials.filter(t => isBrushed(t, this.brush));
    const ids = new Set(shown.map(t => t.n));
    const front = paretoFront(picture, shown, this.x, this.y);
    const onFront = new Set(front.map(t => t.n));
    this.drawHead(picture);
    this.front.replaceChildren(drawFront(picture, { width: this.widthOf(this.front, 560), x: this.x, y: this.y, chosen: this.chosen, shown: ids, front }, {
      choose: (trial, more) => this.choose(trial, more), open: trial => this.send?.({ do: 'open', n: trial.n }), hover: (trial, event) => this.hover(trial, event)
    }));
    this.drawNote(picture, front.length);
    this.lines.replaceChildren(h('h3', {}, 'Every trial as a line'),
      drawLines(this.widthOf(this.lines, 1000), picture, [this.x, this.y], this.brush, ids, onFront, this.chosen, (axis, value) => this.onBrush(axis, value)));
    this.drawEffects(picture, shown);
    this.drawTable(picture, shown, onFront);
    if (focused) this.element.querySelector<HTMLElement>(`[data-tx-focus="${focused}"]`)?.focus({ preventScroll: true });
    this.element.dataset['txDrawMs'] = (performance.now() - began).toFixed(0);
  }

  /** Pixels of a part: pictures are drawn as wide as they are shown, with letters as large as the page's. */
  private widthOf(part: HTMLElement, most: number): number {
    return Math.max(320, part.clientWidth || most);
  }

  private choose(trial: Trial, more: boolean): void {
    if (this.chosen.includes(trial.n)) this.chosen = this.chosen.filter(n => n !== trial.n);
    else this.chosen = more ? [...this.chosen.slice(-1), trial.n] : [trial.n];
    this.redraw();
  }

  private onBrush(axis: string, value: string): void {
    const values = this.brush.get(axis) ?? new Set<string>();
    if (!values.delete(value)) values.add(value);
    if (values.size) this.brush.set(axis, values);
    else this.brush.delete(axis);
    this.redraw();
  }

  private hover(trial: Trial | null, event: MouseEvent): void {
    const { picture, tip } = this;
    tip.hidden = !trial || !picture;
    if (!trial || !picture) return;
    const grid = picture.grids[trial.placement];
    const wanted = Object.keys(trial.numbers).filter(name => [this.x, this.y, 'epochs'].includes(name) || picture.objectives.includes(name));
    tip.replaceChildren(h('b', {}, `Trial ${trial.n}`), ...(trial.epochs && grid ? [smallEpochs(trial.epochs, grid)] : []),
      ...(trial.reason ? [h('div', { class: 'tx-reason' }, `${trial.state}: ${trial.reason.text}`)] : []),
      h('div', {}, Object.entries(trial.point).map(([axis, value]) => `${axisWord(axis)} ${valueText(value)}`).join(', ')),
      ...wanted.map(name => h('div', {}, `${name} ${brief(trial.numbers[name])}`)));
    const box = this.element.getBoundingClientRect(), room = (this.element.parentElement ?? this.element).getBoundingClientRect();
    const below = event.clientY + 14, fits = below + tip.offsetHeight <= Math.min(room.bottom, innerHeight);
    tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - 250))}px`;
    tip.style.top = `${(fits ? below : Math.max(room.top, event.clientY - 14 - tip.offsetHeight)) - box.top}px`;
  }

  private drawHead(picture: Picture): void {
    const { progress } = picture;
    const pick = (which: 'x' | 'y', label: string) => h('label', {}, `${label} `, h('select', {
      'data-tx': which, 'data-tx-focus': which, onchange: (event: Event) => {
        this[which] = (event.target as HTMLSelectElement).value;
        this.redraw();
      }
    }, ...picture.names.map(name => h('option', { value: name, selected: name === this[which] }, name))));
    const left = progress.seconds_left === null || progress.done >= progress.total ? '' : `, about ${Math.ceil(progress.seconds_left)} s left`;
    const button = (name: string, label: string, ask: Ask) => h('button', { 'data-tx': name, 'data-tx-focus': name, onclick: () => this.send?.(ask) }, label);
    this.head.replaceChildren(h('strong', {}, picture.title),
      h('span', { class: 'tx-progress' }, h('progress', { max: progress.total, value: progress.done, 'aria-label': 'Trials' }), ` ${progress.done} of ${progress.total} trials${left}`),
      ...(picture.running && this.send ? [button('cancel', 'Cancel', { do: 'cancel' })] : []), pick('x', 'Across'), pick('y', 'Up'),
      ...(this.brush.size ? [h('button', { 'data-tx': 'clear', onclick: () => {
        this.brush.clear();
        this.redraw();
      } }, 'Clear the brush')] : []),
      ...(this.send ? [button('csv', 'CSV', { do: 'export', what: 'csv' }), button('parquet', 'Parquet', { do: 'export', what: 'parquet' })] : []),
      ...(!this.send && picture.files ? [saved('csv', 'CSV', 'explore.csv', picture.files.csv)] : []), ...this.tools);
  }

  private drawNote(picture: Picture, front: number): void {
    const chosen = this.chosen.map(n => picture.trials.find(t => t.n === n)).filter((t): t is Trial => t !== undefined);
    if (!chosen.length) {
      const refused = picture.trials.filter(t => t.state !== 'done').length;
      this.note.replaceChildren(h('p', {}, `${front} on the front, ${refused} refused or lost. Click a point; with Ctrl a second one to compare.`));
      return;
    }
    const [a, b] = chosen;
    this.note.replaceChildren(...chosen.map(t => this.factsOf(t)),
      ...(a && b && this.send ? [h('button', { 'data-tx': 'compare', onclick: () => this.send?.({ do: 'compare', a: a.n, b: b.n }) }, 'Compare the two')] : []));
  }

  private factsOf(trial: Trial): HTMLElement {
    const facts: [string, Value][] = [...Object.entries(trial.point), ...Object.entries(trial.numbers)];
    return h('div', { class: 'tx-fact' }, h('strong', {}, `Trial ${trial.n}${trial.stale ? `, of version ${trial.version}` : ''}`),
      trial.reason && h('p', { class: 'tx-reason' }, `${trial.state}, ${trial.reason.type}: ${trial.reason.text}`, ...trial.reason.diagnostics.map(d => h('div', {}, d))),
      h('table', {}, ...facts.map(([name, value]) => h('tr', {}, h('th', { scope: 'row' }, axisWord(name)), h('td', {}, typeof value === 'number' ? brief(value) : valueText(value))))),
      h('code', {}, trial.command), !this.send && this.handout(trial),
      !!this.send && !trial.stale && h('div', {},
        h('button', { 'data-tx': 'open', onclick: () => this.send?.({ do: 'open', n: trial.n }) }, 'Open on the grid'),
        trial.state === 'done' && h('button', { 'data-tx': 'overrides', onclick: () => this.send?.({ do: 'export', what: 'overrides', n: trial.n }) }, 'Export overrides'),
        this.copier(trial)));
  }

  /** What a page that nobody answers gives of a trial. */
  private handout(trial: Trial): HTMLElement {
    const overrides = this.picture?.files?.overrides[trial.n];
    return h('div', {}, overrides !== undefined && saved('overrides', 'Export overrides', `trial-${trial.n}.json`, overrides), this.copier(trial));
  }

  private copier(trial: Trial): HTMLElement {
    return h('button', { 'data-tx': 'copy', onclick: () => void (navigator as Partial<Navigator>).clipboard?.writeText(trial.command) }, 'Copy the command');
  }

  private drawEffects(picture: Picture, shown: Trial[]): void {
    const charts = effectsOf(picture, shown, this.y).map(({ axis, values }) => {
      const most = Math.max(0, ...values.map(v => v.mean ?? 0)) || 1;
      return h('figure', {}, h('figcaption', {}, axisWord(axis)), svg('svg', { viewBox: `0 0 230 ${values.length * 22 + 4}` },
        ...values.map(({ value, mean }, k) => {
          const words = valueText(value), wide = (80 * (mean ?? 0)) / most;
          return svg('g', { transform: `translate(0,${k * 22})` }, svg('text', { x: 92, y: 15, 'text-anchor': 'end' }, words.length > 14 ? `${words.slice(0, 6)}…${words.slice(-6)}` : words),
            mean !== null && svg('rect', { x: 98, y: 4, height: 14, width: Math.max(1, wide), class: 'tx-bar' }),
            svg('text', { x: mean === null ? 98 : 102 + wide, y: 15, class: mean === null ? 'tx-none' : '' }, mean === null ? 'none done' : brief(mean)));
        })));
    });
    this.effects.replaceChildren(h('h3', {}, `Effect of each axis: mean of ${this.y} over the others`), h('div', { class: 'tx-charts' }, ...charts));
  }

  private drawTable(picture: Picture, shown: Trial[], onFront: ReadonlySet<number>): void {
    const axes = picture.axes.map(axis => axis.name);
    const names = picture.names.filter(name => picture.trials.some(t => name in t.numbers));
    const ordered = [...shown.filter(t => onFront.has(t.n)), ...shown.filter(t => !onFront.has(t.n))].slice(0, this.listed);
    const rows = ordered.map(t => h('tr', {
      'data-tx-row': t.n, 'data-tx-focus': `row${t.n}`, tabindex: 0,
      class: [this.chosen.includes(t.n) && 'tx-chosen', onFront.has(t.n) && 'tx-on', t.stale && 'tx-stale'].filter(Boolean).join(' '),
      onclick: (event: MouseEvent) => this.choose(t, event.ctrlKey || event.metaKey || event.shiftKey),
      onkeydown: (event: KeyboardEvent) => {
        if (event.key === 'Enter') this.choose(t, event.ctrlKey || event.shiftKey);
      }
    }, h('td', {}, `${onFront.has(t.n) ? '★ ' : ''}${t.n}`), ...axes.map(axis => h('td', {}, valueText(t.point[axis]))),
    ...names.map(name => h('td', { class: 'tx-num' }, brief(t.numbers[name]))),
    h('td', {}, t.stale ? `of version ${t.version}` : t.reason ? `${t.state}: ${t.reason.text}` : t.holds ? t.state : 'misses a requirement')));
    this.rows.replaceChildren(h('h3', {}, 'Trials'), h('div', { class: 'tx-scroll', tabindex: 0, role: 'group', 'aria-label': 'Table of trials' },
      h('table', {}, h('thead', {}, h('tr', {}, ...['', ...axes.map(axisWord), ...names, 'state'].map(words => h('th', { scope: 'col' }, words)))), h('tbody', {}, ...rows))),
    ...(shown.length > this.listed ? [h('button', { 'data-tx': 'more', 'data-tx-focus': 'more', onclick: () => {
      this.listed += MORE;
      this.redraw();
    } }, `Show ${Math.min(MORE, shown.length - this.listed)} more of ${shown.length}`)] : []));
  }
}

/** A link that saves a text as a file. */
function saved(name: string, label: string, file: string, text: string): HTMLElement {
  return h('a', { 'data-tx': name, class: 'tx-save', download: file, href: `data:text/plain;charset=utf-8,${encodeURIComponent(text)}` }, label);
}

/** The epochs of a placement, small. */
function smallEpochs(epochs: NonNullable<Trial['epochs']>, [rows, cols]: [number, number]): SVGSVGElement {
  const cell = 5, gap = 6, across = 6, count = Math.min(DRAWN, epochs.length);
  return svg('svg', { width: Math.min(across, count) * (cols * cell + gap), height: Math.ceil(count / across) * (rows * cell + gap), 'aria-hidden': 'true' },
    ...epochs.slice(0, DRAWN).map(([, ops], k) => svg('g', { transform: `translate(${(k % across) * (cols * cell + gap)},${Math.floor(k / across) * (rows * cell + gap)})` },
      svg('rect', { width: cols * cell, height: rows * cell, class: 'tx-grid' }),
      ...ops.map(([r, c, tall, wide], i) => svg('rect', { x: c * cell + 0.5, y: r * cell + 0.5, width: wide * cell - 1, height: tall * cell - 1, fill: `hsl(${(i * 47) % 360} 50% 55%)` })))));
}
