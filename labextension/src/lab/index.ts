/** JupyterLab plugin: a launcher card and a command that open a new bring-up notebook. Widgets work without it. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { LabIcon } from '@jupyterlab/ui-components';

import { bringUpNotebook } from './notebook.js';

export const NEW_SESSION = 'tbuda:new-session';

const icon = new LabIcon({
  name: 'tbuda-lab:grid',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="3" y="3" width="11" height="5" rx="1"/><rect x="16" y="3" width="5" height="11" rx="1"/>' +
    '<rect x="3" y="10" width="5" height="11" rx="1"/><rect x="10" y="10" width="4" height="4" rx="1"/>' +
    '<rect x="10" y="16" width="11" height="5" rx="1"/></g></svg>'
});

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@tbuda-lab/labextension:launcher',
  description: 'Opens a new bring-up notebook from the launcher or the palette.',
  autoStart: true,
  optional: [ILauncher, ICommandPalette],
  activate(app: JupyterFrontEnd, launcher: ILauncher | null, palette: ICommandPalette | null): void {
    app.commands.addCommand(NEW_SESSION, {
      label: args => (args['isPalette'] ? 'New Tensix Bring-up Notebook' : 'Tensix bring-up'),
      caption: 'A notebook that traces, places and runs a model on a simulated grid of Tensix cores',
      icon,
      execute: async args => {
        const folder = typeof args['cwd'] === 'string' ? args['cwd'] : '';
        const { contents } = app.serviceManager;
        const made = await contents.newUntitled({ path: folder, type: 'notebook' });
        await contents.save(made.path, { type: 'notebook', format: 'json', content: bringUpNotebook() });
        return app.commands.execute('docmanager:open', { path: made.path }) as Promise<unknown>;
      }
    });
    launcher?.add({ command: NEW_SESSION, category: 'Tensix', rank: 1 });
    palette?.addItem({ command: NEW_SESSION, category: 'Tensix', args: { isPalette: true } });
  }
};

export default plugin;
