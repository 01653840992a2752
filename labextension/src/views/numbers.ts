/** Numbers on the screen: what each means, and time as text. */
import { withThousands, percent, short } from './dom.js';
import type { Ops } from './ops.js';
import { preferences } from './preferences.js';

// What every number means, by which formula, and where that stands. docs/numbers.md has the same table; a test holds
// the two together.
export const FORMULAS = {
  ops: 'Ops on the grid, including nops that the compiler inserted.',
  epochs: 'Netlist graphs that a chip loads one after the other. Ops of an epoch are on the grid together.',
  cycles: 'Estimated cycles of one core of the op for one input: the slowest of the units that work side by side, each a sum of weight × amount of work, fitted to runs on silicon. Source: docs/cost-model.md.',
  load: 'Time of the op (kernel or slowest transfer) ÷ that of the slowest op of its epoch. In the steady state the slowest op sets the rate of its whole epoch.',
  bound: 'What takes longest: compute (the kernel), DRAM, NoC or host link (a transfer), or stall: a full buffer holds the op and its epoch up longer than it works. Source: core/epochsim/batch_time.py.',
  batch: 'Simulated for the batch that the model is compiled for: filling, waits for full buffers and the switches between epochs are included; ÷ inputs of the batch. Source: core/epochsim/batch_time.py.',
  epoch: 'Cycles of the epoch for the whole batch ÷ inputs, simulated: its switch, filling, the time of its slowest op, and waits for full buffers. Source: core/epochsim/batch_time.py.',
  data: 'Kernel cycles or transfer cycles, whichever are more. An operand or output takes its bytes per core ÷ bytes per cycle: half the peak of a NoC link, the core’s share of DRAM, or its share of the host link. Source: core/balancer/bandwidth.py.',
  kernels: 'Per epoch the cycles of the slowest kernel, added up; of epochs that run together on several chips the slowest counts. Estimated, without transfers. Source: docs/cost-model.md.',
  rate: 'Clock of the device ÷ cycles per input of the same line.',
  busy: 'Sum of cores × kernel cycles ÷ (all cores of the chip × cycles of the epoch); over several epochs the mean, weighted by their cycles.',
  used: 'Cores that have an op ÷ cores of the grid, without harvested rows.',
  pcc: 'Pearson correlation of the executor’s output with torch in float32. Blind to scale and offset; the largest difference stands beside it. Source: core/runner.py.',
  grid: 'Rows × columns of cores that the op has.',
  place: 'Row and column of its upper left core, counted without harvested rows.',
  t: 'Macro blocks that pass one after the other: z × the stream factor.',
  mblock: 'Macro block of a core: rows × columns of ublocks. It is the unit of buffering.',
  ublock: 'Micro block: rows × columns of tiles that the math unit handles at once. Half of the destination register has to hold it.',
  inner: 'Inner dimension of a matmul: m_k steps of u_kt tiles each.',
  l1: 'Buffers of the fullest core of the op, tile headers included, and their share of the L1 that firmware leaves, as the check of the netlist counts them (rule R6); the memory view has them by kind. ≈ marks the estimate of a shape that is not placed. Source: core/netlist/cores.',
  preload: 'Parameters that wait in L1 from before the first input of an epoch, or are read from DRAM for every input. Preloading takes L1 and time before the first input. Source: core/balancer/l1.py.',
  format: 'Data format of the output, and how many passes the matrix unit spends on the mantissa.',
  candidates: 'Combinations of grid, blocks and stream factor; how many of them are legal; the fewest kernel cycles among those. Source: core/balancer/enumerate.py.',
  links: 'Bytes per input over a link ÷ limiter cycles of the epoch ÷ the 32 bytes per cycle that a link carries. Every transfer takes the rings of its NoC: x then y upwards on NoC 0, y then x downwards on NoC 1. Estimated: netlists assign no NoC, and links never limit the estimated time. Source: docs/cost-model.md.',
  trace: 'Simulated cycles of the whole batch through all epochs, and the same ÷ inputs: loading and filling of epochs and waits for full buffers are included. Source: core/epochsim.'
} as const;

export type Formula = keyof typeof FORMULAS;

// Time as text: cycles, or microseconds at the clock of the device; and what the time of a batch is spent on.
export function inMicroseconds(): boolean {
  return preferences().units === 'us';
}

/** Shortest form, for a tile: "31.0k" or "25.8 µs". */
export function shortTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : short(cycles);
}

/** With its unit, for a line of text: "31,000 cycles" or "25.8 µs". */
export function longTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : `${withThousands(cycles)} cycles`;
}

/** With its unit, shortly: "31.0k cycles" or "25.8 µs". */
export function saidTime(cycles: number, clock: number): string {
  return inMicroseconds() ? micro(cycles, clock) : `${short(cycles)} cycles`;
}

function micro(cycles: number, clock: number): string {
  const value = (1e6 * cycles) / clock;
  return `${value >= 100 ? withThousands(value) : value.toFixed(value >= 10 ? 1 : 2)} µs`;
}

/** "1.2 GHz" */
export function clockText(clock: number): string {
  return `${(clock / 1e9).toFixed(1)} GHz`;
}

const PARTS: [string, string][] = [
  ['steady', 'steady work at the rate of the slowest op'], ['fill', 'filling and emptying the pipeline'], ['stall', 'waits for full buffers'],
  ['switch', 'switching epochs']
];

function said(of: (part: string) => number, total: number): string {
  return PARTS.map(([part, words]) => [of(part), words] as const).filter(([cycles]) => cycles > 0)
    .map(([cycles, words]) => `${words} ${withThousands(cycles)} (${percent(cycles / Math.max(1, total))})`).join(', ');
}

/** Of an epoch: "steady work at the rate of the slowest op 7,164 (7 %), filling ... ". */
export function partsText(ops: Ops, epoch: number): string {
  return `Cycles per input: ${said(part => ops.ofEpoch(part, epoch), ops.epochTimes[epoch]!)}.`;
}

/** Of the whole model; epochs that run side by side on several chips are all counted. */
export function totalParts(ops: Ops): string {
  const parts = ops.frame.meta['time_parts'] as Record<string, number>;
  return `All epochs: ${said(part => parts[part] ?? 0, Object.values(parts).reduce((n, c) => n + c, 0))}.`;
}

/** "+2.5 %" of a number that changed, in words where it is too little for a digit; "" where it did not. */
export function changeOf(before: number, after: number): string {
  if (before <= 0 || after === before) return '';
  const share = (100 * Math.abs(after - before) / before).toFixed(1);
  return share === '0.0' ? 'by less than 0.1 %' : `${after > before ? '+' : '−'}${share} %`;
}

/** `changeOf` in brackets, to stand behind the numbers. */
export function changeText(before: number, after: number): string {
  const change = changeOf(before, after);
  return change && ` (${change})`;
}
