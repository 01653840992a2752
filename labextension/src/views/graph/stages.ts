/** The stages whose graphs are shown, and the buttons for them. */
import { h } from '../dom.js';
import type { Frame } from '../frame.js';
import type { Paint } from '../theme.js';

type Stage = [name: string, label: string, title: string];

const STAGES: Stage[] = [
  ['traced', 'Traced', 'Model as traced'],
  ['passed', 'Passes', 'Graph after the passes on nD ops'],
  ['lowered', 'Lowered', 'Hardware ops, as placed']
];
const EACH: Stage = ['pass', 'Per pass', 'Show the graph after a pass, with what the pass changed'];
const FILE: Stage[] = [['netlist', 'Ops and queues', 'Netlist of a file']];

/** A graph that is none of the compile's stages. */
export interface Special {
  stage: Stage;
  /** Colours of a node; null for the usual ones. */
  paint(frame: Frame, node: number, dark: boolean): Paint | null;
  legend(dark: boolean): HTMLElement[];
}

/** Those that there can be: of a compile, of a netlist from a file, or a single one. */
export function stagesOf(scenes: ReadonlyMap<string, unknown>, special: Special | null): Stage[] {
  return special ? [special.stage] : scenes.has('netlist') ? FILE : STAGES;
}

/** passes: opens the graphs after each pass; null where there are none. */
export function stageButtons(
  stages: Stage[], there: string[], now: string, show: (stage: string) => void, passes: (() => void) | null
): HTMLElement[] {
  const button = ([name, label, title]: Stage, f: () => void, disabled = false) => h('button', {
    type: 'button', title, 'data-tb-action': `graph-stage-${name}`, 'aria-pressed': String(name === now), disabled, onclick: f
  }, label);
  const buttons = stages.map(stage => button(stage, () => show(stage[0]), !there.includes(stage[0])));
  return passes ? [...buttons, button(EACH, passes)] : buttons;
}
