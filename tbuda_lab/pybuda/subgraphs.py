"""The subgraphs of one device: what each takes and gives, which one is active, and a run of it."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.bindings import encode, in_model_dtypes
from tbuda_lab.core.errors import BatchError, InputError, PipelineError, not_supported
from tbuda_lab.core.frontend.inputs import as_tensor, check_input, cut_inputs
from tbuda_lab.core.frontend.pybuda import PyTorchModule
from tbuda_lab.core.frontend.pybuda.cache_links import SUBGRAPH
from tbuda_lab.core.frontend.pybuda.module import Module
from tbuda_lab.core.frontend.pybuda.subgraphs import OWN_ARGUMENT, PLACE, ROWS, from_subgraphs, rows_value
from tbuda_lab.core.frontend.torch_model.export import set_evaluation
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import PHASE, WRITES, direction_of, forward_part, is_cache, netlist_part, subgraph_of
from tbuda_lab.core.graph.phases import subgraphs as subgraphs_of
from tbuda_lab.core.runner import Runner, join_elements
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compiler_config import CompilerConfig
from tbuda_lab.pybuda.device import Device
from tbuda_lab.pybuda.stage import Inputs, Outputs


def wants_subgraphs(settings: CompilerConfig, modules: Sequence[Module]) -> bool:
    """Whether the modules of a device are subgraphs, not a chain. One module is one where its caches are linked. Raises
    `NotSupported` for training."""
    wanted = settings.compile_subgraphs and len(modules) > (0 if settings.enable_link_past_cache_ios else 1)
    if wanted and settings.enable_training:
        refuse_training()
    return wanted


def refuse_training() -> None:
    """Raises `NotSupported`."""
    raise not_supported(
        "training of subgraphs",
        "inference of subgraphs works; train with compile_subgraphs=False, each module on a TTDevice of its own",
    )


def trace_subgraphs(modules: Sequence[Module], sample: Inputs, settings: CompilerConfig) -> Graph:
    """The graph of the subgraphs. sample: the inputs of each module, or those of the only one."""
    for module in modules:
        if isinstance(module, PyTorchModule):
            set_evaluation(module.module)  # as the device runs it
    samples = [sample] if len(modules) == 1 else list(sample.values() if isinstance(sample, dict) else sample)
    graph = from_subgraphs(
        modules,
        samples,
        settings.loopback_outputs,
        settings.enable_link_past_cache_ios,
        settings.effective("enable_consteval"),
        _rotates(settings),
    )
    if settings.enable_link_past_cache_ios and not any(map(is_cache, graph.of_kind(NodeKind.PARAMETER))):
        warnings.warn(
            "enable_link_past_cache_ios finds no cache: no output of heads is made by a weight and joined "
            "behind an input; loopback_outputs names caches",
            UserWarning,
            stacklevel=4,
        )
    return graph


def _rotates(settings: CompilerConfig) -> bool:
    """Whether caches are to be rotated, by a subgraph of its own behind those of the modules."""
    return settings.enable_link_past_cache_ios and bool(settings.effective("rotate_past_cache_params"))


def has_subgraphs(graph: Graph) -> bool:
    """Whether a graph was made of subgraphs by `trace_subgraphs`."""
    return any(SUBGRAPH in node.attrs for node in graph.inputs)


class Subgraphs:
    """What the subgraphs of a graph take and give."""

    def __init__(self, graph: Graph, device: str) -> None:
        self.graph, self.device = graph, device
        self.count = subgraphs_of(graph)
        self.modules = 1 + max(int(node.attrs[SUBGRAPH]) for node in graph.inputs)
        self._users = graph.users()
        self.caches = [node for node in graph.of_kind(NodeKind.PARAMETER) if is_cache(node)]

    def inputs(self, number: int) -> list[Node]:
        """What a module takes, in its order, caches included."""
        own = [n for n in (*self.graph.inputs, *self.caches) if n.attrs.get(SUBGRAPH) == number]
        nodes = [node for node in own if ROWS not in node.attrs]
        return sorted(nodes, key=lambda node: int(node.attrs[PLACE]))

    def outputs(self, number: int) -> list[Node]:
        """What a module gives, without what goes into caches."""
        return [n for n in self.graph.outputs if WRITES not in n.attrs and subgraph_of(str(n.attrs[PHASE])) == number]

    def sample(self, values: Inputs) -> tuple[torch.Tensor, ...]:
        """One input for the whole graph, subgraph after subgraph, of the sample inputs of each."""
        samples = [values] if self.modules == 1 else list(values.values() if isinstance(values, dict) else values)
        feed = [self._feed(number, one, 0)[0] for number, one in enumerate(samples)]
        by_name = {name: tensor for part in feed for name, tensor in part.items()}
        return tuple(by_name[node.name] for node in self.graph.inputs)

    def _feed(self, number: int, inputs: Any, start: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Tensors of a subgraph by INPUT node, and of caches that were given by PARAMETER. Raises `InputError`,
        `PipelineError`."""
        nodes = self.inputs(number)
        if isinstance(inputs, Mapping):
            by_argument = {str(n.attrs.get(OWN_ARGUMENT, n.attrs.get("argument", n.name))): n for n in nodes}
            unknown = [name for name in inputs if name not in by_argument]
            if unknown:
                raise InputError(
                    f"subgraph {number} of device {self.device!r} has no input {unknown[0]!r}; it takes "
                    f"{', '.join(by_argument)}"
                )
            pairs = [(by_argument[name], as_tensor(value)) for name, value in inputs.items()]
        else:
            flat = [as_tensor(v) for v in pytree.tree_leaves(inputs)]
            tensors = [v for v in flat if isinstance(v, torch.Tensor)]
            own = [node for node in nodes if node.kind is NodeKind.INPUT]
            used = [node for node in own if self._users[node.name]]
            taken = next((ns for ns in (nodes, own, used) if len(tensors) == len(ns)), None)
            if taken is None:
                names = ", ".join(f"{n.name} {n.shape}" for n in used)
                raise InputError(
                    f"subgraph {number} of device {self.device!r} takes {len(used)} inputs ({names}), not "
                    f"{len(tensors)}; set_active_subgraph chooses the subgraph before inputs are pushed"
                )
            pairs = list(zip(taken, tensors, strict=True))
        for node, tensor in pairs:
            check_input(node, tensor)
        feed = {node.name: tensor for node, tensor in pairs if node.kind is NodeKind.INPUT}
        missing = [n.name for n in nodes if n.kind is NodeKind.INPUT and self._users[n.name] and n.name not in feed]
        if missing:
            raise InputError(f"subgraph {number} of device {self.device!r}: missing input(s): {', '.join(missing)}")
        for node in self.graph.inputs:
            if node.attrs.get(SUBGRAPH) == number and ROWS in node.attrs:
                _, _, places, rows = node.attrs[ROWS]
                if not 0 <= start <= places - rows:
                    raise PipelineError(
                        f"a cache of subgraph {number} has {places} places; {rows} from {start} on are "
                        "more than that: give a longer cache"
                    )
                feed[node.name] = torch.from_numpy(rows_value(node, start))
        return feed, {node.name: tensor for node, tensor in pairs if node.kind is not NodeKind.INPUT}

    def run(self, runner: Runner, number: int, inputs: Inputs, start: int = 0) -> Outputs:
        """Outputs of one subgraph for one input. start: where rows go that it writes into caches. Caches that are given
        with the input are taken over first. Raises `BatchError` for another microbatch than that of the compile."""
        feed, caches = self._feed(number, inputs, start)
        for name, tensor in caches.items():
            if name in runner.result.netlist.queues:
                runner.executor.write(name, encode(tensor, self.graph[name].shape, name), slot=0)
        cut = cut_inputs(self.graph, feed)
        size, microbatch = int(feed[cut[0]].shape[0]) if cut else 1, runner.result.options.microbatch
        if size != microbatch:
            raise BatchError(
                f"subgraph {number} of device {self.device!r} was compiled for a microbatch of {microbatch}, not {size}"
            )
        batch = [{n: t[i : i + 1] if n in cut else t for n, t in feed.items()} for i in range(size)]
        rows = runner.run_batch(f"run_{netlist_part(direction_of(forward_part(number)))}", batch)
        names = [node.name for node in self.outputs(number)]
        return in_model_dtypes(self.graph, [join_elements([row[name] for row in rows]) for name in names], names)

    def check(self, microbatch: int) -> None:
        """Raises `NotSupported` for caches of several elements: a ram has one place."""
        if microbatch > 1 and self.caches:
            raise not_supported(f"a microbatch of {microbatch} with caches", "run the elements one by one")


class SubgraphDevice(Device):
    """A device whose modules may be subgraphs, of which one is active: inputs are pushed to it, and it runs."""

    def __init__(self, name: str, mp_context: Any = None, module: Module | Sequence[Module] | None = None) -> None:
        self._active = 0
        self._waiting: dict[int, deque[Inputs]] = {}  # inputs that were pushed to other subgraphs
        super().__init__(name, mp_context, module)

    def subgraph_runner(self, inputs: Inputs) -> Runner:
        """The compiled subgraphs, ready to run; `inputs` of the active one are about to. Raises `PipelineError`."""
        raise NotImplementedError

    @property
    def has_subgraphs(self) -> bool:
        """Whether its modules are graphs of their own. Raises `NotSupported` where they cannot be."""
        return wants_subgraphs(config._get_global_compiler_config(), self.modules)

    @property
    def subgraph_count(self) -> int:
        """How many graphs of their own the device holds."""
        settings = config._get_global_compiler_config()
        return len(self.modules) + _rotates(settings) if self.has_subgraphs else 1

    @property
    def takes_inputs(self) -> bool:
        """Whether the active subgraph takes any: that which rotates caches takes none."""
        return self._active < len(self.modules)

    @property
    def running_modules(self) -> list[Module]:
        """Raises `NotSupported` for a subgraph with caches: what it gives depends on what ran before."""
        settings = config._get_global_compiler_config()
        if self.has_subgraphs and (settings.enable_link_past_cache_ios or settings.loopback_outputs):
            raise not_supported("verification of subgraphs with caches", "compare the outputs in the script")
        return [self.modules[self._active]] if self.has_subgraphs else self.modules

    def blank_of_active(self, graph: Graph, microbatch: int) -> Outputs:
        """Zeros in the shapes of what the active subgraph gives."""
        return tuple(torch.zeros((microbatch, *n.shape[1:])) for n in Subgraphs(graph, self.name).outputs(self._active))

    def run_subgraph(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs of the active subgraph, which writes rows of its caches from `start` on."""
        runner = self.subgraph_runner(inputs)
        return Subgraphs(runner.result.graph, self.name).run(runner, self._active, inputs, start)

    def set_active_subgraph(self, subgraph_index: int) -> None:
        """Choose the subgraph, by the number of its module, to which inputs are pushed and which runs. Inputs that wait
        for another one wait on. Raises `PipelineError` for a number that no module has, `NotSupported` where the
        modules feed each other."""
        count = self.subgraph_count
        if type(subgraph_index) is not int or subgraph_index < 0 or 1 < count <= subgraph_index:
            raise PipelineError(f"device {self.name!r} has {count} subgraphs, from 0 on, and no {subgraph_index!r}")
        if subgraph_index >= count:
            raise not_supported(
                f"set_active_subgraph({subgraph_index})",
                f"device {self.name!r} holds one graph, number 0: place several modules and set "
                "compile_subgraphs=True, or place each part on a TTDevice of its own",
            )
        self._waiting[self._active] = self.inputs
        self._active = subgraph_index
        self.inputs = self._waiting.pop(subgraph_index, deque())

    def get_active_subgraph(self) -> int:
        """The number of the subgraph that runs."""
        return self._active

    def remove_modules(self) -> None:
        super().remove_modules()
        self._active, self._waiting = 0, {}

    def shutdown_device(self) -> None:
        super().shutdown_device()
        self._waiting.clear()
