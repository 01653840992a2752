/** Entry for static pages: frames stand in the page as base64; nothing is fetched, no kernel is asked. */
import { DiffPage } from './views/diff/view.js';
import { NetlistFile } from './views/netlistfile.js';
import { ReportPage } from './views/page.js';
import { Frame, type FrameHeader } from './views/frame.js';
import { StaticHost } from './views/host.js';
import { lookStyle } from './views/lookstyle.js';
import { makeRoot } from './views/root.js';
import { Sheets } from './views/sheets.js';
import { Store, type Status } from './views/store.js';
import timelineStyle from './views/trace/timeline.raw.css';

interface Embedded {
  title: string;
  status: Status;
  frames: { header: FrameHeader; data: string }[];
}

function decode(data: string): ArrayBuffer {
  return Uint8Array.from(atob(data), c => c.charCodeAt(0)).buffer;
}

/** Mounts the report into `el` from what the page embeds. */
export function mount(el: HTMLElement, embedded: Embedded): void {
  const store = new Store(new StaticHost());
  store.status = embedded.status;
  for (const { header, data } of embedded.frames) store.put(new Frame(header, decode(data)));
  const alone = store.frames.has('diff') && !store.frames.has('ops');
  const page = store.frames.has('findings')
    ? new NetlistFile(store)
    : alone ? new DiffPage(store, embedded.title) : new ReportPage(store, embedded.title);
  const { root } = makeRoot('page', page.element, lookStyle + timelineStyle);
  new Sheets(root);
  el.append(root);
  el.dataset['tbReady'] = 'true';
}

const data = document.getElementById('tb-data');
const place = document.getElementById('tb-report');
if (data && place) mount(place, JSON.parse(data.textContent) as Embedded);
