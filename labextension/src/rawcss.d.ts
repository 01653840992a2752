/** Style sheets are imported as text: a shadow root takes them as they are. */
declare module '*.raw.css' {
  const text: string;
  export default text;
}
