// happy-dom has no canvas: drawing is checked in the browser test, everything around it here.
import { vi } from 'vitest';

HTMLCanvasElement.prototype.getContext = vi.fn(() => null) as never;

// Most files share a window (see vitest.config.ts). Each begins with an empty page and modules of its own.
vi.resetModules();
localStorage.clear();
sessionStorage.clear();
document.head.replaceChildren();
document.body.replaceChildren();
for (const element of [document.documentElement, document.body]) {
  for (const { name } of [...element.attributes]) element.removeAttribute(name);
}
