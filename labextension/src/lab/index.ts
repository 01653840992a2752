/**
 * The JupyterLab plugins: launcher, commands and menu, status bar, sidebar, settings, documents. Widgets work
 * without.
 */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { Token } from '@lumino/coreutils';
import { bringBy } from '../views/lazyview.js';
import { Cells, StoredViews } from './cells.js';
import { addCommands, CATEGORY, COMMAND, icon } from './commands.js';
import { Current } from './current.js';
import { addDocuments } from './documents.js';
import { type Place, Sessions } from './sessions.js';
import { Settings } from './settings.js';
import { Sidebar, StatusItem } from './panels.js';
import { ViewTab } from './tab.js';
import { keepTutorials } from './tutorials.js';

// The notebook that the launcher card opens: a small model of the user's own to start from.
const MARKDOWN = [
  '# Bring-up',
  '',
  'Put your model in place of the one below. `BringUp` traces it, places it on the device, runs it and compares the',
  'outputs with torch.'
];

const model = (device: string) => [
  'import torch',
  'from tbuda_lab.widgets import BringUp',
  '',
  'model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))',
  'inputs = torch.randn(1, 128, 256)',
  '',
  `bring_up = BringUp(model, inputs, device="${device}")`,
  'bring_up'
];

function lines(text: string[]): string[] {
  return text.map((line, i) => (i < text.length - 1 ? `${line}\n` : line));
}

/** Content of a new notebook, nbformat 4.5. */
function bringUpNotebook(device = 'wormhole_b0'): Record<string, unknown> {
  return {
    nbformat: 4,
    nbformat_minor: 5,
    metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
    cells: [
      { id: 'intro', cell_type: 'markdown', metadata: {}, source: lines(MARKDOWN) },
      { id: 'bring-up', cell_type: 'code', metadata: {}, execution_count: null, outputs: [], source: lines(model(device)) }
    ]
  };
}

// A part of this extension that the server sends when a view needs it.
bringBy(() => import('../views/lazybundle.js').catch(() => {
  throw new Error('The server did not send it: reload the page.');
}));

/** The JupyterLab plugins: launcher, commands and menu, status bar, sidebar, settings, documents. Widgets work without. */
const NEW_SESSION = COMMAND.newSession;

interface Shared {
  sessions: Sessions;
  current: Current;
  settings: Settings;
}

const IShared = new Token<Shared>('@tbuda-lab/labextension:IShared', 'The sessions of all kernels and the settings.');

/** Settings, menu and key bindings stand in schema/plugin.json, under the id of this plugin. */
const workbench: JupyterFrontEndPlugin<Shared> = {
  id: '@tbuda-lab/labextension:plugin',
  description: 'Commands, menu, status bar and sidebar of the Tensix workbench.',
  autoStart: true,
  provides: IShared,
  optional: [ICommandPalette, ISettingRegistry, IStatusBar, ILayoutRestorer],
  activate(
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null,
    restorer: ILayoutRestorer | null
  ): Shared {
    const settings = new Settings();
    if (registry) {
      registry.load(workbench.id).then(found => settings.connect(found), (error: unknown) => {
        Notification.warning(`The Tensix settings cannot be read: ${String(error)}`);
      });
    }
    const sessions = new Sessions(app);
    const current = new Current(app, sessions);
    new StoredViews(app, sessions);
    keepTutorials(app);
    const tabs = new WidgetTracker<ViewTab>({ namespace: 'tbuda-tabs' });
    const show = (tab: ViewTab) => {
      const there = tabs.find(other => other.id === tab.id);
      if (there) tab.dispose();
      else {
        app.shell.add(tab, 'main', { mode: 'split-right' });
        void tabs.add(tab);
      }
      app.shell.activateById((there ?? tab).id);
    };
    const openTab = ({ kernel, info }: Place, view: string) =>
      show(new ViewTab(sessions, { kernel: kernel.kernel.id, session: info.id, name: info.name, view }));
    // Beside the notebook, which keeps the focus: its next cell can be run at once.
    const openBeside = ({ kernel, info }: Place) => {
      const tab = new ViewTab(sessions, { kernel: kernel.kernel.id, session: info.id, name: info.name, view: 'bringup' });
      let there: ViewTab | null = null;
      tabs.forEach(other => (there = other));
      if (tabs.find(other => other.id === tab.id)) {
        tab.dispose();
        return;
      }
      const beside = there as ViewTab | null;
      app.shell.add(tab, 'main', beside ? { mode: 'tab-after', ref: beside.id, activate: false } : { mode: 'split-right', activate: false });
      void tabs.add(tab);
    };
    if (app.name === 'JupyterLab') new Cells(app, sessions, settings, openBeside); // others show one document alone
    addCommands({ app, sessions, current, palette, openTab });
    app.commands.addCommand(RESTORE, {
      label: 'Restore a Tensix Tab',
      isVisible: () => false,
      execute: args => {
        const { kernel, session, name, view } = args as Record<string, string>;
        if (kernel && session && name && view) show(new ViewTab(sessions, { kernel, session, name, view }));
      }
    });
    if (restorer) {
      void restorer.restore(tabs, { command: RESTORE, args: tab => ({ ...tab.wanted }), name: tab => tab.id });
    }

    const sidebar = new Sidebar(app, sessions, current, settings);
    app.shell.add(sidebar, 'left', { rank: 550 });
    restorer?.add(sidebar, sidebar.id);
    statusBar?.registerStatusItem('@tbuda-lab/labextension:status', {
      item: new StatusItem(app, current, () => app.shell.activateById(sidebar.id)), align: 'left', rank: 40
    });
    return { sessions, current, settings };
  }
};

const RESTORE = 'tbuda:restore-tab';

const launcherPlugin: JupyterFrontEndPlugin<void> = {
  id: '@tbuda-lab/labextension:launcher',
  description: 'Opens a new bring-up notebook from the launcher or the palette.',
  autoStart: true,
  requires: [IShared],
  optional: [ILauncher, ICommandPalette],
  activate(app: JupyterFrontEnd, { settings }: Shared, launcher: ILauncher | null, palette: ICommandPalette | null): void {
    app.commands.addCommand(NEW_SESSION, {
      label: args => (args['isPalette'] ? 'New Tensix Bring-up Notebook' : 'Tensix bring-up'),
      caption: 'A notebook that traces, places and runs a model on a simulated grid of Tensix cores',
      icon,
      execute: async args => {
        const folder = typeof args['cwd'] === 'string' ? args['cwd'] : '';
        const { contents } = app.serviceManager;
        const made = await contents.newUntitled({ path: folder, type: 'notebook' });
        const content = bringUpNotebook(settings.values.device);
        await contents.save(made.path, { type: 'notebook', format: 'json', content });
        return app.commands.execute('docmanager:open', { path: made.path }) as Promise<unknown>;
      }
    });
    launcher?.add({ command: NEW_SESSION, category: CATEGORY, rank: 1 });
    palette?.addItem({ command: NEW_SESSION, category: CATEGORY, args: { isPalette: true } });
  }
};

const documents: JupyterFrontEndPlugin<void> = {
  id: '@tbuda-lab/labextension:documents',
  description: 'Opens session files, TTI images and netlists.',
  autoStart: true,
  requires: [IShared],
  optional: [ILayoutRestorer],
  activate(app: JupyterFrontEnd, { sessions }: Shared, restorer: ILayoutRestorer | null): void {
    addDocuments(app, sessions, restorer);
  }
};

export default [workbench, launcherPlugin, documents];
