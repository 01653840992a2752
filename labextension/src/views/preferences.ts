/**
 * What the user likes, for all views of a page. JupyterLab's settings write it on the body, where also views of another
 * bundle (the widgets of notebooks) find it; without JupyterLab the defaults hold.
 */
export interface Preferences {
  /** `host`: as the page around is. */
  theme: 'host' | 'light' | 'dark';
  units: 'cycles' | 'us';
  /** What times count: a batch as it is simulated, or the slowest kernels alone. */
  clock: 'batch' | 'kernel';
  /** Selection in one view scrolls the others to it. */
  follow: boolean;
  /** When an edit is compiled: already where a drag rests, when it is dropped, or when Run is pressed. */
  compile: 'live' | 'drop' | 'manual';
  /** Print the Python line of an edit into the notebook's log. */
  echo: boolean;
  /** What grids are coloured by at first. */
  colour: 'load' | 'family' | 'epoch' | 'layer';
  /** Pictures a second at most, while the timeline plays and while something is dragged on the grid. */
  fps: number;
}

export const DEFAULTS: Preferences = { theme: 'host', units: 'cycles', clock: 'batch', follow: true, compile: 'drop', echo: false, colour: 'load', fps: 60 };

const KEY = 'tbPreferences';
export const PREFERENCES_ATTRIBUTE = 'data-tb-preferences';

let read = { text: '', value: DEFAULTS };

export function preferences(): Preferences {
  const text = document.body.dataset[KEY] ?? '';
  if (text !== read.text) read = { text, value: text ? { ...DEFAULTS, ...(JSON.parse(text) as Partial<Preferences>) } : DEFAULTS };
  return read.value;
}

export function publishPreferences(value: Preferences): void {
  document.body.dataset[KEY] = JSON.stringify(value);
}

/** Calls `f` whenever they change; returns the way to stop it. */
export function onPreferences(f: () => void): () => void {
  const observer = new MutationObserver(f);
  observer.observe(document.body, { attributes: true, attributeFilter: [PREFERENCES_ATTRIBUTE] });
  return () => observer.disconnect();
}
