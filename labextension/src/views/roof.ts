/** A picture beside a table, such as a roofline: drawn in pixels, so that its text is as large as the page's. */
import { h } from './dom.js';

/** Width and height in pixels. */
export type Size = readonly [number, number];

const UNSEEN: Size = [420, 230]; // as long as it has no place on the screen

export class Roof {
  private readonly plane = h('div', { class: 'tb-roof-plane' });
  private readonly axis = h('div', { class: 'tb-roof-axis' });
  private readonly caption = h('figcaption');
  /** Seen where there is no room for table and picture: shows one or the other. */
  private readonly other: HTMLElement;
  readonly element = h('figure', { class: 'tb-roof' }, this.caption, this.plane, this.axis);
  private readonly resize = new ResizeObserver(() => this.paint());
  private picture: ((size: Size) => SVGSVGElement) | null = null;
  private drawn = '';

  /** action: the name of the switch, "profile-roofline"; detail: of the caption, where there is room for it; onDrawn:
   * what to do with each new picture. */
  constructor(action: string, caption: string, detail: string, axis: string, private readonly onDrawn: () => void) {
    this.other = h('button', {
      class: 'tb-link', 'data-tb-action': action, 'aria-expanded': 'false', onclick: () => {
        const open = this.element.classList.toggle('tb-chosen');
        this.other.setAttribute('aria-expanded', String(open));
        this.other.textContent = open ? 'Show table' : 'Show roofline';
      }
    }, 'Show roofline');
    this.caption.append(caption, h('span', { class: 'tb-roof-detail' }, detail), this.other);
    this.axis.textContent = axis;
    this.resize.observe(this.plane);
  }

  dispose(): void {
    this.resize.disconnect();
  }

  /** What to draw from now on, at any size. */
  draw(picture: (size: Size) => SVGSVGElement): void {
    this.picture = picture;
    this.drawn = '';
    this.paint();
  }

  private paint(): void {
    const { clientWidth: width, clientHeight: height } = this.plane;
    const size: Size = width > 0 && height > 0 ? [width, height] : UNSEEN;
    if (!this.picture || this.drawn === size.join()) return;
    this.drawn = size.join();
    this.plane.replaceChildren(this.picture(size));
    this.onDrawn();
  }
}
