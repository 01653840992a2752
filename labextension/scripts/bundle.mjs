// Bundles the views from the same sources: widget.js for notebooks (anywidget), more.js for the views that a notebook
// fetches when they are first seen, and page.js for static reports, which fetch nothing.
import { build, transform } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';

const out = '../tbuda_lab/widgets/static';
/** Bytes, and bytes as gzip. Every widget instance carries widget.js; a report has all views in one file. */
// widget.js has the first screen. 300 kB since it has panes, the zoom of the grid, folded layers and epochs, a critical path.
const LIMITS = { 'widget.js': [300_000, 98_000], 'more.js': [250_000, 90_000], 'page.js': [420_000, 138_000] };
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

// First pass: two entries and, in a third file, what both use.
const first = await build({
  ...common, entryPoints: { widget: 'src/widget.ts', more: 'src/views/lazybundle.ts' }, outdir: 'out', splitting: true,
  chunkNames: 'shared', plugins: [sheets]
});
const files = new Map(first.outputFiles.map(({ path, text }) => [path.split('/').at(-1), text]));
if ([...files.keys()].sort().join() !== 'more.js,shared.js,widget.js') throw new Error(`parts are ${[...files.keys()]}`);
const id = createHash('sha256').update([...files.values()].join('\0')).digest('hex').slice(0, 12);

// Second pass: widget.js takes the shared part in and keeps it at hand; more.js becomes a function of it.
const widget = await build({
  ...common, plugins: [given(files)],
  stdin: { contents: `import * as s from './shared.js'; import f, { provide } from './widget.js'; provide(s, '${id}'); export default f;` }
});
const more = await build({ ...common, format: 'cjs', stdin: { contents: files.get('more.js') }, external: ['./shared.js'] });
const page = await build({ ...common, entryPoints: ['src/page.ts'], outdir: 'out', plugins: [sheets] });

mkdirSync(out, { recursive: true });
const written = {
  'widget.js': widget.outputFiles[0].text,
  'more.js': `export const build='${id}';export default s=>{const module={exports:{}},require=()=>s;${more.outputFiles[0].text};return module.exports};\n`,
  'page.js': page.outputFiles[0].text
};
for (const [name, text] of Object.entries(written)) {
  writeFileSync(`${out}/${name}`, text);
  const size = [Buffer.byteLength(text), gzipSync(text, { level: 9 }).length];
  console.log(`${name}: ${size[0]} bytes, ${size[1]} as gzip`);
  for (const k of [0, 1]) if (size[k] > LIMITS[name][k]) throw new Error(`${name} is ${size[k]} bytes${k ? ' as gzip' : ''}, more than ${LIMITS[name][k]}`);
}
