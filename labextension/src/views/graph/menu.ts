/** The menu of a node: what can be done with its op. */
import { h } from '../dom.js';
import type { Store } from '../store.js';

export class NodeMenu {
  private menu: HTMLElement | null = null;
  private readonly away = (event: Event) => {
    if (!this.menu?.contains(event.target as Node)) this.close();
  };

  constructor(private readonly store: Store, private readonly area: HTMLElement) {
    // JupyterLab opens its own menu elsewhere; Shift keeps that of the browser.
    area.setAttribute('data-jp-suppress-context-menu', '');
    area.addEventListener('contextmenu', event => this.open(event));
  }

  dispose(): void {
    this.close();
  }

  private open(event: MouseEvent): void {
    this.close();
    const name = (event.target as Element).closest<HTMLElement>('[data-tb-op]')?.dataset['tbOp'];
    const { edits } = this.store;
    if (event.shiftKey || !name || !edits || this.area.dataset['tbStage'] !== 'lowered' || !this.placed(name)) return;
    event.preventDefault();
    event.stopPropagation();
    const broken = edits.overrides.some(o => o.target === name && o.field === 'epoch_break');
    const fixed = edits.overrides.some(o => o.target === name);
    const item = (action: string, label: string, message: Record<string, unknown>, enabled = true) =>
      h('button', {
        type: 'button', role: 'menuitem', 'data-tb-action': action, disabled: !enabled || edits.busy,
        onclick: () => {
          this.close();
          this.store.ask({ type: 'edit', op: name, ...message });
        }
      }, label);
    const menu = h('div', { class: 'tb-menu', role: 'menu', 'aria-label': name, 'data-lm-suppress-shortcuts': 'true' },
      h('strong', {}, name),
      broken
        ? item('epoch-unbreak', 'Remove the epoch break', { do: 'break', on: false })
        : item('epoch-break', 'New epoch from here', { do: 'break', on: true }),
      item('clear-overrides', 'Clear its overrides', { do: 'clear' }, fixed));
    const frame = this.area.getBoundingClientRect();
    this.area.append(menu);
    menu.style.left = `${Math.max(0, Math.min(event.clientX - frame.left, frame.width - menu.offsetWidth - 4))}px`;
    menu.style.top = `${Math.max(0, Math.min(event.clientY - frame.top, frame.height - menu.offsetHeight - 4))}px`;
    this.menu = menu;
    menu.addEventListener('keydown', key => this.key(key));
    document.addEventListener('pointerdown', this.away, true);
    menu.querySelector<HTMLElement>('button:enabled')?.focus({ preventScroll: true });
  }

  private placed(name: string): boolean {
    return this.store.frames.get('ops')?.text('op_name').includes(name) ?? false;
  }

  private key(event: KeyboardEvent): void {
    const items = [...this.menu!.querySelectorAll<HTMLElement>('button:enabled')];
    const at = items.indexOf(document.activeElement as HTMLElement);
    if (event.key === 'Escape') this.close();
    else if (event.key === 'ArrowDown') items[(at + 1) % items.length]?.focus();
    else if (event.key === 'ArrowUp') items[(at - 1 + items.length) % items.length]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private close(): void {
    this.menu?.remove();
    this.menu = null;
    document.removeEventListener('pointerdown', this.away, true);
  }
}
