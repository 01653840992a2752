import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { definition, entry, numbers } from '../src/views/inspector.js';
import { FORMULAS } from '../src/views/numbers.js';
import { shallow } from '../src/views/netlisttext.js';
import { COLUMNS } from '../src/views/table/rows.js';
import { ops } from './live.js';

const HOUSE = join(process.cwd(), '..');

describe('FORMULAS', () => {
  it('stand in docs/numbers.md word for word', () => {
    const written = readFileSync(join(HOUSE, 'docs/numbers.md'), 'utf8');
    for (const text of Object.values(FORMULAS)) expect(written).toContain(`| ${text} |`);
  });

  it('name sources that exist', () => {
    for (const text of Object.values(FORMULAS)) {
      const source = /Source: (docs|core)(\/[\w/.-]+?)\.$/.exec(text);
      if (text.includes('Source:')) expect(source, text).not.toBeNull();
      if (source) expect(existsSync(join(HOUSE, source[1] === 'core' ? 'tbuda_lab/core' : 'docs', source[2]!)), text).toBe(true);
    }
  });

  it('explain every number of the inspector and of the table', () => {
    const shown = definition(numbers(ops, 0), 'x');
    const bare = [...shown.querySelectorAll('dt')].filter(dt => !dt.title).map(dt => dt.textContent);
    expect(bare).toEqual(['epoch']);
    expect(COLUMNS.filter(c => !c.text && c.title.length < 20).map(c => c.id)).toEqual(['chip']);
    expect(entry(null, 'nothing')).toBeNull();
  });
});

describe('shallow', () => {
  it('keeps continued lines right of the line they go on with', () => {
    expect(shallow('    op: {type: matmul,')).toBe('    op: {type: matmul,');
    expect(shallow(`${' '.repeat(30)}t: 1,      mblock: [1, 1]`)).toBe(`${' '.repeat(8)}t: 1,   mblock: [1, 1]`);
  });
});
