"""Overrides of where and when: pins of ops, breaks between epochs and chips, an order of ops, places of queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.overrides.kind import (
    CompileFacts,
    Fault,
    Kind,
    MalformedValue,
    is_whole,
    python_call,
    read_fields,
    read_pair,
    without_none,
)
from tbuda_lab.core.overrides.record import FIRST


@dataclasses.dataclass(frozen=True)
class OpPin(Kind):
    """A pin: the (row, column) of an op's top left core, its turned grid, its chip; None leaves a part free."""

    start: tuple[int, int] | None = None
    transpose: bool | None = None
    chip: int | None = None
    kind: ClassVar[str] = "op_placement"
    early: ClassVar[bool] = True
    call: ClassVar[str] = "override_op_placement"
    of_parts: ClassVar[str] = "one"

    @classmethod
    def parse(cls, value: Any) -> Self:
        fields = read_fields(cls, value)
        if not any(part is not None for part in fields.values()):
            raise MalformedValue("it sets nothing", "op_placement takes a mapping with 'start', 'transpose', 'chip'")
        if isinstance(fields.get("start"), list):
            fields["start"] = tuple(fields["start"])
        return cls(**fields)

    def parts(self) -> Fault | None:
        """What is wrong with its parts on any device, or None."""
        try:
            if self.start is not None:
                read_pair("a start", self.start, 0)
        except MalformedValue as error:
            return error.fault
        if self.transpose is not None and not isinstance(self.transpose, bool):
            return f"transpose is true or false, not {self.transpose!r}", "leave it out to let the placer decide"
        if self.chip is not None and not is_whole(self.chip, 0):
            return f"a chip is a number, not {self.chip!r}", "chips count from 0"
        return None

    @property
    def value(self) -> dict[str, Any]:
        fields = (("start", self.start), ("transpose", self.transpose), ("chip", self.chip))
        return {k: v for k, v in fields if v is not None}

    def on_device(self, grids: Sequence[tuple[int, ...]], device: DeviceSpec) -> Fault | None:
        """What is wrong with it on a device for an op that may take these grids (rows, columns), or None."""
        if self.chip is not None and self.chip not in device.chips:
            return f"{device.name} has no chip {self.chip!r}", f"chips: {', '.join(map(str, device.chips))}"
        fault = self.parts()
        if fault is not None:
            return fault
        turned = [g[::-1] if self.transpose else g for g in grids]
        if not any(r <= device.rows and c <= device.cols for r, c in turned):
            return "transposed, none of its legal grids fits the device", "leave the transposition out"
        if self.start is None:
            return None
        row, col = self.start
        if not any(r + row <= device.rows and c + col <= device.cols for r, c in turned):
            text = f"no legal grid of this op fits at ({row}, {col}) on {device.rows}x{device.cols} cores"
            return text, "choose a smaller row or column, or another op size"
        return None

    def label(self, target: str) -> str:
        words = [f"to {self.start[0]},{self.start[1]}"] if self.start is not None else []
        words += [] if self.transpose is None else ["transposed" if self.transpose else "upright"]
        words += [] if self.chip is None else [f"on chip {self.chip}"]
        return f"move {target} {' '.join(words)}"

    def python(self, target: str | list[str]) -> str:
        # by keywords: PyBuda's own example by position does not fit its signature
        words = without_none(start=self.start, transpose_op=self.transpose, chip_id=self.chip)
        return python_call(self.call, target, **words)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.place


@dataclasses.dataclass(frozen=True)
class EpochStart(Kind):
    """A new epoch at an op. Of a list of names: before whichever is scheduled first; of a pattern or predicate: before
    each match, or with `FIRST` before the first of them."""

    on: bool = True
    first: bool = False
    kind: ClassVar[str] = "epoch_break"
    early: ClassVar[bool] = True
    addresses: ClassVar[str] = "schedule"
    in_one_call: ClassVar[bool] = True
    call: ClassVar[str] = "set_epoch_break"
    of_parts: ClassVar[str] = "first"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if value not in (True, False, FIRST):
            fix = f"True, or {FIRST!r} before the first of several ops"
            raise MalformedValue(f"an epoch break is True or False, not {value!r}", fix)
        return cls(bool(value), value == FIRST)

    def stands_once(self, target: Any) -> bool:
        """Whether it stands before the first of the ops that a target means, and not before each."""
        return self.first or isinstance(target, tuple)

    @property
    def value(self) -> Any:
        return FIRST if self.first else self.on

    def label(self, target: str) -> str:
        what = f"{self.kind.replace('_', ' ')} before {target}"
        return what if self.on else f"remove the {what}"

    def python(self, target: str | list[str]) -> str:
        return python_call(self.call, target)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.begins_epoch

    @classmethod
    def met(cls, value: Any, got: Any) -> bool:
        return bool(got) or not value


@dataclasses.dataclass(frozen=True)
class ChipStart(EpochStart):
    """The next chip from an op on."""

    kind: ClassVar[str] = "chip_break"
    call: ClassVar[str] = "set_chip_break"


@dataclasses.dataclass(frozen=True)
class ScheduleConstraint(Kind):
    """Ops, the target, that run in the order in which it names them."""

    on: bool = True
    kind: ClassVar[str] = "schedule_constraint"
    in_one_call: ClassVar[bool] = True
    call: ClassVar[str] = "add_schedule_constraint"

    @classmethod
    def parse(cls, value: Any) -> Self:
        return cls(bool(value))

    @property
    def value(self) -> bool:
        return self.on

    def python(self, target: str | list[str]) -> str:
        return python_call(self.call, target)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.position

    @classmethod
    def met(cls, value: Any, got: Any) -> bool:
        return True  # an order that cannot be had stops the compile


@dataclasses.dataclass(frozen=True)
class QueuePin(Kind):
    """The chip of a queue and its DRAM channel there; None leaves one free."""

    chip: int | None = None
    channel: int | None = None
    kind: ClassVar[str] = "queue_channel"
    early: ClassVar[bool] = True
    addresses: ClassVar[str] = "queues"
    call: ClassVar[str] = "override_dram_queue_placement"

    @classmethod
    def parse(cls, value: Any) -> Self:
        fields = read_fields(cls, value)
        if not any(part is not None for part in fields.values()):
            raise MalformedValue("it sets nothing", "queue_channel takes a mapping with 'chip', 'channel'")
        return cls(**fields)

    @property
    def value(self) -> dict[str, Any]:
        return {k: v for k, v in (("chip", self.chip), ("channel", self.channel)) if v is not None}

    def on_device(self, device: DeviceSpec) -> tuple[str, Fault] | None:
        """What is wrong with it on a device ("chip" or "channel", and how), or None."""
        if self.chip is not None and self.chip not in device.chips:
            fix = f"chips: {', '.join(map(str, device.chips))}"
            return "chip", (f"{device.name} has no chip {self.chip!r}", fix)
        if self.channel is not None and not (is_whole(self.channel, 0) and self.channel < device.dram_channels):
            fix = f"channels 0 to {device.dram_channels - 1}"
            return "channel", (f"there is no DRAM channel {self.channel!r}", fix)
        return None

    def label(self, target: str) -> str:
        words = [] if self.channel is None else [f"to channel {self.channel}"]
        words += [] if self.chip is None else [f"on chip {self.chip}"]
        return f"queue {target} {' '.join(words)}"

    def python(self, target: str | list[str]) -> str:
        return python_call(self.call, target, **without_none(channel=self.channel, chip_id=self.chip))

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.queue
