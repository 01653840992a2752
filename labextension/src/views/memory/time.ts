/** Memory over time as one picture: L1 of every core and DRAM of every channel, epoch by epoch, the fullest marked. */
import { bytes, h, percent, svg } from '../dom.js';
import type { Ops } from '../ops.js';
import { loadPaint } from '../theme.js';
import type { MemoryData } from './data.js';

/** One row of the picture: a core, or a channel of a chip. */
interface Row {
  label: string;
  /** Bytes in use, by epoch. */
  used: Float64Array;
  /** What there is. */
  size: number;
  core?: [number, number];
}

export interface Band {
  name: 'L1' | 'DRAM';
  rows: Row[];
  /** Row and epoch of the largest share; row -1 where nothing is in use. */
  fullest: [row: number, epoch: number];
}

/** The largest share of a band. */
export function peak({ rows, fullest: [row, epoch] }: Band): number {
  return row < 0 ? 0 : rows[row]!.used[epoch]! / rows[row]!.size;
}

function band(name: Band['name'], rows: Row[]): Band {
  let fullest: Band['fullest'] = [-1, 0];
  let most = 0;
  rows.forEach(({ used, size }, row) => used.forEach((value, epoch) => {
    if (value / size > most) [most, fullest] = [value / size, [row, epoch]];
  }));
  return { name, rows, fullest };
}

/** L1: bytes of buffers on each core of the chip that an epoch has, of what buffers may use. DRAM: bytes of queues that an
 *  epoch needs, of each channel that has any; queues of the whole run count in every epoch. */
export function overTime(ops: Ops, data: MemoryData): [Band, Band] {
  const { epochs } = ops;
  const cores: Row[] = Array.from({ length: ops.rows * ops.cols }, (_, k) => {
    const core: [number, number] = [Math.floor(k / ops.cols), k % ops.cols];
    return { label: `core ${core.join(',')}`, used: new Float64Array(epochs), size: Math.max(1, data.size - data.reserved), core };
  });
  ops.byEpoch.forEach((members, epoch) => members.forEach(op => {
    const at = data.indexOf.get(ops.name[op]!);
    if (at === undefined) return;
    const [row, col, rows, cols] = ['row', 'col', 'rows', 'cols'].map(name => ops.get(name, op)) as [number, number, number, number];
    for (let r = row; r < row + rows; r++) for (let c = col; c < col + cols; c++) cores[r * ops.cols + c]!.used[epoch]! += data.used(at);
  }));
  const channels: Row[] = [];
  const rowOf = new Map<string, Row>();
  for (const chip of data.chips) for (const lane of data.lanes.filter(one => !one.host)) {
    const row: Row = {
      label: `${data.chips.length > 1 ? `chip ${chip} ` : ''}channel ${lane.channel}`, used: new Float64Array(epochs), size: Math.max(1, lane.end - lane.start)
    };
    rowOf.set(`${chip} ${lane.channel}`, row);
    channels.push(row);
  }
  for (const { queue, channel } of data.blocks) {
    const { chip, host, bytes: size, first, last } = data.queues[queue]!;
    const row = host ? undefined : rowOf.get(`${chip} ${channel}`);
    if (row) for (let epoch = Math.max(0, first); epoch <= Math.min(last, epochs - 1); epoch++) row.used[epoch]! += size;
  }
  return [band('L1', cores), band('DRAM', channels)];
}

const WIDTH = 1000;
const SHADES = 20;

/** Cores share 72 parts of the height, channels 28. */
const HEIGHTS = { L1: 72, DRAM: 28 };

/** One path for every shade, so that thousands of cells are some twenty elements. */
function cells({ rows }: Band, most: number, wide: number, high: number, dark: boolean): SVGElement[] {
  const shades = new Map<number, string>();
  rows.forEach(({ used, size }, row) => used.forEach((value, epoch) => {
    if (!value) return;
    const shade = Math.ceil((SHADES * value) / size / most);
    const at = `M${(epoch * wide).toFixed(2)} ${(row * high).toFixed(2)}h${(0.97 * wide).toFixed(2)}v${(0.94 * high).toFixed(2)}h${(-0.97 * wide).toFixed(2)}z`;
    shades.set(shade, (shades.get(shade) ?? '') + at);
  }));
  return [...shades].map(([shade, d]) => svg('path', { d, fill: loadPaint(shade / SHADES, dark).fill }));
}

/** pick: an epoch, and a core of it, were chosen. epoch: the one that the grid shows. */
export function timePicture(ops: Ops, data: MemoryData, epoch: number, dark: boolean, pick: (epoch: number, core: number[]) => void): HTMLElement {
  const wide = WIDTH / Math.max(1, ops.epochs);
  const said: string[] = [];
  const every = Math.max(1, Math.ceil(ops.epochs / (ops.epochs > 100 ? 14 : 24))); // numbers of three digits are wider
  const lines = overTime(ops, data).flatMap(one => {
    const height = HEIGHTS[one.name];
    const high = height / Math.max(1, one.rows.length);
    const most = peak(one);
    const tip = svg('title', {}, '');
    const drawing = svg('svg', { class: 'tb-memory-time', viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: 'none', role: 'img', style: `flex-grow:${height}` },
      tip, svg('rect', { class: 'tb-lattice', width: WIDTH, height }), ...cells(one, most, wide, high, dark),
      svg('rect', { class: 'tb-time-now', x: epoch * wide, width: wide, height, 'data-tb-now': epoch }));
    const [row, at] = one.fullest;
    let words = 'nothing';
    if (row >= 0) {
      const { label, used, size } = one.rows[row]!;
      drawing.append(svg('rect', {
        class: 'tb-core-mark tb-fullest', 'data-tb-fullest': one.name, 'data-tb-epoch': at, 'data-tb-share': most.toFixed(4), x: at * wide, y: row * high, width: wide, height: high
      }));
      words = `fullest ${percent(most)}`;
      said.push(`Fullest ${one.name}: ${label} in epoch ${at}, ${bytes(used[at]!)} of ${bytes(size)} (${percent(most)}).`);
      drawing.setAttribute('aria-label', said.at(-1)!);
    }
    /** The cell that a pointer is on. */
    const under = (event: MouseEvent): [Row, number] | null => {
      const box = drawing.getBoundingClientRect();
      const e = Math.floor(((event.clientX - box.left) / box.width) * ops.epochs);
      const found = one.rows[Math.floor(((event.clientY - box.top) / box.height) * one.rows.length)];
      return found && e >= 0 && e < ops.epochs ? [found, e] : null;
    };
    drawing.addEventListener('mousemove', event => {
      const found = under(event);
      if (found) tip.textContent = `${found[0].label}, epoch ${found[1]}: ${bytes(found[0].used[found[1]]!)} of ${bytes(found[0].size)}, ${percent(found[0].used[found[1]]! / found[0].size)}`;
    });
    drawing.addEventListener('click', event => {
      const found = under(event);
      if (found) pick(found[1], found[0].core ?? []);
    });
    return [h('div', { class: 'tb-time-name' }, h('b', {}, one.name === 'L1' ? 'L1 of cores' : 'DRAM channels'), h('span', {}, words)), drawing];
  });
  const numbers = h('div', { class: 'tb-time-epochs', 'aria-hidden': 'true' },
    ...Array.from({ length: ops.epochs }, (_, e) => h('span', {}, e % every ? '' : String(e))));
  return h('div', { class: 'tb-time-box', tabindex: 0 }, h('div', { class: 'tb-time-lines' }, h('span', { class: 'tb-time-name' }, 'epoch'), numbers, ...lines),
    h('p', { class: 'tb-fix' }, `${said.join(' ')} Colours are shares of the fullest; click a cell to go there.`));
}
