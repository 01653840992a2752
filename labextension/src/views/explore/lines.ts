/** Every trial as a line over all axes; a click on a value brushes by it. */
import { svg } from '../dom.js';
import { axisWord, brief, type Picture, scaleOf, type Trial, valueText } from './data.js';

const HEIGHT = 190, TOP = 34;
const APART = 120; // px between two axes, at least: below that the picture scrolls

/** By axis, the values that are looked at; an axis that is not in it is looked at whole. */
export type Brush = Map<string, Set<string>>;

export function isBrushed(trial: Trial, brush: Brush): boolean {
  for (const [axis, values] of brush) if (!values.has(valueText(trial.point[axis]))) return false;
  return true;
}

interface Axis {
  name: string;
  place: (trial: Trial) => number;
  /** Words, place, and the value that a click means; numbers have none. */
  ticks: [string, number, string | null][];
}

function axisOf(picture: Picture, name: string): Axis {
  const listed = picture.axes.find(axis => axis.name === name);
  if (!listed) {
    const { place, ticks } = scaleOf(picture.trials.filter(t => name in t.numbers).map(t => t.numbers[name]!), HEIGHT - 14, TOP);
    return { name, place: t => (name in t.numbers ? place(t.numbers[name]!) : HEIGHT - 6), ticks: ticks.map(v => [brief(v), place(v), null]) };
  }
  const { values } = listed;
  const y = (k: number) => (values.length === 1 ? (TOP + HEIGHT - 14) / 2 : TOP + (k * (HEIGHT - 14 - TOP)) / (values.length - 1));
  const index = new Map(values.map((v, k) => [valueText(v), k]));
  return { name, place: t => y(index.get(valueText(t.point[name])) ?? 0), ticks: values.map((v, k) => [valueText(v), y(k), valueText(v)]) };
}

export function drawLines(
  room: number, picture: Picture, numbers: string[], brush: Brush, shown: ReadonlySet<number>, front: ReadonlySet<number>, chosen: readonly number[],
  onBrush: (axis: string, value: string) => void
): SVGSVGElement {
  const axes = [...new Set([...picture.axes.map(axis => axis.name), ...numbers])].map(name => axisOf(picture, name));
  const width = Math.max(room, APART * axes.length);
  const step = (width - 140) / Math.max(1, axes.length - 1);
  const groups = new Map<string, string[]>(['tx-line tx-out', 'tx-line', 'tx-line tx-on', 'tx-line tx-chosen'].map(kind => [kind, []]));
  for (const trial of picture.trials) {
    if (trial.state !== 'done') continue;
    const kind = chosen.includes(trial.n) ? 'tx-line tx-chosen' : !shown.has(trial.n) ? 'tx-line tx-out' : front.has(trial.n) ? 'tx-line tx-on' : 'tx-line';
    groups.get(kind)!.push(axes.map((axis, k) => `${k ? 'L' : 'M'}${(60 + k * step).toFixed(0)} ${axis.place(trial).toFixed(1)}`).join(''));
  }
  return svg('svg', { viewBox: `0 0 ${width} ${HEIGHT + 10}`, style: `min-width:${width}px`, role: 'group', 'aria-label': 'Parallel coordinates; a value filters' },
    ...[...groups].filter(([, parts]) => parts.length > 0).map(([kind, parts]) => svg('path', { d: parts.join(''), class: kind })),
    ...axes.flatMap((axis, k) => {
      const x = 60 + k * step;
      return [
        svg('path', { d: `M${x} ${TOP - 6}V${HEIGHT - 8}`, class: 'tx-axis' }),
        svg('text', { x, y: 14, 'text-anchor': 'middle', class: 'tx-name' }, axisWord(axis.name)),
        ...axis.ticks.map(([words, y, value]) => {
          if (value === null) return svg('text', { x: x + 5, y: y + 4 }, words);
          const on = brush.get(axis.name)?.has(value) ?? false;
          return svg('g', {
            role: 'button', tabindex: 0, 'aria-pressed': String(on), class: `tx-value${on ? ' tx-brushed' : ''}`, 'data-tx-value': `${axis.name}=${value}`,
            onclick: () => onBrush(axis.name, value),
            onkeydown: (event: KeyboardEvent) => {
              if (event.key !== 'Enter' && event.key !== ' ') return;
              event.preventDefault();
              onBrush(axis.name, value);
            }
          }, svg('rect', { x: x - 7, y: y - 8, width: 18 + 6 * words.length, height: 16, class: 'tx-hit' }), svg('circle', { cx: x, cy: y, r: 5 }), svg('text', { x: x + 8, y: y + 4 }, words));
        })
      ];
    }));
}
