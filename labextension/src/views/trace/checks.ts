/**
 * How each op's tensor compares with torch: badges, and numbers in the inspector with where in the tensor the
 * differences lie.
 */
import { elide, h } from '../dom.js';
import type { Frame } from '../frame.js';
import type { Store } from '../store.js';
import { isDark, loadPaint, onTheme } from '../theme.js';

interface Check {
  op: string;
  pcc: number;
  maxAbs: number;
  scale: number;
  good: boolean;
  /** First tile (slice, row, column) that differs by more than the limit; null where none does. */
  tile: [number, number, number] | null;
  tiles: [number, number, number];
}

/** How each op's tensor compares with torch. */
export class Checks {
  readonly minPcc: number;
  /** The first op of the schedule that fails; "" where none does. */
  readonly first: string;
  private readonly at: Map<string, number>;

  constructor(readonly frame: Frame) {
    this.minPcc = Number(frame.meta['min_pcc']);
    this.first = typeof frame.meta['first'] === 'string' ? frame.meta['first'] : '';
    this.at = new Map(frame.text('check_op').map((name, i) => [name, i]));
  }

  of(op: string): Check | null {
    const i = this.at.get(op);
    if (i === undefined) return null;
    const read = (column: string) => this.frame.column(`check_${column}`)[i]!;
    const z = read('tile_z');
    const pcc = read('pcc');
    return {
      op, pcc, maxAbs: read('max_abs'), scale: read('scale'), good: pcc >= this.minPcc,
      tile: z < 0 ? null : [z, read('tile_r'), read('tile_c')], tiles: [read('tiles_z'), read('tiles_r'), read('tiles_c')]
    };
  }

  get failures(): string[] {
    return [...this.at.keys()].filter(op => !this.of(op)!.good);
  }
}

/** The tensor compare of one op, for the inspector: numbers, the first tile that differs, a link to the first failure. */
export function compareCard(store: Store, op: string): HTMLElement | null {
  const frame = store.frames.get('checks');
  const checks = frame && new Checks(frame);
  const check = checks?.of(op);
  if (!checks || !check) return null;
  const rows: [string, string][] = [
    ['PCC', `${check.pcc.toFixed(6)}, ${check.good ? 'at least' : 'below'} ${checks.minPcc}`],
    ['largest difference', `${check.maxAbs.toPrecision(3)} of ${check.scale.toPrecision(3)}`],
    ['tiles', check.tiles.join(' × ')],
    ['first differing tile', check.tile ? `slice ${check.tile[0]}, row ${check.tile[1]}, column ${check.tile[2]}` : 'none']
  ];
  const stages = Object.entries((frame.meta['stages'] as Record<string, number> | undefined) ?? {});
  stages.push(['run', Number(frame.meta['worst'] ?? 1)]);
  rows.push(['worst by stage', stages.map(([stage, pcc]) => `${stage} ${pcc.toFixed(4)}`).join(', ')]);
  const link = checks.first && checks.first !== op
    ? h('button', {
        class: 'tb-link', 'data-tb-action': 'first-failure', title: checks.first,
        onclick: () => store.select([checks.first], 'inspector')
      }, 'The first op that fails')
    : '';
  return h('div', { class: `tb-compare ${check.good ? 'tb-good' : 'tb-bad'}`, 'data-tb-compare': op, 'data-tb-verdict': check.good ? 'pass' : 'fail' },
    h('h4', {}, `${check.good ? '✓' : '✕'} Compared with torch${checks.first === op ? ': the first op that fails' : ''}`),
    h('dl', { class: 'tb-facts' }, ...rows.flatMap(([term, text]) => [h('dt', {}, term), h('dd', {}, text)])), link);
}

/** What the search for the wrong op says of one op: its errors, and the verdict with a link to the op it found. */
export function errorCard(store: Store, op: string): HTMLElement | null {
  const frame = store.frames.get('errors');
  const at = frame?.has('error_op') ? frame.text('error_op').indexOf(op) : -1;
  const [text, found, stage] = ['text', 'op', 'stage'].map(k => frame?.meta[k] as string | undefined);
  if (!frame || !text) return null;
  const read = (column: string) => frame.column(`error_${column}`)[at]!.toPrecision(3);
  const wrong = Boolean(stage) && found === op;
  const costs = (frame.meta['costs'] as [string, string, number, string][] | undefined) ?? [];
  const cost = costs.find(([name]) => name === op);
  const rows: [string, string][] = at < 0 ? [] : [
    ['of its own', `${read('isolated')} relative; its format explains ${read('expected')}`],
    ['accumulated', `${read('accumulated')} relative, PCC ${frame.column('error_pcc')[at]!.toFixed(6)}`]
  ];
  if (cost) rows.push(['its format', `${cost[1]} makes ${cost[2].toPrecision(2)} of the outputs' ${Number(frame.meta['error']).toPrecision(2)}${cost[3] ? `; ${cost[3]} would help` : ''}`]);
  const target = stage ? found : (costs[0]?.[0] ?? '');
  return h('div', { class: `tb-compare ${wrong ? 'tb-bad' : 'tb-good'}`, 'data-tb-error': op, 'data-tb-verdict': wrong ? 'fail' : 'pass' },
    h('h4', {}, wrong ? `✕ First wrong at ${stage}` : 'Error'),
    rows.length ? h('dl', { class: 'tb-facts' }, ...rows.flatMap(([term, text]) => [h('dt', {}, term), h('dd', {}, text)])) : '',
    h('p', { class: 'tb-error-text' }, text),
    target && target !== op ? h('button', {
      class: 'tb-link', 'data-tb-action': 'error-op', title: target, onclick: () => store.select([target], 'inspector')
    }, stage ? 'The op that is wrong' : 'The op that costs most') : '');
}

/** Whether a node of a stage agrees with torch, null where that is not known. */
export type Badges = (stage: string, node: string) => boolean | null;

/** Lowered nodes by their run, nodes of other stages by the stage before. */
export function badgesOf(frame: Frame): Badges {
  const checks = new Checks(frame);
  const stages = new Map<string, boolean>();
  const pcc = frame.column('stage_pcc');
  const nodes = frame.text('stage_node');
  frame.text('stage_stage').forEach((stage, i) => stages.set(`${stage}/${nodes[i]!}`, pcc[i]! >= checks.minPcc));
  return (stage, node) => (stage === 'lowered' ? (checks.of(node)?.good ?? null) : (stages.get(`${stage}/${node}`) ?? null));
}

const MOST = 64; // tiles drawn along a side

/** The tensor compare in the inspector: numbers, and where in the tensor the differences lie. */
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
