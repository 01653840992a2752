// What tsc leaves behind: the style sheets beside the modules that import them.
import { cpSync } from 'node:fs';

cpSync('src', 'lib', { recursive: true, filter: path => !/\.\w+$/.test(path) || path.endsWith('.raw.css') });
