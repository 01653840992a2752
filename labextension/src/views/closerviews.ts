/** The views that look closer and compare, for a page that has what they show: a notebook's, or a report. */
import { ClusterView } from './cluster.js';
import clusterStyle from './cluster.raw.css';
import { DiffView } from './diff/view.js';
import diffStyle from './diff.raw.css';
import type { View } from './docks.js';
import { MeasuredView } from './measured.js';
import measuredStyle from './measured.raw.css';
import { MemoryView } from './memory/view.js';
import memoryStyle from './memory.raw.css';
import { NetlistFile } from './netlistfile.js';
import { PassStepper } from './passes.js';
import passStyle from './pass.raw.css';
import profileStyle from './profile.raw.css';
import type { Store } from './store.js';
import timelineStyle from './trace/timeline.raw.css';
import { TraceView } from './trace/view.js';

export interface StyledView {
  make: new (store: Store) => View;
  style: string;
}

export type CloserName = 'trace' | 'memory' | 'diff' | 'passes' | 'cluster' | 'measured' | 'netlistfile';

/** By the name that their Python class gives them, each with the style sheet that it alone needs. */
export const CLOSER_VIEWS: Record<CloserName, StyledView> = {
  trace: { make: TraceView, style: timelineStyle },
  memory: { make: MemoryView, style: memoryStyle },
  diff: { make: DiffView, style: diffStyle },
  passes: { make: PassStepper, style: passStyle },
  cluster: { make: ClusterView, style: clusterStyle },
  measured: { make: MeasuredView, style: profileStyle + measuredStyle },
  netlistfile: { make: NetlistFile, style: memoryStyle }
};
