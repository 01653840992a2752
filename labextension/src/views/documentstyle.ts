/** Looks of the documents: session files and TTI images. */
export const documentStyle = `
.tb-document > .tb-facts { padding: 8px 12px; margin-bottom: 8px; }
.tb-document h3, .tb-document h4 { margin: 10px 0 6px; }
.tb-document details { margin-top: 6px; }
.tb-document summary { cursor: pointer; }
.tb-document .tb-steps { margin: 0; padding-left: 28px; }
.tb-document .tb-steps small { color: var(--tb-muted); }
.tb-document .tb-undone { text-decoration: line-through; }
.tb-snippet { display: flex; gap: 8px; align-items: flex-start; }
.tb-snippet pre { margin: 0; flex: 1; padding: 8px; overflow: auto; }
.tb-alone { grid-template-columns: 1fr; }
`;
