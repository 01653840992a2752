import { readFileSync, readdirSync } from 'node:fs';
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

// A window of happy-dom takes 0.6 s to make. Files share one, except those that put other timers into it.
const files = readdirSync('test').filter(name => name.endsWith('.test.ts')).map(name => `test/${name}`);
const ownWindow = files.filter(name => readFileSync(name, 'utf8').includes('useFakeTimers'));

export default defineConfig({
  plugins: [sheets],
  test: {
    projects: [
      { extends: true, test: { name: 'one window', include: files.filter(f => !ownWindow.includes(f)), pool: 'threads' } },
      { extends: true, test: { name: 'own windows', include: ownWindow, pool: 'forks' } }
    ],
    poolOptions: { threads: { isolate: false } },
    environment: 'happy-dom',
    setupFiles: ['test/setup.ts'],
    testTimeout: PATIENCE,
    hookTimeout: PATIENCE
  }
});
