/** The host program of a dialect's graph: replicas side by side in time, sections, steps, and the graphs to choose from. */
import { factList, withThousands, h, svg } from './dom.js';
import { type Chosen, IrGraph } from './irgraph.js';
import type { Store } from './store.js';

interface Section {
  kind: string;
  cycles: number;
  ops: number;
}
interface Step {
  step: string;
  section?: string;
  tensor?: string;
  program?: string;
  name?: string;
  region?: string;
  tensors?: string[];
  count?: number;
  body?: Step[];
  stream?: string;
  slot?: string;
  kind?: string;
  ins?: string[];
  outs?: string[];
  into?: string;
  buffer?: number;
  pairs?: [string, string][];
  condition?: string;
  then?: Step[];
  otherwise?: Step[];
}
/** What a dialect tells of a program of several graphs: `popxl.programs.record_of`. */
interface Ir {
  graphs: { id: string; inputs: string[]; outputs: string[]; ops: IrOp[] }[];
  segments: { number: number; ops: number; cut: string; epoch: number }[];
  streams: { name: string; way: string; shape: number[]; type: string }[];
  buffers: { id: number; entries: number; shape: number[]; type: string }[];
  variables: { name: string; shape: number[]; type: string; groups: number }[];
  replicas: number;
}
interface IrOp {
  op: string;
  type: string;
  runs: string;
  why: string;
  line: string;
  calls: string[];
  segments: number[];
}
interface Times {
  cycles: number;
  device: [number, number, number][];
  link: [string, number, number][];
}
interface Program {
  title: string;
  graph: string;
  mapping: string;
  replicas: number;
  mode: string;
  graphs: { title: string; name: string; mapping: string }[];
  sections: Section[];
  steps: Step[];
  timelines: Record<string, Times>;
  record?: Ir;
}

const WIDTH = 900;
const LEFT = 84;
const ROW = 24;
const GAP = 5;
const SHOWN = 8; // replicas

export class ProgramView {
  readonly element: HTMLElement;
  private readonly bar = h('header', { class: 'tb-bar' });
  private readonly body = h('div', { class: 'tb-program-body', tabindex: 0 });
  private readonly stops: (() => void)[] = [];
  private mode = '';
  /** The graphs of an Ir drawn, and the op chosen in them; both stay when the rest is written anew. */
  private drawn: IrGraph | null = null;
  private segments: Ir['segments'] = [];
  private readonly chosen = h('div', { class: 'tb-program-chosen', 'aria-live': 'polite' });

  constructor(private readonly store: Store) {
    this.element = h('section', { class: 'tb-view tb-program', 'data-tb-view': 'program', 'aria-label': 'Host program' }, this.bar, this.body);
    this.stops.push(
      store.on('frame', key => {
        if (key === 'program' || key === 'irgraph') this.render();
      }),
      store.on('epoch', () => this.mark()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.drawn?.dispose();
  }

  private get program(): Program | null {
    return (this.store.frames.get('program')?.meta as unknown as Program | undefined) ?? null;
  }

  private render(): void {
    const program = this.program;
    if (!program) {
      this.bar.replaceChildren();
      this.body.replaceChildren(h('div', { class: 'tb-empty' }, 'There is no host program.'));
      return;
    }
    if (!(this.mode in program.timelines)) this.mode = program.mode in program.timelines ? program.mode : 'normal';
    const choice = (label: string, action: string, items: [string, string][], now: string, choose: (id: string) => void) =>
      h('div', { class: 'tb-segmented', role: 'group', 'aria-label': label }, ...items.map(([id, text]) =>
        h('button', { 'data-tb-action': action, 'data-tb-choice': id, 'aria-pressed': String(id === now), onclick: () => choose(id) }, text)));
    const modes = Object.keys(program.timelines);
    this.bar.replaceChildren(
      choice('Graph', 'graph', program.graphs.map(g => [g.title, g.title]), program.title, title => this.store.host.send({ type: 'graph', title })),
      ...(modes.length > 1 ? [choice('Data-parallel mode', 'mode', modes.map(m => [m, m]), this.mode, mode => {
        this.mode = mode;
        this.render();
      })] : []),
      h('span', {}, `${program.mapping} · ${program.replicas} ${program.replicas === 1 ? 'device' : 'replicas'} · ${withThousands(Math.round(program.timelines[this.mode]!.cycles))} cycles per run`));
    this.segments = program.record?.segments ?? [];
    this.body.replaceChildren(
      this.times(program), h('div', { class: 'tb-program-columns' }, this.sections(program), this.steps(program.steps)),
      ...(program.record ? [...this.picture(), ...this.graphs(program.record)] : []));
    this.mark();
  }

  /** One row for each replica, and one for the link between them. */
  private times(program: Program): HTMLElement {
    const plan = program.timelines[this.mode]!;
    const scale = (WIDTH - LEFT) / Math.max(1, plan.cycles);
    const shown = Math.min(program.replicas, SHOWN);
    const rows: Element[] = [];
    const row = (name: string, at: number, parts: Element[]) => rows.push(
      svg('text', { x: 0, y: at + 16 }, name), svg('rect', { class: 'tb-program-row', x: LEFT, y: at, width: WIDTH - LEFT, height: ROW, rx: 3 }), ...parts);
    for (let replica = 0; replica < shown; replica++) {
      row(program.replicas > 1 ? `replica ${replica}` : 'device', replica * (ROW + GAP), plan.device.flatMap(([k, start, end]) => {
        const section = program.sections[k]!;
        const wide = Math.max(1, (end - start) * scale);
        const label = `section ${k} (${section.kind}), ${withThousands(Math.round(end - start))} cycles from ${withThousands(Math.round(start))}`;
        const at = replica * (ROW + GAP);
        return [
          svg('rect', { class: 'tb-program-section', 'data-tb-kind': section.kind, 'data-tb-section': k, x: LEFT + start * scale, y: at, width: wide, height: ROW, rx: 3, role: 'button', tabindex: 0, 'aria-label': label, onclick: () => this.store.setEpoch(k), onkeydown: (e: KeyboardEvent) => e.key === 'Enter' && this.store.setEpoch(k) },
            svg('title', {}, label)),
          ...(wide > 60 ? [svg('text', { x: LEFT + start * scale + 6, y: at + 16, 'pointer-events': 'none' }, `${k} ${section.kind}`)] : [])
        ];
      }));
    }
    const bottom = shown * (ROW + GAP);
    if (program.replicas > 1) {
      row('link', bottom, plan.link.map(([said, start, end]) => svg('rect', {
        class: 'tb-program-link', x: LEFT + start * scale, y: bottom + 4, width: Math.max(1, (end - start) * scale), height: ROW - 8, rx: 2
      }, svg('title', {}, `${said}, ${withThousands(Math.round(end - start))} cycles`))));
    }
    const height = bottom + (program.replicas > 1 ? ROW + GAP : 0);
    return h('div', { class: 'tb-program-times' },
      svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'group', 'aria-label': 'Replicas in time' }, ...rows),
      ...(program.replicas > SHOWN ? [h('p', {}, `and ${program.replicas - SHOWN} more replicas with the same times`)] : []));
  }

  private sections(program: Program): HTMLElement {
    const line = (tag: 'th' | 'td', cells: (string | HTMLElement)[]) => cells.map(cell => h(tag, {}, cell));
    return h('table', { class: 'tb-plain' },
      h('thead', {}, h('tr', {}, ...line('th', ['Section', 'Kind', 'Ops', 'Cycles']))),
      h('tbody', {}, ...program.sections.map((s, k) => h('tr', { 'data-tb-section': k }, ...line('td', [
        h('button', { class: 'tb-button', 'data-tb-action': 'section', onclick: () => this.store.setEpoch(k) }, `section ${k}`),
        s.kind, String(s.ops), withThousands(Math.round(s.cycles))])))));
  }

  private steps(steps: Step[]): HTMLElement {
    return h('ol', { class: 'tb-program-steps', 'aria-label': 'Steps of the host program' }, ...steps.map(step => h('li', { 'data-tb-step': step.step },
      step.section ? `${step.section}: ` : '', h('b', {}, step.step.replace('_', ' ')), ` ${said(step)}`,
      ...[step.body, step.then, step.otherwise].filter(part => part !== undefined).map(part => this.steps(part)))));
  }

  /** The graphs of an Ir with their call sites as a picture, and below it the op that is chosen in it. */
  private picture(): HTMLElement[] {
    const frame = this.store.frames.get('irgraph');
    if (!frame) return [];
    this.drawn ??= new IrGraph(chosen => this.tell(chosen));
    this.drawn.show(frame);
    return [h('div', { class: 'tb-program-picture' }, this.drawn.element, this.chosen)];
  }

  /** What became of the chosen op. */
  private tell(chosen: Chosen | null): void {
    for (const row of this.body.querySelectorAll<HTMLElement>('tr[data-tb-op]')) row.classList.toggle('tb-now', row.dataset['tbOp'] === chosen?.op && row.dataset['tbOf'] === chosen?.graph);
    this.chosen.replaceChildren();
    if (!chosen) return;
    const facts: [string, string][] = [
      ['op', `${chosen.op} (${chosen.type})`], ['of', chosen.module ? `${chosen.graph}, called as ${chosen.module}` : chosen.graph],
      ['runs on', chosen.runs], ['why', chosen.why], ['line', chosen.line]
    ];
    this.chosen.append(factList(facts.filter(([, value]) => value)), ...chosen.segments.map(k => this.toSegment(k, `segment ${k}`)), ...chosen.calls.map(id => this.lead(id)));
  }

  private toSegment(number: number, text: string): HTMLElement {
    return h('button', { class: 'tb-button', 'data-tb-action': 'segment', onclick: () => this.store.setEpoch(this.segments.find(s => s.number === number)?.epoch ?? 0) }, text);
  }

  /** The button that leads to the table of a graph. */
  private lead(id: string): HTMLElement {
    return h('button', {
      class: 'tb-button', 'data-tb-action': 'called-graph', 'data-tb-graph': id, onclick: () => {
        const target = [...this.body.querySelectorAll<HTMLDetailsElement>('details[data-tb-graph]')].find(one => one.dataset['tbGraph'] === id);
        if (!target) return;
        target.open = true;
        target.scrollIntoView({ block: 'nearest' });
        target.querySelector('summary')!.focus();
      }
    }, id);
  }

  /** The graphs of an Ir, each with its ops: what runs each and why, and the graphs that a call leads to. */
  private graphs(ir: Ir): HTMLElement[] {
    const table = (head: string[], rows: (string | HTMLElement)[][]) => h('table', { class: 'tb-plain' },
      h('thead', {}, h('tr', {}, ...head.map(text => h('th', {}, text)))),
      h('tbody', {}, ...rows.map(cells => h('tr', {}, ...cells.map(cell => h('td', {}, cell))))));
    const form = (one: { shape: number[]; type: string }) => `${one.type} (${one.shape.join(', ')})`;
    const place = (op: IrOp) => op.segments.length === 0 ? op.runs : h('span', {}, `${op.runs}, segment `, ...op.segments.map(k => this.toSegment(k, String(k))));
    const show = (graph: string, op: string) => this.drawn ? h('button', { class: 'tb-button', 'data-tb-action': 'show-op', title: 'Select it in the graph', onclick: () => this.drawn!.select(graph, op) }, op) : op;
    const parts = ir.graphs.map((graph, k) => {
      const ops = table(['Op', 'Kind', 'Runs on', 'Why', 'Calls', 'Line'], graph.ops.map(op => [
        show(graph.id, op.op), op.type, place(op), op.why, h('span', {}, ...op.calls.map(id => this.lead(id))), op.line]));
      ops.querySelectorAll<HTMLElement>('tbody tr').forEach((row, at) => Object.assign(row.dataset, { tbOp: graph.ops[at]!.op, tbOf: graph.id }));
      return h('details', { class: 'tb-program-graph', 'data-tb-graph': graph.id, ...(k === 0 ? { open: true } : {}) },
        h('summary', {}, `${graph.id}: ${graph.ops.length} ops, takes ${graph.inputs.join(', ') || 'nothing'}, gives ${graph.outputs.join(', ') || 'nothing'}`), ops);
    });
    return [
      table(['Segment', 'Ops', 'Cut by'], ir.segments.map(s => [String(s.number), String(s.ops), s.cut || 'the beginning'])),
      ...(ir.streams.length ? [table(['Stream', 'Way', 'Holds'], ir.streams.map(s => [s.name, s.way, form(s)]))] : []),
      ...(ir.variables.length ? [table(['Variable', 'Holds', 'Groups of replicas'], ir.variables.map(v => [v.name, form(v), String(v.groups)]))] : []),
      ...(ir.buffers.length ? [table(['Remote buffer', 'Entries', 'Each holds'], ir.buffers.map(b => [String(b.id), String(b.entries), form(b)]))] : []),
      ...parts
    ];
  }

  /** The section whose epoch the grid shows. */
  private mark(): void {
    for (const one of this.element.querySelectorAll<HTMLElement>('[data-tb-section]')) one.classList.toggle('tb-now', Number(one.dataset['tbSection']) === this.store.epoch);
  }
}

function said(step: Step): string {
  if (step.step === 'loop') return `${step.count} times`;
  if (step.step === 'collective') return `mean of ${step.tensors!.length} gradients over the replicas`;
  if (step.step === 'host_op') return `${step.kind}: ${step.ins!.join(', ')} to ${step.outs!.join(', ')}`;
  if (step.step === 'feed' || step.step === 'drain') return `${step.count} of ${step.pairs!.map(([, stream]) => stream).join(', ')}`;
  if (step.step === 'move') return step.pairs!.map(([target, source]) => `${source} to ${target}`).join(', ');
  if (step.step === 'branch') return `by ${step.condition}`;
  if (step.step === 'exchange') return `${step.kind} of ${step.slot} into ${step.into}`;
  if (step.buffer !== undefined) return `${step.slot} (buffer ${step.buffer})`;
  if (step.slot !== undefined) return step.stream === undefined ? step.slot : `${step.slot} (stream ${step.stream})`;
  return `${step.tensor ?? step.program ?? step.name ?? ''}${step.region ? ` (region ${step.region})` : ''}`;
}
