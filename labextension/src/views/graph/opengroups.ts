/** Which groups are open, as Python says it: the mirror of `opened` in `tbuda_lab/widgets/views/graph.py`. */
import type { Scene } from './scene.js';

const level = (scene: Scene, group: number): number => (group > 0 ? 1 + level(scene, scene.groupParent[group]!) : 0);

/** @param depth levels of groups that are open; null for those of a first view. `collapsed`: paths closed besides. */
export function openedBy(scene: Scene, depth: number | null, collapsed: readonly string[]): Set<number> {
  const first = new Set((scene.frame.meta['open'] as number[] | undefined) ?? []);
  const groups = scene.groupPaths.map((_, g) => g).slice(1);
  const wanted = groups.filter(g => (depth === null ? first.has(g) : level(scene, g) <= depth));
  return new Set([0, ...wanted.filter(g => !collapsed.includes(scene.groupPaths[g]!))]);
}

/**
 * What `openedBy` has to be told for the groups that are open now: [depth, collapsed], or null where it is told that
 * already. Groups within a closed one do not count: nobody sees them.
 */
export function openedAs(scene: Scene, depth: number | null, collapsed: readonly string[]): [number | null, string[]] | null {
  const groups = scene.groupPaths.map((_, g) => g).slice(1);
  const seen = (open: ReadonlySet<number>): number[] => {
    const inside = (g: number): boolean => g === 0 || (open.has(scene.groupParent[g]!) && inside(scene.groupParent[g]!));
    return groups.filter(inside);
  };
  const { opened } = scene;
  const now = seen(opened);
  const told = openedBy(scene, depth, collapsed);
  if (now.every(g => opened.has(g) === told.has(g))) return null;
  const first = openedBy(scene, null, []);
  const open = now.filter(g => opened.has(g));
  const levels = open.every(g => first.has(g)) ? null : Math.max(...open.map(g => level(scene, g)));
  const base = openedBy(scene, levels, []);
  return [levels, now.filter(g => base.has(g) && !opened.has(g)).map(g => scene.groupPaths[g]!)];
}
