/** The host program of a dialect's graph: replicas side by side in time, sections, steps, and the graphs to choose from. */
import { withThousands, h, svg } from './dom.js';
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

  constructor(private readonly store: Store) {
    this.element = h('section', { class: 'tb-view tb-program', 'data-tb-view': 'program', 'aria-label': 'Host program' }, this.bar, this.body);
    this.stops.push(
      store.on('frame', key => {
        if (key === 'program') this.render();
      }),
      store.on('epoch', () => this.mark()));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
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
    this.body.replaceChildren(this.times(program), h('div', { class: 'tb-program-columns' }, this.sections(program), this.steps(program.steps)));
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
      row('link', bottom, plan.link.map(([weight, start, end]) => svg('rect', {
        class: 'tb-program-link', x: LEFT + start * scale, y: bottom + 4, width: Math.max(1, (end - start) * scale), height: ROW - 8, rx: 2
      }, svg('title', {}, `mean of ${weight}, ${withThousands(Math.round(end - start))} cycles`))));
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
      step.section ? `${step.section}: ` : '', h('b', {}, step.step.replace('_', ' ')), ` ${said(step)}`, step.body ? this.steps(step.body) : '')));
  }

  /** The section whose epoch the grid shows. */
  private mark(): void {
    for (const one of this.element.querySelectorAll<HTMLElement>('[data-tb-section]')) one.classList.toggle('tb-now', Number(one.dataset['tbSection']) === this.store.epoch);
  }
}

function said(step: Step): string {
  if (step.step === 'loop') return `${step.count} times`;
  if (step.step === 'collective') return `mean of ${step.tensors!.length} gradients over the replicas`;
  return `${step.tensor ?? step.program ?? step.name ?? ''}${step.region ? ` (region ${step.region})` : ''}`;
}
