/** What is not in the bundle of the views: everything that is seldom the first thing seen. See `lazyview.ts`. */
import { CLOSER_VIEWS, type CloserName, type StyledView } from './closerviews.js';
import exploreStyle from './explore/explore.raw.css';
import { ExploreTab } from './explore/view.js';
import { ExportDialog } from './export.js';
import { ImageFile } from './netlistfile.js';
import memoryStyle from './memory.raw.css';
import { NetlistView } from './netlist.js';
import overridesStyle from './overrides.raw.css';
import { OverridesPanel } from './overrides.js';
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
import { WhyPanel } from './why.js';

export type LazyName = CloserName | 'netlist' | 'overrides' | 'plots' | 'program' | 'profile' | 'placements' | 'explore' | 'search' | 'imagefile';

/** Views by the name that their Python class gives them, each with the style sheet that it alone needs. */
export const LAZY_VIEWS: Record<LazyName, StyledView> = {
  ...CLOSER_VIEWS,
  netlist: { make: NetlistView, style: '' },
  overrides: { make: OverridesPanel, style: overridesStyle },
  plots: { make: PlotsView, style: plotsStyle },
  profile: { make: ProfileView, style: profileStyle },
  placements: { make: PlacementsView, style: placementsStyle },
  explore: { make: ExploreTab, style: exploreStyle },
  search: { make: SearchPanel, style: searchStyle },
  program: { make: ProgramView, style: programStyle },
  imagefile: { make: ImageFile, style: memoryStyle }
};

export { ExportDialog, WhyPanel };

export interface More {
  LAZY_VIEWS: typeof LAZY_VIEWS;
  ExportDialog: typeof ExportDialog;
  WhyPanel: typeof WhyPanel;
}
