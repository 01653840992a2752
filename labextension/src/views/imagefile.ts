/** A TTI image, read only: what its manifest says, its files, and the netlist in it. */
import type { View } from './tabs.js';
import { grouped, h } from './dom.js';
import { NetlistFile } from './netlistfile.js';
import type { Store } from './store.js';

export class ImageFile implements View {
  readonly element: HTMLElement;
  private readonly head = h('section', { class: 'tb-view tb-facts', 'data-tb-view': 'image', 'aria-label': 'Manifest' });
  private readonly missing = h('p', { hidden: true }, 'There is no netlist in this image.');
  private readonly netlist: NetlistFile;
  /** What the head shows: made anew only for another manifest, so that a press is not lost. */
  private shown = '';
  private readonly stop: () => void;

  constructor(private readonly store: Store) {
    this.netlist = new NetlistFile(store);
    this.element = h('div', { class: 'tb-document' }, this.head, this.netlist.element);
    this.stop = store.on('frame', key => {
      if (key === 'image' || key === 'netlist') this.render();
    });
    this.render();
  }

  dispose(): void {
    this.stop();
    this.netlist.dispose();
  }

  private render(): void {
    const meta = this.store.frames.get('image')?.meta;
    this.missing.hidden = this.store.frames.has('netlist');
    this.netlist.element.hidden = !this.missing.hidden;
    const text = JSON.stringify(meta ?? '');
    if (!meta || text === this.shown) return;
    this.shown = text;
    const files = meta['files'] as [string, number][];
    const more = Number(meta['more']);
    const open = this.head.querySelector('details')?.open ?? false;
    this.head.replaceChildren(
      facts(meta['facts'] as [string, string][]),
      h('details', { open }, h('summary', { 'data-tb-action': 'image-files' }, `${grouped(files.length + more)} files`),
        h('table', { class: 'tb-plain' }, h('tbody', {}, ...files.map(([name, size]) =>
          h('tr', {}, h('td', {}, name), h('td', {}, `${grouped(size)} bytes`))))),
        more > 0 && h('p', {}, `and ${grouped(more)} more`)),
      this.missing);
  }
}

/** A list of terms and what they are. */
export function facts(rows: [string, string][]): HTMLElement {
  return h('dl', { class: 'tb-facts' }, ...rows.flatMap(([what, value]) => [h('dt', {}, what), h('dd', {}, value)]));
}
