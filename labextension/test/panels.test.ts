import { describe, expect, it } from 'vitest';
import { OpControls } from '../src/views/opcontrols.js';
import { OverridesPanel } from '../src/views/overrides.js';
import { live, override } from './live.js';

describe('panels of edits', () => {
  it('switches overrides, shows gains and code', () => {
    const { store, host } = live({ overrides: [override({}), override({ target: 'b', state: 'off', enabled: false, source: 'code' })] });
    const panel = new OverridesPanel(store);
    const boxes = [...panel.element.querySelectorAll<HTMLInputElement>('[data-tb-action=switch-override]')];
    expect(boxes.map(b => b.checked)).toEqual([true, false]);
    boxes[1]!.dispatchEvent(new Event('change'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', do: 'enable', op: 'b', kinds: ['op_size'] });
    panel.element.querySelector<HTMLElement>('[data-tb-action=gains]')!.click();
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', -1500, -0.25, 0]] });
    const gain = () => panel.element.querySelector('[data-tb-override=a] [data-tb-gain]')!.textContent;
    expect(gain()).toBe('costs 1.5k (25 %)');
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', 27000, 0.5, -1]] });
    expect(gain()).toBe('saves 27.0k (50 %), 1 epoch less');
    host.say({ type: 'gains', ok: true, gains: [['op_size', 'a', null, null, null]] });
    expect(gain()).toBe('nothing fits without it');
    panel.element.querySelector<HTMLElement>('[data-tb-action=overrides-json]')!.click();
    host.say({ type: 'code', ok: true, python: 'p', json: '{"x": 1}' });
    expect(panel.element.querySelector('[data-tb-code=json]')!.textContent).toBe('{"x": 1}');
    panel.dispose();
  });

  it('offers legal values only', () => {
    const { store, host } = live();
    const knobs = new OpControls(store);
    knobs.offer('a');
    knobs.element.querySelector<HTMLElement>('[data-tb-action=op-controls]')!.click();
    host.say({
      type: 'choices', op: 'a', ok: true, u_kt: [[1, 900], [2, 800], [8, 700]], streams: [['n', 1, 1, 700], ['r', 2, 1, 750]],
      buffers: [[[1, 700], [2, 700]], []], now: { u_kt: 2, stream: ['n', 1, 1], buffers: {} }
    });
    knobs.element.querySelector<HTMLElement>('[data-tb-action=more-u_kt]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'u_kt', u_kt: 8 });
    const stream = knobs.element.querySelector<HTMLSelectElement>('[data-tb-action=set-stream]')!;
    stream.value = 'r 2x1';
    stream.dispatchEvent(new Event('change'));
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'stream', direction: 'r', shape: [2, 1] });
    knobs.element.querySelector<HTMLElement>('[data-tb-action=more-buffer-0]')!.click();
    expect(host.sent.at(-1)).toEqual({ type: 'edit', op: 'a', do: 'buffer', operand: 0, factor: 2 });
    expect(knobs.element.querySelector('[data-tb-action=set-buffer-1]')).toBeNull();
    knobs.dispose();
  });
});
