/** What a picture of an exploration is given (`widgets/pictures/explore.py`), and what follows from it alone. */

export type Value = string | number | boolean | null | readonly Value[];

export interface Reason {
  type: string;
  text: string;
  diagnostics: string[];
}

export interface Trial {
  n: number;
  point: Record<string, Value>;
  state: string;
  reason: Reason | null;
  numbers: Record<string, number>;
  placement: string;
  /** Of each epoch its chip and the row, column, rows and columns of its ops. */
  epochs: [number, [number, number, number, number][]][] | null;
  stale: boolean;
  version: string;
  holds: boolean;
  command: string;
}

export interface Picture {
  title: string;
  progress: { done: number; total: number; seconds_left: number | null };
  running: boolean;
  axes: { name: string; values: Value[] }[];
  objectives: string[];
  names: string[];
  directions: Record<string, 'min' | 'max'>;
  units: Record<string, string>;
  requirements: string[];
  trials: Trial[];
  grids: Record<string, [number, number]>;
  /** Of a page that nobody answers: the table as CSV, and overrides of the front's points by number. */
  files?: { csv: string; overrides: Record<string, string> };
}

/** What a click of the picture asks for. */
export type Ask =
  | { do: 'cancel' } | { do: 'open'; n: number } | { do: 'compare'; a: number; b: number }
  | { do: 'export'; what: 'overrides'; n: number } | { do: 'export'; what: 'csv' | 'parquet' };

const WORDS: Record<string, string> = {
  microbatch: 'batch', default_df_override: 'format', default_math_fidelity: 'fidelity', balancer_policy: 'policy'
};

/** The name of an axis as people say it. */
export const axisWord = (axis: string) => WORDS[axis] ?? axis.replaceAll('_', ' ');
export const valueText = (value: Value | undefined) => (typeof value === 'string' ? value : JSON.stringify(value ?? null));

/** 12345 -> "12.3k". */
export function brief(value: number | undefined): string {
  if (value === undefined) return '';
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(4)}`;
}

/** Times a number, less is better. */
const sign = (picture: Picture, name: string) => (picture.directions[name] === 'max' ? -1 : 1);

/** Of trials that are done and hold what is required, those that no other beats in both numbers; ordered along `a`. */
export function paretoFront(picture: Picture, trials: Trial[], a: string, b: string): Trial[] {
  const [first, second] = [sign(picture, a), sign(picture, b)];
  const able = trials.filter(t => t.state === 'done' && t.holds && !t.stale && a in t.numbers && b in t.numbers);
  able.sort((p, q) => first * (p.numbers[a]! - q.numbers[a]!) || second * (p.numbers[b]! - q.numbers[b]!));
  let best = Infinity;
  const front: Trial[] = [];
  let last: Trial | undefined;
  for (const trial of able) {
    const value = second * trial.numbers[b]!;
    const equal = last !== undefined && last.numbers[a] === trial.numbers[a] && last.numbers[b] === trial.numbers[b];
    if (value >= best && !equal) continue;
    best = value;
    last = trial;
    front.push(trial);
  }
  return front;
}

export interface Scale {
  place: (value: number) => number;
  ticks: number[];
}

/** Places of values along pixels `from` to `to`, with a margin. */
export function scaleOf(values: number[], from: number, to: number): Scale {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low -= pad;
  high += pad;
  const step = 10 ** Math.floor(Math.log10((high - low) / 4));
  const every = [1, 2, 5, 10].map(k => k * step).find(k => (high - low) / k <= 6) ?? step;
  const counts = values.every(Number.isInteger); // half a chip is no place on an axis
  const ticks: number[] = [];
  for (let k = Math.ceil(low / every); k * every <= high; k++) if (!counts || Number.isInteger(k * every)) ticks.push(k * every);
  return { place: value => from + ((value - low) / (high - low)) * (to - from), ticks };
}

export interface Effect {
  axis: string;
  values: { value: Value; mean: number | null; of: number }[];
}

/** For each value of each axis the mean of a number over all trials that are done. */
export function effectsOf(picture: Picture, trials: Trial[], number: string): Effect[] {
  const counted = trials.filter(t => t.state === 'done' && !t.stale && number in t.numbers);
  return picture.axes.map(({ name, values }) => {
    const sums = new Map(values.map(value => [valueText(value), { sum: 0, of: 0 }]));
    for (const trial of counted) {
      const found = sums.get(valueText(trial.point[name]));
      if (!found) continue;
      found.sum += trial.numbers[number]!;
      found.of += 1;
    }
    return {
      axis: name,
      values: values.map(value => {
        const { sum, of } = sums.get(valueText(value))!;
        return { value, mean: of ? sum / of : null, of };
      })
    };
  });
}
