/** Pan, zoom, hover and click on the stage of the graph. */
import type { Store } from '../store.js';
import type { Scene } from './scene.js';

export interface Pointed {
  readonly store: Store;
  readonly scene: Scene | undefined;
  pan(dx: number, dy: number): void;
  zoom(factor: number, cx?: number, cy?: number): void;
  world(event: MouseEvent): [number, number];
  clicked(event: PointerEvent): void;
  toggle(group: number): void;
}

export function pointer(stage: HTMLElement, view: Pointed): void {
  let from: { x: number; y: number; moved: boolean } | null = null;
  stage.addEventListener('pointerdown', event => {
    if (event.button !== 0 || (event.target as Element).closest('.tb-break')) return;
    from = { x: event.clientX, y: event.clientY, moved: false };
    stage.setPointerCapture(event.pointerId);
    stage.focus({ preventScroll: true });
  });
  stage.addEventListener('pointermove', event => {
    if (from) {
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (!from.moved && Math.hypot(dx, dy) < 4) return;
      from = { x: event.clientX, y: event.clientY, moved: true };
      stage.classList.add('tb-panning');
      view.pan(dx, dy);
      return;
    }
    const hit = view.scene?.hit(...view.world(event));
    stage.style.cursor = hit && (hit.kind === 'node' || hit.header) ? 'pointer' : 'grab';
    view.store.setHover(hit?.kind === 'node' ? view.scene!.names[hit.ref]! : '');
  });
  stage.addEventListener('pointerup', event => {
    const moved = from?.moved;
    from = null;
    stage.classList.remove('tb-panning');
    if (moved === false) view.clicked(event);
  });
  stage.addEventListener('pointercancel', () => (from = null));
  stage.addEventListener('pointerleave', () => view.store.setHover(''));
  stage.addEventListener('dblclick', event => {
    const hit = view.scene?.hit(...view.world(event));
    if (hit?.kind === 'group' && hit.header) view.toggle(hit.ref);
  });
  stage.addEventListener('wheel', event => {
    // The wheel scrolls the page until the view is in focus, or a modifier says zoom.
    const focused = stage.contains(document.activeElement);
    if (!focused && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const rect = stage.getBoundingClientRect();
    view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - rect.left, event.clientY - rect.top);
  }, { passive: false });
}
