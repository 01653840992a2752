import { afterEach, describe, expect, it, vi } from 'vitest';
import { PressGuard } from '../src/views/dom.js';

afterEach(() => vi.useRealTimers());

/** A list with one button that is made anew whenever it is drawn. */
function list(): { node: HTMLElement; button: () => HTMLButtonElement; pressed: PressGuard; clicks: () => number } {
  const node = document.body.appendChild(document.createElement('div'));
  let clicks = 0;
  const pressed = new PressGuard(node, () => {
    const made = document.createElement('button');
    made.onclick = () => clicks++;
    node.replaceChildren(made);
  });
  pressed.ask();
  return { node, button: () => node.querySelector('button')!, pressed, clicks: () => clicks };
}

describe('a list that is drawn anew', () => {
  it('keeps what is pressed until the press is over, and is drawn then', () => {
    vi.useFakeTimers();
    const { button, pressed, clicks } = list();
    const before = button();
    before.dispatchEvent(new Event('pointerdown', { bubbles: true }));
    pressed.ask();
    expect(button()).toBe(before);
    window.dispatchEvent(new Event('pointerup'));
    pressed.ask(); // between the release and the click
    expect(button()).toBe(before);
    button().click();
    vi.runAllTimers();
    expect(clicks()).toBe(1);
    expect(button()).not.toBe(before);
  });

  it('is drawn at once while nothing is pressed, and not again for a press alone', () => {
    vi.useFakeTimers();
    const { button, pressed } = list();
    const first = button();
    pressed.ask();
    const second = button();
    expect(second).not.toBe(first);
    second.dispatchEvent(new Event('pointerdown', { bubbles: true }));
    window.dispatchEvent(new Event('pointercancel'));
    vi.runAllTimers();
    expect(button()).toBe(second);
    pressed.ask();
    expect(button()).not.toBe(second);
  });
});
