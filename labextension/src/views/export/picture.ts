/** The view as it is on the screen, as PNG bytes; sent to the kernel in parts, which writes the file. */
import type { Host } from '../host.js';

const SCALE = 2;
const PART = 45_000; // bytes: 60,000 letters in base64, below what one message may have

/** PNG of the grid or the graph of a root. Raises an error where there is no such view, or the browser cannot paint it. */
export async function paintPicture(root: HTMLElement, view: string): Promise<Uint8Array> {
  const canvas = view === 'graph' ? graphCanvas(root) : await gridCanvas(root);
  const blob = await new Promise<Blob | null>(done => canvas.toBlob(done, 'image/png'));
  if (!blob) throw new Error('The browser cannot make a picture of that size.');
  return new Uint8Array(await blob.arrayBuffer());
}

function graphCanvas(root: HTMLElement): HTMLCanvasElement {
  const from = root.querySelector<HTMLCanvasElement>('[data-tb-view=graph] canvas.tb-canvas');
  if (!from?.width) throw new Error('The graph is hidden: show it, or choose the grid.');
  return onGround(root, from.width, from.height, context => context.drawImage(from, 0, 0));
}

async function gridCanvas(root: HTMLElement): Promise<HTMLCanvasElement> {
  const from = root.querySelector<SVGSVGElement>('[data-tb-view=grid] svg.tb-cores');
  if (!from) throw new Error('The grid is hidden: show it, or choose the graph.');
  const box = from.getBoundingClientRect();
  const copy = from.cloneNode(true) as SVGSVGElement;
  inline(from, copy);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', String(box.width));
  copy.setAttribute('height', String(box.height));
  const image = new Image();
  const ready = new Promise<void>((done, fail) => {
    image.onload = () => done();
    image.onerror = () => fail(new Error('The browser cannot draw the grid.'));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await ready;
  return onGround(root, box.width * SCALE, box.height * SCALE, (context, w, h) => context.drawImage(image, 0, 0, w, h));
}

function onGround(
  root: HTMLElement, w: number, h: number, paint: (context: CanvasRenderingContext2D, w: number, h: number) => void
): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(w);
  canvas.height = Math.round(h);
  const context = canvas.getContext('2d');
  if (!context) throw new Error('The browser does not support canvas drawing.');
  context.fillStyle = getComputedStyle(root).getPropertyValue('--tb-surface').trim() || '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  paint(context, canvas.width, canvas.height);
  return canvas;
}

const STYLES = [
  'fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'opacity', 'font-family', 'font-size',
  'font-weight', 'text-anchor', 'visibility', 'display'
];

/** Writes the styles that the page's sheet gives into the copy: a picture has no sheet. */
function inline(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  to.setAttribute('style', STYLES.map(name => `${name}:${style.getPropertyValue(name)}`).join(';'));
  [...from.children].forEach((child, i) => inline(child, to.children[i]!));
}

export function sendPicture(host: Host, bytes: Uint8Array, path: string, replace: boolean): void {
  const count = Math.max(1, Math.ceil(bytes.length / PART));
  for (let i = 0; i < count; i++) {
    let text = '';
    for (const byte of bytes.subarray(i * PART, (i + 1) * PART)) text += String.fromCharCode(byte);
    host.send({ type: 'export_picture', path, replace, part: [i, count], data: btoa(text) });
  }
}
