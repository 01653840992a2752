/** Small helpers to make elements. Text is always set as text, never as markup. */

type Attributes = Record<string, string | number | boolean | ((event: never) => void) | undefined>;
type Child = Node | string | null | undefined | false;

function fill(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as unknown as EventListener);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child || child === '') element.append(child);
}

/** An element with its attributes, listeners (`onclick`) and children. A button submits nothing. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (tag === 'button') element.setAttribute('type', 'button');
  fill(element, attributes, children);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

/** Puts children into an element; those that are there already, in that place, stay untouched. */
export function arrange(parent: Element, children: Element[]): void {
  children.forEach((child, i) => {
    const there = parent.children[i];
    if (there === child) return;
    if (there) there.replaceWith(child);
    else parent.append(child);
  });
  while (parent.children.length > children.length) parent.lastElementChild!.remove();
}

/** 12345678 -> "12.3M"; cycles, bytes and counts alike. */
export function short(value: number): string {
  const units: [number, string][] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size) {
      const scaled = value / size;
      return `${scaled >= 100 ? scaled.toFixed(0) : scaled.toFixed(1)}${unit}`;
    }
  }
  if (Math.abs(value) < 0.05) return String(Number(value.toPrecision(2))); // 0.01, where one digit would say 0.0
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

/** Has what an opener shows closed by Escape, which gives the focus back to it, and when the focus goes on elsewhere. */
export function closesAlone(box: HTMLElement, opener: HTMLElement, isOpen: () => boolean, close: () => void): void {
  box.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || !isOpen()) return;
    event.stopPropagation();
    close();
    opener.focus();
  });
  box.addEventListener('focusout', event => {
    const to = event.relatedTarget as Node | null;
    if (to && to !== opener && !box.contains(to)) close();
  });
}

/** A button and the list that it opens: [both, what opens or closes it]. onChange: called before the list is seen or goes. */
export function listBehind(opener: HTMLElement, list: HTMLElement, onChange: (open: boolean) => void): [HTMLElement, (open: boolean) => void] {
  const show = (open: boolean) => {
    onChange(open);
    list.hidden = !open;
    opener.setAttribute('aria-expanded', String(open));
  };
  opener.setAttribute('aria-expanded', String(!list.hidden));
  opener.addEventListener('click', () => show(list.hidden));
  const box = h('span', { class: 'tb-run-menu' }, opener, list);
  closesAlone(box, opener, () => !list.hidden, () => show(false));
  return [box, show];
}

/** Bytes as people read them: "934 KiB". */
export function bytes(value: number): string {
  for (const [size, unit] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : value / size >= 10 ? 1 : 2)} ${unit}`;
  }
  return `${value} B`;
}

/** "1 op", "2 ops" */
export function quantity(count: number, word: string): string {
  return `${withThousands(count)} ${word}${count === 1 ? '' : 's'}`;
}

const DIGITS = new Intl.NumberFormat('en-US'); // a locale looked up for every number takes longer than the number

/** 123456.7 -> "123,457" */
export function withThousands(value: number): string {
  return DIGITS.format(Math.round(value));
}

export function percent(value: number): string {
  return `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

/** ", 1 epoch more", ", 2 epochs less"; nothing where there are as many. */
export function epochsMore(epochs: number): string {
  const count = Math.abs(epochs);
  return count ? `, ${count} epoch${count > 1 ? 's' : ''} ${epochs > 0 ? 'more' : 'less'}` : '';
}

export function seconds(value: number): string {
  return value < 0.0995 ? `${(value * 1000).toFixed(0)} ms` : `${value.toFixed(1)} s`;
}

/** Cuts a text in the middle, so that both the module and the end of a name stay readable. */
export function elide(text: string, characters: number): string {
  if (text.length <= characters) return text;
  if (characters < 2) return '';
  const tail = Math.ceil((characters - 1) * 0.6);
  return `${text.slice(0, characters - 1 - tail)}…${text.slice(text.length - tail)}`;
}

const copy = Math.random().toString(36).slice(2, 8);
let serial = 0;

/** An id of its own in the whole page, where the code may be twice: in a notebook's widget and in the extension. */
export function freshId(kind: string): string {
  return `tb-${kind}-${copy}-${++serial}`;
}

/** A list of terms and what they are. */
export function factList(rows: [string, string][]): HTMLElement {
  return h('dl', { class: 'tb-facts' }, ...rows.flatMap(([what, value]) => [h('dt', {}, what), h('dd', {}, value)]));
}

/** What is drawn anew at every report keeps its elements while one of them is pressed: a press is not lost to a report. */
export class PressGuard {
  private down = false;
  private late = false;

  constructor(node: HTMLElement, private readonly draw: () => void) {
    node.addEventListener('pointerdown', () => {
      this.down = true;
      const up = () => {
        ['pointerup', 'pointercancel'].forEach(end => window.removeEventListener(end, up, true));
        setTimeout(() => this.onRelease(), 0); // behind the click
      };
      ['pointerup', 'pointercancel'].forEach(end => window.addEventListener(end, up, true));
    }, true);
  }

  /** Draws now, or once nothing is pressed. */
  ask(): void {
    if (this.down) this.late = true;
    else this.draw();
  }

  private onRelease(): void {
    this.down = false;
    if (!this.late) return;
    this.late = false;
    this.draw();
  }
}
