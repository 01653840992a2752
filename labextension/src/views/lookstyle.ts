/** Styles of the views that compare and look closer. */
import { clusterStyle } from './clusterstyle.js';
import { diffStyle } from './diffstyle.js';
import { memoryStyle } from './memorystyle.js';
import { passStyle } from './passstyle.js';

export const lookStyle = diffStyle + memoryStyle + passStyle + clusterStyle;
