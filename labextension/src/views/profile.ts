/** Where the time of the model goes, by op or module; what bounds each; the edit that would help; the roofline. */
import { quantity, elide, withThousands, h, percent, short, svg } from './dom.js';
import { changeOf } from './numbers.js';
import { FOLD_FROM, groupsOf, repeatsOf, shortName, stemOf } from './names.js';
import type { SingleEdit } from './editmessages.js';
import type { Frame } from './frame.js';
import { Roof, type Size } from './roof.js';
import { oneStep, type Store, syncedTrait, type SyncedTrait } from './store.js';
import { LazyFrames } from './lazyframes.js';

// The roofline: ops by kernel cycles per byte of DRAM traffic, and by how much of their time the kernel takes.
interface Point {
  op: string;
  bound: string;
  /** Bytes of DRAM traffic per input; 0: none. */
  dram: number;
  kernel: number;
  cycles: number;
  share: number;
}

const [LEFT, RIGHT, TOP, BOTTOM] = [38, 10, 10, 20];

function boundClass(bound: string): string {
  return `tb-b-${bound.split(' ')[0]!}`;
}

/** ridge: bytes per cycle that all channels of DRAM carry together. Ops without traffic stand at the right edge. */
function roofline(points: Point[], ridge: number, [W, H]: Size, select: (op: string) => void): SVGSVGElement {
  const finite = points.filter(p => p.dram > 0).map(p => p.kernel / p.dram);
  const low = Math.min(...finite, 1 / ridge) / 2;
  const high = 4 * Math.max(...finite, 1 / ridge);
  const x = (v: number) => LEFT + ((Math.log(Math.min(high, Math.max(low, v))) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (W - LEFT - RIGHT);
  const y = (v: number) => H - BOTTOM - Math.max(0, Math.min(1, v)) * (H - TOP - BOTTOM);
  const root = svg('svg', {
    viewBox: `0 0 ${W} ${H}`, role: 'img',
    'aria-label': `Roofline of ${points.length} ops: kernel cycles per byte of DRAM traffic, and the share of an op's time that its kernel takes`
  });
  for (const share of [0, 0.5, 1]) {
    root.append(svg('path', { class: 'tb-axis', 'stroke-opacity': share ? 0.3 : 1, d: `M${LEFT} ${y(share)}H${W - RIGHT}` }),
      svg('text', { x: LEFT - 5, y: y(share) + 3, 'text-anchor': 'end' }, percent(share)));
  }
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
    root.append(svg('path', { class: 'tb-axis', d: `M${x(10 ** power)} ${y(0)}v4` }),
      svg('text', { x: x(10 ** power), y: H - BOTTOM + 15, 'text-anchor': 'middle' }, power < 0 ? (10 ** power).toFixed(-power) : short(10 ** power)));
  }
  root.append(
    svg('path', { class: 'tb-limit', d: [...Array(60).keys()].map(i => {
      const v = low * (high / low) ** (i / 59);
      return `${i ? 'L' : 'M'}${x(v).toFixed(1)} ${y(ridge * v).toFixed(1)}`;
    }).join('') },
      svg('title', {}, `Limit of the DRAM bandwidth: ${ridge.toFixed(0)} bytes per cycle`)));
  for (const p of [...points].sort((a, b) => b.share - a.share)) {
    const dot = svg('circle', {
      class: boundClass(p.bound), cx: x(p.dram > 0 ? p.kernel / p.dram : Infinity).toFixed(1), cy: y(p.cycles ? p.kernel / p.cycles : 0).toFixed(1),
      r: (3 + 9 * Math.sqrt(p.share)).toFixed(1), 'data-tb-op': p.op, onclick: () => select(p.op)
    }, svg('title', {}, `${shortName(p.op)}: bound by ${p.bound}, ${percent(p.share)} of the time`));
    root.append(dot);
  }
  return root;
}

const SHOWN = 250; // rows; the filter finds the others

/** The mirror of `widgets/handlers/queries.py`. */
interface Edit {
  label: string;
  kind: string;
  epoch: number;
  gain: number;
  time: [number, number];
  batch: number | null;
  edits: SingleEdit[];
  python: string;
}

/** An op, or those of a module, or of one place in layers that repeat. */
interface Row {
  name: string;
  members: string[];
  module: string;
  epoch: number;
  time: number;
  share: number;
  work: number;
  bound: string;
  edit: Edit | null;
}

const WHAT: Record<string, string> = {
  compute: 'arithmetic of its kernel', DRAM: 'reads from or writes to DRAM', NoC: 'transfers over the NoC', 'host link': 'transfers from or to the host',
  stall: 'a full buffer behind it', fill: 'the pipeline fills and empties', switch: 'loading the next epoch'
};

/** Cycles per input that the edit of a row gains alone. */
const gainOf = ({ edit }: Row) => (edit && edit.batch === null ? edit.gain : 0);

/** Where the time of the model goes, by op or module; what bounds each; the edit that would help. A roofline beside it. */
export class ProfileView {
  readonly element: HTMLElement;
  private readonly facts = h('span', { class: 'tb-found', 'aria-live': 'polite', 'data-tb-metric': 'profile' });
  private readonly list = h('div', { class: 'tb-profile-list', role: 'region', tabindex: 0, 'aria-label': 'Time by op or module' });
  private readonly roof = new Roof('profile-roofline', 'Roofline: one dot per op, larger with its share of the time', '; upwards: the share that its kernel takes',
    'kernel cycles per byte of DRAM traffic; at the right edge: no traffic', () => this.mark());
  private readonly filter = h('input', {
    type: 'search', class: 'tb-search', placeholder: 'Filter ops', 'aria-label': 'Filter ops of the profile', spellcheck: 'false',
    'data-tb-action': 'profile-filter', 'data-lm-suppress-shortcuts': 'true', oninput: () => this.draw()
  });
  private readonly by = h('div', { class: 'tb-segmented', role: 'group', 'aria-label': 'Rows' });
  private readonly layers = h('input', {
    type: 'checkbox', 'data-tb-action': 'profile-fold', onchange: () => {
      this.fold.tell(this.layers.checked);
      this.draw();
    }
  });
  private readonly group: SyncedTrait<string>;
  private readonly fold: SyncedTrait<boolean | null>;
  private readonly lazyFrames: LazyFrames;
  private readonly stops: (() => void)[] = [];
  private frame: Frame | null = null;
  private rows: Row[] = [];

  constructor(private readonly store: Store) {
    this.group = syncedTrait(store, 'by', 'op', () => this.draw());
    this.fold = syncedTrait<boolean | null>(store, 'fold_layers', null, () => this.draw());
    const button = (id: string, label: string, title: string) => h('button', {
      'data-tb-action': `profile-${id}`, title, onclick: () => {
        this.group.tell(id);
        this.draw();
      }
    }, label);
    this.by.append(button('op', 'Ops', 'One row per op, what to do next first'), button('module', 'Modules', 'One row per module, most time first'));
    this.element = h('section', { class: 'tb-view tb-profile', 'data-tb-view': 'profile', 'aria-label': 'Profile' },
      h('header', { class: 'tb-bar' }, this.by, this.filter,
        h('label', { class: 'tb-check', title: 'One row for what is the same in layers that repeat' }, this.layers, 'fold layers'), this.facts),
      h('div', { class: 'tb-profile-body' }, this.list, this.roof.element));
    this.lazyFrames = new LazyFrames(store, this.element, {
      keys: ['profile'], ready: () => store.frames.has('ops') && !store.edits?.busy && !store.status.running,
      question: () => ({ type: 'profile', edits: true }), paint: () => this.load()
    });
    this.stops.push(
      () => this.group.dispose(), () => this.fold.dispose(), () => this.lazyFrames.dispose(),
      store.on('frame', key => {
        if (key === 'ops') this.lazyFrames.onOutdated();
        else if (key === 'edits') this.lazyFrames.ask();
        else if (key === 'profile') this.lazyFrames.draw();
      }),
      store.on('status', () => this.lazyFrames.ask()),
      store.on('selection', () => this.mark()));
    this.load();
  }

  dispose(): void {
    this.roof.dispose();
    this.stops.forEach(stop => stop());
  }

  lookedAt(): void {
    this.lazyFrames.ask();
  }

  private load(): void {
    const { store } = this;
    this.frame = store.frames.get('profile') ?? null;
    if (!this.frame) {
      this.element.dataset['tbState'] = 'empty';
      this.roof.element.hidden = true;
      this.list.replaceChildren(h('div', { class: 'tb-empty' }, this.lazyFrames.waiting('Measuring where the time goes …',
        !store.host.live ? 'The profile needs a kernel; none is connected.'
          : `The profile appears here once the model ${store.frames.has('ops') ? 'has run' : 'is placed'}.`)));
      return;
    }
    const search = Number(this.frame.meta['search']);
    this.element.dataset['tbState'] = search < 1 ? 'searching' : 'ready';
    this.draw();
  }

  private read(frame: Frame): Row[] {
    const edits = frame.meta['edits'] as Edit[];
    const at = (column: string) => frame.column(`op_${column}`);
    const [module, bound, edit] = [frame.text('op_module'), frame.text('op_bound'), at('edit')];
    return frame.text('op_name').map((name, i) => ({
      name, members: [name], module: module[i]!, epoch: at('epoch')[i]!, time: at('time')[i]!, share: at('share')[i]!, work: at('work')[i]!,
      bound: bound[i]!, edit: edit[i]! < 0 ? null : edits[edit[i]!]!
    }));
  }

  /** Rows with the same name as one. The edit is that which gains most in the batch. `byTime`: most time first; else what
   *  to do next first: by the gain of the edit, then by time. */
  private joinRows(rows: Row[], nameOf: (row: Row) => string, byTime: boolean): Row[] {
    const sum = (of: Row[], key: 'time' | 'share' | 'work') => of.reduce((a, r) => a + r[key], 0);
    const all = [...groupsOf(rows, nameOf)].map(([name, of]) => (of.length === 1 && of[0]!.name === name ? of[0]! : {
      name, members: of.flatMap(r => r.members), module: byTime ? name : of[0]!.module, epoch: of[0]!.epoch,
      time: sum(of, 'time'), share: sum(of, 'share'), work: sum(of, 'work'), bound: of.reduce((a, b) => (b.time > a.time ? b : a)).bound,
      edit: of.reduce<Edit | null>((best, r) => (r.edit && r.edit.batch === null && r.edit.gain > (best?.gain ?? 0) ? r.edit : best), null)
    }));
    return all.sort((a, b) => (byTime ? 0 : gainOf(b) - gainOf(a)) || b.time - a.time);
  }

  /** Rows that have one place in layers that repeat as one, as the table has them. */
  private foldLayers(rows: Row[], byTime: boolean): Row[] {
    const repeats = repeatsOf(rows, ({ name }) => stemOf(name));
    return this.joinRows(rows, ({ name }) => (repeats.has(stemOf(name)) ? stemOf(name) : name), byTime);
  }

  private draw(): void {
    const { frame } = this;
    if (!frame) return;
    const meta = frame.meta as { total: number; batch: number; switch: number; ridge: number; search: number };
    const by = this.group.value();
    for (const button of this.by.querySelectorAll('button')) button.setAttribute('aria-pressed', String(button.dataset['tbAction'] === `profile-${by}`));
    const ops = this.read(frame);
    const wanted = this.filter.value.trim().toLowerCase();
    this.layers.checked = this.fold.value() ?? ops.length > FOLD_FROM;
    const every = by === 'module' ? this.joinRows(ops, row => row.module, true) : ops;
    this.rows = (this.layers.checked ? this.foldLayers(every, by === 'module') : every).filter(r => !wanted || `${r.name} ${r.module} ${r.bound}`.toLowerCase().includes(wanted));
    const advised = ops.some(row => row.edit);
    this.list.classList.toggle('tb-advised', advised);
    const looking = meta.search < 1 ? `, searching for edits that help (${percent(meta.search)})`
      : advised ? '' : ', no single edit found that helps';
    this.facts.textContent = `${withThousands(meta.total)} cycles per input in a batch of ${quantity(meta.batch, 'input')}${looking}`;
    const shown = this.rows.slice(0, SHOWN);
    const head: [string, string][] = [[by === 'module' ? 'Module' : 'Op', ''], ['Time', ''], ['Cycles', 'tb-wide'], [by === 'module' ? 'Ops' : 'Epoch', 'tb-wide'],
      ['Bound by', 'tb-bound'], ['Next step', 'tb-advice']];
    const body = shown.map(row => this.line(row, by));
    if (!wanted && meta.switch > 0) {
      body.push(h('tr', { class: 'tb-profile-switch' }, h('td', {}, 'Epoch switches'), this.share(meta.switch / meta.total, 'switch'),
        h('td', { class: 'tb-right tb-wide' }, short(meta.switch)), h('td', { class: 'tb-wide' }), h('td', { class: 'tb-bound', title: WHAT['switch'] }, 'epoch switch'),
        h('td', { class: 'tb-advice' })));
    }
    this.list.replaceChildren(h('table', { class: 'tb-list' },
      h('thead', {}, h('tr', {}, ...head.map(([text, kind]) => h('th', { scope: 'col', class: kind }, h('span', { class: 'tb-cell' }, text))))), h('tbody', {}, ...body)),
    this.rows.length > SHOWN ? h('p', { class: 'tb-note' }, `${this.rows.length - SHOWN} more rows: filter to find them.`) : '');
    this.roof.element.hidden = false;
    const at = (column: string) => frame.column(`op_${column}`);
    const points = ops.map((r, i) => ({
      op: r.name, bound: r.bound, dram: at('dram')[i]!, kernel: at('kernel')[i]!, cycles: at('cycles')[i]!, share: r.share
    }));
    this.roof.draw(size => roofline(points, meta.ridge, size, op => this.store.select([op], 'profile')));
    this.mark();
  }

  private share(share: number, bound: string): HTMLElement {
    return h('td', { class: `tb-right ${boundClass(bound)}`, 'data-tb-share': share.toFixed(6) },
      h('span', { class: 'tb-share' }, h('i', { style: `width:${Math.min(100, 100 * share)}%` })), `${(100 * share).toFixed(1)} %`);
  }

  private line(row: Row, by: string): HTMLElement {
    const { members } = row;
    const one = members.length === 1 && members[0] === row.name;
    return h('tr', {
      ...(one ? { 'data-tb-op': row.name } : by === 'module' ? { 'data-tb-module': row.name } : { 'data-tb-fold': row.name }),
      onclick: () => this.store.select(members, 'profile')
    },
    h('td', { title: one ? row.name : `${row.name}\n${quantity(members.length, 'op')}` },
      h('span', { class: 'tb-name' }, !one && by === 'op' ? h('span', { class: 'tb-times' }, `× ${members.length}`) : '',
        h('button', { class: 'tb-link' }, elide(row.name || 'model', 34)))), this.share(row.share, row.bound),
    h('td', { class: 'tb-right tb-wide' }, short(row.time)), h('td', { class: 'tb-right tb-wide' }, by === 'module' ? String(members.length) : one ? String(row.epoch) : ''),
    h('td', { class: 'tb-bound', title: WHAT[row.bound] ?? '' }, row.bound), this.advice(row.edit));
  }

  private advice(edit: Edit | null): HTMLElement {
    if (!edit) return h('td', { class: 'tb-advice' });
    const [before, after] = edit.time;
    const batch = edit.batch ? `, batch of ${edit.batch}` : '';
    return h('td', { class: 'tb-advice', title: `${edit.label}\n${edit.python}` },
      h('button', {
        class: 'tb-link', 'data-tb-action': 'profile-apply', 'data-tb-gain': edit.gain.toFixed(1), title: `Apply: ${edit.label}`, onclick: (event: Event) => {
          event.stopPropagation();
          if (this.store.edits && !this.store.edits.busy) this.store.edit(oneStep(edit.label, edit.edits));
        }
      }, 'Apply'), ' ', h('span', { class: 'tb-gain' }, `${changeOf(before, after)}${batch}`), ` ${edit.label}`);
  }

  private mark(): void {
    const chosen = new Set(this.store.selection.names);
    for (const row of this.element.querySelectorAll('[data-tb-op]')) {
      row.classList.toggle('tb-selected', chosen.has((row as HTMLElement).dataset['tbOp']!));
    }
  }
}
