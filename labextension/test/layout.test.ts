import { describe, expect, it } from 'vitest';

import { GROUP, NODE, place, separate, Structure } from '../src/views/graph/layout.js';
import { Scene } from '../src/views/graph/scene.js';
import { fixture, frame } from './fixture.js';

describe('separate', () => {
  it('leaves boxes where they want to be when they fit', () => {
    expect(separate([0, 100, 200], [1, 1, 1], [20, 20, 20])).toEqual([0, 100, 200]);
  });

  it('spreads boxes that want the same place around it, in order and apart by gap', () => {
    const [a, b, c] = separate([50, 50, 50], [1, 1, 1], [20, 20, 20]) as [number, number, number];
    expect(b).toBeCloseTo(50);
    expect(b - a).toBeCloseTo(36);
    expect(c - b).toBeCloseTo(36);
  });

  it('lets the heavier one keep its place', () => {
    const [lane, node] = separate([50, 50], [1e6, 1], [6, 20]) as [number, number];
    expect(lane).toBeCloseTo(50, 3);
    expect(node - lane).toBeCloseTo(29, 3);
  });
});

describe('place', () => {
  const structure = new Structure(frame('graph:lowered'));

  it('puts everything where the kernel puts it', () => {
    for (const { open, direction, words, size, boxes } of fixture.layouts) {
      const layout = place(structure, new Set([0, ...open]), direction, words);
      expect(layout.width).toBeCloseTo(size[0], 6);
      expect(layout.height).toBeCloseTo(size[1], 6);
      expect(layout.visible.reduce((n, v) => n + v, 0)).toBe(boxes.length);
      for (const [item, ...box] of boxes) {
        box.forEach((value, k) => expect(layout.boxes[4 * item + k]).toBeCloseTo(value, 6));
      }
    }
  });

  it('never lets two boxes of one container overlap, open or closed', () => {
    const ways = [new Set([0]), new Set(structure.labelChars.map((_, g) => g))].flatMap(opened => (['TB', 'LR'] as const).map(way => [opened, way] as const));
    for (const [opened, way] of ways) {
      const { boxes, visible } = place(structure, opened, way);
      for (const members of structure.members) {
        const shown = members.filter(i => visible[i] && (structure.kind[i] === NODE || structure.kind[i] === GROUP));
        for (const [k, a] of shown.entries()) {
          for (const b of shown.slice(k + 1)) {
            const apart =
              boxes[4 * a]! + boxes[4 * a + 2]! <= boxes[4 * b]! + 1e-6 || boxes[4 * b]! + boxes[4 * b + 2]! <= boxes[4 * a]! + 1e-6 ||
              boxes[4 * a + 1]! + boxes[4 * a + 3]! <= boxes[4 * b + 1]! + 1e-6 || boxes[4 * b + 1]! + boxes[4 * b + 3]! <= boxes[4 * a + 1]! + 1e-6;
            expect(apart).toBe(true);
          }
        }
      }
    }
  });
});

describe('Scene', () => {
  it('hits the node that is drawn at a point, and the group around it', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    for (const [node, name] of scene.names.entries()) {
      const [x, y, w, h] = scene.box(scene.itemOfNode[node]!);
      const hit = scene.hit(x + w / 2, y + h / 2);
      expect(hit && scene.names[hit.ref]).toBe(name);
    }
    expect(scene.hit(-50, -50)).toBeNull();
  });

  it('leads from a node back to its producers, through groups open or closed', () => {
    const scene = new Scene(frame('graph:lowered'));
    const node = scene.indexOf.get('layer.1.attention.self.matmul_0')!;
    scene.openAll();
    const all = scene.incoming(node).map(s => scene.segments.get(s)!.net);
    const names = new Set(all.map(n => scene.names[n]));
    expect(names).toEqual(new Set(['layer.1.attention.self.query.matmul', 'layer.1.attention.self.key.matmul']));
    const ends = scene.outgoing(node).map(s => scene.segments.get(s)!);
    expect(ends.some(e => e.arrow)).toBe(true);
  });

  it('shows edges in one piece: an edge ends where the next begins', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const node = scene.indexOf.get('layer.1.output.dense.matmul')!;
    const path = scene.incoming(node).map(s => scene.segments.get(s)!);
    for (const [k, later] of path.entries()) {
      const earlier = path[k + 1];
      if (!earlier || earlier.net !== later.net) continue;
      expect(earlier.x1).toBeCloseTo(later.x0, 3);
      expect(later.y0).toBeGreaterThanOrEqual(earlier.y1 - 1e-6);
    }
  });

  it('lies from left to right: an edge goes from a right side to a left one, and is hit where it is drawn', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    expect([scene.lie('LR', false), scene.lie('LR', false)]).toEqual([true, false]);
    const node = scene.indexOf.get('layer.1.output.dense.matmul')!;
    const [x, y, , h] = scene.box(scene.itemOfNode[node]!);
    const last = scene.segments.get(scene.incoming(node)[0]!)!;
    expect([last.x1, last.y1]).toEqual([x, y + h / 2]);
    for (const [k, later] of scene.incoming(node).map(s => scene.segments.get(s)!).entries()) {
      const earlier = scene.incoming(node).map(s => scene.segments.get(s)!)[k + 1];
      if (earlier?.net === later.net) expect([earlier.x1 <= later.x0 + 1e-6, Math.abs(earlier.y1 - later.y0) < 1e-3]).toEqual([true, true]);
    }
    const [mx, my] = scene.middle(last);
    expect(scene.edgeAt(mx, my, 3)).toEqual({ source: last.net, target: node });
  });

  it('knows what an edge does to its tensor, on the piece that arrives', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.openAll();
    const node = scene.indexOf.get('layer.0.attention.self.matmul_0')!;
    const said = scene.incoming(node).map(s => scene.wordsOn(s)).filter(Boolean);
    expect(new Set(said)).toEqual(new Set(['hslice(12)', 'hslice(12) → transpose']));
    expect(scene.outgoing(node).map(s => scene.wordsOn(s)).filter(text => text.includes('slice'))).toEqual([]);
  });

  it('stands a closed group in for the nodes inside', () => {
    const scene = new Scene(frame('graph:lowered'));
    scene.closeAll();
    const node = scene.indexOf.get('layer.0.intermediate.gelu_0')!;
    expect(scene.structure.kind[scene.standIn(node)]).toBe(GROUP);
    expect(scene.reveal(node)).toBe(true);
    expect(scene.structure.kind[scene.standIn(node)]).toBe(NODE);
  });
});
