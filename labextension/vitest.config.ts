import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { defineConfig } from 'vitest/config';

// A busy machine is no failure: tests that take 0.3 s here have a minute, not the five seconds of the default.
const PATIENCE = 60_000;

/** Style sheets are text here, as in the bundles. */
const sheets = {
  name: 'sheets',
  enforce: 'pre' as const,
  resolveId: (source: string, importer?: string) =>
    source.endsWith('.raw.css') && importer ? `\0${resolve(dirname(importer), source)}.js` : null,
  load: (id: string) =>
    id.endsWith('.raw.css.js') ? `export default ${JSON.stringify(readFileSync(id.slice(1, -3), 'utf8'))};` : null
};

export default defineConfig({
  plugins: [sheets],
  test: {
    environment: 'happy-dom',
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/setup.ts'],
    testTimeout: PATIENCE,
    hookTimeout: PATIENCE
  }
});
