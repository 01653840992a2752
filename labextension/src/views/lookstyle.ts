/** Styles of the views that compare and look closer. */
import { diffStyle } from './diffstyle.js';

export const lookStyle = diffStyle;
