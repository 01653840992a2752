/** Which groups are open, as Python says it: the mirror of `opened` in `tbuda_lab/widgets/graphlooks.py`. */
import type { Scene } from './scene.js';

/** @param depth levels of groups that are open; null for those of a first view. `collapsed`: paths closed besides. */
export function openedBy(scene: Scene, depth: number | null, collapsed: readonly string[]): Set<number> {
  const first = new Set((scene.frame.meta['open'] as number[] | undefined) ?? []);
  const level = (group: number): number => (group > 0 ? 1 + level(scene.groupParent[group]!) : 0);
  const groups = scene.groupPaths.map((_, g) => g).slice(1);
  const wanted = groups.filter(g => (depth === null ? first.has(g) : level(g) <= depth));
  return new Set([0, ...wanted.filter(g => !collapsed.includes(scene.groupPaths[g]!))]);
}
