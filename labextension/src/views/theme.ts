/** Colours that are computed rather than written in the style sheet: op families, load, epochs, in both themes. */
import { PREFERENCES_ATTRIBUTE, preferences } from './preferences.js';

/** Op families by type; identity colours follow the family, never the position. */
const FAMILIES: [string, number, RegExp][] = [
  ['matmul', 215, /^(matmul|linear|conv|depthwise)/],
  ['eltwise', 168, /^(add|subtract|multiply|divide|maximum|minimum|power|heaviside|greater|less|equal|not_equal|logical|where)/],
  ['sfpu', 32, /^(exp|log|sqrt|reciprocal|sigmoid|tanh|gelu|relu|lrelu|leaky|abs|sine|cosine|erf|pow|clip|cast)/],
  ['reduce', 285, /^(reduce|argmax|cumsum|softmax|log_softmax|layernorm|batchnorm|group_norm|max_pool|avg_pool|adaptive)/],
  ['io', 130, /^(input|output|queue|embedding)/],
  ['move', 220, /./]
];

export interface Paint {
  fill: string;
  edge: string;
  text: string;
}

export const FAMILY_NAMES = FAMILIES.map(([name]) => name);

export function familyPaint(type: string, dark: boolean): Paint {
  const [name, hue] = FAMILIES.find(([n, , pattern]) => n === type || pattern.test(type))!;
  const grey = name === 'move';
  return dark
    ? { fill: `hsl(${hue} ${grey ? 8 : 38}% 27%)`, edge: `hsl(${hue} ${grey ? 8 : 52}% 58%)`, text: '#f3f5f8' }
    : { fill: `hsl(${hue} ${grey ? 12 : 66}% 88%)`, edge: `hsl(${hue} ${grey ? 8 : 48}% 46%)`, text: '#17202e' };
}

/** Of an epoch, or a layer: neighbours have hues far apart. A negative one, of no layer, is grey. */
export function epochPaint(epoch: number, dark: boolean): Paint {
  if (epoch < 0) return familyPaint('nop', dark);
  const hue = Math.round((epoch * 137.508 + 210) % 360);
  return dark
    ? { fill: `hsl(${hue} 36% 28%)`, edge: `hsl(${hue} 50% 60%)`, text: '#f3f5f8' }
    : { fill: `hsl(${hue} 62% 87%)`, edge: `hsl(${hue} 45% 45%)`, text: '#17202e' };
}

type Rgb = [number, number, number];
const LOAD_LIGHT: Rgb[] = [[236, 239, 243], [249, 233, 207], [247, 205, 142], [240, 154, 80], [203, 66, 18]];
const LOAD_DARK: Rgb[] = [[44, 52, 64], [78, 70, 60], [126, 92, 54], [190, 112, 48], [255, 128, 56]];

/** Sequential scale for load in 0..1: quiet to hot. */
export function loadPaint(load: number, dark: boolean): Paint {
  const stops = dark ? LOAD_DARK : LOAD_LIGHT;
  const at = Math.max(0, Math.min(1, Number.isFinite(load) ? load : 0)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const mix = (k: number, factor = 1) =>
    Math.round(factor * (stops[low]![k]! + (at - low) * (stops[low + 1]![k]! - stops[low]![k]!)));
  const rgb: Rgb = [mix(0), mix(1), mix(2)];
  const edge: Rgb = dark
    ? [Math.min(255, mix(0) + 48), Math.min(255, mix(1) + 48), Math.min(255, mix(2) + 48)]
    : [mix(0, 0.68), mix(1, 0.68), mix(2, 0.68)];
  return { fill: css(rgb), edge: css(edge), text: textOn(luminance(rgb)) };
}

/** The text colour that reads best on a ground of that luminance; soft black where there is contrast to spare. */
function textOn(ground: number): string {
  const [white, black] = [1.05 / (ground + 0.05), (ground + 0.05) / 0.05];
  return black < white ? '#ffffff' : black > 9 ? '#17202e' : '#000000';
}

function css([r, g, b]: Rgb): string {
  return `rgb(${r} ${g} ${b})`;
}

/** Relative luminance of WCAG 2. */
export function luminance([r, g, b]: Rgb): number {
  const linear = (c: number) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}

/** Whether the views are dark: as the user wants it, else as the place is. JupyterLab says so on the body; elsewhere the system does. */
export function isDark(): boolean {
  const wish = preferences().theme;
  if (wish !== 'host') return wish === 'dark';
  const lab = document.body.dataset['jpThemeLight'];
  if (lab !== undefined) return lab === 'false';
  const page = document.documentElement.dataset['theme'];
  if (page) return page === 'dark';
  return typeof matchMedia === 'function' && matchMedia('(prefers-color-scheme: dark)').matches;
}

const SETTLED = 300; // ms; JupyterLab swaps its style sheets after it has changed the attribute

/** How many views will draw again, on the root of the page: tests wait for none. Several bundles may stand in it. */
function countRedraws(by: number): void {
  const { dataset } = document.documentElement;
  const count = Number(dataset['tbRedraws'] ?? 0) + by;
  if (count) dataset['tbRedraws'] = String(count);
  else delete dataset['tbRedraws'];
}

/** Calls `f` whenever the theme may have changed, and again when the page has settled; returns the way to stop it. */
export function onTheme(f: () => void): () => void {
  let timer = 0;
  const stop = () => {
    if (timer) countRedraws(-1);
    clearTimeout(timer);
    timer = 0;
  };
  const changed = () => {
    f();
    stop();
    countRedraws(1);
    timer = window.setTimeout(() => {
      f();
      stop();
    }, SETTLED);
  };
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', 'data-jp-theme-name', PREFERENCES_ATTRIBUTE] });
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  const media = typeof matchMedia === 'function' ? matchMedia('(prefers-color-scheme: dark)') : null;
  media?.addEventListener('change', changed);
  return () => {
    observer.disconnect();
    media?.removeEventListener('change', changed);
    stop();
  };
}
