/**
 * A place as text: session, epoch, selection, colours and the tab in front, as the fragment of a page's address or as a
 * line that a colleague pastes into "go to epoch".
 */
import type { ColourBy, Store } from './store.js';

const MOST = 50; // ops of a selection that a place names
const COLOURS: readonly string[] = ['load', 'family', 'epoch', 'layer'] satisfies ColourBy[];

/** The tabs of a workbench as its host keeps them; a page has none. */
const tabsOf = (store: Store) => store.host.get('docks') as { tab?: string } | undefined;
const sessionOf = (store: Store) => (store.frames.get('summary')?.meta['name'] as string | undefined) ?? '';

/** "#session=bert&epoch=3&op=a&op=b&colour=family&view=memory": what is shown. */
export function placeText(store: Store): string {
  const said = new URLSearchParams(sessionOf(store) ? { session: sessionOf(store) } : {});
  said.set('epoch', String(store.epoch));
  const tab = tabsOf(store)?.tab;
  if (tab) said.set('view', tab);
  for (const name of store.selection.names.slice(0, MOST)) said.append('op', name);
  if (store.colour !== 'load') said.set('colour', store.colour);
  return `#${said.toString()}`;
}

/** Goes to a place, as far as there is such a one here; whether the text is one. A place of another session is refused. */
export function goToPlace(store: Store, text: string): boolean {
  const said = new URLSearchParams(text.slice(text.indexOf('#') + 1).trim());
  const ops = store.frames.get('ops');
  const epoch = Number(said.get('epoch') ?? NaN);
  if (!ops || !Number.isInteger(epoch) || epoch < 0 || epoch >= ops.column('epoch_cycles').length) return false;
  const [of, own, view, docks] = [said.get('session'), sessionOf(store), said.get('view'), tabsOf(store)];
  if (of && own && of !== own) {
    store.say(false, `That place is in the session ${of}; this is ${own}.`);
    return true;
  }
  if (view && docks) store.host.set('docks', { ...docks, tab: view });
  const known = new Set(ops.text('op_name'));
  const names = said.getAll('op').slice(0, MOST).filter(name => known.has(name));
  const colour = said.get('colour') ?? '';
  if (COLOURS.includes(colour)) store.setColour(colour as ColourBy);
  store.setEpoch(epoch);
  if (names.length) store.select(names, 'place');
  store.setEpoch(epoch); // a selection may lead to the epoch of its first op
  return true;
}
