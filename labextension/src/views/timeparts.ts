/** What the time of a batch is spent on, in words. */
import { grouped, percent } from './dom.js';
import type { Ops } from './ops.js';

const PARTS: [string, string][] = [
  ['steady', 'steady work at the rate of the slowest op'], ['fill', 'filling and emptying the pipeline'], ['stall', 'waits for full buffers'],
  ['switch', 'switching epochs']
];

function said(of: (part: string) => number, total: number): string {
  return PARTS.map(([part, words]) => [of(part), words] as const).filter(([cycles]) => cycles > 0)
    .map(([cycles, words]) => `${words} ${grouped(cycles)} (${percent(cycles / Math.max(1, total))})`).join(', ');
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
