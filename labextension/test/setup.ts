// happy-dom has no canvas: drawing is checked in the browser test, everything around it here.
import { vi } from 'vitest';

HTMLCanvasElement.prototype.getContext = vi.fn(() => null) as never;
