/** What is seen of the timeline now: bars on the canvas, elements for the rows in sight, cursors and the playhead. */
import { elide, withThousands, h, percent } from '../dom.js';
import type { Frame } from '../frame.js';
import { shortName } from '../names.js';
import { guessText, type OpTimes, opTimes, timesText, us } from '../optimes.js';
import { inSight, pinnedHeight, type Row, type TraceModel } from './model.js';
import { brushes, type Brushes, KINDS } from './paint.js';
import { isDark } from '../theme.js';
import { type Colours, draw, HEAD } from './draw.js';
import type { TraceRequests } from './tiles.js';
import type { TraceActions, TraceElements, TraceState } from './state.js';

// The names at the left of the rows in sight, as elements: for keyboards, readers and tests.
interface Marks {
  selected: ReadonlySet<number>;
  related: ReadonlySet<number>;
  stalled: ReadonlySet<string>;
  /** "backward" and the like; "" for a model that is not trained. */
  phase: (epoch: number) => string;
  open: (row: Row) => boolean;
  toggle: (row: Row) => void;
  pick: (op: string, toggle: boolean) => void;
  pin: (op: string) => void;
  pinned: (op: string) => boolean;
  /** How far the rows are scrolled: what is pinned goes along. */
  scroll: number;
  hover: (op: string) => void;
  /** Of a measured run; null without one. */
  measured: ReadonlyMap<string, OpTimes> | null;
}

function label(model: TraceModel, row: Row, fills: Frame | null, marks: Marks): HTMLElement {
  const style = `top:${row.top + (row.pinned ? marks.scroll : 0)}px;height:${row.height}px`;
  if (row.kind === 'epoch') {
    const [start, end] = model.span(row.epoch);
    return h('div', { class: 'tb-trace-label tb-trace-epoch', style, 'data-tb-epoch': row.epoch }, caret(row, marks, `epoch ${row.epoch}`),
      h('b', {}, `Epoch ${row.epoch}${marks.phase(row.epoch) && `, ${marks.phase(row.epoch)}`}`), h('span', {}, `${withThousands(end - start)} cycles`));
  }
  if (row.kind === 'fill') return h('div', { class: 'tb-trace-label tb-trace-fill', style, title: fillText(fills, row.fill, false) }, fillText(fills, row.fill, true));
  const op = model.ops[row.op]!;
  if (row.kind === 'part') {
    const [r, c, rows, cols] = model.cores[row.lanes[0]]!;
    return h('div', { class: 'tb-trace-label tb-trace-part', style }, `cores ${rows}×${cols} at ${r},${c}`);
  }
  const spent = model.cyclesByKind(op.name);
  const all = spent ? spent.reduce((a, b) => a + b, 0) : 0;
  const waits = spent && all ? `: ${KINDS.map((kind, k) => `${kind} ${percent(spent[k]! / all)}`).join(', ')}` : '';
  const state = `${marks.selected.has(row.op) ? ' tb-selected' : ''}${marks.related.has(row.op) ? ' tb-related' : ''}`;
  const many = op.end - op.first > 1;
  const times = marks.measured?.get(op.name);
  const took = times && us(times.measured);
  const measured = took ? `; measured ${timesText(times)}${guessText(times)}` : '';
  return h('div', { class: `tb-trace-label tb-trace-op${state}${row.pinned ? ' tb-pinned' : ''}`, style },
    many ? caret(row, marks, op.name) : h('span', { class: 'tb-caret' }),
    h('button', {
      class: 'tb-trace-name', 'data-tb-op': op.name, 'data-tb-action': 'trace-op', title: `${op.name}${waits}${measured}`,
      'aria-pressed': String(marks.selected.has(row.op)),
      onclick: (event: MouseEvent) => marks.pick(op.name, event.ctrlKey || event.metaKey),
      onpointerenter: () => marks.hover(op.name), onpointerleave: () => marks.hover('')
    }, elide(shortName(op.name), took ? 18 : 26)),
    took ? h('span', { class: 'tb-trace-took', title: 'Measured, per run of the model', 'data-tb-took': times.measured }, `${took} µs`) : '',
    marks.stalled.has(op.name) ? h('span', { class: 'tb-trace-stalled', title: 'a fork-join stall', role: 'img', 'aria-label': 'stalled' }, '⚠') : '',
    h('button', {
      class: 'tb-trace-pin', 'data-tb-action': 'trace-pin', title: marks.pinned(op.name) ? 'Let this row scroll again (K)' : 'Keep this row on top (K)',
      'aria-label': `keep ${op.name} on top`, 'aria-pressed': String(marks.pinned(op.name)), onclick: () => marks.pin(op.name)
    }, '⚲'));
}

function caret(row: Row, marks: Marks, name: string): HTMLElement {
  const open = marks.open(row);
  return h('button', {
    class: 'tb-caret', 'data-tb-action': row.kind === 'epoch' ? 'trace-epoch' : 'trace-cores', 'aria-expanded': String(open),
    'aria-label': `${open ? 'close' : 'open'} ${name}`, onclick: () => marks.toggle(row)
  }, open ? '▾' : '▸');
}

/** "← matmul_3, 24 tiles fit" */
function fillText(fills: Frame | null, index: number, brief: boolean): string {
  if (!fills || index >= fills.column('fill_points').length) return '';
  const read = (column: string) => fills.strings[fills.column(column)[index]!] ?? '';
  const [producer, consumer, unit] = [read('fill_producer'), read('fill_consumer'), read('fill_unit')];
  const into = consumer === fills.meta['op'];
  const other = into ? producer : consumer;
  const capacity = fills.column('fill_capacity')[index]!;
  const fits = capacity ? `${capacity} ${unit} fit` : unit;
  return brief ? `${into ? '←' : '→'} ${elide(shortName(other), 20)} · ${fits}` : `${into ? `from ${other}` : `to ${other}`}: ${unit} held, ${fits}`;
}

export const LABELS = 210; // px left of the canvas

/** What is seen of the timeline now: bars on the canvas, elements for the rows in sight, cursors and the playhead. */
export class TracePicture {
  private colours: Colours | null = null;
  private brushes: Brushes | null = null;
  private labelled = '';

  /** phaseOf: "backward" and the like, of an epoch. toggle: opens or closes a row. */
  constructor(
    private readonly view: TraceState & TraceElements & Pick<TraceActions, 'cursors' | 'player' | 'pin'>, private readonly asking: TraceRequests,
    private readonly rowActions: { phaseOf: (epoch: number) => string; toggle: (row: Row) => void }
  ) {}

  /** The theme is another one. */
  forget(): void {
    this.colours = this.brushes = null;
  }

  /** stalled: names of ops whose stalls are critical. layouts: counts how often the rows were made anew. */
  paint(stalled: Set<string>, layouts: number): void {
    const { view } = this;
    const { model, tiles, size, time, store } = view;
    if (!model || !tiles || !size.width) return;
    const ctx = view.canvas.getContext('2d');
    const scroll = view.scroller.scrollTop;
    const above = pinnedHeight(view.rows);
    const [first, last] = inSight(view.rows, scroll + above, scroll + size.height - HEAD);
    const pinned = view.rows.filter(row => row.pinned);
    if (store.host.live) this.ask([...pinned, ...view.rows.slice(first, last)]);
    const fills = store.frames.get('fills') ?? null;
    const selected = view.selectedOps();
    const related = selected.size <= 8 ? view.neighbours() : new Set<number>();
    // the same elements while they say the same: a press is not lost to a frame of the animation
    const measured = opTimes(store.frames.get('measured'));
    const run = measured ? String(store.frames.get('measured')!.meta['name']) : '';
    const labelled = `${layouts}/${first}/${last}/${above && scroll}/${run}`;
    if (labelled !== this.labelled) view.labels.replaceChildren(...[...view.rows.slice(first, last), ...pinned].map(row => label(model, row, fills, {
      selected, related, stalled, measured, phase: this.rowActions.phaseOf,
      open: r => (r.kind === 'epoch' ? view.shown.only !== null || view.shown.epochs.has(r.epoch) : view.shown.parts.has(model.ops[r.op]!.name)),
      scroll, pin: op => view.pin([op]), pinned: op => view.shown.pinned?.has(op) === true, toggle: this.rowActions.toggle, pick: (op, toggle) => {
        store.click(op, toggle, 'trace');
        view.stage.focus({ preventScroll: true }); // the pressed element is made anew
      }, hover: op => store.setHover(op)
    })));
    this.labelled = labelled;
    if (ctx) {
      this.brushes ??= brushes(ctx, isDark(), size.ratio);
      this.colours ??= this.readColours();
      draw(ctx, {
        model, tiles, rows: view.rows, first, last, scroll, start: time.start, end: time.end, width: size.width, height: size.height,
        selected, related, hover: model.opAt.get(store.hover) ?? -1, brushes: this.brushes, colours: this.colours,
        unit: view.unit, fills, epoch: store.epoch, flows: this.flows(selected)
      }, size.ratio);
    }
    view.cursors.render();
    const { cycle } = view.player;
    view.head.hidden = cycle === null || view.toX(cycle) < -1 || view.toX(cycle) > size.width + 1;
    if (cycle !== null) view.head.style.left = `${LABELS + view.toX(cycle)}px`;
    view.element.dataset['tbWindow'] = `${Math.round(time.start)}-${Math.round(time.end)}`;
    view.element.toggleAttribute('data-tb-waiting', tiles.waiting > 0);
  }

  /** The flows of the op that is selected alone; of another op, or another placement, there are none. */
  private flows(selected: ReadonlySet<number>): Frame | null {
    const { model, store } = this.view;
    const frame = store.frames.get('flows');
    const one = selected.size === 1 ? model!.ops[[...selected][0]!]!.name : '';
    const flows = frame && frame.meta['op'] === one && Number(frame.meta['rev']) === model!.rev ? frame : null;
    if (flows) this.view.element.dataset['tbFlows'] = String(flows.column('input').length);
    else delete this.view.element.dataset['tbFlows'];
    return flows;
  }

  /** Asks for the tiles of the rows in sight. */
  private ask(rows: readonly Row[]): void {
    const { model, tiles, time } = this.view;
    const { asking } = this;
    const blocks = new Set<number>();
    for (const row of rows) {
      if (row.kind === 'op' || row.kind === 'part') for (let lane = row.lanes[0]; lane < row.lanes[1]; lane++) blocks.add(model!.blockOf[lane]!);
    }
    const now = performance.now();
    asking.tiles(tiles!.missing(blocks, time.start, time.end, now));
    // Once all of this is there, what the next zoom or step aside will ask for: it is there when somebody goes on.
    if (tiles!.waiting === 0) asking.tiles(tiles!.next(blocks, time.start, time.end, now));
  }

  private readColours(): Colours {
    const style = getComputedStyle(this.view.element);
    const read = (name: string) => style.getPropertyValue(`--tb-${name}`).trim() || '#888';
    return {
      text: read('text'), muted: read('muted'), line: read('line'), faint: read('faint'), surface: read('surface'),
      accent: read('accent'), soft: read('accent-soft'), bad: read('bad'), font: style.fontFamily || 'sans-serif'
    };
  }
}
