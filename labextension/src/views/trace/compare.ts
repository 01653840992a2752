/** The tensor compare in the inspector: numbers, and where in the tensor the differences lie. */
import { elide, h } from '../dom.js';
import type { Store } from '../store.js';
import { isDark, loadPaint, onTheme } from '../theme.js';
import { compareCard } from './checks.js';

const MOST = 64; // tiles drawn along a side

export class Compare {
  readonly element = h('div', { class: 'tb-compare-box' });
  private readonly stops: (() => void)[] = [];
  private op = '';

  constructor(private readonly store: Store) {
    this.stops.push(store.on('frame', key => {
      if (key === 'checks') this.offer(this.op);
      if (key === 'tensor') this.render();
    }), onTheme(() => this.render()));
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
  }

  /** Shows an op, if it was compared. */
  offer(op: string): void {
    this.op = op;
    if (op && this.store.host.live && this.store.frames.get('checks')?.strings.includes(op)) this.store.host.send({ type: 'need_tensor', op });
    this.render();
  }

  private render(): void {
    const card = this.op ? compareCard(this.store, this.op) : null;
    const tensor = this.store.frames.get('tensor');
    if (card && tensor?.meta['op'] === this.op) card.append(this.map());
    this.element.replaceChildren(...(card ? [card] : []));
  }

  /** One cell per tile of the first slices, as dark as its largest difference. */
  private map(): HTMLElement {
    const tensor = this.store.frames.get('tensor')!;
    const [slices, rows, cols] = tensor.meta['tiles'] as [number, number, number];
    const values = tensor.column('tile');
    const limit = Math.max(1e-9, 0.05 * Number(tensor.meta['scale']));
    const [down, along] = [Math.min(MOST, slices * rows), Math.min(MOST, cols)];
    const size = Math.max(3, Math.min(14, Math.floor(290 / along), Math.floor(150 / down)));
    const canvas = h('canvas', { width: along * size, height: down * size, class: 'tb-tensor', role: 'img',
      'aria-label': `largest difference in each of ${slices} × ${rows} × ${cols} tiles` });
    const ctx = canvas.getContext('2d');
    for (let y = 0; ctx && y < down; y++) {
      for (let x = 0; x < along; x++) {
        ctx.fillStyle = loadPaint(values[y * cols + x]! / (2 * limit), isDark()).fill;
        ctx.fillRect(x * size, y * size, size - 1, size - 1);
      }
    }
    const cut = down < slices * rows || along < cols ? ', the first of them' : '';
    return h('figure', {}, canvas, h('figcaption', {}, elide(`difference per tile${cut}; hottest: 10 % of the largest value`, 90)));
  }
}
