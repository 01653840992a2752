/** The graphs of an Ir drawn as one: each call site is a group with what it calls, and colours say what runs each op. */
import { h } from './dom.js';
import type { Frame } from './frame.js';
import { GraphView } from './graph/view.js';
import { StaticHost } from './host.js';
import { Store } from './store.js';
import { familyPaint, type Paint } from './theme.js';

/** Families whose colours the places have; what is no op, or nobody reads, is grey. */
const COLOURS: Record<string, string> = { grid: 'matmul', decomposed: 'eltwise', host: 'sfpu', program: 'reduce', variable: 'io' };

/** What a reader is told of the op that is chosen. */
export interface Chosen {
  op: string;
  graph: string;
  type: string;
  runs: string;
  why: string;
  line: string;
  module: string;
  segments: number[];
  calls: string[];
}

export class IrGraph {
  readonly element: HTMLElement;
  private readonly inner = new Store(new StaticHost());
  private readonly graph: GraphView;
  private readonly stop: () => void;
  private frame: Frame | null = null;

  /** @param choose is called with the op that was selected; null where none or several are. */
  constructor(choose: (chosen: Chosen | null) => void) {
    this.graph = new GraphView(this.inner, {
      stage: ['ir', 'Ir', 'Graphs of the Ir, with a group for each call'],
      paint: (frame, node, dark) => placePaint(placeOf(frame, node), dark),
      legend: dark => this.places().map(place => {
        const paint = placePaint(place, dark);
        return h('span', { class: 'tb-key' }, h('i', { style: `background:${paint.fill};border-color:${paint.edge}` }), place);
      })
    });
    this.element = this.graph.element;
    this.element.dataset['tbView'] = 'irgraph'; // `graph` is the one of the session
    this.element.setAttribute('aria-label', 'Graphs of the Ir');
    this.stop = this.inner.on('selection', () => choose(this.chosen()));
  }

  dispose(): void {
    this.stop();
    this.graph.dispose();
    this.inner.dispose();
  }

  show(frame: Frame): void {
    if (frame === this.frame) return;
    this.frame = frame;
    this.inner.put(frame.as('graph:ir'));
  }

  /** Selects every place at which an op of a graph stands, and brings the first into sight. */
  select(graph: string, op: string): void {
    if (!this.frame) return;
    const [graphs, ops] = [this.frame.text('node_graph'), this.frame.text('node_op')];
    this.inner.select(this.frame.text('node_name').filter((_, n) => graphs[n] === graph && ops[n] === op), 'table');
  }

  /** The places that there are, in the order of the frame. */
  private places(): string[] {
    const { frame } = this;
    if (!frame) return [];
    const there = new Set(Array.from(frame.column('node_place')));
    return (frame.meta['places'] as string[]).filter((_, k) => there.has(k));
  }

  private chosen(): Chosen | null {
    const { frame } = this;
    const { names } = this.inner.selection;
    if (!frame || !names.length) return null;
    const all = frame.text('node_name').flatMap((name, n) => names.includes(name) ? [n] : []);
    const text = (column: string, n: number) => frame.text(column)[n]!;
    const [first] = all;
    if (first === undefined || !text('node_op', first)) return null;
    if (all.some(n => text('node_op', n) !== text('node_op', first) || text('node_graph', n) !== text('node_graph', first))) return null;
    return {
      op: text('node_op', first), graph: text('node_graph', first), type: text('node_type', first), runs: placeOf(frame, first),
      why: text('node_why', first), line: text('node_location', first), module: all.length > 1 ? `${all.length} calls` : text('node_module', first),
      segments: text('node_segments', first).split(' ').filter(Boolean).map(Number), calls: text('node_calls', first).split('\n').filter(Boolean)
    };
  }
}

function placeOf(frame: Frame, node: number): string {
  return (frame.meta['places'] as string[])[frame.column('node_place')[node]!]!;
}

function placePaint(place: string, dark: boolean): Paint {
  return familyPaint(COLOURS[place] ?? 'move', dark);
}
