// Bundles the views from the same sources: widget.js for notebooks (anywidget), more.js for the views that a notebook
// fetches when they are first seen. Static reports fetch nothing: page.js, and closer.js where a page shows one of its views.
import { build, transform } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';

const out = '../tbuda_lab/widgets/static';
/** Bytes, and bytes as gzip. Every widget instance carries widget.js. */
// widget.js has the first screen. 300 kB since it has panes, the zoom of the grid, folded layers and epochs, a critical path.
const LIMITS = { 'widget.js': [300_000, 98_800], 'more.js': [250_000, 90_000], 'page.js': [320_000, 104_000], 'closer.js': [180_000, 60_000], 'explore.js': [30_000, 12_000] };
/** Style sheets come as text, minified. */
const sheets = {
  name: 'sheets',
  setup: ({ onLoad }) => onLoad({ filter: /\.raw\.css$/ }, async ({ path }) => {
    const { code } = await transform(await readFile(path, 'utf8'), { loader: 'css', minify: true, charset: 'utf8' });
    return { contents: code.trim(), loader: 'text' };
  })
};
const common = { bundle: true, format: 'esm', target: 'es2022', minify: true, charset: 'utf8', legalComments: 'none', write: false };

/** Files that stand for themselves in a second pass: what the first one wrote. */
const given = files => ({
  name: 'given',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^\.\/[\w-]+\.js$/ }, ({ path }) => ({ path: path.slice(2), namespace: 'given' }));
    onLoad({ filter: /.*/, namespace: 'given' }, ({ path }) => ({ contents: files.get(path), loader: 'js' }));
  }
});

/** Two scripts of two sources that share modules: the first, as `stdin` joins it, has those; the second is a function of them. */
async function pair(first, second, stdin) {
  // First pass: two entries and, in a third file, what both use.
  const parts = await build({ ...common, entryPoints: { first, second }, outdir: 'out', splitting: true, chunkNames: 'shared', plugins: [sheets] });
  const files = new Map(parts.outputFiles.map(({ path, text }) => [path.split('/').at(-1), text]));
  if ([...files.keys()].sort().join() !== 'first.js,second.js,shared.js') throw new Error(`parts are ${[...files.keys()]}`);
  const id = createHash('sha256').update([...files.values()].join('\0')).digest('hex').slice(0, 12);
  // Second pass: the one takes the shared part in and hands it on, the other is given it.
  const whole = await build({ ...common, plugins: [given(files)], stdin: { contents: stdin(id) } });
  const part = await build({ ...common, format: 'cjs', stdin: { contents: files.get('second.js') }, external: ['./shared.js'] });
  return { id, whole: whole.outputFiles[0].text, part: `s=>{const module={exports:{}},require=()=>s;${part.outputFiles[0].text};return module.exports}` };
}

const notebook = await pair('src/widget.ts', 'src/views/lazybundle.ts', id =>
  `import * as s from './shared.js'; import f, { provide } from './first.js'; provide(s, '${id}'); export default f;`);
const page = await pair('src/page.ts', 'src/views/closerviews.ts', () =>
  "import * as s from './shared.js'; import { start } from './first.js'; start(globalThis.tbCloser?.(s));");
const explore = await build({ ...common, entryPoints: ['src/explorepage.ts'], outdir: 'out', plugins: [sheets] });

mkdirSync(out, { recursive: true });
const written = {
  'widget.js': notebook.whole,
  'more.js': `export const build='${notebook.id}';export default ${notebook.part};\n`,
  'page.js': page.whole,
  'closer.js': `globalThis.tbCloser=${page.part};\n`,
  'explore.js': explore.outputFiles[0].text
};
for (const [name, text] of Object.entries(written)) {
  writeFileSync(`${out}/${name}`, text);
  const size = [Buffer.byteLength(text), gzipSync(text, { level: 9 }).length];
  console.log(`${name}: ${size[0]} bytes, ${size[1]} as gzip`);
  for (const k of [0, 1]) if (size[k] > LIMITS[name][k]) throw new Error(`${name} is ${size[k]} bytes${k ? ' as gzip' : ''}, more than ${LIMITS[name][k]}`);
}
