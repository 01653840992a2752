import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Current } from '../src/lab/current.js';
import { RawComm } from '../src/lab/comm.js';
import { Sessions } from '../src/lab/sessions.js';

type Content = Record<string, unknown>;

/** A connection to a kernel whose messages the test sends. */
class Connection {
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, string>(this);
  readonly disposed = new Signal<this, void>(this);
  readonly sent: { header: { msg_id: string; msg_type: string; subshell_id?: string | null }; content: Content }[] = [];
  isDisposed = false;
  username = '';
  clientId = 'page';
  status = 'idle';
  info = Promise.resolve({});
  /** One answer for each question about comms; the last one again and again. */
  answers: (() => Promise<unknown>)[] = [];
  asked = 0;
  /** The next one that is made; null for a kernel without. */
  subshell: string | null = null;

  constructor(readonly id = 'kernel') {}

  get supportsSubshells(): boolean {
    return this.subshell !== null;
  }
  requestCreateSubshell(): unknown {
    return { done: Promise.resolve({ content: { subshell_id: this.subshell } }) };
  }
  sendShellMessage(message: (typeof this.sent)[number]): void {
    this.sent.push(message);
  }
  requestCommInfo(): Promise<unknown> {
    const answer = this.answers[Math.min(this.asked++, this.answers.length - 1)];
    return answer?.() ?? Promise.reject(new Error('no answer'));
  }
  dispose(): void {
    this.isDisposed = true;
    this.disposed.emit();
  }
  /** A message of a process of the kernel, or of the server, which has no parent. */
  say(process: string, type: string, content: Content, parent: Content = {}): void {
    this.iopubMessage.emit({ header: { msg_id: String(Math.random()), msg_type: type, session: process }, parent_header: parent, content });
  }
  /** The kernel has opened its end of a comm. */
  open(process: string): void {
    const opening = this.sent.find(m => m.header.msg_type === 'comm_open');
    this.say(process, 'status', { execution_state: 'idle' }, { msg_id: opening?.header.msg_id });
  }
}

const comm = (kernel: Connection): RawComm => new RawComm(kernel as never, {});

describe('a comm beside the widgets', () => {
  it('ends when another process of the kernel answers anybody', () => {
    const kernel = new Connection();
    const one = comm(kernel);
    const ended = vi.fn();
    one.onEnd(ended);
    kernel.open('first');
    kernel.say('first', 'status', { execution_state: 'busy' }, { msg_id: 'any' });
    kernel.say('server', 'status', { execution_state: 'busy' });
    expect(one.isOpen).toBe(true);
    kernel.say('second', 'status', { execution_state: 'busy' }, { msg_id: 'any' });
    expect([one.isOpen, ended.mock.calls.length]).toEqual([false, 1]);
  });

  it('waits for the process that opens its end, whoever spoke before', () => {
    const kernel = new Connection();
    const one = comm(kernel);
    kernel.say('former', 'status', { execution_state: 'idle' }, { msg_id: 'any' });
    kernel.open('first');
    expect(one.isOpen).toBe(true);
  });
});

describe('the subshell of a kernel', () => {
  it('has all messages of all comms, and another one after a restart', async () => {
    const kernel = new Connection('one');
    kernel.subshell = 'first';
    const [one, two] = [comm(kernel), comm(kernel)];
    expect(kernel.sent).toEqual([]); // a message in front would wait for the cells
    await settle();
    kernel.open('process');
    two.send({});
    one.close();
    kernel.statusChanged.emit('restarting');
    expect(two.isOpen).toBe(false);
    kernel.subshell = 'second';
    comm(kernel);
    await settle();
    expect(kernel.sent.map(m => [m.header.msg_type, m.header.subshell_id])).toEqual(
      [['comm_open', 'first'], ['comm_open', 'first'], ['comm_close', 'first'], ['comm_open', 'second']]
    );
  });

  it('opens nothing for a comm that was closed meanwhile', async () => {
    const kernel = new Connection('other');
    kernel.subshell = 'first';
    comm(kernel).close();
    await settle();
    expect(kernel.sent).toEqual([]);
  });
});

const settle = (): Promise<void> => new Promise(done => setTimeout(done, 0));

describe('the sessions of kernels', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  const yes = (): Promise<unknown> => Promise.resolve({ content: { status: 'ok', comms: { a: {} } } });

  /** Sessions of a page that shows a document on one kernel; `own` is a connection made without the document. */
  function page(shown: Connection | null, own: Connection): { sessions: Sessions; opened: () => number; shell: { widgets: (area: string) => unknown[] } } {
    const kernels = { connectTo: () => own };
    const running = [{ path: 'a.ipynb', name: 'a', kernel: { id: 'kernel' } }];
    const manager = { runningChanged: new Signal<object, void>({}), running: () => running };
    const document = { sessionContext: { session: { kernel: shown } } };
    const shell = {
      widgets: (area: string): unknown[] => (area === 'main' && shown ? [document] : []), currentChanged: new Signal<object, void>({})
    };
    const sessions = new Sessions({ serviceManager: { sessions: manager, kernels }, restored: Promise.resolve(), shell } as never);
    const opened = (): number => (shown ?? own).sent.filter(m => m.header.msg_type === 'comm_open').length;
    return { sessions, opened, shell };
  }

  it('are asked for again when a question was lost with its connection', async () => {
    const kernel = new Connection();
    kernel.answers = [() => Promise.reject(new Error('Canceled future')), yes];
    const { opened } = page(kernel, kernel);
    await vi.advanceTimersByTimeAsync(1_000);
    expect([kernel.asked, opened()]).toEqual([1, 0]);
    await vi.advanceTimersByTimeAsync(20_000);
    expect([kernel.asked, opened()]).toEqual([2, 1]);
  });

  it('are asked for again when no answer comes', async () => {
    const kernel = new Connection();
    kernel.answers = [() => new Promise(() => undefined), yes];
    const { opened } = page(kernel, kernel);
    await vi.advanceTimersByTimeAsync(55_000);
    expect(kernel.asked).toBe(1);
    await vi.advanceTimersByTimeAsync(40_000);
    expect([kernel.asked, opened()]).toEqual([2, 1]);
  });

  it('go on over a connection of their own when their document is closed', async () => {
    const own = new Connection();
    const shown = new Connection();
    shown.answers = [yes];
    const { sessions, opened, shell } = page(shown, own);
    await vi.advanceTimersByTimeAsync(1_000);
    shown.open('first');
    const list = sessions.of('kernel');
    const view = list?.viewOf('1');
    shell.widgets = () => [];
    shown.dispose();
    await vi.advanceTimersByTimeAsync(4_000);
    expect([sessions.of('kernel') === list, list?.own, view?.isOpen, list?.kernel === (own as never), opened()]).toEqual([true, true, true, true, 2]);
    expect(own.sent.map(m => [m.header.msg_type, m.content['data']])).toEqual([['comm_msg', { type: 'resync' }]]);
    own.say('first', 'comm_msg', { comm_id: own.sent[0]?.content['comm_id'], data: { type: 'sessions', sessions: [{ id: '1' }] } });
    expect(list?.sessions.map(s => s.id)).toEqual(['1']);
  });

  it('end with a restart that a document asks for, whatever connection they have', async () => {
    const own = new Connection();
    const shown = new Connection();
    own.answers = [yes];
    shown.info = new Promise(() => undefined); // not connected yet: the sessions stay where they are
    const document: { sessionContext: { session: { kernel: Connection } | null } } = { sessionContext: { session: null } };
    const { sessions, shell } = page(null, own);
    shell.widgets = area => (area === 'main' ? [document] : []);
    await vi.advanceTimersByTimeAsync(1_000);
    own.open('first');
    expect(sessions.of('kernel')?.own).toBe(true);
    const current = new Current({ shell: { ...shell, currentWidget: { ...document, node: window.document.body } } } as never, sessions);
    const places: (string | undefined)[] = [];
    current.onChange.connect(() => places.push(current.place?.info.id));
    own.say('first', 'comm_msg', { comm_id: own.sent[0]?.content['comm_id'], data: { type: 'sessions', sessions: [{ id: '1' }] } });
    expect(places).toEqual([undefined]); // nothing says which kernel the document has
    document.sessionContext.session = { kernel: shown };
    await vi.advanceTimersByTimeAsync(4_000);
    expect(places).toEqual([undefined, '1']);
    expect(sessions.of('kernel')?.own).toBe(true);
    shown.statusChanged.emit('restarting');
    expect(sessions.of('kernel')).toBeUndefined();
  });
});
