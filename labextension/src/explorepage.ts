/** The picture of an exploration by itself: a page that works offline (`draw`), and `ExploreView` of a notebook. */
import exploreStyle from './views/explore/explore.raw.css';
import type { Ask, Picture } from './views/explore/data.js';
import { ExplorePicture } from './views/explore/picture.js';
import { isDark, onTheme } from './views/theme.js';

/** The part of anywidget's model that is used here. */
interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, f: () => void): void;
  off(event: string, f: () => void): void;
}

function place(el: HTMLElement, send: ((ask: Ask) => void) | null): ExplorePicture {
  const style = document.createElement('style');
  style.textContent = exploreStyle;
  const picture = new ExplorePicture(send);
  el.append(style, picture.element);
  return picture;
}

/** A page's picture, in the colours that its reader's system asks for. */
export function draw(el: HTMLElement, data: Picture): void {
  const picture = place(el, null);
  picture.element.classList.add('tx-auto');
  picture.show(data);
}

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const picture = place(el, ask => model.send(ask));
    const colour = () => void picture.element.classList.toggle('tx-dark', isDark());
    const update = () => {
      const data = model.get('picture') as Partial<Picture> | undefined;
      if (data?.trials) picture.show(data as Picture);
    };
    const stop = onTheme(colour);
    colour();
    model.on('change:picture', update);
    update();
    return () => {
      stop();
      model.off('change:picture', update);
    };
  }
};
