import { expect, it } from 'vitest';
import { ExportDialog, sendPicture } from '../src/views/export.js';
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

it('lists every kind of export with its words, and asks before it writes over a file', () => {
  const { store, host } = live();
  const dialog = new ExportDialog(store, document.createElement('div'));
  document.body.append(dialog.dialog.element);
  const find = (action: string) => dialog.dialog.element.querySelector<HTMLElement>(`[data-tb-action=${action}]`)!;
  dialog.show();
  expect(host.sent.at(-1)).toEqual({ type: 'exports' });
  const kinds = [{ name: 'overrides', title: 'Overrides', meaning: 'the edits', suffix: '.py', settings: [
    { name: 'form', default: 'python', meaning: 'how', choices: ['python', 'json'] }] }];
  host.say({ type: 'exports', name: 'net', kinds });
  const asked = host.sent.at(-1)!;
  expect(asked).toMatchObject({ type: 'export_plan', kind: 'overrides', path: 'net.py', settings: { form: 'python' } });
  host.say({ type: 'export_plan', ask: asked['ask'], kind: 'overrides', ok: true, cli: 'tbuda export x', python: 'session.x()', note: '', folder: '/f' });
  expect(dialog.dialog.element.textContent).toContain('tbuda export x');
  expect(dialog.dialog.element.textContent).toContain('session.x()');
  find('export-write').click();
  expect(host.sent.at(-1)).toMatchObject({ type: 'export', kind: 'overrides', replace: false });
  host.say({ type: 'exported', kind: 'overrides', ok: false, exists: true, text: 'net.py exists already.' });
  find('export-replace').click();
  expect(host.sent.at(-1)).toMatchObject({ type: 'export', replace: true });
  host.say({ type: 'exports', name: 'net', kinds: [...kinds, { name: 'tti', title: 'TTI', meaning: 'one archive', suffix: '.tti', settings: [
    { name: 'name', default: '', meaning: 'name', choices: [] }, { name: 'weights', default: true, meaning: 'include the weights', choices: [] }] }] });
  find('export-tti').click();
  const image = host.sent.at(-1)!;
  expect(image).toMatchObject({ type: 'export_plan', kind: 'tti', path: 'net.tti', settings: { name: '', weights: true } });
  host.say({
    type: 'export_plan', ask: image['ask'], kind: 'tti', ok: true, cli: 'tbuda export tti x', python: 'session.export_tti()', note: '',
    folder: '/f', preview: 'for n150: 1 chip of 9 x 8 cores; about 2.5 MB'
  });
  expect(dialog.dialog.element.querySelector('[data-tb-export=preview]')!.textContent).toContain('about 2.5 MB');
  dialog.dispose();
  dialog.dialog.element.remove();
});

it('sends a picture in parts that fit a message', () => {
  const { host } = live();
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251);
  sendPicture(host, bytes, 'a.png', false);
  expect(host.sent.length).toBeGreaterThan(1);
  expect(host.sent.every(m => JSON.stringify(m).length < 64 * 1024)).toBe(true);
  const back = host.sent.flatMap(m => [...Buffer.from(String(m['data']), 'base64')]);
  expect(Uint8Array.from(back)).toEqual(bytes);
});
