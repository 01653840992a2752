"""An independent evaluation of netlists in float64, tile by tile and input by input.

Written from the semantics, not from the executor: tensors are lists of tiles (z, row, column), every op loops over
its tiles, every core decodes its own sparse stream word by word, programs run one instruction after the other. It is
as slow as that sounds. Values are converted by `reference_formats.py`; the library gives the netlist and the names of
formats alone.
"""

from __future__ import annotations

import math

import numpy as np

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist import schema as s
from tests.sim.reference_formats import SMALL, cut, cut_fraction, stored, whole
from tests.sim.reference_ops import (
    EPS,
    binary,
    broadcast_tile,
    depthwise,
    embedding,
    matmul,
    reduce,
    relu,
    sparse_matmul,
    splice,
    topk,
    unary,
)
from tests.sim.reference_tiles import Tiles, from_tiles, to_tiles

__all__ = ["EPS", "Reference"]


def full(queue):
    z, rt, ct = queue.blocking.tiles(queue.grid_size)
    h, w = queue.tile_dim or (32, 32)
    return z, rt * h, ct * w


class Fifo:
    def __init__(self, spec):
        self.spec, self.n = spec, spec.entries
        self.memory = [np.zeros(full(spec)) for _ in range(spec.entries)]
        self.rd = self.wr = self.local = self.base = 0
        self.auto, self.global_auto, self.wr_auto, self.still = 1 if spec.type == "queue" else 0, 0, 0, False

    def push(self, x):
        if self.spec.type == "ram":
            self.memory[self.wr] = x
            self.wr = (self.wr + self.wr_auto) % self.n
            return
        assert (self.wr - self.rd) % (2 * self.n) < self.n, "full"
        self.memory[self.wr % self.n] = x
        self.wr = (self.wr + 1) % (2 * self.n)

    def get(self):
        if self.spec.type == "ram":
            x = self.memory[self.rd]
            if not self.still:
                self.rd = (self.rd + self.global_auto) % self.n
            return x
        x = self.memory[self.local % self.n]
        if not self.still:
            self.local = (self.local + self.auto) % (2 * self.n)
        return x

    def move_rd(self, new):
        new %= 2 * self.n
        if (new // self.n) != (self.rd // self.n) and new >= self.wr:
            self.wr = new
        self.rd = new


class Slices:
    """A view of a ram: every slot is some slots of the base, stacked as slices of one blocking."""

    def __init__(self, base, entries):
        self.base, self.k = base, base.n // entries

    def __getitem__(self, i):
        return np.concatenate(self.base.memory[i * self.k : (i + 1) * self.k])


class Reference:
    def __init__(self, netlist: s.Netlist, arch: str | None = None):
        self.net = netlist
        self.arch = (arch or netlist.arch[0]).lower()
        self.q = {name: Fifo(q) for name, q in netlist.queues.items()}
        self.ops = {op.name: (g, op) for g in netlist.graphs.values() for op in g.ops.values()}
        for name, q in netlist.queues.items():
            if q.alias:
                self.q[name].memory = Slices(self.q[q.alias], q.entries)
        self.previous = {}
        self.statics = {}
        self.epoch = self._epochs()

    # -- host
    def convert(self, queue, x):
        x = np.asarray(x)
        if queue.df.is_raw:
            h, w = queue.tile_dim or (32, 32)
            z, rows, columns = full(queue)
            out = np.zeros((z, rows, columns), np.int64)
            words = x.reshape(-1).astype(np.int64)
            k = 0
            for i in range(z):
                for r in range(rows // h):
                    for c in range(columns // w):
                        out[i, r * h : (r + 1) * h, c * w : (c + 1) * w] = words[k : k + h * w].reshape(h, w)
                        k += h * w
            return out
        return stored(x, queue.df)

    def push(self, name, array):
        for x in np.asarray(array).reshape(-1, *full(self.net.queues[name])):
            self.q[name].push(self.convert(self.net.queues[name], x))

    def write(self, name, array, slot=0):
        self.q[name].memory[slot] = self.convert(self.net.queues[name], array)

    def pop(self, name):
        f = self.q[name]
        if f.spec.type == "ram":
            x = f.memory[0]
        else:
            assert f.rd != f.wr, "empty"
            x = f.memory[f.rd % f.n]
            f.rd = (f.rd + 1) % (2 * f.n)
        return self.out(f.spec, x)

    def read(self, name, slot=0):
        return self.out(self.q[name].spec, self.q[name].memory[slot])

    @staticmethod
    def out(spec, x):
        if spec.df.is_integer:
            return whole(x, spec.df)
        return stored(x, spec.df)

    # -- epochs
    def _epochs(self):
        names = list(self.net.graphs)
        sets = {n: {n} for n in names}

        def join(a, b):
            union = sets[a] | sets[b]
            for n in union:
                sets[n] = union

        for g, op in self.ops.values():
            for port in op.inputs:
                if port.source in self.ops:
                    join(g.name, self.ops[port.source][0].name)
        return sets

    # -- programs
    def run(self, params=None):
        for program in self.net.programs:
            self.program(program, params or {})

    def program(self, program, params):
        local, static = {}, self.statics.setdefault(program.name, {})
        bound, waiting = {}, {}

        def value(v):
            if isinstance(v, str) and v.startswith("$"):
                return local[v] if v in local else static[v]
            return (
                {"true": 1, "false": 0}.get(str(v).lower(), v if isinstance(v, int) else 0)
                if not isinstance(v, bool)
                else int(v)
            )

        def apply(name, fields, first):
            f = self.q[name]
            f.still = bool(value(fields.get("prologue", 0)) or value(fields.get("epilogue", 0)))
            if "rd_ptr_autoinc" in fields:
                f.auto = value(fields["rd_ptr_autoinc"])
            f.global_auto = value(fields.get("global_rdptr_autoinc", 0))
            f.wr_auto = value(fields.get("global_wrptr_autoinc", 0))
            if "rd_ptr_local" in fields:
                f.local = f.base = value(fields["rd_ptr_local"]) % (2 * f.n)
            if "rd_ptr_global" in fields:
                target = value(fields["rd_ptr_global"])
                if f.spec.type == "ram":
                    f.rd = target
                elif first:
                    f.rd = target % (2 * f.n)
                else:
                    f.move_rd(target)
            if "wr_ptr_global" in fields and not value(fields.get("read_only", 0)):
                f.wr = value(fields["wr_ptr_global"])

        pc, stack = 0, []
        code = program.instructions
        while pc < len(code):
            i = code[pc]
            pc += 1
            if isinstance(i, s.Param):
                local.update({n: int(params.get(n, 1)) for n in i.names})
            elif isinstance(i, s.Var):
                for n, v in i.values.items():
                    if i.static:
                        static.setdefault(n, value(v or 0))
                    else:
                        local[n] = value(v or 0)
            elif isinstance(i, s.VarInst):
                a = [value(x) for x in i.args]
                old = value(i.out)
                (local if i.out in local else static)[i.out] = varinst(i.opcode, old, *a)
                for name, fields in bound.items():
                    touched = {k: v for k, v in fields.items() if v == i.out and k != "zero"}
                    if touched:
                        still = {
                            k: fields[k]
                            for k in (
                                "prologue",
                                "epilogue",
                                "read_only",
                                "global_rdptr_autoinc",
                                "global_wrptr_autoinc",
                            )
                            if k in fields
                        }
                        apply(name, {**still, **touched}, False)
            elif isinstance(i, s.Loop):
                stack.append([pc, value(i.count)])
            elif isinstance(i, s.EndLoop):
                stack[-1][1] -= 1
                if stack[-1][1]:
                    pc = stack[-1][0]
                else:
                    stack.pop()
            elif isinstance(i, s.Execute):
                key = frozenset(self.epoch[i.graph])
                waiting.setdefault(key, {})[i.graph] = {
                    n: {k: value(v) for k, v in q.fields.items()} | {"_": q.fields}
                    for n, q in (i.settings or {}).items()
                }
                if set(waiting[key]) != set(key):
                    continue
                merged = {n: f for one in waiting.pop(key).values() for n, f in one.items()}
                for name, fields in merged.items():
                    if fields.get("zero"):
                        self.q[name].memory = [np.zeros_like(m) for m in self.q[name].memory]
                        self.previous.pop(self.net.queues[name].input, None)
                    apply(name, {k: v for k, v in fields.items() if k != "_"}, name not in bound)
                    bound[name] = fields["_"]
                self.execute(key, merged)
            elif isinstance(i, s.Allocate):
                for n in i.queues:
                    f = self.q[n]
                    f.rd = f.wr = f.local = f.base = 0

    def execute(self, graphs, merged):
        count = self.net.graphs[next(iter(graphs))].input_count
        for _ in range(count):
            self.one_input(graphs)
            for name in merged:
                f = self.q[name]
                if f.spec.type == "queue":
                    f.rd = (f.rd + f.global_auto) % (2 * f.n)
        for name in merged:
            self.q[name].local = self.q[name].base

    def one_input(self, graphs):
        ops = [op for g, op in self.ops.values() if g.name in graphs]
        mine = {op.name for op in ops}
        done, values = set(), {}
        feeds = {q.name: q.input for q in self.net.queues.values() if q.input in mine}
        for op in ops:  # rams are read before anything is written
            for port in op.inputs:
                if (
                    port.source in self.q
                    and port.source not in values
                    and (port.source not in feeds or self.q[port.source].spec.type == "ram")
                ):
                    values[port.source] = self.q[port.source].get()
        while len(done) < len(ops):
            for op in ops:
                if op.name in done:
                    continue
                for port in op.inputs:
                    if port.source not in values and feeds.get(port.source) in done:
                        values[port.source] = self.q[port.source].get()
                if all(port.source in values for port in op.inputs):
                    break
            out = self.evaluate(op, [values[p.source] for p in op.inputs])
            values[op.name] = out
            done.add(op.name)
            for name, producer in feeds.items():
                if producer == op.name:
                    queue = self.net.queues[name]
                    x = out
                    if queue.input_tms:
                        x = from_tiles(self.tms(to_tiles(x, op.tile_dim or (32, 32)), queue.input_tms))
                    assert x.shape == full(queue), (name, x.shape, full(queue))
                    self.q[name].push(x)

    # -- ops
    def tag(self, name):
        """Golden format of a source: an op's is that of its first input, of a picker that of what it picks from."""
        while name in self.ops:
            op = self.ops[name][1]
            name = op.inputs[1 if op.attributes.get("identity") else 0].source
        return self.net.queues[name].df

    def tms(self, t: Tiles, tms):
        for m in tms:
            t = apply_tm(t, m)
        return t

    def tile_dim(self, name):
        result = self.ops[name][1].tile_dim if name in self.ops else self.net.queues[name].tile_dim
        return result or (32, 32)

    def evaluate(self, op, inputs):
        a = op.attributes
        ins = []
        for port, x in zip(op.inputs, inputs, strict=True):
            tag = self.tag(port.source)
            turned = any(m.name == "transpose" for m in port.tms or [])
            host = port.source in self.net.queues and self.net.queues[port.source].input == "HOST"
            if tag is DataFormat.Float32 and self.arch in ("wormhole", "wormhole_b0") and host:
                x = cut_fraction(x, 13)
            if tag in SMALL and turned:
                x = cut(x, tag)
            t = to_tiles(x, self.tile_dim(port.source))
            if port.unpad:
                t = t.cut(port.unpad.get("rt", 0), port.unpad.get("ct", 0))
            t = self.tms(t, port.tms or [])
            if port.pad:
                amount = port.pad.get("rt", 0), port.pad.get("ct", 0), port.pad.get("pad_value", 0)
                t = apply_tm(t, s.Tm("pad", amount))
            if tag in SMALL and not turned:
                t = to_tiles(cut(from_tiles(t), tag), t.tiles[0].shape)
            ins.append(t)
        out = self.compute(op, ins)
        out = from_tiles(out) if isinstance(out, Tiles) else out
        h, w = op.tile_dim or (32, 32)
        z, rt, ct = op.blocking.tiles(op.grid_size)
        assert out.shape == (z, rt * h, ct * w), (op.name, out.shape, (z, rt * h, ct * w))
        if op.gradient_op:
            out = out + self.previous.get(op.name, 0)
        if op.type != "fused_op":
            out = relu(out, a)
        if op.out_df.is_integer:
            out = whole(out, op.out_df)
        elif op.out_df in SMALL:
            out = cut(out, op.out_df)
        self.previous[op.name] = out
        return out

    def compute(self, op, ins):
        a, kind = op.attributes, op.type
        tile = op.tile_dim or (32, 32)
        if kind in ("nop", "datacopy", "ethernet_datacopy", "tilizer"):
            return ins[0]
        if kind == "matmul":
            if a.get("identity"):
                return sparse_matmul(op, ins)
            return matmul(op, ins)
        if kind == "depthwise":
            return depthwise(op, ins)
        if kind == "reduce":
            return reduce(
                from_tiles(ins[0]), a["dim"], a.get("type", "max"), tile, a.get("z", 1), op.blocking.tiles(op.grid_size)
            )
        if kind == "splice":
            return splice(op, [from_tiles(t) for t in ins])
        if kind == "embedding":
            return embedding(op, from_tiles(ins[0]), ins[1])
        if kind == "topk":
            return topk(op, from_tiles(ins[0]), from_tiles(ins[1]))
        if kind == "fused_op":
            return self.fused(op, ins)
        if len(ins) == 2:
            return binary(kind, from_tiles(ins[0]), from_tiles(ins[1]), float(a.get("zero_point", 0)))
        return unary(kind, from_tiles(ins[0]), a, tile)

    def fused(self, op, ins):
        buffers = {f"input{i}": from_tiles(t) for i, t in enumerate(ins)}
        tile = op.tile_dim or (32, 32)
        gr, gc = op.grid_size
        for schedule in self.net.fused_ops[str(op.attributes["fused_op_id"])].schedules:
            for sub in schedule:
                args = []
                for i, name in enumerate(sub.inputs):
                    x = buffers[name]
                    for m in sub.tms.get(i, []):
                        if m.name == "tile_broadcast":
                            x = broadcast_tile(x, m.args[0], tile)
                            continue
                        for dim, k in m.args:  # what a core holds, k times
                            axis, cores = (1, gr) if dim == "r" else (2, gc)
                            x = np.concatenate(
                                [np.concatenate([part] * k, axis) for part in np.split(x, cores, axis)], axis
                            )
                    args.append(x)
                if sub.type in ("nop", "datacopy"):
                    out = args[0]
                elif sub.type == "matmul":
                    out = np.stack([p @ q for p, q in zip(*args, strict=False)])
                elif sub.type == "reduce":
                    dim = sub.attributes["dim"]
                    h, w = tile
                    z, rows, columns = args[0].shape
                    out = reduce(
                        args[0],
                        dim,
                        sub.attributes["type"],
                        tile,
                        1,
                        (z, gr if "r" in dim else rows // h, gc if "c" in dim else columns // w),
                    )
                elif len(args) == 2:
                    out = binary(sub.type, *args, float(sub.zero_point or 0))
                    if sub.type in ("quantization", "requantization"):
                        out = whole(out, DataFormat.Int8)
                else:
                    out = unary(sub.type, args[0], sub.attributes, tile)
                buffers[sub.output] = relu(out, sub.attributes)
        return buffers["output"]


def varinst(opcode, old, a, b=None):
    if opcode == "set":
        return a
    if opcode == "add":
        return a + b
    if opcode == "mul":
        return a * b
    return old + a if opcode == "inc" else (old + a) % b


def apply_tm(t: Tiles, m) -> Tiles:
    if m.name == "transpose":
        return t.build(t.z, t.c, t.r, lambda z, r, c: t.at(z, c, r).T)
    if m.name == "broadcast":
        for dim, k in m.args:
            old = t
            z, r, c = (
                old.z * k if dim == "z" else old.z,
                old.r * k if dim == "r" else old.r,
                old.c * k if dim == "c" else old.c,
            )
            t = old.build(z, r, c, lambda i, j, k_, old=old: old.at(i % old.z, j % old.r, k_ % old.c))
        return t
    if m.name == "pad":
        rt, ct, v = m.args
        blank = np.full(t.at(0, 0, 0).shape, float(v))
        return t.build(t.z, t.r + rt, t.c + ct, lambda z, r, c: t.at(z, r, c) if r < t.r and c < t.c else blank)
    if m.name == "tile_broadcast":
        raise AssertionError("inside fused ops only")
    n = m.args[0]
    if m.name == "hslice":
        w = t.c // n
        return t.build(t.z * n, t.r, w, lambda z, r, c: t.at(z // n, r, z % n * w + c))
    if m.name == "vslice":
        h = t.r // n
        return t.build(t.z * n, h, t.c, lambda z, r, c: t.at(z // n, z % n * h + r, c))
    n = n or t.z
    if m.name == "hstack":
        return t.build(t.z // n, t.r, t.c * n, lambda z, r, c: t.at(z * n + c // t.c, r, c % t.c))
    assert m.name == "vstack"
    return t.build(t.z // n, t.r * n, t.c, lambda z, r, c: t.at(z * n + r // t.r, r % t.r, c))


def pcc(a, b):
    """Correlation of two arrays; 1 if both are constant and equal."""
    a, b = np.ravel(a).astype(float), np.ravel(b).astype(float)
    if a.std() == 0 or b.std() == 0:
        return float(np.allclose(a.mean(), b.mean(), rtol=1e-2, atol=1e-6))
    return float(np.corrcoef(a, b)[0, 1]) if math.isfinite(a.sum() + b.sum()) else 0.0
