/** What the check of a netlist file found: each finding with its line; a click shows op or queue and line. */
import { grouped, h } from './dom.js';
import type { Store } from './store.js';

const GLYPH: Record<string, string> = { error: '✕', warning: '!', note: 'i' };
const MOST = 300;

export class FindingsView {
  readonly element = h('section', { class: 'tb-view tb-problems tb-findings', 'data-tb-view': 'findings', 'aria-label': 'Findings' });
  private readonly stops: (() => void)[] = [];
  private most = MOST;

  constructor(private readonly store: Store) {
    this.stops.push(store.on('frame', key => {
      if (key === 'findings') this.render();
    }));
    this.render();
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  private render(): void {
    const frame = this.store.frames.get('findings');
    const count = frame ? frame.column('severity').length : 0;
    this.element.dataset['tbFindings'] = String(count);
    if (!frame || !count) {
      this.element.replaceChildren(frame ? h('div', { class: 'tb-valid' }, h('span', { 'aria-hidden': 'true' }, '✓'), 'Valid: no findings.') : '');
      return;
    }
    const [severity, where, target, rule, message, fix] = ['severity', 'where', 'target', 'rule', 'message', 'fix'].map(c => frame.text(c));
    const line = frame.column('line');
    const shown = Math.min(count, this.most);
    this.element.replaceChildren(
      h('ul', {}, ...Array.from({ length: shown }, (_, i) =>
        h('li', { class: `tb-problem tb-${severity![i]!}` },
          h('span', { class: 'tb-glyph', 'aria-label': severity![i], role: 'img' }, GLYPH[severity![i]!] ?? '·'),
          h('div', {},
            h('div', {},
              line[i] ? h('button', {
                type: 'button', class: 'tb-link', 'data-tb-action': 'goto-line', 'data-tb-line': line[i],
                onclick: () => this.go(target![i]!, line[i]!)
              }, `line ${line[i]}`) : '', line[i] ? ' · ' : '', h('b', {}, where![i]), ': ', message![i], h('code', {}, rule![i])),
            fix![i] ? h('div', { class: 'tb-fix' }, fix![i]) : '')))),
      ...(shown < count ? [h('button', {
        type: 'button', class: 'tb-button', 'data-tb-action': 'all-findings', onclick: () => {
          this.most = Infinity;
          this.render();
        }
      }, `Show all ${grouped(count)}`)] : []));
  }

  private go(target: string, line: number): void {
    if (target) this.store.select([target], 'findings');
    this.store.setLine(line);
  }
}
