"""In which order the chips of a cluster take the stages of a pipeline (placement.md#chips)."""

from __future__ import annotations

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import need_known

POLICIES = ("MMIO_LAST", "SNAKE")

_WALK_STEPS = 200_000


def chip_order(device: DeviceSpec, policy: str = "MMIO_LAST") -> tuple[int, ...]:
    """Chips in the order in which they take stages.

    "MMIO_LAST": as the device lists them, those that the host reaches last, for the outputs leave from the last stage.
    "SNAKE": a walk over ethernet links that visits every chip once and ends on one the host reaches, so that every
    stage is one hop from the next. Where there is no such walk it is MMIO_LAST.
    Raises `PlacementError` for another name.
    """
    need_known(("chip placement policy", policy, POLICIES))
    reached = set(device.mmio_chips)
    listed = [c for c in device.chips if c not in reached] + [c for c in device.chips if c in reached]
    if policy == "SNAKE" and len(listed) > 1:
        for end in device.mmio_chips:
            walk = _walk(device, end)
            if walk is not None:
                return walk[::-1]
    return tuple(listed)


def _walk(device: DeviceSpec, start: int) -> tuple[int, ...] | None:
    """A path over links that visits all chips, by Warnsdorff's rule (the neighbour with the fewest ways on first; ties
    keep the direction, then the lower number), with backtracking up to a fixed number of steps."""
    near = {chip: [n for n in device.neighbours(chip) if n in device.chips] for chip in device.chips}
    path = [start]
    seen = {start}

    def ways_on(chip: int) -> list[int]:
        step = path[-1] - path[-2] if len(path) > 1 else 0
        free = [n for n in near[chip] if n not in seen]
        return sorted(free, key=lambda n: (sum(m not in seen for m in near[n]), n - chip != step, n), reverse=True)

    stack = [ways_on(start)]
    for _ in range(_WALK_STEPS):
        if len(path) == len(device.chips):
            return tuple(path)
        if stack[-1]:
            chip = stack[-1].pop()
            path.append(chip)
            seen.add(chip)
            stack.append(ways_on(chip))
        else:
            stack.pop()
            seen.discard(path.pop())
            if not path:
                return None
    return None
