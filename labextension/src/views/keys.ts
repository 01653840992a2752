/** Every key of the workbench in one table, and the tab stops: one for each group of buttons. */

// Every key of the workbench in one table: what it does, where, and which chords do it. JupyterLab's settings rebind
// actions by writing `{action: "Ctrl+K"}` as JSON into the `data-tb-keys` attribute of the document's root element; it
// is an attribute because the notebook's bundle and the extension's are separate scripts of one page.
type Scope = 'grid' | 'graph' | 'both';

interface Binding {
  action: string;
  /** Chords, `Ctrl` standing for Ctrl or Cmd. */
  chords: readonly string[];
  does: string;
  scope: Scope;
  group: 'Go' | 'Select' | 'Edit' | 'Ask' | 'View';
  /** Where a kernel and a placement are needed. */
  edits?: boolean;
}

const DIGITS = ['1', '2', '3', '4', '5', '6', '7', '8', '9'];

export const KEYS: readonly Binding[] = [
  { action: 'left', chords: ['ArrowLeft'], does: 'the op to the left (graph: pan)', scope: 'both', group: 'Go' },
  { action: 'right', chords: ['ArrowRight'], does: 'the op to the right', scope: 'both', group: 'Go' },
  { action: 'up', chords: ['ArrowUp'], does: 'the op above', scope: 'both', group: 'Go' },
  { action: 'down', chords: ['ArrowDown'], does: 'the op below', scope: 'both', group: 'Go' },
  { action: 'core-left', chords: ['Ctrl+ArrowLeft'], does: 'one core to the left', scope: 'grid', group: 'Go' },
  { action: 'core-right', chords: ['Ctrl+ArrowRight'], does: 'one core to the right', scope: 'grid', group: 'Go' },
  { action: 'core-up', chords: ['Ctrl+ArrowUp'], does: 'one core up', scope: 'grid', group: 'Go' },
  { action: 'core-down', chords: ['Ctrl+ArrowDown'], does: 'one core down', scope: 'grid', group: 'Go' },
  { action: 'next-epoch', chords: ['N'], does: 'next epoch', scope: 'both', group: 'Go' },
  { action: 'previous-epoch', chords: ['P'], does: 'previous epoch', scope: 'both', group: 'Go' },
  { action: 'go-to-epoch', chords: ['E'], does: 'go to an epoch by number', scope: 'both', group: 'Go' },
  { action: 'search', chords: ['/'], does: 'search', scope: 'both', group: 'Go' },
  { action: 'select', chords: ['Enter'], does: 'select the op in focus', scope: 'grid', group: 'Select' },
  { action: 'toggle', chords: ['Ctrl+Enter'], does: 'add it to the selection, or take it away', scope: 'grid', group: 'Select' },
  { action: 'neighbours', chords: ['D'], does: 'feeders of the op, then its readers, then itself', scope: 'both', group: 'Select' },
  { action: 'clear', chords: ['Escape'], does: 'cancel; then select nothing', scope: 'both', group: 'Select' },
  { action: 'grow', chords: [']'], does: 'next larger legal shape', scope: 'grid', group: 'Edit', edits: true },
  { action: 'shrink', chords: ['['], does: 'next smaller legal shape', scope: 'grid', group: 'Edit', edits: true },
  { action: 'grow-rows', chords: ['Alt+]'], does: 'more rows, as many columns', scope: 'grid', group: 'Edit', edits: true },
  { action: 'shrink-rows', chords: ['Alt+['], does: 'fewer rows, as many columns', scope: 'grid', group: 'Edit', edits: true },
  { action: 'move', chords: ['M'], does: 'move the op, or all selected: arrows choose legal places, T transposes, Enter drops, Esc cancels', scope: 'grid', group: 'Edit', edits: true },
  { action: 'later', chords: ['Alt+ArrowRight'], does: 'into the next epoch', scope: 'grid', group: 'Edit', edits: true },
  { action: 'earlier', chords: ['Alt+ArrowLeft'], does: 'into the previous epoch', scope: 'grid', group: 'Edit', edits: true },
  { action: 'break', chords: ['B'], does: 'new epoch from here', scope: 'both', group: 'Edit', edits: true },
  { action: 'chip-break', chords: ['C'], does: 'next chip from here', scope: 'both', group: 'Edit', edits: true },
  { action: 'pin', chords: ['K'], does: 'pin in place, or unpin', scope: 'both', group: 'Edit', edits: true },
  { action: 'clear-overrides', chords: ['U'], does: 'clear the overrides of the op', scope: 'both', group: 'Edit', edits: true },
  { action: 'undo', chords: ['Ctrl+Z'], does: 'undo', scope: 'both', group: 'Edit', edits: true },
  { action: 'redo', chords: ['Ctrl+Shift+Z', 'Ctrl+Y'], does: 'redo', scope: 'both', group: 'Edit', edits: true },
  { action: 'recompile', chords: ['R'], does: 'compile edits that are not compiled yet', scope: 'both', group: 'Edit', edits: true },
  { action: 'why', chords: ['W'], does: 'why here?', scope: 'both', group: 'Ask', edits: true },
  { action: 'suggest', chords: ['G'], does: 'suggestions on and off', scope: 'grid', group: 'Ask', edits: true },
  { action: 'summary', chords: ['S'], does: 'summary of the epoch', scope: 'both', group: 'Ask' },
  { action: 'export', chords: ['X'], does: 'export', scope: 'both', group: 'Ask', edits: true },
  { action: 'keys', chords: ['H', '?'], does: 'keyboard shortcuts', scope: 'both', group: 'Ask' },
  { action: 'full-names', chords: ['F'], does: 'full names on and off', scope: 'grid', group: 'View' },
  { action: 'zoom-in', chords: ['+', '='], does: 'zoom in', scope: 'both', group: 'View' },
  { action: 'zoom-out', chords: ['-'], does: 'zoom out', scope: 'both', group: 'View' },
  { action: 'next-pass', chords: ['.'], does: 'the graph after the next pass', scope: 'graph', group: 'View' },
  { action: 'previous-pass', chords: [','], does: 'the graph after the previous pass', scope: 'graph', group: 'View' },
  { action: 'direction', chords: ['L'], does: 'from left to right, or from top to bottom', scope: 'graph', group: 'View' },
  { action: 'fit', chords: ['0'], does: 'fit; graph, again: all of it', scope: 'both', group: 'View' },
  { action: 'store-view', chords: ['V'], does: 'then a digit: save this view under it', scope: 'both', group: 'View' },
  { action: 'recall-view', chords: DIGITS, does: 'show the view saved under the digit', scope: 'both', group: 'View' }
];

/** A key event as a chord: "Ctrl+Shift+Z", "Alt+]", "?", "ArrowLeft". Shift is named only with letters and named keys. */
export function chord(event: Pick<KeyboardEvent, 'key' | 'code' | 'ctrlKey' | 'metaKey' | 'altKey' | 'shiftKey'>): string {
  let { key } = event;
  // On some keyboards Alt changes what a key types; the key itself is meant.
  if (event.altKey && key.length === 1) {
    const plain: Record<string, string> = { BracketLeft: '[', BracketRight: ']' };
    key = plain[event.code] ?? (event.code.startsWith('Key') ? event.code.slice(3) : key);
  }
  const letter = key.length === 1 && /[a-z]/i.test(key);
  if (letter) key = key.toUpperCase();
  const shift = event.shiftKey && (letter ? event.ctrlKey || event.metaKey || event.altKey : key.length > 1);
  return `${event.ctrlKey || event.metaKey ? 'Ctrl+' : ''}${event.altKey ? 'Alt+' : ''}${shift ? 'Shift+' : ''}${key}`;
}

let known = '';
let rebound: Record<string, string[]> = {};

/** The chords of an action as the settings have them. */
export function chordsOf(binding: Binding): readonly string[] {
  const text = document.documentElement.dataset['tbKeys'] ?? '';
  if (text !== known) {
    known = text;
    rebound = read(text);
  }
  return rebound[binding.action] ?? binding.chords;
}

function read(text: string): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  try {
    const data = (text ? JSON.parse(text) : {}) as Record<string, unknown>;
    for (const { action } of KEYS) {
      const value = data[action];
      if (typeof value === 'string') found[action] = value ? [value] : [];
      else if (Array.isArray(value) && value.every(v => typeof v === 'string')) found[action] = value;
    }
  } catch {
    // Settings that are no JSON: the table as it is.
  }
  return found;
}

/** The action of a key event in a view, null for keys that it leaves alone. */
export function actionOf(event: KeyboardEvent, scope: 'grid' | 'graph'): string | null {
  const wanted = chord(event);
  const own = KEYS.find(b => (b.scope === scope || b.scope === 'both') && chordsOf(b).includes(wanted));
  return own?.action ?? null;
}

// One tab stop for each group of buttons: Tab goes from group to group, left and right go within one (as the ARIA pattern
// of a toolbar has it).
const GROUPS = '.tb-segmented, .tb-strip, .tb-tools, .tb-editbar, .tb-headrow';
const REST = 120; // ms after a change of the page
const STEPS: Record<string, (at: number, last: number) => number> = {
  ArrowLeft: (at, last) => (at ? at - 1 : last),
  ArrowRight: (at, last) => (at < last ? at + 1 : 0),
  Home: () => 0,
  End: (_, last) => last
};

/** Groups below `root`, now and as they change. Returns what ends it. */
export function groupTabStops(root: HTMLElement): () => void {
  let timer = 0;
  const soon = () => {
    timer ||= window.setTimeout(() => {
      timer = 0;
      for (const group of root.querySelectorAll<HTMLElement>(GROUPS)) arrange(group);
    }, REST);
  };
  const observer = new MutationObserver(soon);
  observer.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ['aria-pressed', 'aria-current', 'disabled', 'hidden'] });
  soon();
  const focused = (event: FocusEvent) => {
    const group = (event.target as Element).closest<HTMLElement>(GROUPS);
    if (group) arrange(group, event.target as HTMLElement);
  };
  const pressed = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    const target = event.target as HTMLElement;
    const group = step && !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey && target.closest<HTMLElement>(GROUPS);
    if (!group || target.tagName !== 'BUTTON') return;
    const buttons = members(group);
    const next = buttons[step(buttons.indexOf(target), buttons.length - 1)];
    if (!next || buttons.length < 2) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  };
  root.addEventListener('focusin', focused);
  root.addEventListener('keydown', pressed, true);
  return () => {
    clearTimeout(timer);
    observer.disconnect();
    root.removeEventListener('focusin', focused);
    root.removeEventListener('keydown', pressed, true);
  };
}

function members(group: HTMLElement): HTMLElement[] {
  return [...group.querySelectorAll<HTMLElement>('button:not([disabled])')].filter(b => !b.closest('[hidden]'));
}

/** Tab reaches `wanted`, else the button that is pressed, else the first. */
function arrange(group: HTMLElement, wanted: HTMLElement | null = null): void {
  const buttons = members(group);
  const focused = wanted ?? buttons.find(b => b === group.ownerDocument.activeElement);
  const one = (focused && buttons.includes(focused) ? focused : null)
    ?? buttons.find(b => b.getAttribute('aria-pressed') === 'true' || b.getAttribute('aria-current') === 'true') ?? buttons[0];
  for (const button of buttons) {
    const index = button === one ? 0 : -1;
    if (button.tabIndex !== index) button.tabIndex = index;
  }
}
