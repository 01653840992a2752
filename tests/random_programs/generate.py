"""A random torch module of 5 to 15 lines, as text: the text is the program, so that what is found can be kept."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.random_programs.table import ALLOCATE, EXPRESSIONS, FILL, STATEMENTS

SPECIAL = ("inf", "-inf", "nan", "1e30", "-1e30", "3e38", "1e-30", "-0.0", "65504.0", "1e5", "16777217.0")
NUMBERS = ("0.0", "1.0", "-1.0", "0.5", "2.0", "-0.25", "3.0", "1.5", "-2.0", "0.1")
SHAPES = (
    (5, 7),
    (1, 33),
    (3, 4, 8),
    (2, 3, 5),
    (1, 4, 6, 6),
    (1, 3, 8, 8),
    (4,),
    (1, 2, 40),
    (33, 5),
    (2, 1, 6),
    (1, 8, 16),
)
FAMILIES = tuple(EXPRESSIONS)
MOST = 3000
"""Elements of a value: what is larger is not taken into a program."""

Names = dict[str, Any]
GLOBALS: Names = {"torch": torch, "F": functional, "nn": nn, "inf": math.inf, "nan": math.nan}


@dataclasses.dataclass(frozen=True)
class Program:
    """inputs: (shape, dtype, special values beside ordinary ones) of each; weights: their shapes; lines of `forward`;
    what it returns; whether it trains, and the seed of all numbers."""

    seed: int
    inputs: tuple[tuple[tuple[int, ...], str, bool], ...]
    weights: tuple[tuple[int, ...], ...]
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    trains: bool = False

    @property
    def text(self) -> str:
        """The module as Python."""
        takes = ", ".join(f"x{k}" for k in range(len(self.inputs)))
        held = [f"        self.w{k} = nn.Parameter(0.3 * torch.randn{shape})" for k, shape in enumerate(self.weights)]
        returned = self.returned[0] if self.trains else "".join(f"{name}, " for name in self.returned)
        body = [f"        {line}" for line in (*self.lines, f"return {returned}".strip())]
        return "\n".join(
            [
                "class M(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *held,
                "",
                f"    def forward(self, {takes}):",
                *body,
                "",
            ]
        )

    def module(self) -> nn.Module:
        """With weights of the seed. The text is ours, made by `generate`."""
        names: Names = dict(GLOBALS)
        exec(compile(self.text, f"program {self.seed}", "exec"), names)
        torch.manual_seed(self.seed)
        made: nn.Module = names["M"]()
        return made.train(False)

    def sample(self, seed: int = 1) -> tuple[torch.Tensor, ...]:
        """Inputs of another seed."""
        return tuple(values(random.Random(1000 * seed + k), *of) for k, of in enumerate(self.inputs))


def values(rng: random.Random, shape: tuple[int, ...], dtype: str, special: bool) -> torch.Tensor:
    """Random numbers, some of them special."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    if dtype == "bool":
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.startswith(("float", "bfloat")):
        high = 100 if dtype in ("uint8", "int8") else 1000
        x = torch.randint(0 if dtype == "uint8" else -high, high, shape, generator=generator)
        if special and dtype == "int64":
            x.view(-1)[:: max(2, x.numel() // 3)] = rng.choice((2**24, 2**24 + 1, 2**31 - 1, -(2**24) - 1))
        return x.to(getattr(torch, dtype))
    x = torch.randn(shape, generator=generator)
    if special:
        for _ in range(2):
            x.view(-1)[rng.randrange(x.numel())] = float(rng.choice(SPECIAL))
    return x.to(getattr(torch, dtype))


def kind(x: Any) -> str:
    """The letter of a value in the table: "f", "i", "b"; "d" for other floats, "" for what no line reads."""
    if not isinstance(x, torch.Tensor) or not 0 < x.numel() <= MOST or x.dim() > 5 or x.is_complex():
        return ""
    if x.dtype == torch.bool:
        return "b"
    return "i" if not x.is_floating_point() else "f" if x.dtype == torch.float32 else "d"


class Writer:
    """Adds lines to a program, each of which torch has run."""

    def __init__(self, rng: random.Random, inputs: Iterable[torch.Tensor], weights: list[torch.Tensor]) -> None:
        self.rng, self.inputs, self.weights = rng, tuple(inputs), weights
        self.lines: list[str] = []
        self.now: Names = {f"x{k}": x for k, x in enumerate(self.inputs)}
        self.count = 0

    def names(self, what: str, written: bool = False) -> list[str]:
        found = [n for n, v in self.now.items() if (kind(v) == what if what != "t" else kind(v) in "fbi" and kind(v))]
        return [n for n in found if not (written and n.startswith("x"))]

    def fill(self, template: str, written: bool = False) -> str | None:
        """The template with values of the program; None where it has none that fit."""
        rng, at = self.rng, {}
        first = ""
        for key in dict.fromkeys(re.findall(r"{(\w\d?)}", template)):
            kinds = key[0]
            if kinds in "fbit":
                names = self.names(kinds, written and not first)
                if first and rng.random() < 0.7:  # mostly of the shape of the first
                    names = [n for n in names if self.now[n].shape == self.now[first].shape] or names
                if not names:
                    return None
                at[key] = rng.choice(names[-4:] if rng.random() < 0.7 else names)
                first = first or at[key]
        rank = self.now[first].dim() if first else 1
        dims = [rng.randrange(-rank, rank) if rank else 0 for _ in range(2)]
        numbers = {"c": NUMBERS, "s": SPECIAL, "k": ("1", "2", "3", "5", "-1", "7")}

        def one(match: re.Match[str]) -> str:
            key = match[1]
            if key in at:
                return str(at[key])
            if key[0] in numbers:
                return rng.choice(numbers[key[0]])
            if key == "n":
                return str(self.now[first].shape[dims[0]] if first and rank else 1)
            if key == "w":
                return self.weight(int(self.now[first].shape[-1]) if first and rank else 4)
            return str(dims[0] if key == "d" else dims[1])

        return re.sub(r"{(\w\d?)}", one, template)

    def weight(self, width: int) -> str:
        for k, w in enumerate(self.weights):
            if w.shape[-1] == width:
                return f"self.w{k}"
        self.weights.append(0.3 * torch.randn(self.rng.choice((4, 6, width)), width))
        return f"self.w{len(self.weights) - 1}"

    def run(self, lines: list[str]) -> Names | None:
        """What all names hold after these lines; None where torch refuses them, or a line writes into an input."""
        held = type("Held", (), {f"w{k}": w for k, w in enumerate(self.weights)} | {"training": False})()
        local: Names = {f"x{k}": x.clone() for k, x in enumerate(self.inputs)}
        before = [x.clone() for x in local.values()]
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                names = dict(GLOBALS) | local | {"self": held}
                exec("\n".join(lines), names)
        except Exception:
            return None
        after = {n: v for n, v in names.items() if n not in GLOBALS and n not in ("self", "__builtins__")}
        if any(not torch.equal(a.nan_to_num(), after[f"x{k}"].nan_to_num()) for k, a in enumerate(before)):
            return None
        return after

    def add(self, lines: list[str]) -> bool:
        now = self.run([*self.lines, *lines])
        if now is None or any(isinstance(v, torch.Tensor) and not kind(v) for v in now.values()):
            return False
        self.lines, self.now = [*self.lines, *lines], now
        return True

    def expression(self, families: tuple[str, ...]) -> None:
        text = self.fill(self.rng.choice(EXPRESSIONS[self.rng.choice(families)]))
        if text is not None and self.add([f"v{self.count} = {text}"]):
            self.count += 1

    def statement(self) -> None:
        text = self.fill(self.rng.choice(STATEMENTS), written=True)
        if text is not None:
            self.add([text])

    def allocation(self) -> None:
        made, fill = self.fill(self.rng.choice(ALLOCATE)), self.rng.choice(FILL)
        name = f"v{self.count}"
        written = self.fill(fill.replace("{v}", name))
        if made is not None and written is not None and self.add([f"{name} = {made}", written]):
            self.count += 1


def generate(seed: int) -> Program:
    """The program of a seed: always the same."""
    rng = random.Random(seed)
    trains = rng.random() < 0.12
    inputs = [(rng.choice(SHAPES), "float32", rng.random() < 0.3)]
    if trains:
        inputs = [(inputs[0][0], "float32", False)]
    elif rng.random() < 0.55:
        other = inputs[0][0] if rng.random() < 0.7 else rng.choice(SHAPES)
        dtype = rng.choice(("float32", "float32", "int64", "int64", "bool", "int32", "uint8"))
        inputs.append((other, dtype, rng.random() < 0.3))
    torch.manual_seed(seed)
    weights: list[torch.Tensor] = []
    writer = Writer(rng, [values(random.Random(seed + k), *of) for k, of in enumerate(inputs)], weights)
    families = tuple(rng.sample(FAMILIES, rng.randint(3, 7)))
    wanted = rng.randint(5, 15)
    if trains:
        families = (*(f for f in families if f not in ("whole numbers", "types")), "products", "products")
        wanted = rng.randint(4, 9)
        writer.add([f"v0 = F.linear(x0, {writer.weight(inputs[0][0][-1])})"])
        writer.count = 1
    for _ in range(12 * wanted):
        if len(writer.lines) >= wanted:
            break
        chance = rng.random()
        if chance < 0.15 and writer.count:
            writer.statement()
        elif chance < 0.18:
            writer.allocation()
        else:
            writer.expression(families)
    made = [n for n in writer.now if n.startswith("v")]
    floats = [n for n in made if kind(writer.now[n]) == "f"]
    if trains:
        made = floats[::-1]
    last = made[-1:] if not trains else made[:1]
    returned = tuple(dict.fromkeys([*last, *rng.sample(made, min(len(made), 2))])) if not trains else tuple(last)
    if not returned:
        return generate(seed + 1_000_003)
    shapes = tuple(tuple(w.shape) for w in weights)
    return Program(seed, tuple(inputs), shapes, tuple(writer.lines), returned, trains)
