/** When a document is opened: once for the file as it is read, and once more for each save. */
import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { whenRead } from '../src/lab/sessions.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function context() {
  let read = (): void => undefined;
  const owner = {};
  const fileChanged = new Signal<object, void>(owner);
  const ready = new Promise<void>(resolve => {
    read = resolve;
  });
  return { ready, fileChanged, read };
}

test('the first reading opens a document once, a save of several events once more', async () => {
  const file = context();
  const open = vi.fn();
  whenRead(file as never, open);
  file.fileChanged.emit();
  file.read();
  await vi.runAllTimersAsync();
  expect(open).toHaveBeenCalledTimes(1);
  file.fileChanged.emit();
  file.fileChanged.emit();
  await vi.runAllTimersAsync();
  expect(open).toHaveBeenCalledTimes(2);
});

test('a closed document opens nothing', async () => {
  const [early, late] = [context(), context()];
  const open = vi.fn();
  whenRead(early as never, open)();
  early.read();
  await vi.runAllTimersAsync();
  expect(open).not.toHaveBeenCalled();
  const stop = whenRead(late as never, open);
  late.read();
  await vi.runAllTimersAsync();
  late.fileChanged.emit();
  stop();
  await vi.runAllTimersAsync();
  expect(open).toHaveBeenCalledTimes(1);
});
