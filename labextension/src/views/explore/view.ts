/** Explorations of a session: what is tried is asked for here, followed while it runs, and its points are opened. */
import { h } from '../dom.js';
import type { Store } from '../store.js';
import type { Ask, Picture } from './data.js';
import { ExplorePicture } from './picture.js';

/** What is asked of a new exploration: name, label, what stands there at first, what it is. */
const FIELDS: [string, string, string, string][] = [
  ['devices', 'Devices', 'n150,n300', 'Device expressions, as n150+harvest=2 or wormhole_b0:8'],
  ['batches', 'Batches', '1,16', 'Inputs per run'],
  ['formats', 'Formats', 'Float16_b,Bfp8_b', 'Data formats'],
  ['fidelity', 'Fidelities', '', 'As LoFi,HiFi2,HiFi4'],
  ['policies', 'Policies', '', 'Placement policies'],
  ['harvest', 'Harvested', '', 'Further rows that are harvested, as 0,1,2'],
  ['objectives', 'Wanted', 'samples/s:max,chips:min', 'Numbers, each with :min or :max'],
  ['require', 'Required', '', 'As samples/s>=2000,pcc>=0.99'],
  ['budget', 'Trials', '200', 'At most so many']
];

export class ExploreTab {
  readonly element: HTMLElement;
  private readonly picture: ExplorePicture;
  private readonly fields = new Map<string, HTMLInputElement>();
  private readonly form: HTMLDetailsElement;
  private readonly begin = h('button', { class: 'tb-button', 'data-tb-action': 'explore-begin', onclick: () => this.ask() }, 'Explore');
  private readonly stops: (() => void)[] = [];

  constructor(private readonly store: Store) {
    this.picture = new ExplorePicture(store.host.live ? ask => this.onAsk(ask) : null);
    this.form = h('details', { class: 'tb-explore-form', open: true }, h('summary', {}, 'New exploration'),
      h('div', { class: 'tb-explore-fields' }, ...FIELDS.map(([name, label, value, title]) => {
        const input = h('input', { type: 'text', class: 'tb-search', value, title, spellcheck: 'false', 'data-tb-field': name });
        input.addEventListener('keydown', event => {
          if (event.key === 'Enter') this.ask();
        });
        this.fields.set(name, input);
        return h('label', {}, label, input);
      }), this.begin));
    this.element = h('section', { class: 'tb-view tb-explore', 'data-tb-view': 'explore', 'aria-label': 'Explore', tabindex: -1 },
      ...(store.host.live ? [this.form] : []), this.picture.element);
    this.picture.element.hidden = true;
    this.stops.push(store.on('frame', key => {
      if (key === 'explore') this.render();
    }), store.listen('explore_opened', message => this.onOpened(String(message['session']))));
    if (store.frames.has('explore')) this.render();
    else if (store.host.live) store.ask({ type: 'want', key: 'explore' });
  }

  dispose(): void {
    this.picture.dispose();
    this.stops.forEach(stop => stop());
  }

  private ask(): void {
    const asked = Object.fromEntries([...this.fields].map(([name, input]) => [name, input.value.trim()]));
    this.store.ask({ type: 'explore', ...asked });
  }

  private onAsk(ask: Ask): void {
    this.store.ask({ ...ask, type: `explore_${ask.do}` });
    if (ask.do === 'compare') this.element.dispatchEvent(new CustomEvent('tb-front', { bubbles: true, detail: 'diff' }));
  }

  /** A tab of its own shows the session of a point; a page without tabs says what it is called. */
  private onOpened(session: string): void {
    this.element.dispatchEvent(new CustomEvent('tb-session', { bubbles: true, detail: session }));
  }

  private render(): void {
    const picture = this.store.frames.get('explore')?.meta['picture'] as Picture | null | undefined;
    this.picture.element.hidden = !picture;
    if (!picture) return;
    if (picture.running) this.form.open = false;
    this.begin.disabled = picture.running;
    this.picture.show(picture);
  }
}
