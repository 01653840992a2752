import { describe, expect, it } from 'vitest';

import { familyPaint, isDark, loadPaint, luminance } from '../src/views/theme.js';

function rgb(css: string): [number, number, number] {
  return css.match(/\d+/g)!.slice(0, 3).map(Number) as [number, number, number];
}

function hex(css: string): [number, number, number] {
  return [1, 3, 5].map(i => parseInt(css.slice(i, i + 2), 16)) as [number, number, number];
}

describe('theme', () => {
  it.each([false, true])('keeps text on load colours readable (dark %s)', dark => {
    for (let load = 0; load <= 1.001; load += 0.05) {
      const { fill, text } = loadPaint(load, dark);
      const [a, b] = [luminance(rgb(fill)), luminance(hex(text))].sort((x, y) => y - x) as [number, number];
      expect((a + 0.05) / (b + 0.05)).toBeGreaterThan(4.5);
    }
  });

  it('gets steadily hotter', () => {
    const steps = Array.from({ length: 11 }, (_, i) => luminance(rgb(loadPaint(i / 10, false).fill)));
    expect(steps).toEqual([...steps].sort((a, b) => b - a));
  });

  it('colours by family, not by name', () => {
    expect(familyPaint('matmul', false)).toEqual(familyPaint('linear', false));
    expect(familyPaint('exp', false)).toEqual(familyPaint('sqrt', false));
    expect(familyPaint('exp', false)).not.toEqual(familyPaint('add', false));
  });

  it('follows JupyterLab before the system', () => {
    document.body.dataset['jpThemeLight'] = 'false';
    expect(isDark()).toBe(true);
    document.body.dataset['jpThemeLight'] = 'true';
    expect(isDark()).toBe(false);
    delete document.body.dataset['jpThemeLight'];
  });
});
