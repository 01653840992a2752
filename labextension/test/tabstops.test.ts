/** One tab stop for a group of buttons, and arrows within it. */
import { describe, expect, it, vi } from 'vitest';
import { h } from '../src/views/dom.js';
import { groupTabStops } from '../src/views/keys.js';

function stops(root: HTMLElement): string[] {
  return [...root.querySelectorAll<HTMLButtonElement>('button')].filter(b => b.tabIndex >= 0 && !b.disabled).map(b => b.textContent);
}

describe('a group of buttons', () => {
  it('is one tab stop, that of the pressed button, and arrows go round in it', async () => {
    const button = (text: string, more: Record<string, unknown> = {}) => h('button', { type: 'button', ...more }, text);
    const group = h('div', { class: 'tb-segmented' }, button('a'), button('b', { 'aria-pressed': 'true' }), button('x', { disabled: true }), button('c'));
    const keys: string[] = [];
    const root = h('div', { onkeydown: (event: KeyboardEvent) => keys.push(event.key) }, button('alone'), group);
    document.body.append(root);
    const end = groupTabStops(root);
    await vi.waitFor(() => expect(stops(root)).toEqual(['alone', 'b']));
    const press = (key: string) => document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    group.querySelectorAll('button')[1]!.focus();
    for (const [key, at] of [['ArrowRight', 'c'], ['ArrowRight', 'a'], ['ArrowLeft', 'c'], ['Home', 'a'], ['End', 'c']] as const) {
      press(key);
      expect(document.activeElement!.textContent).toBe(at);
    }
    expect(stops(root)).toEqual(['alone', 'c']);
    press('ArrowUp'); // of the view, not of the group
    expect(keys).toEqual(['ArrowUp']);
    group.append(button('d'));
    await vi.waitFor(() => expect(stops(root)).toEqual(['alone', 'c']));
    end();
    root.remove();
  });
});
