/**
 * One tab stop for each group of buttons: Tab goes from group to group, left and right go within one (as the ARIA pattern
 * of a toolbar has it).
 */
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
