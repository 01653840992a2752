"""The session of SambaFlow: compiles a model to a PEF, traces it, and runs its sections."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.dialects.host_program import execute
from tbuda_lab.dialects.program import GraphProgram, run_cycles, sections_of
from tbuda_lab.dialects.realisation import refuse_host, summary
from tbuda_lab.dialects.replicas import MODES, Replica
from tbuda_lab.samba.models import OnnxModel, is_onnx
from tbuda_lab.samba.optim import as_list
from tbuda_lab.samba.pef import Pef, read_pef, write_pef
from tbuda_lab.samba.profiler import Profiler
from tbuda_lab.samba.tensor import SambaTensor, name_parameters, plain
from tbuda_lab.samba.tracing import SECTIONS, TracedGraph, check_mapping, trace

NUMBERS = ("lr", "momentum", "weight_decay", "p")


class SambaSession:
    """One process's view of the device. Programs use `SESSION`."""

    def __init__(self, pef_path: str = "") -> None:
        self.reset(pef_path)

    def reset(self, pef_path: str = "") -> None:
        """Begin anew, with no graph, no settings and no tensors in regions: for a second program in one process."""
        self.pef_path = pef_path
        self.settings: dict[str, Any] = {}
        self.buffer_dict: dict[str, torch.Tensor] = {}
        self.optim_dict: dict[str, Any] = {}
        self.graphs: dict[str, TracedGraph] = {}
        self.replicas: dict[str, list[Replica]] = {}
        self.regions: dict[str, list[torch.Tensor]] = {}
        self.profiler = Profiler()
        self._pending: list[Any] = []
        self._onnx: list[tuple[Any, OnnxModel]] = []

    # -- compile and trace -------------------------------------------------------------------------------------------
    def setup(self, cfg: Any) -> None:
        """Settings of later compiles and runs: a map, a namespace, or an object with attributes."""
        self.settings = dict(cfg if isinstance(cfg, Mapping) else vars(cfg))

    def module_of(self, model: Any, inputs: Sequence[Any] | Mapping[str, Any] | None = None) -> torch.nn.Module:
        """A model as a torch module: itself, or an ONNX ModelProto as one, always the same for one ModelProto.

        Raises `TypeError` for anything else."""
        if isinstance(model, torch.nn.Module):
            return model
        if not is_onnx(model):
            raise TypeError(f"a model is a torch.nn.Module or an ONNX ModelProto, not {type(model).__name__}")
        for proto, module in self._onnx:
            if proto is model:
                return module
        values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
        module = OnnxModel(model, None if values is None else [plain(v) for v in values])
        name_parameters(module, "onnx")
        self._onnx.append((model, module))
        return module

    def compile(
        self,
        model: Any,
        inputs: Sequence[Any] | Mapping[str, Any],
        optimizers: Any = None,
        name: str = "",
        app_dir: str = "",
        config_dict: Mapping[str, Any] | None = None,
        pef_metadata: Mapping[str, Any] | None = None,
        init_output_grads: bool = True,
        squeeze_bs_dim: bool = False,
        inference: bool | None = None,
        loss_indices: Sequence[int] | None = None,
        **others: Any,
    ) -> str:
        """Compile a model to `<output_folder>/<pef_name>/<pef_name>.pef` and return that path.

        model: a torch module, or an ONNX ModelProto. config_dict: the program's arguments; `output_folder`, `pef_name`,
        `mapping`, `inference`, `num_spatial_batches`, `optimization_level` 0 (every op a section of its own),
        `data_parallel` or a `data_parallel_mode` other than normal (backward sections complete gradients early) and
        `strict` (an op on the host needs a reason) have their effect. app_dir: recorded in the PEF. init_output_grads:
        said again to `trace_graph`, which is where gradients by outputs come to be. squeeze_bs_dim changes nothing:
        a batch dimension of 1 is none on the device, a larger one stays. Raises `ValueError` for an unknown
        mapping, `SpatialMappingError` where a spatial program does not fit, `UnsupportedOp` in strict mode; then
        nothing is written.
        """
        _unknown("compile", others)
        config = {**self.settings, **(config_dict or {})}
        without = bool(config.get("inference")) if inference is None else inference
        model = self.module_of(model, inputs)
        traced = trace(
            model,
            inputs,
            [] if without else as_list(optimizers),
            mapping=str(config.get("mapping") or "section"),
            loss_indices=loss_indices,
            name=name or type(model).__name__.lower(),
            spatial_batches=int(config.get("num_spatial_batches", 1)),
            op_by_op=config.get("optimization_level") == 0,
            early_gradients=_overlaps(config.get("data_parallel"), config.get("data_parallel_mode")),
        )
        entries = traced.realisations()
        if config.get("strict"):
            refuse_host(entries)
        print(summary(entries))
        traced.place_other()
        print(mapping_summary(traced))
        pef_name = str(config.get("pef_name") or name or type(model).__name__.lower())
        folder = Path(str(config.get("output_folder") or "out")) / pef_name
        path = folder / f"{pef_name}.pef"
        write_pef(path, [traced], {**(pef_metadata or {}), "app_dir": app_dir})
        self.pef_path = str(path)
        return str(path)

    def trace(
        self,
        model: Any,
        inputs: Sequence[Any] | Mapping[str, Any],
        optim: Any = None,
        init_output_grads: bool = True,
        loss_indices: Sequence[int] | None = None,
        pef: str = "",
        mapping: str = "section",
        data_parallel_mode: str = "normal",
        transfer_device: bool = True,
        graph_name: str = "",
        prefix: str | None = None,
    ) -> tuple[SambaTensor, ...]:
        """See `samba.utils.trace_graph`. `strict` and `data_parallel_mode` of a command line, which are among the
        settings, hold where the program says nothing else."""
        if data_parallel_mode == MODES[0]:
            data_parallel_mode = str(self.settings.get("data_parallel_mode") or MODES[0])
        if data_parallel_mode not in MODES:
            raise ValueError(f"data_parallel_mode is one of {', '.join(MODES)}, not {data_parallel_mode!r}")
        stored: Pef | None = read_pef(pef) if pef else None
        record = stored.graphs.get(graph_name) or next(iter(stored.graphs.values())) if stored is not None else None
        check_mapping(mapping)
        if record is not None:
            if mapping == "spatial" != record.mapping:
                warnings.warn(
                    f"trace_graph: mapping='spatial' has no effect: {pef} was compiled by sections", stacklevel=3
                )
            mapping = record.mapping
        model = self.module_of(model, inputs)
        traced = trace(
            model,
            inputs,
            as_list(optim),
            mapping=mapping,
            loss_indices=loss_indices,
            name=graph_name or type(model).__name__.lower(),
            prefix=prefix,
            spatial_batches=record.spatial_batches if record is not None else 1,
            op_by_op=record is not None and record.op_by_op,
            early_gradients=_overlaps(False, data_parallel_mode) if record is None else record.early_gradients,
        )
        if record is not None:
            record.check(traced, pef)
        if self.settings.get("strict"):
            refuse_host(traced.realisations())
        traced.data_parallel_mode = data_parallel_mode
        traced.initial_gradients = init_output_grads
        self.graphs = {traced.name: traced} if not graph_name else {**self.graphs, traced.name: traced}
        self.optim_dict = {f"optim_{k}": o for k, o in enumerate(traced.optimizers)}
        self.buffer_dict = dict(model.named_buffers())
        if transfer_device:
            self.to_rdu(model)
        model.__dict__["output_tensors"] = traced.outputs
        model.__dict__["buda_programs"] = traced.programs
        return traced.outputs

    # -- run ---------------------------------------------------------------------------------------------------------
    def run(
        self,
        input_tensors: Sequence[Any] | Mapping[str, Any],
        output_tensors: Any = None,
        hyperparam_dict: Mapping[str, float] | None = None,
        section_types: Sequence[str] | None = None,
        data_parallel: bool = False,
        reduce_on_rdu: bool = False,
        graph_name: str | None = None,
        world_size: int | None = None,
        data_parallel_mode: str | None = None,
        **others: Any,
    ) -> tuple[SambaTensor, ...]:
        """Run the sections of one graph and return its outputs, as they were before the update.

        input_tensors: matched by name, each of the traced shape (times the replicas where `data_parallel`, times the
        spatial batches of a spatial PEF). section_types: any of fwd, bckwd, gradnorm, opt; all by default.
        hyperparam_dict: lr, momentum, weight_decay from this run on. Raises `ValueError` naming the tensor for a name
        or shape that was not traced, for an output that the graph does not have, for a world_size below 1 and for an
        unknown section type; `RuntimeError` before anything was traced.
        """
        _unknown("run", others)
        traced = self._graph(graph_name)
        if data_parallel_mode is not None and data_parallel_mode != traced.data_parallel_mode:
            warnings.warn(f"the graph was traced for data_parallel_mode={traced.data_parallel_mode!r}", stacklevel=2)
        sections = _sections(section_types)
        if world_size is not None and world_size < 1:
            raise ValueError(f"world_size is at least 1, not {world_size}")
        if not data_parallel and (reduce_on_rdu or (world_size or 1) > 1):
            name = "reduce_on_rdu" if reduce_on_rdu else "world_size"
            warnings.warn(f"session.run: {name} has no effect without data_parallel", stacklevel=2)
        chosen = self._output_positions(traced, output_tensors)
        count = int(world_size or self.settings.get("world_size") or 1) if data_parallel else 1
        replicas = self._replicas(traced, count)
        numbers = _numbers(hyperparam_dict or {})
        p = numbers.pop("p", None)
        if p and traced.masks is None:
            warnings.warn(
                "session.run: p has no effect, for the graph was traced without active dropout: train() the "
                "model and give an optimizer",
                stacklevel=2,
            )
        goes_back = traced.trains and "bckwd" in sections
        if "fwd" in sections and traced.waiting:
            self._work_off(traced)
        resumes = goes_back and "fwd" not in sections and traced.waiting > 0
        if resumes and traced.waiting != len(replicas):
            raise ValueError(
                f"the forward pass ran on {traced.waiting} replicas, its backward pass is to run on {len(replicas)}"
            )
        if goes_back and not resumes and "fwd" not in sections:
            warnings.warn(
                "session.run: bckwd has no effect: no forward pass waits for it; run fwd first, or both together",
                stacklevel=2,
            )
        feeds = traced.split(input_tensors, len(replicas), p if traced.trains else 0.0, self.regions, goes_back)
        scalars = {("lr" if k == "lr" else f"run_{k}"): v for k, v in numbers.items()}
        suffixes = {s.suffix for w in replicas[0].weights.values() for s in w.states}
        idle = [k for k in scalars if k not in suffixes]
        if idle:
            listed = ", ".join(k.removeprefix("run_") for k in idle)
            warnings.warn(f"session.run: {listed} has no effect: no optimizer of the graph has it", stacklevel=2)
        self._tell_what_is_left(traced, goes_back)
        program = traced.host_program(sections, [k for k in scalars if k in suffixes], resumes)
        self._follow_optimizers(traced, replicas)
        traced.replicas, traced.reduce_on_rdu = len(replicas), reduce_on_rdu
        with self.profiler.run(traced, len(replicas), reduce_on_rdu) as on_step:
            popped = execute(program, replicas, feeds, scalars, self.regions, on_step)
        if goes_back or "fwd" in sections:
            holds = traced.trains and not goes_back and traced.spatial_batches == 1
            traced.waiting = len(replicas) if holds else 0
        if "opt" in sections and traced.trains:
            traced.steps += traced.spatial_batches
        if traced.trains:
            traced.unused = (goes_back or traced.unused) and "opt" not in sections
        self._deliver(traced, replicas, sections, popped)
        return tuple(traced.outputs[k] for k in chosen)

    def _tell_what_is_left(self, traced: TracedGraph, goes_back: bool) -> None:
        """Warn of what the program changed on the host and the device does not see, and of gradients that go."""
        now = traced.parameters_on_host()
        changed = [name for name, how in now.items() if traced.on_host.get(name) != how]
        if changed:
            listed = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            warnings.warn(
                f"session.run: {listed} changed on the host (values, or requires_grad) since the device took its "
                "parameters; it goes on with its own: session.to_rdu(model) takes new values, trace_graph what is "
                "trained",
                stacklevel=3,
            )
            traced.on_host = now
        if goes_back and traced.unused:
            warnings.warn(
                "session.run: the gradients of the backward pass before were not used by opt and are replaced; "
                "gradients do not accumulate from run to run",
                stacklevel=3,
            )

    def _work_off(self, traced: TracedGraph) -> None:
        """Let the forward pass that waits go: the next one begins with empty queues."""
        program, feeds = traced.worked_off()
        execute(program, self.replicas[traced.name][: traced.waiting], feeds)
        traced.waiting = 0

    def _follow_optimizers(self, traced: TracedGraph, replicas: Sequence[Replica]) -> None:
        """Numbers that the program changed in `param_groups` since the last run (a scheduler of learning rates does)
        go to the device. What a run sets by `hyperparam_dict` stays until either changes it again."""
        for path, numbers in traced.numbers().items():
            changed = {k: v for k, v in numbers.items() if traced.written.get(path, {}).get(k) != v}
            for replica in replicas if changed else ():
                replica.write_state(path, {k: torch.tensor([v]) for k, v in changed.items()})
            traced.written[path] = numbers

    def _output_positions(self, traced: TracedGraph, output_tensors: Any) -> list[int]:
        """Positions of the outputs that a program asks for. Raises `ValueError` for one that the graph does not
        have."""
        if output_tensors is None:
            return list(range(len(traced.outputs)))
        selected = output_tensors if isinstance(output_tensors, list | tuple) else [output_tensors]
        names, output_names = [getattr(t, "sn_name", None) for t in selected], [t.sn_name for t in traced.outputs]
        strange = [n for n in names if n not in output_names]
        if strange:
            raise ValueError(f"the graph has no output {strange[0]!r}; it has {', '.join(map(str, output_names))}")
        return [k for k, name in enumerate(output_names) if name in names]

    def _deliver(
        self, traced: TracedGraph, replicas: Sequence[Replica], sections: Sequence[str], popped: Sequence[Sequence[Any]]
    ) -> None:
        """Outputs and gradients of a run where the program finds them."""
        if "fwd" in sections:
            fresh = []
            for name, old in zip(traced.output_names, traced.outputs, strict=True):
                parts = [turn[name] for turns in popped for turn in turns]
                value = parts[0] if len(parts) == 1 else torch.cat([p.reshape(1) if p.dim() == 0 else p for p in parts])
                tensor = SambaTensor(value, name=old.sn_name, batch_dim=old.batch_dim, region_name=old.region_name)
                tensor.share_gradient(old)
                fresh.append(tensor)
            traced.outputs = tuple(fresh)
            traced.model.__dict__["output_tensors"] = traced.outputs
            counts = dict(traced.model.named_buffers())
            for name in traced.norms:
                counts[f"{name}num_batches_tracked"] += traced.spatial_batches
        if "bckwd" in sections and traced.trains:
            gradients = {
                n: w.decode(replicas[0].executor.read(w.gradient)) for n, w in replicas[0].weights.items() if w.gradient
            }
            for name, parameter in traced.model.named_parameters():
                if name in gradients:
                    parameter.__dict__["sn_grad"] = gradients[name].reshape(parameter.shape)

    def _graph(self, name: str | None) -> TracedGraph:
        if not self.graphs:
            raise RuntimeError("nothing is traced: call samba.utils.trace_graph first")
        if name is None:
            if len(self.graphs) > 1:
                raise ValueError(f"the PEF has several graphs; say graph_name=, one of {', '.join(self.graphs)}")
            return next(iter(self.graphs.values()))
        if name not in self.graphs:
            raise ValueError(f"no graph {name!r}; there are {', '.join(self.graphs)}")
        return self.graphs[name]

    def _replicas(self, traced: TracedGraph, count: int) -> list[Replica]:
        replicas = self.replicas.setdefault(traced.name, [])
        while len(replicas) < max(1, count):
            replica = Replica(traced.result)
            if replicas:  # a new replica begins where the others are
                for weight in traced.result.weights:
                    for queue in [weight.queue, *(state.queue for state in weight.states)]:
                        replica.executor.write(queue, replicas[0].executor.read(queue))
            replicas.append(replica)
        return replicas[: max(1, count)]

    # -- weights -----------------------------------------------------------------------------------------------------
    def to_rdu(self, model: Any) -> None:
        """Put the model's parameters and buffers onto the device, in all replicas, and the state of its optimizers
        (`load_state_dict`). Raises `InputError` where with new values of what no run changes the model would be another
        netlist."""
        model = self.module_of(model)
        for traced in self.graphs.values():
            if traced.model is not model:
                continue
            values = {**dict(model.named_buffers()), **_parameters(model)}
            traced.take_parameters(values)
            self.replicas[traced.name], traced.waiting, traced.steps = [], 0, 0
            for replica in self._replicas(traced, 1):
                for name, weight in replica.weights.items():
                    replica.executor.write(weight.queue, weight.encode(values[name].detach()))
                for path, (optimizer, parameter) in traced.owners().items():
                    state, step = optimizer.device_state(parameter)
                    replica.write_state(path, state)
                    traced.steps = max(traced.steps, step)
                for path, numbers in traced.numbers().items():
                    replica.write_state(path, {k: torch.tensor([v]) for k, v in numbers.items()})
            traced.written, traced.on_host = traced.numbers(), traced.parameters_on_host()

    to_device = to_rdu

    def to_cpu(self, model: Any) -> None:
        """Bring the parameters of the device back into the model, its running statistics, and the state of its
        optimizers into these, in place."""
        model = self.module_of(model)
        values = {**dict(model.named_buffers()), **_parameters(model)}
        for traced in self.graphs.values():
            if traced.model is model and self.replicas.get(traced.name):
                replica = self.replicas[traced.name][0]
                with torch.no_grad():
                    for name, weight in replica.weights.items():
                        values[name].copy_(
                            weight.decode(replica.executor.read(weight.queue)).reshape(values[name].shape)
                        )
                for path, (optimizer, parameter) in traced.owners().items():
                    optimizer.take_state(parameter, replica.states(path), traced.steps)
                if isinstance(model, OnnxModel):
                    model.write_back()
                traced.on_host = traced.parameters_on_host()

    def get_tensors_by_name(self, names: Sequence[str]) -> list[Any]:
        """Parameters, inputs and outputs of the traced graphs by SambaFlow name. Raises `KeyError`."""
        outputs: dict[str, Any] = {}
        for traced in self.graphs.values():
            outputs |= {p.__dict__["sn_name"]: p for p in traced.model.parameters() if "sn_name" in p.__dict__}
            outputs |= {str(t.sn_name): t for t in (*traced.inputs, *traced.outputs)}
        return [outputs[name] for name in names]

    # -- several graphs ----------------------------------------------------------------------------------------------
    def add_graph(self, graph: Any) -> None:
        """A graph that `compile_multigraph` compiles, between `FwdGraph.start` and `stop`. Raises `ValueError` for a
        name that another one has, and for a region that another graph uses with another shape."""
        if any(other.name == graph.name and other is not graph for other in self._pending):
            raise ValueError(f"there is a graph {graph.name!r} already: give each its own name")
        if graph in self._pending:
            raise ValueError(f"graph {graph.name!r} was added already")
        self._pending.append(graph)
        try:
            self._check_regions()
        except ValueError:
            self._pending.remove(graph)
            raise

    def _check_regions(self) -> None:
        """Tensors of one region have one shape and type, in all graphs."""
        first: dict[str, tuple[str, Any]] = {}
        for graph in self._pending:
            if not graph.is_traced:
                continue
            for tensor in (*graph.traced.inputs, *graph.traced.outputs):
                if tensor.region_name is None:
                    continue
                where, other = first.setdefault(str(tensor.region_name), (graph.name, tensor))
                if tuple(other.shape) != tuple(tensor.shape):
                    raise ValueError(
                        f"region {tensor.region_name!r} is {tuple(other.shape)} as {other.sn_name!r} of graph "
                        f"{where!r} and {tuple(tensor.shape)} as {tensor.sn_name!r} of graph {graph.name!r}"
                    )

    def compile_multigraph(
        self,
        name: str = "",
        config_dict: Mapping[str, Any] | None = None,
        pef_metadata: Mapping[str, Any] | None = None,
        inference: bool = True,
        **others: Any,
    ) -> str:
        """Compile the graphs that were added to one PEF; returns its path. Raises `ValueError` without a graph, and for
        training, which several graphs do not have."""
        _unknown("compile_multigraph", others)
        if not inference:
            raise ValueError("a PEF of several graphs is for inference alone")
        if not self._pending:
            raise ValueError("no graph was added; call session.add_graph(graph) first")
        self._check_regions()
        for graph in self._pending:
            entries = graph.traced.realisations()
            if (config_dict or self.settings).get("strict"):
                refuse_host(entries)
            print(f"{graph.name}: {summary(entries)}")
        config = {**self.settings, **(config_dict or {})}
        pef_name = str(config.get("pef_name") or name or "multigraph")
        path = Path(str(config.get("output_folder") or "out")) / pef_name / f"{pef_name}.pef"
        write_pef(path, [graph.traced for graph in self._pending], dict(pef_metadata or {}))
        self.pef_path = str(path)
        return str(path)

    def init_multigraph_runtime(self, pef: str) -> None:
        """Load a PEF of several graphs: every graph that was added must be in it, as it was compiled."""
        stored = read_pef(pef)
        for graph in self._pending:
            record = stored.graphs.get(graph.traced.name)
            if record is None:
                raise ValueError(f"{pef} has no graph {graph.traced.name!r}; it has {', '.join(stored.graphs)}")
            record.check(graph.traced, pef)
            self.graphs[graph.traced.name] = graph.traced
            programs = self._programs_of(graph.module)
            graph.module.__dict__["buda_programs"] = lambda programs=programs: programs
        self._pending = []

    def _programs_of(self, module: Any) -> tuple[GraphProgram, ...]:
        """The programs of all graphs, those of `module` first."""
        graphs = sorted(self.graphs.values(), key=lambda traced: traced.model is not module)
        return tuple(program for traced in graphs for program in traced.programs())

    # -- profiles ----------------------------------------------------------------------------------------------------
    def start_runtime_profile(self) -> None:
        """From now on the sections of every run are noted, with their cycles by the model of time."""
        self.profiler.start("runtime")

    def end_runtime_profile(self, filename: str) -> str:
        """Write the sections since `start_runtime_profile` as a Chrome trace; returns the path. Raises `RuntimeError`
        where it was not started, `OutputError`."""
        return self.profiler.write("runtime", filename)

    def start_samba_profile(self) -> None:
        """From now on the steps of the host program are noted, and the program's own events, with the time of this
        process."""
        self.profiler.start("samba")

    def end_samba_profile(self, filename: str = "samba_profile.json") -> str:
        """Write the steps and events since `start_samba_profile` as a Chrome trace; returns the path. Raises
        `RuntimeError` where it was not started, `OutputError`."""
        return self.profiler.write("samba", filename)

    # -- what a program may ask for ----------------------------------------------------------------------------------
    def atexit_register(self, function: Any, *arguments: Any, **settings: Any) -> None:
        """Call a function when the process ends."""
        atexit.register(function, *arguments, **settings)

    def disable_graphamp(self) -> None:
        """Nothing to switch off: all of it calculates in Float32."""

    @staticmethod
    def disable_lazy_param() -> None:
        """Nothing to switch off: parameters are there when the model is."""

    def disable_pinned_memory(self) -> None:
        """Nothing to switch off: host and device share their memory in this process."""

    def create_dynamic_dim(self, *_arguments: Any, **_settings: Any) -> Any:
        """Raises `UnsupportedOp`: a graph has the shapes that it was traced with."""
        raise _no_form(
            "session.create_dynamic_dim",
            "shapes are fixed when a graph is traced",
            "trace one graph for each size, or pad to the largest",
        )

    def load_dynamic_dims_config(self, *_arguments: Any, **_settings: Any) -> Any:
        """Raises `UnsupportedOp`, as `create_dynamic_dim` does."""
        raise _no_form(
            "session.load_dynamic_dims_config",
            "shapes are fixed when a graph is traced",
            "trace one graph for each size, or pad to the largest",
        )

    def add_aux_tensor(self, *_arguments: Any, **_settings: Any) -> Any:
        """Raises `UnsupportedOp`: tensors beside inputs, outputs and parameters are not supported."""
        raise _no_form(
            "session.add_aux_tensor",
            "a graph has inputs, outputs and parameters alone",
            "make the tensor an input or an output of the model",
        )

    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Never: there are no such tensors."""
        return False


def mapping_summary(traced: TracedGraph) -> str:
    """The mapping in a line: sections, simulated cycles of a run, and which of two placements is faster, or why there
    is no other."""
    cycles = run_cycles(traced.result)
    kinds = [s.kind for s in sections_of(traced.result)]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    text = f"mapping {traced.mapping}: {len(kinds)} sections ({counted}), {cycles:,.0f} cycles per run"
    return "; ".join(filter(None, [text, traced.comparison()]))


def _overlaps(data_parallel: Any, mode: Any) -> bool:
    """Whether replicas may synchronise gradients beside backward sections."""
    return bool(data_parallel) or (mode or "normal") != "normal"


def _parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By every name that they have; a parameter that two modules share has two."""
    every = model.named_parameters() if isinstance(model, OnnxModel) else model.named_parameters(remove_duplicate=False)
    return dict(every)


def _no_form(what: str, why: str, fix: str) -> UnsupportedOp:
    return UnsupportedOp(f"{what} is not supported", [Diagnostic("error", what, "samba", why, fix)])


def _numbers(hyperparameters: Mapping[str, float]) -> dict[str, float]:
    """Numbers of a run by name. Raises `ValueError` for one that no run takes."""
    numbers = {str(k): float(v) for k, v in hyperparameters.items()}
    wrong = sorted(set(numbers) - set(NUMBERS))
    if wrong:
        raise ValueError(f"no number {', '.join(wrong)} at run time; there are {', '.join(NUMBERS)}")
    return numbers


def _sections(names: Sequence[str] | None) -> tuple[str, ...]:
    sections = SECTIONS if names is None else tuple(str(n).lower() for n in names)
    wrong = [n for n in sections if n not in SECTIONS]
    if wrong:
        raise ValueError(f"no section type {', '.join(wrong)}; there are {', '.join(SECTIONS)}")
    return tuple(s for s in SECTIONS if s in sections)


def _unknown(call: str, others: Mapping[str, Any]) -> None:
    """Arguments that nothing here reads: told, never passed over in silence."""
    if others:
        warnings.warn(f"session.{call}: no effect here: {', '.join(sorted(others))}", stacklevel=3)


SESSION = SambaSession()
"""The session of this process, which programs know as `samba.session`."""
