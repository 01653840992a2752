/**
 * The host of a page that was sent: no kernel, but the cost tables of some ops, so that the reader can drag within them.
 * What an edit does is read from the tables; nothing is compiled, and the page says so. One edit holds at a time, for
 * every table is of the placement that was sent.
 */
import { changeText } from './numbers.js';
import type { Edit, SingleEdit } from './editmessages.js';
import type { Frame } from './frame.js';
import { Legal, type Size } from './grid/legal.js';
import { StaticHost } from './host.js';
import type { Store } from './store.js';

type Spot = [op: string, epoch: number, row: number, col: number, rows: number, cols: number];

interface Hint {
  label: string;
  edits: SingleEdit[];
  spots: Spot[];
  time: [number, number];
}

/** What a sent page knows beyond its frames. */
export interface Tables {
  suggest: Hint[];
  why: Record<string, Record<string, unknown>>;
  count: number;
}

interface Change {
  column: string;
  at: number;
  value: number;
}

interface Made {
  op: string;
  label: string;
  frame: Frame;
}

const BY_TABLE = 'by the table that was sent, not compiled';

export class SharedHost extends StaticHost {
  readonly whatIf = true;
  private store: Store | null = null;
  private base: Frame | null = null;
  private made: Made | null = null;
  private undone: Made | null = null;
  private receive: (message: Record<string, unknown>, buffers: DataView[]) => void = () => undefined;

  /** legal: the tables, by op. */
  constructor(private readonly legal: ReadonlyMap<string, Frame>, private readonly tables: Tables) {
    super();
  }

  /** The store that the answers go to, once it has its frames. */
  attach(store: Store): void {
    this.store = store;
    this.base = store.frames.get('ops') ?? null;
    this.told();
  }

  override onMessage(f: (message: Record<string, unknown>, buffers: DataView[]) => void): () => void {
    this.receive = f;
    return () => undefined;
  }

  override send(message?: Record<string, unknown>): void {
    if (!message || !this.store) return;
    const op = typeof message['op'] === 'string' ? message['op'] : '';
    switch (message['type']) {
      case 'probe_begin': this.probe(op, Number(message['seq'])); break;
      case 'probe_exact': this.exact(Number(message['ask']), message['edit'] as Edit); break;
      case 'suggest': this.later({ type: 'suggest', ok: true, list: this.tables.suggest.slice(0, 10), done: true }); break;
      case 'why': this.later({ type: 'why', op, ...(this.tables.why[op] ?? { ok: false, text: this.missing(op) }) }); break;
      // An answer comes after the question, as a kernel's does: views wait for it.
      case 'undo': queueMicrotask(() => this.step(null, this.made)); break;
      case 'redo': queueMicrotask(() => this.step(this.undone, null)); break;
      case 'edit': queueMicrotask(() => this.edit(message as unknown as Edit)); break;
    }
  }

  private later(message: Record<string, unknown>): void {
    queueMicrotask(() => this.receive(message, []));
  }

  private missing(op: string): string {
    return `This page has the tables of the ${this.tables.count} ops whose edits gain most; ${op} is not among them. Open the model with tbuda to try others.`;
  }

  private probe(op: string, seq: number): void {
    const table = this.legal.get(op);
    if (!table) this.store!.say(false, this.missing(op));
    else this.store!.put(table.patched('legal', [], { seq, ...this.standing(op, new Legal(table)) }));
  }

  /** Where the op stands now: a second drag begins from what the first one made. */
  private standing(op: string, legal: Legal): { grid: Size; start: [number, number] } {
    const frame = this.made?.op === op ? this.made.frame : this.base!;
    const at = frame.text('op_name').indexOf(op);
    const [row, col, rows, cols] = ['op_row', 'op_col', 'op_rows', 'op_cols'].map(column => frame.column(column)[at]!) as [number, number, number, number];
    return { grid: legal.turn([rows, cols]), start: [row, col] };
  }

  private exact(ask: number, edit: Edit): void {
    const hint = this.hintOf(edit);
    if (!hint) return; // the estimate of the table stands
    const own = hint.spots.map(([op, epoch, ...at]) => [op, epoch, ...at]);
    this.later({ type: 'exact', ask, ok: true, time: hint.time, own, epochs: [0, 0], moved: own.length, displaced: [] });
  }

  private hintOf(edit: Edit): Hint | undefined {
    const wanted = keyOf(edit);
    return wanted ? this.tables.suggest.find(hint => hint.edits.length === 1 && keyOf(hint.edits[0]!) === wanted) : undefined;
  }

  private edit(edit: Edit): void {
    const hint = this.hintOf(edit) ?? this.tables.suggest.find(h => edit.do === 'many' && h.label === edit.label);
    const { base } = this;
    if (!base) return;
    if (hint) {
      const change = hint.spots.flatMap(spot => this.spotChanges(base, spot));
      const frame = this.withTime(base, change, hint.time[1] - hint.time[0], hint.spots[0]?.[1] ?? -1);
      this.answered({ op: hint.spots[0]?.[0] ?? '', label: hint.label, frame }, hint.time[1], 'simulated before the page was sent');
      return;
    }
    const steps = edit.do === 'many' ? edit.edits : [edit];
    const op = steps.map(step => ('op' in step ? step.op : ''))[0] ?? '';
    const table = this.legal.get(op);
    if (!table || steps.some(step => !('op' in step) || step.op !== op || !['resize', 'move', 'place'].includes(step.do))) {
      this.store!.say(false, table ? 'This page resizes and moves ops; other edits need the model.' : this.missing(op));
      return;
    }
    this.apply(base, op, new Legal(table), steps);
  }

  /** Resizes and moves by the table of an op. */
  private apply(base: Frame, op: string, legal: Legal, steps: SingleEdit[]): void {
    const at = base.text('op_name').indexOf(op);
    const standing = this.standing(op, legal);
    let [size, start]: [Size, [number, number]] = [legal.turn(standing.grid), standing.start];
    for (const step of steps) {
      if (step.do === 'resize') size = legal.turn(step.size);
      else if ((step.do === 'move' || step.do === 'place') && step.start) start = step.start;
    }
    if (!legal.isLegal(size, true)) {
      this.store!.say(false, legal.reason(size)?.meaning ?? 'not a legal shape');
      return;
    }
    const place = legal.free(size, ...start) ? start : legal.nearestStart(size, ...start);
    if (!place) {
      this.store!.say(false, `${legal.name(size)} has no room in this epoch; the compiler would make another one.`);
      return;
    }
    const epoch = base.column('op_epoch')[at]!;
    const same = legal.name(size) === legal.name(legal.now);
    const before = Number(base.meta['time'] ?? base.meta['total_cycles']);
    const after = same ? before : legal.value('time', size);
    const changes: Change[] = this.spotChanges(base, [op, epoch, place[0], place[1], size[0], size[1]]);
    if (!same) {
      for (const [column, from] of [['op_cycles', 'cycles'], ['op_limiter_cycles', 'limiter_cycles'], ['op_cores', 'cores'], ['op_l1_total', 'l1_bytes']] as const) {
        changes.push({ column, at, value: legal.value(from, size) });
      }
      if (base.has('op_l1_bound')) changes.push({ column: 'op_l1_bound', at, value: 1 });
      changes.push({ column: 'epoch_cycles', at: epoch, value: legal.value('epoch_kernel_cycles', size) },
        { column: 'epoch_limiter_cycles', at: epoch, value: legal.value('epoch_cycles', size) });
      // tables do not say what limits it then
      if (base.has('epoch_limiting')) changes.push({ column: 'epoch_limiting', at: epoch, value: -1 });
      const nothing = base.strings.indexOf('');
      if (nothing >= 0 && base.has('epoch_limits')) changes.push({ column: 'epoch_limits', at: epoch, value: nothing });
    }
    const label = `${op} ${legal.name(size)} at ${place.join(',')}`;
    this.answered({ op, label, frame: this.withTime(base, changes, after - before, epoch) }, after, BY_TABLE);
  }

  private spotChanges(base: Frame, [op, epoch, row, col, rows, cols]: Spot): Change[] {
    const at = base.text('op_name').indexOf(op);
    if (at < 0 || epoch < 0) return [];
    return ([['op_epoch', epoch], ['op_row', row], ['op_col', col], ['op_rows', rows], ['op_cols', cols]] as const)
      .map(([column, value]) => ({ column, at, value }));
  }

  private withTime(base: Frame, changes: Change[], more: number, epoch: number): Frame {
    const simulated = base.has('epoch_time') && epoch >= 0;
    const all = simulated ? [...changes, { column: 'epoch_time', at: epoch, value: base.column('epoch_time')[epoch]! + more }] : changes;
    const meta = { ...(base.meta['time'] !== undefined && { time: Number(base.meta['time']) + more }), total_cycles: Number(base.meta['total_cycles']) };
    return base.patched('ops', all, meta);
  }

  /** Shows an edit in place of the one before, and says from which time on: that on the screen. */
  private answered(made: Made, after: number, how: string): void {
    const old = this.made;
    const shown = (old?.frame ?? this.base!).meta;
    const before = Number(shown['time'] ?? shown['total_cycles']);
    this.swap(made, null);
    const instead = old && old.op !== made.op ? `; ${old.label} is taken back: this page holds one edit at a time` : '';
    const [from, to] = [before, after].map(cycles => Math.round(cycles).toLocaleString('en'));
    this.store!.say(true, `${from} → ${to} cycles per input${changeText(before, after)}, ${how}${instead}`);
  }

  private step(made: Made | null, undone: Made | null): void {
    this.swap(made, undone);
    this.store!.say(true, made ? `done again: ${made.label}` : `undone: ${undone?.label ?? ''}`);
  }

  private swap(made: Made | null, undone: Made | null): void {
    if (!this.base) return;
    this.made = made;
    this.undone = undone;
    this.store!.put(made?.frame ?? this.base);
    this.told();
  }

  /** What can be undone, for the buttons. */
  private told(): void {
    const meta = { stale: false, busy: false, undo: this.made?.label ?? '', redo: this.undone?.label ?? '', overrides: [] };
    const frame = this.store!.frames.get('edits') ?? this.base;
    if (frame) this.store!.put(frame.patched('edits', [], meta));
  }
}

/** What makes two edits the same, of those that tables know. */
function keyOf(edit: Edit | SingleEdit): string {
  return edit.do === 'resize' ? `${edit.op} ${edit.size.join('x')}` : '';
}
