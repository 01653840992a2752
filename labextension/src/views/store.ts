/**
 * State shared by the views of one widget: frames by key, selection, hover, the epoch shown, colouring.
 * Selection and epoch cross to Python through the host; hover stays in the page.
 */
import type { Edit, SingleEdit } from './editmessages.js';
import { type Arrival, Assembler, type Frame, INFLATES } from './frame.js';
import type { Host } from './host.js';
import { preferences } from './preferences.js';

interface Selection {
  kind: 'op' | 'group';
  names: string[];
  source: string;
}

interface StageState {
  name: string;
  state: 'pending' | 'running' | 'done' | 'failed' | 'cancelled';
  seconds: number | null;
  detail: string;
  /** Of a stage that runs: seconds so far, when the status was sent. */
  elapsed?: number;
}

export interface Status {
  running: boolean;
  message: string;
  done: number;
  total: number;
  cancellable: boolean;
  failed: boolean;
  stages: StageState[];
}

/** What came of the last edit asked for here. */
interface Answer {
  ok: boolean;
  text: string;
}

/** Meta of the `edits` frame; there is one where edits can be made. */
export interface Edits {
  stale: boolean;
  /** The first placement is shown, while a better one is searched: an edit keeps it. */
  first?: boolean;
  busy: boolean;
  undo: string;
  redo: string;
  overrides: Overridden[];
  /** The edit that the frames show although it is not made: a drag rests on it. */
  shown?: string;
}

export interface Overridden {
  target: string;
  field: string;
  requested: string;
  obtained: string;
  state: 'obtained' | 'missed' | 'vetoed' | 'unmatched' | 'pending' | 'off';
  because: string;
  python: string;
  matches: number;
  names: string[];
  removable: boolean;
  /** False while it is switched off. */
  enabled?: boolean;
  /** Who asked: drag, gesture, code, file. */
  source?: string;
  /** Its place in the list, and whether that matters. */
  at?: number;
  order?: boolean;
  /** Of a schedule constraint: the ops in their order. */
  ops?: string[];
}

export type ColourBy = 'load' | 'family' | 'epoch' | 'layer';

type Topic = 'frame' | 'selection' | 'hover' | 'epoch' | 'status' | 'colour' | 'line' | 'answer' | 'asked' | 'keep' | 'recall';

/** Edits that are one undo step. */
export function oneStep(label: string, edits: SingleEdit[]): Edit {
  return edits.length === 1 ? edits[0]! : { do: 'many', label, edits };
}

type Hearer = (message: Record<string, unknown>, buffers: DataView[]) => void;

const IDLE: Status = { running: false, message: '', done: 0, total: 0, cancellable: false, failed: false, stages: [] };

export class Store {
  readonly frames = new Map<string, Frame>();
  /** Views kept under digits: what each view needs to come back. */
  readonly viewStates = new Map<string, Record<string, unknown>>();
  selection: Selection = { kind: 'op', names: [], source: '' };
  hover = '';
  epoch = 0;
  /** The chip whose epochs are gone through; null for all. */
  chip: number | null = null;
  colour: ColourBy = preferences().colour;
  status: Status = IDLE;
  answer: Answer = { ok: true, text: '' };
  /** How the kernel names the session; empty before its first word. */
  session = '';
  /** Runs pause behind the first op that differs from torch. */
  breaks = false;
  /** Messages that this session cannot honour, each with why: their buttons are off. */
  off: Readonly<Record<string, string>> = {};

  private readonly revisions = new Map<string, number>();
  private readonly assembler = new Assembler();
  private readonly listeners = new Map<Topic, Set<(detail: string) => void>>();
  private readonly hearers = new Map<string, Set<Hearer>>();
  /** The last message of each type that nobody heard: a view that is on its way hears it when it comes. */
  private readonly unheard = new Map<string, Parameters<Hearer>>();
  private readonly stops: (() => void)[] = [];
  private seq = 0;
  private readonly waiting: [Record<string, unknown>, DataView[], Arrival | null][] = [];
  private readonly syncedEpoch: SyncedTrait<number>;

  constructor(readonly host: Host) {
    this.stops.push(host.onMessage((message, buffers) => this.receive(message, buffers)));
    this.stops.push(host.on('selection', () => this.follow()));
    this.stops.push(host.on('edit', () => this.emit('frame', 'edits'))); // whether there are any to be made
    this.follow();
    this.syncedEpoch = syncedTrait(this, 'epoch', 0, epoch => this.setEpoch(epoch));
    this.epoch = this.syncedEpoch.value();
    this.hello();
  }

  /** Asks for everything. */
  hello(): void {
    this.host.send({ type: 'hello', have: {}, inflates: INFLATES });
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.syncedEpoch.dispose();
    this.listeners.clear();
    this.hearers.clear();
  }

  /** Calls `f` on every change of the topic; returns the way to stop it. */
  on(topic: Topic, f: (detail: string) => void): () => void {
    const set = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, set);
    set.add(f);
    return () => set.delete(f);
  }

  /** Calls `f` on every message of a type that the store itself has no use for; returns the way to stop it. */
  listen(type: string, f: Hearer): () => void {
    const set = this.hearers.get(type) ?? new Set();
    this.hearers.set(type, set);
    set.add(f);
    const missed = this.unheard.get(type);
    this.unheard.delete(type);
    if (missed) f(...missed);
    return () => set.delete(f);
  }

  /** Puts a frame in place, whole (static pages have them at hand). */
  put(frame: Frame): void {
    this.frames.set(frame.key, frame);
    this.emit('frame', frame.key);
  }

  /** Takes a frame away. */
  drop(key: string): void {
    if (this.frames.delete(key)) this.emit('frame', key);
  }

  select(names: string[], source: string, kind: Selection['kind'] = 'op'): void {
    const same = names.length === this.selection.names.length && names.every((n, i) => n === this.selection.names[i]);
    if (same && kind === this.selection.kind) return;
    this.selection = { kind, names, source };
    this.emit('selection', source);
    this.host.set('selection', this.selection);
  }

  /** Click replaces, a modified click toggles. */
  click(name: string, toggle: boolean, source: string): void {
    const names = this.selection.kind === 'op' ? this.selection.names : [];
    if (!toggle) this.select([name], source);
    else this.select(names.includes(name) ? names.filter(n => n !== name) : [...names, name], source);
  }

  setHover(name: string): void {
    if (name === this.hover) return;
    this.hover = name;
    this.emit('hover', name);
  }

  setEpoch(epoch: number): void {
    if (epoch === this.epoch) return;
    this.epoch = epoch;
    this.syncedEpoch.tell(epoch);
    this.emit('epoch', String(epoch));
  }

  /** To the next or previous epoch, as far as there is one. */
  stepEpoch(by: number): void {
    const ops = this.frames.get('ops');
    const count = ops?.column('epoch_ops').length ?? 0;
    const mine = Array.from({ length: count }, (_, e) => e).filter(e => this.chip === null || ops!.column('epoch_chip')[e] === this.chip);
    const at = mine.indexOf(this.epoch);
    const next = mine[Math.max(0, Math.min(mine.length - 1, at + by))];
    if (next !== undefined) this.setEpoch(next);
  }

  /** Asks for a line of the netlist text, counted from 1. */
  setLine(line: number): void {
    this.emit('line', String(line));
  }

  setColour(colour: ColourBy): void {
    this.colour = colour;
    this.emit('colour', colour);
  }

  /** Null where nothing can be edited: a file, a page without a kernel, a session before its first word. */
  get edits(): Edits | null {
    const frame = (this.host.live || this.host.whatIf) && this.host.get('edit') !== false ? this.frames.get('edits') : undefined;
    return frame ? (frame.meta as unknown as Edits) : null;
  }

  /** Why nothing can be edited now; "" where it can. */
  get blocked(): string {
    const { edits } = this;
    if (!edits || edits.busy || (this.status.running && !edits.first)) return 'Wait until the current work ends, or cancel it.';
    return '';
  }

  /** Keeps what the views show under a digit; each adds its part. */
  keep(digit: string): void {
    this.viewStates.set(digit, { epoch: this.epoch, colour: this.colour });
    this.emit('keep', digit);
  }

  /** Back to what was kept; false where nothing was. */
  recall(digit: string): boolean {
    const view = this.viewStates.get(digit);
    if (!view) return false;
    this.setColour(view['colour'] as ColourBy);
    this.setEpoch(Number(view['epoch']));
    this.emit('recall', digit);
    return true;
  }

  /** Asks the kernel for an edit; the answer comes as the topic `answer`, the new placement as frames. */
  edit(edit: Edit): void {
    const { compile, echo } = preferences();
    this.ask({ type: 'edit', ...edit, ...(compile === 'manual' && { compile }), ...(echo && { echo }) });
  }

  /** Sends a message to the kernel; what it is about to do comes as the topic `asked`. */
  ask(message: Record<string, unknown>): void {
    this.host.send(message);
    this.emit('asked', String(message['type']));
  }

  /** Says something about an edit that never left the page. */
  say(ok: boolean, text: string): void {
    this.answer = { ok, text };
    this.emit('answer', text);
  }

  private follow(): void {
    const value = this.host.get('selection') as Partial<Selection> | undefined;
    if (!value?.names || value.names.join('\n') === this.selection.names.join('\n')) return;
    this.selection = { kind: value.kind ?? 'op', names: value.names, source: value.source ?? 'kernel' };
    this.emit('selection', this.selection.source);
  }

  private resync(): void {
    this.host.send({ type: 'resync', have: Object.fromEntries(this.revisions) });
  }

  private receive(message: Record<string, unknown>, buffers: DataView[]): void {
    const seq = message['seq'];
    if (typeof seq === 'number') {
      // The server may drop messages under load: a gap asks for what is newer than what we have.
      if (this.seq && seq > this.seq + 1) this.resync();
      this.seq = seq;
    } else if (message['type'] === 'reconnected') {
      this.resync();
      return;
    }
    if (message['type'] === 'frames') {
      (message['frames'] as Record<string, unknown>[]).forEach((one, i) => this.receive(one, buffers.slice(i, i + 1)));
      return;
    }
    let frame: Arrival | null = null;
    if (message['type'] === 'frame') {
      frame = this.assembler.add(message, buffers);
      if (!frame) return;
      this.revisions.set(String(message['key']), Number(message['rev']));
    }
    if (!this.waiting.length && !(frame instanceof Promise)) {
      this.take(message, buffers, frame);
      return;
    }
    // Inflating takes a moment; what comes meanwhile keeps its turn.
    if (frame instanceof Promise) frame.catch(() => undefined); // looked at in its turn
    this.waiting.push([message, buffers, frame]);
    if (this.waiting.length === 1) void this.drain();
  }

  private async drain(): Promise<void> {
    for (let next = this.waiting[0]; next; next = this.waiting[0]) {
      const [message, buffers, arrival] = next;
      let frame: Frame | null = null;
      let came = true;
      try {
        frame = await arrival;
      } catch (error) {
        came = false;
        console.error(error);
        this.revisions.delete(String(message['key'])); // once more, as it is
        this.host.send({ type: 'hello', have: Object.fromEntries(this.revisions), inflates: false });
      }
      void this.waiting.shift();
      try {
        if (came) this.take(message, buffers, frame);
      } catch (error) {
        console.error(error); // one view's trouble keeps nothing from the others
      }
    }
  }

  private take(message: Record<string, unknown>, buffers: DataView[], frame: Frame | null): void {
    if (frame) {
      this.put(frame);
    } else if (message['type'] === 'status') {
      this.status = message['status'] as Status;
      this.breaks = message['breaks'] === true;
      this.off = (message['off'] as Record<string, string> | undefined) ?? {};
      if (typeof message['session'] === 'string') this.session = message['session'];
      this.emit('status', '');
    } else if (message['type'] === 'edited') {
      this.say(Boolean(message['ok']), String(message['text']));
      this.hearers.get('edited')?.forEach(f => f(message, buffers)); // what they say goes beyond the answer
    } else if (message['type'] === 'show') {
      if (typeof message['epoch'] === 'number') this.setEpoch(message['epoch']);
    } else {
      const type = String(message['type']);
      const hearers = this.hearers.get(type);
      if (hearers?.size) hearers.forEach(f => f(message, buffers));
      else if (type.startsWith('trace_')) this.unheard.set(type, [message, buffers]);
    }
  }

  private emit(topic: Topic, detail: string): void {
    this.listeners.get(topic)?.forEach(f => f(detail));
  }
}

// A state of a view that Python sets and hears of: a trait of the widget. Where there is none it is one of the page alone.
export interface SyncedTrait<T> {
  /** What the trait says; without one, what was told last. */
  value(): T;
  /** Tells Python, once the state rests and if it does not know. */
  tell(value: T): void;
  dispose(): void;
}

interface Ways {
  /** The view that has the trait when it stands alone; in a workbench the name means something else, and nothing is kept. */
  of?: string;
  /** Milliseconds for which a state must not change before it is told. */
  rest?: number;
}

/** plain: what holds where Python says nothing. take: hears of every change that another side made. */
export function syncedTrait<T>(
  { host }: Store, name: string, plain: T, take: (value: T) => void = () => undefined, { of = '', rest = 0 }: Ways = {}
): SyncedTrait<T> {
  const mine = !of || host.get('view') === of;
  let kept = plain;
  let timer = 0;
  let own = false;
  const there = () => mine && host.get(name) !== undefined;
  const value = (): T => (there() ? (host.get(name) as T) : kept);
  const stop = mine ? host.on(name, () => {
    if (own) return;
    clearTimeout(timer);
    take(value());
  }) : () => undefined;
  const send = (next: T) => {
    if (!there()) kept = next;
    else if (JSON.stringify(next) !== JSON.stringify(value())) {
      own = true;
      host.set(name, next);
      own = false;
    }
  };
  return {
    value,
    tell(next) {
      clearTimeout(timer);
      if (!mine) return;
      if (rest) timer = window.setTimeout(() => send(next), rest);
      else send(next);
    },
    dispose() {
      clearTimeout(timer);
      stop();
    }
  };
}
