/**
 * Every command of the palette and the *Tensix* menu. They act on the session of the view in front and name it;
 * what it cannot do is grey. A button of the side bar names its session itself.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, type ICommandPalette, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import { h } from '../views/dom.js';
import type { Current } from './current.js';
import type { Place, SessionInfo, Sessions } from './sessions.js';

/** The mark of the workbench: rectangles on a core grid. */
export const icon = new LabIcon({
  name: 'tbuda-lab:grid',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="3" y="3" width="11" height="5" rx="1"/><rect x="16" y="3" width="5" height="11" rx="1"/>' +
    '<rect x="3" y="10" width="5" height="11" rx="1"/><rect x="10" y="10" width="4" height="4" rx="1"/>' +
    '<rect x="10" y="16" width="11" height="5" rx="1"/></g></svg>'
});

// Every command of the palette and the *Tensix* menu. They act on the session of the view in front and name it; what it
// cannot do is grey. A button of the side bar names its session itself.
type Args = ReadonlyPartialJSONObject;

export const COMMAND = {
  newSession: 'tbuda:new-session',
  openView: 'tbuda:open-view',
  openGrid: 'tbuda:open-grid',
  openWorkbench: 'tbuda:open-workbench',
  compile: 'tbuda:compile',
  run: 'tbuda:run',
  cancel: 'tbuda:cancel',
  undo: 'tbuda:undo',
  redo: 'tbuda:redo',
  checkpoint: 'tbuda:checkpoint',
  diff: 'tbuda:diff',
  export: 'tbuda:export',
  why: 'tbuda:why-here',
  next: 'tbuda:next-epoch',
  previous: 'tbuda:prev-epoch'
} as const;

export const CATEGORY = 'Tensix';

/** Views that can have a tab of their own. */
export const NAMES: Record<string, string> = {
  bringup: 'Workbench', graph: 'Graph', grid: 'Core Grid', table: 'Ops', trace: 'Timeline', netlist: 'Netlist', overrides: 'Overrides',
  memory: 'Memory', diff: 'Comparison', passes: 'Passes', cluster: 'Cluster', placements: 'Placements', explore: 'Explore', program: 'Program', plots: 'Plots', problems: 'Problems', inspector: 'Inspector'
};

interface Simple {
  id: string;
  label: string;
  caption: string;
  /** What the kernel calls it. */
  name: string;
  can: (session: SessionInfo) => boolean;
  suffix?: (session: SessionInfo) => string;
}

const idle = (s: SessionInfo) => !s.running && !s.busy;

const SIMPLE: Simple[] = [
  { id: COMMAND.compile, label: 'Compile', caption: 'Compile the session; stages that nothing changed are reused',
    name: 'compile', can: idle },
  { id: COMMAND.run, label: 'Run and Verify', caption: 'Run the netlist and compare its outputs with torch', name: 'run', can: idle },
  { id: COMMAND.cancel, label: 'Cancel', caption: 'Stop what the session is doing', name: 'cancel', can: s => s.running || s.busy },
  { id: COMMAND.undo, label: 'Undo', caption: 'Undo the last edit', name: 'undo', can: s => idle(s) && s.undo !== '',
    suffix: s => s.undo },
  { id: COMMAND.redo, label: 'Redo', caption: 'Redo the edit that was undone last', name: 'redo',
    can: s => idle(s) && s.redo !== '', suffix: s => s.redo }
];

interface Deps {
  app: JupyterFrontEnd;
  sessions: Sessions;
  current: Current;
  palette: ICommandPalette | null;
  openTab: (place: Place, view: string) => void;
}

/** How often, and after how many ms each, a session that was just made is looked for among those of its kernel. */
const TOLD_TIMES = 200, TOLD = 100;

export function addCommands({ app, sessions, current, palette, openTab }: Deps): void {
  const { commands } = app;
  /** The session that a command is given for, else that of the view in front. */
  const placeOf = (args: Args): Place | null => {
    const [kernel, session] = [args['kernel'], args['session']];
    return typeof kernel === 'string' && typeof session === 'string' ? sessions.find(kernel, session) : current.place;
  };
  const has = (args: Args) => placeOf(args) !== null;

  /** " in <session>", with its notebook where another kernel has a session of that name. */
  const inside = (args: Args): string => {
    const place = placeOf(args);
    if (!place) return '';
    const alike = sessions.kernels.some(k => k !== place.kernel && k.sessions.some(s => s.name === place.info.name));
    return ` in ${place.info.name}${alike ? ` of ${place.kernel.title}` : ''}`;
  };

  /** Does something with the session, or says what is missing. */
  const withPlace = async (args: Args, f: (place: Place) => Promise<void> | void): Promise<void> => {
    const place = placeOf(args);
    if (place) await f(place);
    else Notification.warning('No Tensix view is in front: click a view, or run a cell with BringUp(...).');
  };

  /** Whether the buttons of the view in front are those of a session. */
  const mine = (place: Place) => current.place?.kernel === place.kernel && current.place.info.id === place.info.id;

  for (const { id, label, caption, name, can, suffix } of SIMPLE) {
    commands.addCommand(id, {
      label: args => {
        const place = placeOf(args);
        const what = place && suffix ? suffix(place.info) : '';
        return what ? `${label}: ${what},${inside(args)}` : `${label}${inside(args)}`;
      },
      caption,
      isEnabled: args => {
        const place = placeOf(args);
        return place !== null && can(place.info);
      },
      execute: args => withPlace(args, async ({ kernel, info }) => {
        const answer = await kernel.command(name, info.id);
        if (!answer.ok) Notification.warning(answer.text);
      })
    });
  }

  commands.addCommand(COMMAND.openView, {
    label: args => `${typeof args['view'] === 'string' ? `Open ${NAMES[args['view']] ?? args['view']}` : 'Open View…'}${inside(args)}`,
    caption: 'Open a view of the session in its own tab', icon, isEnabled: has,
    execute: args => withPlace(args, async place => {
      let view = args['view'];
      if (typeof view !== 'string') {
        const { value } = await InputDialog.getItem({ title: 'Open View in a Tab', items: Object.values(NAMES), okLabel: 'Open' });
        view = Object.keys(NAMES).find(name => NAMES[name] === value);
      }
      if (typeof view === 'string') openTab(place, view);
    })
  });
  // A button of a view asks for a tab of its own; the view says which session it shows.
  document.addEventListener('tb-tab', event => {
    const view = (event as CustomEvent<string>).detail;
    if (view in NAMES) void commands.execute(COMMAND.openView, { view });
  });
  // A point of an exploration is a session of its own: it gets a tab as soon as its kernel tells of it.
  document.addEventListener('tb-session', event => {
    const id = (event as CustomEvent<string>).detail;
    const kernel = current.place?.kernel;
    const open = (left: number) => {
      const info = kernel?.sessions.find(session => session.id === id);
      if (kernel && info) openTab({ kernel, info }, 'bringup');
      else if (kernel && left > 0) setTimeout(() => open(left - 1), TOLD);
    };
    open(TOLD_TIMES);
  });
  commands.addCommand(COMMAND.openGrid, {
    label: args => `Open Core Grid${inside(args)}`, caption: 'Open the core grid of the session in its own tab', icon, isEnabled: has,
    execute: args => withPlace(args, place => openTab(place, 'grid'))
  });
  commands.addCommand(COMMAND.openWorkbench, {
    label: args => `Open Workbench${inside(args)}`, caption: 'Open all views of the session in one tab', icon, isEnabled: has,
    execute: args => withPlace(args, place => openTab(place, 'bringup'))
  });

  commands.addCommand(COMMAND.checkpoint, {
    label: args => `Set Checkpoint…${inside(args)}`, caption: 'Save the edits of the session under a name', isEnabled: has,
    execute: args => withPlace(args, async ({ kernel, info }) => {
      const given = args['label'];
      const asked = typeof given === 'string' ? given : (await InputDialog.getText({
        title: 'Checkpoint', label: `Name of the checkpoint of ${info.name}`, text: freeName(info.checkpoints), okLabel: 'Save'
      })).value;
      if (!asked) return;
      const answer = await kernel.command('checkpoint', info.id, { label: asked });
      if (!answer.ok) Notification.warning(answer.text);
    })
  });

  commands.addCommand(COMMAND.why, {
    label: args => `Why Here?${inside(args)}`, caption: 'Show why the selected op is placed where it is', isEnabled: args => (placeOf(args)?.info.epochs ?? 0) > 0,
    execute: args => withPlace(args, async ({ kernel, info }) => {
      if (mine({ kernel, info }) && press(current, 'why')) return;
      const answer = await kernel.command('why', info.id);
      if (answer.ok) await showText(`Why is ${String(answer['op'])} here?`, answer.text);
      else Notification.warning(answer.text);
    })
  });

  commands.addCommand(COMMAND.diff, {
    label: args => `Compare with Checkpoint…${inside(args)}`, caption: 'Show what changed since a checkpoint, or since the session was opened',
    isEnabled: args => (placeOf(args)?.info.checkpoints.length ?? 0) > 0 || Boolean(placeOf(args)?.info.undo),
    execute: args => withPlace(args, async place => {
      const { kernel, info } = place;
      const given = args['checkpoint'];
      const chosen = typeof given === 'string' ? given : (await InputDialog.getItem({
        title: 'Compare', label: 'State to compare the present one with', okLabel: 'Compare',
        items: [...new Set([...[...info.checkpoints].reverse(), 'start', 'previous'])]
      })).value;
      if (!chosen) return;
      const answer = await kernel.command('diff', info.id, { checkpoint: chosen });
      if (answer.ok) openTab(place, 'diff'); // the kernel has told every view of the session
      else Notification.warning(answer.text);
    })
  });

  commands.addCommand(COMMAND.export, {
    label: args => `Export…${inside(args)}`, caption: 'Write the netlist, overrides, report, pictures or tables to a file', isEnabled: has,
    execute: args => withPlace(args, place => {
      if (!mine(place) || !press(current, 'export')) openTab(place, 'bringup');
    })
  });

  for (const [id, label, by] of [[COMMAND.next, 'Next Epoch', 1], [COMMAND.previous, 'Previous Epoch', -1]] as const) {
    commands.addCommand(id, {
      label: args => `${label}${inside(args)}`, caption: `${label} of the view in front`, isEnabled: () => (current.place?.info.epochs ?? 0) > 1,
      execute: () => {
        current.view?.dispatchEvent(new CustomEvent('tb-step-epoch', { detail: by }));
      }
    });
  }

  for (const id of Object.values(COMMAND)) {
    if (id !== COMMAND.newSession) palette?.addItem({ command: id, category: CATEGORY });
  }
  current.onChange.connect(() => commands.notifyCommandChanged());
}

/** Presses a button of the view that commands go to; false where there is none. */
function press(current: Current, action: string): boolean {
  const button = current.view?.querySelector<HTMLButtonElement>(`[data-tb-action="${action}"]:not([disabled])`);
  button?.click();
  return Boolean(button);
}

function freeName(taken: string[]): string {
  for (const letter of 'ABCDEFGHIJKLMNOPQRSTUVWXYZ') if (!taken.includes(letter)) return letter;
  return '';
}

async function showText(title: string, text: string): Promise<void> {
  const body = new Widget({ node: h('pre', { class: 'tb-lab-text', tabindex: 0, 'data-tb-text': '' }, text) });
  await showDialog({ title, body, buttons: [Dialog.okButton({ label: 'Close' })] });
}
