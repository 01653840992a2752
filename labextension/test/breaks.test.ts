import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Breaks } from '../src/views/graph/breaks.js';
import { NodeMenu } from '../src/views/graph/input.js';
import { Scene } from '../src/views/graph/scene.js';
import type { Store } from '../src/views/store.js';
import { frame } from './fixture.js';
import { editsFrame, live, type LiveHost, ops, override } from './live.js';

const key = (name: string, more: KeyboardEventInit = {}) => new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true, ...more });

describe('breaks and menus of the graph', () => {
  const names = ops.name;
  let store: Store;
  let host: LiveHost;

  beforeEach(() => {
    Object.assign(HTMLElement.prototype, { setPointerCapture: vi.fn(), releasePointerCapture: vi.fn(), hasPointerCapture: () => true });
    ({ store, host } = live({ overrides: [override({ target: names[3]!, field: 'epoch_break', requested: 'yes' })] }));
  });

  const bars = () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const breaks = new Breaks(store, () => ({ scene, camera: { x: 0, y: 0, scale: 1 }, shown: true }));
    document.body.append(breaks.element);
    return { breaks, scene, bar: () => breaks.element.querySelector<HTMLElement>('[data-tb-break]')! };
  };

  it('moves a break along the schedule by keys, saying what each stop makes', () => {
    const { breaks, bar } = bars();
    bar().dispatchEvent(key('ArrowDown', { altKey: true }));
    const asked = host.sent.at(-1)!;
    expect(asked).toMatchObject({ type: 'break_stops', op: names[3], kind: 'epoch_break' });
    host.say({ type: 'break_stops', ask: asked['ask'], stops: [[names[4], 3, 5000, 9000, ''], [names[5], 0, 0, 0, 'no room']], done: true });
    expect(bar().getAttribute('aria-valuetext')).toBe(`before ${names[4]!}: 3 epochs, slowest 5.0k, all 9.0k cycles`);
    bar().dispatchEvent(key('ArrowDown', { altKey: true }));
    expect(bar().getAttribute('data-tb-verdict')).toBe('REFUSED');
    bar().dispatchEvent(key('Enter'));
    expect(store.answer.text).toContain('no room');
    bar().dispatchEvent(key('ArrowUp', { altKey: true }));
    bar().dispatchEvent(key('Enter'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'shift-break', op: names[3], to: names[2], kind: 'epoch_break' });
    bar().dispatchEvent(key('Delete'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'break', op: names[3], on: false });
    breaks.dispose();
    breaks.element.remove();
  });

  it('keeps the focus on a break that keys moved; one that is taken away leaves it to the graph', () => {
    const { breaks, bar } = bars();
    const stage = document.createElement('div');
    stage.tabIndex = 0;
    document.body.append(stage);
    stage.append(breaks.element);
    bar().focus();
    store.put(editsFrame({ overrides: [override({ target: names[2]!, field: 'epoch_break', requested: 'yes' })] }));
    expect(bar().dataset['tbBreak']).toBe(names[2]);
    expect(document.activeElement).toBe(bar());
    store.put(editsFrame());
    expect(document.activeElement).toBe(stage);
    stage.blur();
    store.put(editsFrame({ overrides: [override({ target: names[2]!, field: 'epoch_break', requested: 'yes' })] }));
    expect(document.activeElement).toBe(document.body);
    breaks.dispose();
    stage.remove();
  });

  it('moves a break by the pointer, with one question', () => {
    const { breaks, scene, bar } = bars();
    const fire = (type: string, x: number, y: number) =>
      bar().dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1 }));
    fire('pointerdown', 5, 5);
    const [x, y, w] = scene.box(scene.itemOfNode[scene.indexOf.get(names[7]!)!]!);
    for (let k = 0; k < 20; k++) fire('pointermove', 5 + k * 2, 20 + k * 10);
    fire('pointermove', x + w / 2, y - 9);
    expect(bar().getAttribute('data-tb-stop')).toBe(names[7]);
    expect(host.sent).toHaveLength(1);
    fire('pointerup', x + w / 2, y - 9);
    expect(host.sent.at(-1)).toMatchObject({ do: 'shift-break', to: names[7] });
    breaks.dispose();
    breaks.element.remove();
  });

  it('offers edits of edges, on the edge and at its op', () => {
    const area = document.createElement('div');
    area.dataset['tbStage'] = 'lowered';
    const target = ops.name.findIndex((_, i) => ops.into(i).length);
    const from = ops.name[ops.into(target)[0]!]!;
    const to = ops.name[target]!;
    const node = document.createElement('button');
    node.dataset['tbOp'] = to;
    area.append(node);
    document.body.append(area);
    const menu = new NodeMenu(store, area, () => ({ from, to }));
    area.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    area.querySelector<HTMLElement>('[data-tb-action=edge-nop]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'insert-nop', op: from, to: [to] });
    node.dispatchEvent(new MouseEvent('contextmenu', { bubbles: true, cancelable: true }));
    area.querySelector<HTMLElement>('[data-tb-action=edges]')!.click();
    area.querySelector<HTMLElement>('[data-tb-action=edge-queue]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'insert-queue', op: from, to: [to] });
    menu.dispose();
    area.remove();
  });

  it('finds the edge under a point', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const { net, x0, y0 } = [...scene.segments.values()][0]!;
    expect(scene.edgeAt(x0, y0 + 1, 4)?.source).toBe(net);
    expect(scene.edgeAt(-500, -500, 4)).toBeNull();
  });
});
