"""Random netlists: a graph of many ops over a few queues and rams, with TMs, forks, feedback and several inputs."""

from __future__ import annotations

import random

from tests.sim.build import Net, sub

UNARY = ("exp", "tanh", "sigmoid", "gelu", "abs", "square", "nop", "datacopy", "lrelu")
BINARY = ("add", "subtract", "multiply", "maximum")
DIVISORS = {n: [d for d in range(1, n + 1) if n % d == 0] for n in range(1, 13)}


class Maker:
    """Adds ops to `net`, each reading what is there; `shapes` is (z, rt, ct) of every queue and op."""

    def __init__(self, seed: int, arch: str = "blackhole") -> None:
        self.rng = random.Random(seed)
        self.net = Net(arch, "Float32")
        self.shapes: dict[str, tuple[int, int, int]] = {}
        self.ops: list[str] = []

    # -- sources ---------------------------------------------------------------------------------------------------
    def source(self, name: str, kind: str, entries: int) -> None:
        shape = self.rng.choice((1, 2)), self.rng.choice((1, 2)), self.rng.choice((1, 2))
        self.shapes[name] = shape
        self.net.queue(name, shape, kind=kind, entries=entries, order=self.rng.choice((None, "r", "c")))

    def pick(self) -> str:
        """A source, the latest ones more often."""
        names = list(self.shapes)
        return self.rng.choice(names[-4:] if self.rng.random() < 0.7 else names)

    # -- shapes ----------------------------------------------------------------------------------------------------
    def moves(self, shape: tuple[int, int, int], transpose: bool) -> tuple[list, tuple[int, int, int]]:
        """Up to three random TMs and the shape after them."""
        z, r, c = shape
        listed = []
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            kind = self.rng.choice(("hslice", "vslice", "hstack", "vstack", "broadcast") + ("transpose",) * transpose)
            if kind == "hslice":
                n = self.rng.choice(DIVISORS[c])
                z, c = z * n, c // n
            elif kind == "vslice":
                n = self.rng.choice(DIVISORS[r])
                z, r = z * n, r // n
            elif kind in ("hstack", "vstack"):
                n = self.rng.choice(DIVISORS[z])
                z, r, c = (z // n, r, c * n) if kind == "hstack" else (z // n, r * n, c)
            elif kind == "transpose":
                listed.append("transpose")
                r, c = c, r
                continue
            else:
                n, dim = self.rng.choice((1, 2)), self.rng.choice("rcz")
                z, r, c = z * n if dim == "z" else z, r * n if dim == "r" else r, c * n if dim == "c" else c
                listed.append(("broadcast", dim, n))
                continue
            listed.append((kind, n))
        return (listed, (z, r, c)) if max(z, r, c) <= 4 else ([], shape)

    def fit(self, have: tuple[int, int, int], want: tuple[int, int, int]) -> list | None:
        """Broadcasts from one shape to another, None if they do not get there."""
        listed = []
        for dim, a, b in zip("zrc", have, want, strict=True):
            if b % a:
                return None
            if b != a:
                listed.append(("broadcast", dim, b // a))
        return listed

    # -- ops -------------------------------------------------------------------------------------------------------
    def add(self) -> None:
        make = self.rng.choice(
            (self.unary, self.unary, self.binary, self.binary, self.matmul, self.reduce, self.splice, self.fused)
        )
        make(f"o{len(self.ops)}")

    def done(self, name: str, shape: tuple[int, int, int]) -> None:
        self.ops.append(name)
        self.shapes[name] = shape

    def relu(self) -> dict:
        if self.rng.random() < 0.7:
            return {}
        return {
            "relu_en": True,
            "relu_threshold": self.rng.choice((0.0, 0.25)),
            "relu_mode": self.rng.choice(("min", "max")),
        }

    def unary(self, name: str) -> None:
        source = self.pick()
        listed, shape = self.moves(self.shapes[source], True)
        kind = self.rng.choice(UNARY)
        if kind in ("exp", "square"):  # kept from growing without end
            kind = "tanh"
        pad = {0: {"rt": self.rng.choice((0, 1)), "ct": 1, "pad_value": 0.5}} if self.rng.random() < 0.1 else None
        if pad:
            shape = shape[0], shape[1] + pad[0]["rt"], shape[2] + 1
        self.net.op(name, kind, [source], shape, tms={0: listed}, pad=pad, order=self.rng.choice("rc"), **self.relu())
        self.done(name, shape)

    def binary(self, name: str) -> None:
        left, right = self.pick(), self.pick()
        listed, shape = self.moves(self.shapes[left], True)
        other = self.fit(self.shapes[right], shape)
        if other is None:
            left, right, listed, shape, other = left, left, [], self.shapes[left], []
        kind = self.rng.choice(BINARY)
        self.net.op(name, kind, [left, right], shape, tms={0: listed, 1: other}, **self.relu())
        self.done(name, shape)

    def matmul(self, name: str) -> None:
        left, right = self.pick(), self.pick()
        z, r, k = self.shapes[left]
        rz, rr, rc = self.shapes[right]
        tms: list = []
        if rr != k:
            tms.append("transpose")
            rr, rc = rc, rr
        if k % rr:
            return self.unary(name)
        if k != rr:
            tms.append(("broadcast", "r", k // rr))
        if rz < z:
            if z % rz:
                return self.unary(name)
            tms.append(("broadcast", "z", z // rz))
        m_k = self.rng.choice(DIVISORS[k])
        inputs, more, listed = [left, right], {}, {1: tms}
        bias = self.pick()
        spread = self.fit(self.shapes[bias], (z, r, rc))
        if spread is not None and self.rng.random() < 0.5:
            inputs.append(bias)
            listed[2] = spread
            more = {"bias": True}
        if self.rng.random() < 0.3:
            more["sfpu_op"] = "gelu"
        self.net.op(name, "matmul", inputs, (z, r, rc), tms=listed, m_k=m_k, u_kt=k // m_k, **more, **self.relu())
        self.done(name, (z, r, rc))

    def reduce(self, name: str) -> None:
        source = self.pick()
        z, r, c = self.shapes[source]
        dim = self.rng.choice("rcz")
        shape = {"r": (z, 1, c), "c": (z, r, 1), "z": (1, r, c)}[dim]
        self.net.op(
            name,
            "reduce",
            [source],
            shape,
            dim=dim,
            type=self.rng.choice(("max", "sum")),
            **({"z": z} if dim == "z" else {}),
        )
        self.done(name, shape)

    def splice(self, name: str) -> None:
        left = self.pick()
        z, r, c = self.shapes[left]
        right = next((n for n in reversed(self.shapes) if self.shapes[n][1:] == (r, c)), left)
        other = self.shapes[right][0]
        self.net.op(
            name,
            "splice",
            [left, right],
            (z + other, r, c),
            granularity="t",
            input0=[0, z, z],
            input1=[0, other, other],
        )
        self.done(name, (z + other, r, c))
        if z + other > 4:
            del self.shapes[name]
            self.shapes[name] = (z + other, r, c)

    def fused(self, name: str) -> None:
        left = self.pick()
        shape = self.shapes[left]
        right = next((n for n in reversed(self.shapes) if self.shapes[n] == shape), left)
        size = shape[1:]
        self.net.fused(
            name,
            2,
            [
                [
                    sub("a", "add", ["input0", "input1"], "intermed0", size, tms={1: [("tile_broadcast", "r")]}),
                    sub("b", "tanh", ["input0"], "dest", size),
                    sub("c", "multiply", ["dest", "intermed0"], "output", size, pop=["intermed0"], relu_en=True),
                ]
            ],
        )
        self.net.op(name, "fused_op", [left, right], shape, fused_op_id=name)
        self.done(name, shape)


def make(seed: int, feedback: bool) -> tuple:
    """A netlist of 4 to 14 ops whose every third op has a queue, with the number of loops of its program; with
    `feedback` a ram that is read first and written by the last op that fits it."""
    m = Maker(seed)
    count, loops = m.rng.choice((1, 2, 3)), m.rng.choice((1, 2))
    m.net.graph("g", count)
    for k in range(m.rng.choice((1, 2))):
        m.source(f"x{k}", "queue", count * 2)
    m.source("w", "ram", 1)
    state = "state" if feedback else None
    if state:
        m.source(state, "ram", 1)
        m.net.net.queues[state].input = "last"
    for _ in range(m.rng.randrange(4, 15)):
        m.add()
    if state:
        expected = m.shapes[state]
        fitting = next((n for n in reversed(m.ops) if m.fit(m.shapes[n], expected) is not None), state)
        m.net.op("last", "tanh", [fitting], expected, tms={0: m.fit(m.shapes[fitting], expected)})
    read = {p.source for op in m.net.net.graphs["g"].ops.values() for p in op.inputs}
    for k, name in enumerate(m.ops):
        if name not in read or k % 3 == 0:
            m.net.queue(f"{name}.out", m.shapes[name], source=name, entries=count * loops)
    if state:
        m.net.streaming("g", loops, state={"rd_ptr_global": "$c_zero", "wr_ptr_global": "$c_zero", "prologue": False})
    else:
        m.net.streaming("g", loops)
    return m.net.netlist(), count * loops
