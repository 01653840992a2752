import { defineConfig } from 'vitest/config';

// A busy machine is no failure: tests that take 0.3 s here have a minute, not the five seconds of the default.
const PATIENCE = 60_000;

export default defineConfig({
  test: {
    environment: 'happy-dom',
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/setup.ts'],
    testTimeout: PATIENCE,
    hookTimeout: PATIENCE
  }
});
