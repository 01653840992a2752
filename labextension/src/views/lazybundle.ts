/** What is not in the bundle of the views: everything that is seldom the first thing seen. See `lazyview.ts`. */
import type { View } from './docks.js';
import { ClusterView } from './cluster.js';
import clusterStyle from './cluster.raw.css';
import { DiffView } from './diff/view.js';
import diffStyle from './diff.raw.css';
import { ExportDialog } from './export.js';
import { ImageFile, NetlistFile } from './netlistfile.js';
import { MemoryView } from './memory/view.js';
import memoryStyle from './memory.raw.css';
import { MeasuredView } from './measured.js';
import measuredStyle from './measured.raw.css';
import { PassStepper } from './passes.js';
import passStyle from './pass.raw.css';
import placementsStyle from './placements.raw.css';
import { PlacementsView } from './placements.js';
import plotsStyle from './plots.raw.css';
import { PlotsView } from './plots.js';
import profileStyle from './profile.raw.css';
import { ProfileView } from './profile.js';
import programStyle from './program.raw.css';
import { ProgramView } from './program.js';
import { SearchPanel } from './grid/search.js';
import searchStyle from './grid/search.raw.css';
import type { Store } from './store.js';
import timelineStyle from './trace/timeline.raw.css';
import { TraceView } from './trace/view.js';
import { WhyPanel } from './why.js';

interface LazyViewBundle {
  make: new (store: Store) => View;
  style: string;
}

export type LazyName = 'trace' | 'memory' | 'diff' | 'passes' | 'cluster' | 'plots' | 'program' | 'profile' | 'measured' | 'placements' | 'search' | 'netlistfile' | 'imagefile';

/** Views by the name that their Python class gives them, each with the style sheet that it alone needs. */
export const LAZY_VIEWS: Record<LazyName, LazyViewBundle> = {
  trace: { make: TraceView, style: timelineStyle },
  memory: { make: MemoryView, style: memoryStyle },
  diff: { make: DiffView, style: diffStyle },
  passes: { make: PassStepper, style: passStyle },
  cluster: { make: ClusterView, style: clusterStyle },
  plots: { make: PlotsView, style: plotsStyle },
  profile: { make: ProfileView, style: profileStyle },
  measured: { make: MeasuredView, style: profileStyle + measuredStyle },
  placements: { make: PlacementsView, style: placementsStyle },
  search: { make: SearchPanel, style: searchStyle },
  program: { make: ProgramView, style: programStyle },
  netlistfile: { make: NetlistFile, style: memoryStyle },
  imagefile: { make: ImageFile, style: memoryStyle }
};

export { ExportDialog, WhyPanel };

export interface More {
  LAZY_VIEWS: typeof LAZY_VIEWS;
  ExportDialog: typeof ExportDialog;
  WhyPanel: typeof WhyPanel;
}
