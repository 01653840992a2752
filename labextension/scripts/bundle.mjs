// Bundles the views twice from the same sources: widget.js for notebooks (anywidget) and page.js for static reports.
import { build } from 'esbuild';
import { statSync } from 'node:fs';

const LIMIT = 250 * 1024; // every widget instance carries the bundle
const out = '../tbuda_lab/widgets/static';
await build({
  entryPoints: { widget: 'src/widget.ts', page: 'src/page.ts' },
  outdir: out,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  loader: { '.css': 'text' }
});
for (const name of ['widget.js', 'page.js']) {
  const size = statSync(`${out}/${name}`).size;
  if (size > LIMIT) throw new Error(`${name} is ${size} bytes, more than ${LIMIT}`);
}
