/** Which part of the grid is seen, and how large: Ctrl and the wheel (or a pinch) zoom, the wheel or the middle button pan. */
const MOST = 8;
const STEP = 1.35; // by a key or a button
const EDGE = 0.5; // the middle of what is seen stays on the grid

export class Viewport {
  zoom = 1;
  /** Upper left corner of what is seen, in units of the drawing. */
  private at: [number, number] = [0, 0];
  private size: [number, number] = [1, 1];
  private drawing: SVGSVGElement | null = null;
  private frame = 0;
  private held: { id: number; x: number; y: number } | null = null;

  /** changed: the size is another one, so that words may be, too. */
  constructor(private readonly plane: HTMLElement, private readonly changed: () => void) {
    plane.addEventListener('wheel', event => this.wheel(event), { passive: false });
    plane.addEventListener('pointerdown', event => {
      if (event.button !== 1 || this.zoom === 1) return;
      event.preventDefault();
      plane.setPointerCapture(event.pointerId);
      this.held = { id: event.pointerId, x: event.clientX, y: event.clientY };
    });
    plane.addEventListener('pointermove', event => {
      if (this.held?.id !== event.pointerId) return;
      this.pan(this.held.x - event.clientX, this.held.y - event.clientY);
      this.held = { ...this.held, x: event.clientX, y: event.clientY };
    });
    for (const end of ['pointerup', 'pointercancel'] as const) plane.addEventListener(end, () => (this.held = null));
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }

  /** The grid was drawn anew, as wide and high as its view box says; null: there is nothing to zoom into. */
  redrawn(drawing: SVGSVGElement | null): void {
    this.drawing = drawing;
    if (!drawing) {
      delete this.plane.dataset['tbZoom'];
      return;
    }
    const [, , width, height] = drawing.getAttribute('viewBox')!.split(' ').map(Number) as [number, number, number, number];
    if (width !== this.size[0] || height !== this.size[1]) this.at = [this.at[0] * (width / this.size[0]), this.at[1] * (height / this.size[1])];
    this.size = [width, height];
    this.look();
  }

  /** Larger or smaller by a step; around a point of the page, else the middle. */
  step(direction: 1 | -1): void {
    this.scale(direction > 0 ? STEP : 1 / STEP);
  }

  fit(): void {
    if (this.zoom === 1) return;
    this.zoom = 1;
    this.at = [0, 0];
    this.later();
  }

  /** Brings a rectangle of the drawing into sight. */
  reveal(x: number, y: number, width: number, height: number): void {
    if (this.zoom === 1) return;
    const [w, h] = this.seen;
    const inside = x >= this.at[0] && y >= this.at[1] && x + width <= this.at[0] + w && y + height <= this.at[1] + h;
    if (inside) return;
    this.at = [x + width / 2 - w / 2, y + height / 2 - h / 2];
    this.look();
  }

  private get seen(): [number, number] {
    return [this.size[0] / this.zoom, this.size[1] / this.zoom];
  }

  private wheel(event: WheelEvent): void {
    if (!this.drawing) return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const m = this.drawing.getScreenCTM();
      this.scale(Math.exp(-event.deltaY * 0.01), m ? [(event.clientX - m.e) / m.a, (event.clientY - m.f) / m.d] : undefined);
    } else if (this.zoom > 1 && this.plane.contains(document.activeElement)) {
      event.preventDefault();
      this.pan(event.deltaX, event.deltaY);
    }
  }

  private scale(by: number, point?: [number, number]): void {
    const next = Math.max(1, Math.min(MOST, this.zoom * by));
    if (next === this.zoom) return;
    const [w, h] = this.seen;
    const [px, py] = point ?? [this.at[0] + w / 2, this.at[1] + h / 2];
    const factor = this.zoom / next;
    this.at = [px - (px - this.at[0]) * factor, py - (py - this.at[1]) * factor];
    this.zoom = next;
    if (next === 1) this.at = [0, 0];
    this.later();
  }

  /** Pixels of the page. */
  private pan(dx: number, dy: number): void {
    const m = this.drawing?.getScreenCTM();
    if (!m || this.zoom === 1) return;
    this.at = [this.at[0] + dx / m.a, this.at[1] + dy / m.d];
    this.look();
  }

  private look(): void {
    const [w, h] = this.seen;
    this.at = [
      Math.max(-EDGE * w, Math.min(this.size[0] - (1 - EDGE) * w, this.at[0])), Math.max(-EDGE * h, Math.min(this.size[1] - (1 - EDGE) * h, this.at[1]))
    ];
    if (this.zoom === 1) this.at = [0, 0];
    this.drawing?.setAttribute('viewBox', `${this.at[0]} ${this.at[1]} ${w} ${h}`);
    this.plane.dataset['tbZoom'] = this.zoom.toFixed(2);
  }

  private later(): void {
    this.look();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.changed());
  }
}
