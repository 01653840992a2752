/** Elements over the nodes in view, under the camera's transform: named targets for tests, readers and the Tab key. */
import { h } from '../dom.js';
import type { Camera } from './draw.js';
import { GROUP, NODE } from './layout.js';
import type { Scene } from './scene.js';

const HOOKS = 400;

export function placeFocusTargets(
  layer: HTMLElement, scene: Scene, { scale, x, y }: Camera, width: number, height: number, selected: ReadonlySet<number>
): void {
  const made: HTMLElement[] = [];
  for (let item = 0; item < scene.structure.count && made.length < HOOKS; item++) {
    const kind = scene.structure.kind[item];
    if (!scene.layout.visible[item] || (kind !== NODE && kind !== GROUP)) continue;
    const [bx, by, bw, bh] = scene.box(item);
    if ((bx + bw) * scale + x < 0 || (by + bh) * scale + y < 0) continue;
    if (bx * scale + x > width || by * scale + y > height) continue;
    const ref = scene.structure.ref[item]!;
    const open = kind === GROUP && scene.opened.has(ref);
    const attributes =
      kind === NODE
        ? { 'data-tb-op': scene.names[ref]!, 'aria-label': scene.names[ref]!, 'aria-pressed': String(selected.has(ref)) }
        : {
            'data-tb-group': scene.groupPaths[ref]!,
            'aria-label': `group ${scene.groupPaths[ref]!}`,
            'aria-expanded': String(open)
          };
    made.push(h('button', {
      type: 'button', class: 'tb-hook', tabindex: -1, ...attributes,
      style: `left:${bx}px;top:${by}px;width:${bw}px;height:${open ? 22 : bh}px`
    }));
  }
  layer.replaceChildren(...made);
}
