/** Styles of the views that compare and look closer. */
import clusterStyle from './cluster.raw.css';
import diffStyle from './diff.raw.css';
import memoryStyle from './memory.raw.css';
import passStyle from './pass.raw.css';

export const lookStyle = diffStyle + memoryStyle + passStyle + clusterStyle;
