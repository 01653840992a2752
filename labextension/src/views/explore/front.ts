/**
 * Two numbers of all trials against each other, the front drawn, what was refused on the axis. Points that are alike are
 * one path, so that thousands are drawn at once; the nearest one answers the pointer. Those of the front and what was
 * refused are reached by the keyboard, all of them in the table.
 */
import { svg } from '../dom.js';
import { brief, type Picture, scaleOf, type Trial } from './data.js';

const HEIGHT = 340, LEFT = 84, BOTTOM = 44, TOP = 14, RIGHT = 18;
const NEAR = 14; // px of the picture
const REACHED = 60; // refused points that are stops of the Tab key

export interface FrontState {
  /** Pixels that there are. */
  width: number;
  x: string;
  y: string;
  chosen: readonly number[];
  shown: ReadonlySet<number>;
  front: Trial[];
}

export interface FrontActions {
  choose: (trial: Trial, more: boolean) => void;
  open: (trial: Trial) => void;
  hover: (trial: Trial | null, event: MouseEvent) => void;
}

const circle = (x: number, y: number, r: number) => `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
const cross = (x: number, y: number) => `M${(x - 4).toFixed(1)} ${y - 4}l8 8m0 -8l-8 8`;

function labelOf(picture: Picture, name: string): string {
  const unit = picture.units[name];
  return `${name}${unit ? ` (${unit})` : ''}, ${picture.directions[name] === 'max' ? 'more' : 'less'} is better`;
}

/** Trials and where they are. */
type Spot = [Trial, number, number];

export function drawFront(picture: Picture, state: FrontState, actions: FrontActions): SVGSVGElement {
  const { x, y, width } = state;
  const done = picture.trials.filter(t => t.state === 'done' && x in t.numbers && y in t.numbers);
  const across = scaleOf(done.map(t => t.numbers[x]!), LEFT, width - RIGHT);
  const up = scaleOf(done.map(t => t.numbers[y]!), HEIGHT - BOTTOM, TOP);
  const onFront = new Set(state.front.map(t => t.n)), chosen = new Set(state.chosen);
  const spots: Spot[] = done.map(t => [t, across.place(t.numbers[x]!), up.place(t.numbers[y]!)]);
  const refused = picture.trials.filter(t => t.state !== 'done' && state.shown.has(t.n));
  const apart = Math.min(12, (width - RIGHT - LEFT - 20) / Math.max(1, refused.length));
  const crosses: Spot[] = refused.map((t, k) => [t, LEFT + 10 + k * apart, HEIGHT - BOTTOM]);

  const paths = new Map<string, string[]>();
  const single: Element[] = [];
  const add = (kind: string, path: string) => {
    const found = paths.get(kind);
    if (found) found.push(path);
    else paths.set(kind, [path]);
  };
  for (const [t, px, py] of spots) {
    const kind = ['tx-dot', t.stale && 'tx-stale', !t.holds && 'tx-misses', !state.shown.has(t.n) && 'tx-out', onFront.has(t.n) && 'tx-on', chosen.has(t.n) && 'tx-chosen'].filter(Boolean).join(' ');
    if (!onFront.has(t.n) && !chosen.has(t.n)) add(kind, circle(px, py, 3.5));
    else single.push(stop(t, kind, circle(px, py, onFront.has(t.n) ? 5.5 : 3.5), `${x} ${brief(t.numbers[x])}, ${y} ${brief(t.numbers[y])}`, actions));
  }
  crosses.forEach(([t, px, py], k) => {
    const kind = `tx-cross${chosen.has(t.n) ? ' tx-chosen' : ''}`;
    if (k >= REACHED && !chosen.has(t.n)) add(kind, cross(px, py));
    else single.push(stop(t, kind, cross(px, py), `${t.state}: ${t.reason?.text ?? ''}`, actions));
  });
  const steps = state.front.map((t, k) => {
    const [px, py] = [across.place(t.numbers[x]!).toFixed(1), up.place(t.numbers[y]!).toFixed(1)];
    return k ? `H${px}V${py}` : `M${px} ${py}`;
  }).join('');

  const picked = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, role: 'group', 'aria-label': `${y} against ${x}` },
    ...across.ticks.map(v => svg('g', { class: 'tx-tick' }, svg('path', { d: `M${across.place(v)} ${TOP}V${HEIGHT - BOTTOM}` }), svg('text', { x: across.place(v), y: HEIGHT - BOTTOM + 18, 'text-anchor': 'middle' }, brief(v)))),
    ...up.ticks.map(v => svg('g', { class: 'tx-tick' }, svg('path', { d: `M${LEFT} ${up.place(v)}H${width - RIGHT}` }), svg('text', { x: LEFT - 8, y: up.place(v) + 4, 'text-anchor': 'end' }, brief(v)))),
    svg('path', { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${width - RIGHT}`, class: 'tx-axis' }),
    svg('text', { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, labelOf(picture, x)),
    svg('text', { x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})` }, labelOf(picture, y)),
    ...[...paths].map(([kind, parts]) => svg('path', { class: kind, d: parts.join('') })),
    svg('path', { d: steps, class: 'tx-frontline' }), ...single);
  follow(picked, [...spots, ...crosses], width, actions);
  return picked;
}

/** A point that the keyboard reaches. */
function stop(trial: Trial, kind: string, d: string, words: string, actions: FrontActions): SVGPathElement {
  return svg('path', {
    class: kind, d, tabindex: 0, role: 'button', 'data-tx-trial': trial.n, 'aria-label': `Trial ${trial.n}: ${words}`,
    onkeydown: (event: KeyboardEvent) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      if (event.key === 'Enter' && kind.includes('tx-chosen') && trial.state === 'done') actions.open(trial);
      else actions.choose(trial, event.ctrlKey || event.metaKey || event.shiftKey);
    }
  });
}

/** The pointer means the nearest point. */
function follow(element: SVGSVGElement, spots: Spot[], width: number, actions: FrontActions): void {
  const nearest = (event: MouseEvent): Trial | null => {
    const box = element.getBoundingClientRect();
    const scale = box.width ? width / box.width : 1;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let found: Trial | null = null, least = NEAR * NEAR;
    for (const [trial, x, y] of spots) {
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < least) [found, least] = [trial, distance];
    }
    return found;
  };
  element.addEventListener('mousemove', event => {
    const trial = nearest(event);
    element.style.cursor = trial ? 'pointer' : '';
    actions.hover(trial, event);
  });
  element.addEventListener('mouseleave', event => actions.hover(null, event));
  element.addEventListener('click', event => {
    const trial = nearest(event);
    if (trial) actions.choose(trial, event.ctrlKey || event.metaKey || event.shiftKey);
  });
  element.addEventListener('dblclick', event => {
    const trial = nearest(event);
    if (trial?.state === 'done') actions.open(trial);
  });
}
