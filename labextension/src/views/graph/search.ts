/** Which nodes a search finds: a regular expression without regard to case, or plain text where it is none. */
import type { Scene } from './scene.js';

export function matching(scene: Scene | undefined, text: string): Set<number> | null {
  if (!scene || !text) return null;
  const wanted = pattern(text);
  return new Set(scene.names.flatMap((name, i) => (wanted(name) || wanted(scene.types[i]!) ? [i] : [])));
}

function pattern(text: string): (name: string) => boolean {
  try {
    const expression = new RegExp(text, 'i');
    return name => expression.test(name);
  } catch {
    const lower = text.toLowerCase();
    return name => name.toLowerCase().includes(lower);
  }
}
