import { expect, it } from 'vitest';

import { ExportDialog } from '../src/views/export/dialog.js';
import { live } from './live.js';

it('keeps the focus on the kind of export that was chosen, so that Escape closes the panel', () => {
  const { store, host } = live();
  const dialog = new ExportDialog(store, document.createElement('div'));
  const { element } = dialog.dialog;
  document.body.append(element);
  dialog.show();
  const kind = (name: string) => ({ name, title: name, meaning: name, suffix: `.${name}`, settings: [] });
  host.say({ type: 'exports', name: 'net', kinds: [kind('overrides'), kind('tti')] });
  const tab = () => element.querySelector<HTMLElement>('[data-tb-action=export-tti]')!;
  tab().focus();
  tab().click();
  expect(document.activeElement).toBe(tab());
  document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true, cancelable: true }));
  expect(dialog.dialog.open).toBe(false);
  dialog.dispose();
  element.remove();
});
