/** What the lanes do at one cycle. */
import type { TraceModel } from './model.js';
import type { Doing } from './shared.js';
import type { Tiles } from './tiles.js';

function doingOf(model: TraceModel, lane: number, kind: number, input: number): Doing {
  return { op: model.ops[model.opOfLane[lane]!]!.name, cores: model.cores[lane]!, kind, input };
}

/** As far as the tiles know: for a page without a kernel. */
export function fromTiles(model: TraceModel, tiles: Tiles, cycle: number): Doing[] {
  const found: Doing[] = [];
  model.blockFirst.forEach((low, block) => {
    for (const [tile] of tiles.best(block, cycle, cycle + 1)) {
      for (let lane = low; lane < model.blockEnd[block]!; lane++) {
        for (let i = tile.offsets[lane - low]!; i < tile.offsets[lane - low + 1]!; i++) {
          if (tile.start[i]! <= cycle && cycle < tile.end[i]!) found.push(doingOf(model, lane, tile.kind[i]!, tile.input[i]!));
        }
      }
    }
  });
  return found;
}
