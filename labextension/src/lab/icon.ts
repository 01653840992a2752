/** The mark of the workbench: rectangles on a core grid. */
import { LabIcon } from '@jupyterlab/ui-components';

export const icon = new LabIcon({
  name: 'tbuda-lab:grid',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><g class="jp-icon3" fill="#616161">' +
    '<rect x="3" y="3" width="11" height="5" rx="1"/><rect x="16" y="3" width="5" height="11" rx="1"/>' +
    '<rect x="3" y="10" width="5" height="11" rx="1"/><rect x="10" y="10" width="4" height="4" rx="1"/>' +
    '<rect x="10" y="16" width="11" height="5" rx="1"/></g></svg>'
});
