import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Viewpoint } from '../src/views/graph/viewpoint.js';
import { Scene } from '../src/views/graph/scene.js';
import { StaticHost } from '../src/views/host.js';
import { Store } from '../src/views/store.js';
import { frame } from './fixture.js';

/** An eye on the fixture's graph in a stage of 400 by 300, which is smaller than the graph. */
function looking(viewport: number[] = []) {
  const host = new StaticHost({ view: 'graph', viewport });
  const stage = document.createElement('div');
  Object.defineProperty(stage, 'clientWidth', { value: 400 });
  Object.defineProperty(stage, 'clientHeight', { value: 300 });
  let scene: Scene | undefined;
  const eye = new Viewpoint(new Store(host), stage, () => scene, () => undefined);
  const bring = () => {
    scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    eye.fit();
    return scene;
  };
  const told = () => {
    eye.tell();
    return host.get('viewport') as number[];
  };
  const middle = () => [(200 - eye.camera.x) / eye.camera.scale, (150 - eye.camera.y) / eye.camera.scale, eye.camera.scale];
  return { host, eye, bring, told, middle };
}

describe('where the graph is looked at from', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('is told once somebody goes elsewhere: by the wheel, on the map, to a node', () => {
    const { eye, bring, told, middle } = looking();
    const scene = bring();
    expect(told()).toEqual([]);
    eye.zoom(2);
    expect(told()).toHaveLength(3);
    eye.fit();
    expect(told()).toEqual([]);
    eye.centre(100, 900); // on the map
    expect(told().slice(0, 2)).toEqual([100, 900]);
    eye.fit();
    const node = scene.indexOf.get('layer.1.output.dense.matmul')!;
    eye.reveal(node, true);
    const [x, y, w, h] = scene.box(scene.itemOfNode[node]!);
    expect(middle().slice(0, 2)).toEqual([expect.closeTo(x + w / 2), expect.closeTo(y + h / 2)]);
    expect(told()).toHaveLength(3);
    const kept = eye.camera;
    eye.fit();
    eye.camera = kept; // back at a stage, or at a view kept under a digit
    expect(told()).toHaveLength(3);
    eye.dispose();
  });

  it('is what Python asked for before there was a graph, once: another graph is fitted', () => {
    const { host, eye, bring, told, middle } = looking([50, 60, 0.5]);
    bring();
    expect(middle()).toEqual([50, 60, 0.5]);
    eye.fitted = false; // it lies another way, or another stage is shown
    eye.fit();
    expect(middle()).not.toEqual([50, 60, 0.5]);
    expect(told()).toEqual([]);
    host.set('viewport', [70, 80, 1]);
    expect(middle()).toEqual([70, 80, 1]);
    host.set('viewport', []);
    expect(told()).toEqual([]);
    eye.dispose();
    host.set('viewport', [1, 2, 3]);
    expect(middle()).not.toEqual([1, 2, 3]);
  });
});
