/** A second graph beside the first: another stage of the same model, with selection and pointer in step. */
import { StaticHost } from '../host.js';
import { Store } from '../store.js';
import { GraphView } from './view.js';

/** Frames that a graph is drawn from. */
const DRAWN = /^(graph:(traced|passed|lowered)|ops|checks|overlay)$/;

/** What is opened, sought and where one looks is its own; a node of one stage stands for those of another as names say. */
export class SecondGraph {
  readonly element: HTMLElement;
  private readonly inner = new Store(new StaticHost());
  private readonly graph = new GraphView(this.inner);
  private readonly stops: (() => void)[] = [];

  constructor(store: Store) {
    this.element = this.graph.element;
    this.element.dataset['tbView'] = 'secondgraph';
    this.element.setAttribute('aria-label', 'Second graph');
    const take = (key: string) => {
      const frame = store.frames.get(key);
      if (frame && DRAWN.test(key)) this.inner.put(frame);
    };
    this.stops.push(
      store.on('frame', take),
      store.on('colour', () => this.inner.setColour(store.colour)),
      store.on('selection', () => this.follow(store)),
      store.on('hover', () => this.inner.setHover(store.hover)),
      this.inner.on('selection', source => {
        if (source !== 'outside') store.select(this.inner.selection.names, 'secondgraph');
      }),
      this.inner.on('hover', () => store.setHover(this.inner.hover)));
    for (const key of store.frames.keys()) take(key);
    this.inner.setColour(store.colour);
    this.graph.show('traced');
    this.follow(store);
  }

  dispose(): void {
    this.stops.forEach(stop => stop());
    this.graph.dispose();
    this.inner.dispose();
  }

  private follow(store: Store): void {
    if (store.selection.source !== 'secondgraph') this.inner.select(store.selection.names, 'outside');
  }
}
