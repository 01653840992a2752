// Bundles the views twice from the same sources: widget.js for notebooks (anywidget) and page.js for static reports.
import { build, transform } from 'esbuild';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';

const LIMIT = 286 * 1024; // every widget instance carries the bundle
const ZIPPED = 92 * 1024;
const out = '../tbuda_lab/widgets/static';
/** Style sheets are template strings, which no minifier looks into: they are minified as what they are. */
const sheets = {
  name: 'sheets',
  setup: ({ onLoad }) => onLoad({ filter: /style\.ts$/ }, async ({ path }) => {
    const source = await readFile(path, 'utf8');
    const parts = source.split('`');
    for (let i = 1; i < parts.length; i += 2) {
      if (/[$\\]/.test(parts[i])) return { contents: source, loader: 'ts' };
      const { code } = await transform(parts[i], { loader: 'css', minify: true, charset: 'utf8' });
      parts[i] = code.trim().replaceAll('\\', '\\\\');
    }
    return { contents: parts.join('`'), loader: 'ts' };
  })
};
await build({
  entryPoints: { widget: 'src/widget.ts', page: 'src/page.ts' },
  outdir: out,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  charset: 'utf8',
  legalComments: 'none',
  loader: { '.css': 'text' },
  plugins: [sheets]
});
for (const name of ['widget.js', 'page.js']) {
  const text = readFileSync(`${out}/${name}`);
  const zipped = gzipSync(text, { level: 9 }).length;
  if (text.length > LIMIT) throw new Error(`${name} is ${text.length} bytes, more than ${LIMIT}`);
  if (zipped > ZIPPED) throw new Error(`${name} is ${zipped} bytes as gzip, more than ${ZIPPED}`);
  console.log(`${name}: ${text.length} bytes, ${zipped} as gzip`);
}
