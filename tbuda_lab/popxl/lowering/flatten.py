"""From graphs to one program of values: calls are written out, and what ops write over becomes new values.

A tensor is a place: a root that holds a value, or a view of other places. Reading a view applies it to what its bases
hold now; writing to it writes its bases (`kinds.moves.put_back`). So views of views, in-place ops, calls by reference
and loaded remote tensors are one thing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tbuda_lab.core.errors import not_supported
from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.kinds import INPLACE, KINDS, VIEWS, calculates_as
from tbuda_lab.popxl.kinds.moves import put_back
from tbuda_lab.popxl.lowering.values import Block, Carried, Instr, Val
from tbuda_lab.popxl.tensor import Constant, Tensor, Variable
from tbuda_lab.popxl.tensorlocation import ExecutionContext
from tbuda_lab.popxl.utils import product

Shape = tuple[int, ...]
_ALIASES = {"Identity": 0, "Detach": 0, "IpuCopy": 0, "IoTileCopy": 0, "CopyUpdate": 1}
"""Kinds whose result is an operand as it is, by its number."""
_NOT_FOLDED = ("random numbers", "8-bit floats")
"""Reasons of kinds that are calculated in a run even of constants: they may fail, or count as steps."""


def _selects_words(branches: list[Val], out: tuple[Shape, dtype]) -> bool:
    """Whether a selection of these is one of 32-bit integers that the grid can make: both have the result's shape."""
    return out[1] is dtypes.int32 and all((v.shape, v.dtype) == out and v.size for v in branches)


class Root:
    """A place of its own."""

    def __init__(self, val: Val) -> None:
        self.val = val
        self.version = 0

    @property
    def stamp(self) -> Any:
        return self.version

    def get(self) -> Val:
        return self.val

    def put(self, val: Val) -> None:
        self.val = val
        self.version += 1


class View:
    """A place that is elements of others."""

    def __init__(
        self, flattener: Flattener, kind: str, attrs: dict[str, Any], bases: list[Any], shape: Shape, form: dtype
    ) -> None:
        self.flattener, self.kind, self.attrs, self.bases = flattener, kind, attrs, bases
        self.shape, self.form = shape, form
        self._seen: Any = None
        self._val: Val | None = None

    @property
    def stamp(self) -> Any:
        return tuple(base.stamp for base in self.bases), tuple(map(id, self.bases))

    def get(self) -> Val:
        if self._val is None or self._seen != (self.stamp, id(self.flattener.block)):
            operands = [base.get() for base in self.bases]
            if self.kind in ("Identity", "Detach"):
                self._val = operands[0]
            else:
                self._val = self.flattener.emit(self.kind, self.attrs, operands, [(self.shape, self.form)])[0]
            self._seen = (self.stamp, id(self.flattener.block))
        return self._val

    def put(self, val: Val) -> None:
        def run(kind: str, attrs: dict[str, Any], operands: list[Val], shape: Shape) -> Val:
            return self.flattener.emit(kind, attrs, operands, [(shape, self.form)])[0]

        olds = [base.get() for base in self.bases] if self.kind == "Slice" else []
        shapes = [base.get().shape for base in self.bases] if self.kind != "Slice" else [olds[0].shape]
        for base, new in zip(self.bases, put_back(self.kind, self.attrs, shapes, run, val, olds), strict=True):
            base.put(new)
        self._val, self._seen = val, (self.stamp, id(self.flattener.block))


Place = Root | View
Frame = dict[Tensor, Place]


def _roots(place: Place) -> list[Root]:
    """The roots that a place is elements of."""
    return [place] if isinstance(place, Root) else [root for base in place.bases for root in _roots(base)]


class Flattener:
    """Flattens the main graph of an Ir: `weights_in`, `main` and `weights_out` are its three programs."""

    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.block = Block()
        self.op: Op | None = None
        self.states: dict[str, Root] = {}
        self.initial: dict[str, Val] = {}
        self.programs: dict[str, Block] = {}
        self.folded: dict[Op, None] = {}  # ops of constants alone, which are calculated here, in order
        frame: Frame = {}
        main = ir.main_graph
        for t in main.tensors:
            if isinstance(t, Variable) and t._remote is None:
                frame[t] = self._state(t.id, t.shape, t.dtype)
        contexts = {
            "weights_in": (ExecutionContext.WeightsFromHostFragment,),
            "main": (ExecutionContext.Normal, ExecutionContext.AccumulateOuterFragment, ExecutionContext.Subgraph),
            "weights_out": (ExecutionContext.WeightsToHostFragment,),
        }
        for name, chosen in contexts.items():
            self._program(name, [op for op in main._ops if op.context in chosen], frame)

    def _program(self, name: str, ops: list[Op], frame: Frame) -> None:
        self.block = Block()
        for state, root in self.states.items():
            root.put(Val(root.val.shape, root.val.dtype, state=state, label=state))
        before = {state: root.val for state, root in self.states.items()}
        self.run_ops(ops, frame)
        if name == "weights_in":  # what the program of the weights makes is there for the main one
            for op in ops:
                for t in op.outputs:
                    place = frame[t]
                    if isinstance(place, Root) and t._kind != "init" and op.kind != "Init":
                        self.states[t.id] = place
        for state, root in self.states.items():
            if root.val is not before.get(state):
                self.block.final[state] = root.val
        self.programs[name] = self.block

    def _state(self, name: str, shape: Shape, form: dtype) -> Root:
        root = self.states[name] = Root(Val(shape, form, state=name, label=name))
        return root

    # -- making instructions ---------------------------------------------------------------------------------
    def emit(
        self, kind: str, attrs: dict[str, Any], ins: list[Val], outs: list[tuple[Shape, dtype]], **more: Any
    ) -> list[Val]:
        """Append an instruction; its results."""
        label = self.op.outputs[0].id if self.op is not None and self.op.outputs else ""
        made = [Val(shape, form, label=label) for shape, form in outs]
        self.block.instrs.append(Instr(kind, attrs, ins, made, self.op, **more))
        return made

    def place(self, t: Tensor, frame: Frame) -> Place:
        if t not in frame:
            if not isinstance(t, Constant):
                raise not_supported(f"tensor {t.id!r}", "nothing gives it a value: a remote variable is loaded first")
            frame[t] = Root(Val(t.shape, t.dtype, const=t._data, label=t.id))
        return frame[t]

    def run_ops(self, ops: list[Op], frame: Frame) -> None:
        outer = self.op
        for op in ops:
            self.op = op
            handler: Callable[[Op, Frame], None] = getattr(self, f"_do_{op.kind.lower()}", self._calculate)
            handler(op, frame)
        self.op = outer

    # -- ordinary ops ----------------------------------------------------------------------------------------
    def _calculate(self, op: Op, frame: Frame) -> None:
        kind = calculates_as(op.kind)
        places = [self.place(t, frame) for t in op.inputs]
        if op.kind in VIEWS:
            t = op.outputs[0]
            frame[t] = View(self, kind, op.attrs, [places[k] for k in op.views], t.shape, t.dtype)
            return
        ins = [place.get() for place in places]
        outs = [(t.shape, t.dtype) for t in op.outputs]
        if op.kind not in INPLACE:  # beside its outputs an op may give what its operands become
            outs += [(op.inputs[k].shape, op.inputs[k].dtype) for k in op.modifies]
        if kind in ("Gather", "PopartTiedGather", "Nll", "NlllWithSoftmaxGradDirect"):
            made = self._by_index(kind, op, ins, outs)
        elif kind == "Where" and ins[0].const is None and _selects_words(ins[1:], outs[0]):
            masks = self.emit("MaskWords", {"shape": list(outs[0][0])}, ins[:1], outs * 2)
            made = self.emit("SelectWords", {}, [*masks, *ins[1:]], outs, encoded=True)
        elif kind in _ALIASES:
            made = [ins[_ALIASES[kind]]]
        elif kind == "Init" or (kind == "AccumulatorScaleUpdate" and op.attrs["numbers"].get("f") == 0):
            made = [
                Val(shape, form, const=np.zeros(shape, form.as_numpy()), label=op.outputs[0].id) for shape, form in outs
            ]
        elif all(v.const is not None for v in ins) and KINDS[kind].host_reason not in _NOT_FOLDED:
            made = self._folded(kind, op, ins, outs)
            self.folded[op] = None
        else:
            made = self.emit(kind, op.attrs, ins, outs)
        if op.kind in INPLACE:
            places[0].put(made[0])
            frame[op.outputs[0]] = View(self, "Identity", {}, [places[0]], op.outputs[0].shape, op.outputs[0].dtype)
            return
        for t, val in zip(op.outputs, made, strict=False):
            frame[t] = Root(val)
        for number, val in zip(op.modifies, made[len(op.outputs) :], strict=True):
            places[number].put(val)

    @staticmethod
    def _folded(kind: str, op: Op, ins: list[Val], outs: list[tuple[Shape, dtype]]) -> list[Val]:
        """What an op makes of constants."""
        values = KINDS[kind].run(op.attrs, [v.const for v in ins if v.const is not None])
        label = op.outputs[0].id
        return [
            Val(shape, form, const=np.asarray(value).astype(form.as_numpy()).reshape(shape), label=label)
            for value, (shape, form) in zip(values, outs, strict=False)
        ]

    def _by_index(self, kind: str, op: Op, ins: list[Val], outs: list[tuple[Shape, dtype]]) -> list[Val]:
        """Ops that take integers with floats: the host makes rows of ones of the integers, and the grid multiplies."""
        floats = ins[0].dtype in (dtypes.float32, dtypes.float16)
        if not floats or not ins[0].size or not ins[1].size or op.attrs.get("group_size"):
            return self.emit(kind, op.attrs, ins, outs)
        if kind in ("Gather", "PopartTiedGather"):
            shape = (product(ins[1].shape), ins[0].shape[op.attrs["axis"]])
            (rows,) = self.emit("OneHotRows", {"size": shape[1]}, [ins[1]], [(shape, dtypes.float32)])
            return self.emit(kind, op.attrs, [ins[0], rows], outs, encoded=True)
        count, classes = product(ins[1].shape), ins[0].shape[-1]
        forms = [((count, classes), dtypes.float32), ((1,), dtypes.float32), ((count, 1), dtypes.float32)]
        rows, share, counts = self.emit("LossRows", {**op.attrs, "classes": classes}, [ins[1]], forms)
        operands = [ins[0], rows, share] if kind == "Nll" else [ins[0], rows, share, counts, ins[2]]
        return self.emit(kind, op.attrs, operands, outs, encoded=True)

    # -- transfers -------------------------------------------------------------------------------------------
    def _load(self, kind: str, op: Op, ins: list[Val], tokens: frozenset[Any]) -> Val:
        t = op.outputs[0]
        (val,) = self.emit(kind, op.attrs, ins, [(t.shape, t.dtype)], tokens=tokens)
        return val

    def _do_hostload(self, op: Op, frame: Frame) -> None:
        stream = op.attrs["stream"]
        frame[op.outputs[0]] = Root(self._load("HostLoad", op, [], frozenset({("stream", stream.tensor_id)})))

    def _do_hoststore(self, op: Op, frame: Frame) -> None:
        stream = op.attrs["stream"]
        ins = [self.place(op.inputs[0], frame).get()]
        self.emit("HostStore", op.attrs, ins, [], tokens=frozenset({("stream", stream.tensor_id)}))

    def _buffer(self, op: Op) -> frozenset[Any]:
        return frozenset({("buffer", op.attrs["buffer"].remote_buffer_id)})

    def _do_remoteload(self, op: Op, frame: Frame) -> None:
        offset = self.place(op.inputs[1], frame).get()
        frame[op.outputs[0]] = Root(self._load("RemoteLoad", op, [offset], self._buffer(op)))

    def _do_remoteloadinplace(self, op: Op, frame: Frame) -> None:
        place, offset = self.place(op.inputs[0], frame), self.place(op.inputs[1], frame).get()
        place.put(self._load("RemoteLoad", op, [offset], self._buffer(op)))
        t = op.outputs[0]
        frame[t] = View(self, "Identity", {}, [place], t.shape, t.dtype)

    def _do_remotestore(self, op: Op, frame: Frame) -> None:
        ins = [self.place(t, frame).get() for t in op.inputs]
        self.emit("RemoteStore", op.attrs, ins, [], tokens=self._buffer(op))

    def _do_multiexchange(self, op: Op, frame: Frame) -> None:
        """Loads and stores that were merged, in their order."""
        self.run_ops(op.attrs["parts"], frame)

    def _do_remotecodeload(self, op: Op, frame: Frame) -> None:
        """The code of every graph is on the device already."""

    def _do_printtensor(self, op: Op, frame: Frame) -> None:
        val = self.place(op.inputs[0], frame).get()
        if op.attrs["print_self"]:
            self.emit("PrintTensor", op.attrs, [val], [], tokens=frozenset({"terminal"}))
        frame[op.outputs[0]] = Root(val)

    # -- collectives -----------------------------------------------------------------------------------------
    def _collective(self, op: Op, frame: Frame) -> None:
        place = self.place(op.inputs[0], frame)
        t = op.outputs[0]
        attrs = {**op.attrs, "kind": op.kind.removesuffix("Inplace")}
        (val,) = self.emit("Collective", attrs, [place.get()], [(t.shape, t.dtype)])
        if op.modifies:
            place.put(val)
            frame[t] = View(self, "Identity", {}, [place], t.shape, t.dtype)
        else:
            frame[t] = Root(val)

    _do_replicatedallreduce = _do_replicatedallreduceinplace = _do_replicatedallgather = _collective
    _do_replicatedreducescatter = _do_replicatedslice = _collective

    def _do_allreduce(self, op: Op, frame: Frame) -> None:
        """Between IPUs of one replica: the sum is one value, which each of them gets."""
        ins = [self.place(t, frame).get() for t in op.inputs]
        if op.attrs["form"] == "identical_inputs":
            for t, val in zip(op.outputs, ins, strict=True):
                frame[t] = Root(val)
            return
        (total,) = self.emit("Sum", {}, ins, [(op.outputs[0].shape, op.outputs[0].dtype)])
        for t in op.outputs:
            frame[t] = Root(total)

    # -- calls -----------------------------------------------------------------------------------------------
    def _operands(self, graph: Graph, op: Op, first: int, frame: Frame) -> tuple[Frame, dict[int, Place]]:
        """The frame of a called graph, and by number of an operand that it modifies its place inside. Operands are
        copies, those that it modifies by reference the caller's."""
        inner: Frame = {}
        modified: dict[int, Place] = {}
        for number, t in enumerate(graph._inputs):
            place = self.place(op.inputs[first + number], frame)
            if first + number in op.modifies:
                inner[t] = View(self, "Identity", {}, [place], t.shape, t.dtype)
                modified[first + number] = inner[t]
            else:
                inner[t] = Root(place.get())
        return inner, modified

    def _do_call(self, op: Op, frame: Frame) -> None:
        graph = op.calls[0]
        inner, _ = self._operands(graph, op, 0, frame)
        self.run_ops(graph._ops, inner)
        for t, own in zip(op.outputs, graph._outputs, strict=False):
            frame[t] = Root(self.place(own, inner).get())

    def _inside(self, fill: Callable[[], None]) -> Block:
        """A block of its own."""
        outer, self.block = self.block, Block()
        fill()
        made, self.block = self.block, outer
        return made

    def _do_loop(self, op: Op, frame: Frame) -> None:
        graph = op.calls[0]
        operands = [self.place(t, frame) for t in op.inputs[2:]]
        count, results = op.attrs["count"], len(op.outputs)
        if count == 0:
            for t, place in zip(op.outputs, operands, strict=False):
                frame[t] = Root(place.get())
            return
        inner: Frame = {
            graph._inputs[0]: Root(Val((), dtypes.int32, const=np.zeros((), np.int32))),
            graph._inputs[1]: Root(Val((), dtypes.bool, const=np.ones((), bool))),
        }
        looped: list[Carried] = []
        places: dict[Root, tuple[Root, Carried]] = {}
        by_ref: dict[int, Place] = {}
        for number, (t, place) in enumerate(zip(graph._inputs[2:], operands, strict=True)):
            if number + 2 in op.modifies:  # the caller's own tensor, whatever else of it is given
                by_ref[number] = inner[t] = self._carried_place(place, places)
            elif number >= results:
                inner[t] = Root(place.get())
            if number < results:
                inside = Val(t.shape, t.dtype, label=t.id)
                looped.append(Carried(place.get(), inside, None, Val(t.shape, t.dtype, label=t.id)))
                inner.setdefault(t, Root(inside))

        def fill() -> None:
            self.run_ops(graph._ops, inner)
            afters = [self.place(own, inner).get() for own in graph._outputs[:results]]
            for number, (one, after) in enumerate(zip(looped, afters, strict=True)):
                one.after = after
                if number in by_ref:
                    by_ref[number].put(after)
            for root, one in places.values():
                one.after = root.get()

        block = self._inside(fill)
        carried = [*looped, *(one for _, one in places.values())]
        tokens = frozenset(token for i in block.all_instrs() for token in i.tokens)
        outs = [c.out for c in carried]
        self.block.instrs.append(
            Instr("Loop", {"count": count}, [], outs, op, tokens=tokens, blocks=(block,), carried=carried)
        )
        for outer, (_, one) in places.items():
            outer.put(one.out)
        for t, one in zip(op.outputs, looped, strict=True):
            frame[t] = Root(one.out)

    def _carried_place(self, place: Place, places: dict[Root, tuple[Root, Carried]]) -> Place:
        """A place inside a loop whose roots the loop carries: so operands by reference that are parts of one tensor
        are so inside, too. places: by root outside that inside, and what is carried."""
        if isinstance(place, View):
            bases = [self._carried_place(base, places) for base in place.bases]
            return View(self, place.kind, place.attrs, bases, place.shape, place.form)
        if place not in places:
            val = place.get()
            inside, out = (Val(val.shape, val.dtype, label=val.label) for _ in range(2))
            places[place] = Root(inside), Carried(val, inside, None, out)
        return places[place][0]

    def _do_if(self, op: Op, frame: Frame) -> None:
        condition = self.place(op.inputs[0], frame).get()
        branches = []
        then_count = len(op.calls[0]._inputs)
        roots = list(dict.fromkeys(root for k in op.modifies for root in _roots(self.place(op.inputs[k], frame))))
        for graph, first in ((op.calls[0], 1), (op.calls[1], 1 + then_count)):
            own = {root: Root(root.get()) for root in roots}  # one of a tensor, however often the graph is given it
            inner: Frame = {}
            for k, t in enumerate(graph._inputs):
                place = self.place(op.inputs[first + k], frame)
                inner[t] = self._on(place, own) if first + k in op.modifies else Root(place.get())

            def fill(graph: Graph = graph, inner: Frame = inner, own: dict[Root, Root] = own) -> None:
                self.run_ops(graph._ops, inner)
                self.block.results += [self.place(t, inner).get() for t in graph._outputs[: len(op.outputs)]]
                self.block.results += [own[root].get() for root in roots]

            branches.append(self._inside(fill))
        outs = [Val(t.shape, t.dtype, label=t.id) for t in op.outputs]
        outs += [Val(root.val.shape, root.val.dtype) for root in roots]
        tokens = frozenset(token for b in branches for i in b.all_instrs() for token in i.tokens)
        self.block.instrs.append(Instr("If", {}, [condition], outs, op, tokens=tokens, blocks=tuple(branches)))
        for t, val in zip(op.outputs, outs, strict=False):
            frame[t] = Root(val)
        for root, val in zip(roots, outs[len(op.outputs) :], strict=True):
            root.put(val)

    def _on(self, place: Place, roots: dict[Root, Root]) -> Place:
        """A place as it is on other roots."""
        if isinstance(place, Root):
            return roots[place]
        return View(self, place.kind, place.attrs, [self._on(b, roots) for b in place.bases], place.shape, place.form)
