/** Styles of the plots. */
export const plotsStyle = `
.tb-plots { display: flex; flex-direction: column; }
.tb-plots iframe { flex: 1 1 0; min-height: 0; width: 100%; border: 0; }
.tb-plots iframe[hidden] { display: none; }
`;
