/** Workbenches in cells of notebooks: compact there, whole in a tab beside the notebook, unless the settings say otherwise. */
import type { JupyterFrontEnd } from '@jupyterlab/application';

import { onPage } from './current.js';
import { kernelOf, type Place, type Sessions } from './sessions.js';
import type { Settings } from './settings.js';

const ROOT = '[data-tb-root=bringup][data-tb-session]';
const OPENED = 'tbuda-lab:opened'; // sessions whose tab was opened once: one that somebody closed stays closed
const LOOK = 150; // ms between two looks at what is on the page

export class Cells {
  constructor(
    private readonly app: JupyterFrontEnd, private readonly sessions: Sessions, private readonly settings: Settings,
    private readonly open: (place: Place) => void
  ) {
    const look = onPage(app, LOOK, () => this.arrange());
    sessions.changed.connect(look);
    settings.changed.connect(look);
  }

  private arrange(): void {
    const compact = this.settings.values.place === 'tab';
    for (const widget of this.app.shell.widgets('main')) {
      const kernel = kernelOf(widget)?.id;
      for (const root of widget.node.querySelectorAll<HTMLElement>(`.jp-OutputArea ${ROOT}`)) {
        if (root.dataset['tbForm'] === (compact ? 'compact' : 'whole')) continue;
        const place = kernel ? this.sessions.find(kernel, root.dataset['tbSession']!) : null;
        if (compact && !place) continue; // nothing to open a tab on yet
        root.dataset['tbForm'] = compact ? 'compact' : 'whole';
        root.classList.toggle('tb-compact', compact);
        if (compact && !wasOpened(`${kernel!} ${place!.info.id}`)) this.open(place!);
      }
    }
  }
}

/** Whether this was asked before in this window. */
function wasOpened(key: string): boolean {
  const opened = JSON.parse(sessionStorage.getItem(OPENED) ?? '[]') as string[];
  if (opened.includes(key)) return true;
  sessionStorage.setItem(OPENED, JSON.stringify([...opened, key]));
  return false;
}
