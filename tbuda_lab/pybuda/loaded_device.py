"""A device made of an image: it runs what was compiled before, without the model, without tracing or placing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError, PipelineError, not_supported
from tbuda_lab.core.files import atomic_text, file_stem, make_folder
from tbuda_lab.core.frontend import feeds, reference
from tbuda_lab.core.frontend.pybuda import Module, Parameter, SomeTensor, Tensor, to_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import LOSS, subgraphs
from tbuda_lab.core.runner import Runnable, Runner
from tbuda_lab.core.trainer import Trainer
from tbuda_lab.core.tti import LoadedImage, ModuleFacts
from tbuda_lab.core.tti.weights import sample_of
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile_outputs import netlist_folder
from tbuda_lab.pybuda.compiled_device import CompiledDevice, beside_batch
from tbuda_lab.pybuda.context import CONTEXT
from tbuda_lab.pybuda.enums import BackendType, DeviceMode
from tbuda_lab.pybuda.stage import Inputs, Outputs, as_inputs, blank_outputs, new_values
from tbuda_lab.pybuda.subgraphs import has_subgraphs
from tbuda_lab.pybuda.trainers import TTTraining
from tbuda_lab.pybuda.tti import CompiledGraphState, TTDeviceImage, _manifest_of, trained_image


class LoadedModule(Module):
    """A module of an image: its name and its weights. Its code stayed where it was compiled."""

    def __init__(self, facts: ModuleFacts, device: LoadedDevice) -> None:
        super().__init__(facts.name)
        self.facts = facts
        self.__dict__["device"] = device

    def _node(self, name: str) -> str:
        """The node of a parameter by its own name, with or without the module's before it."""
        own = self.facts.parameters
        for key in (name, f"{self.get_name()}.{name}", name.removeprefix(f"{self.get_name()}.")):
            if key in own:
                return own[key]
        raise PipelineError(
            f"Module {self.get_name()!r} doesn't have parameter {name!r}; it has {', '.join(own) or 'none'}"
        )

    def set_parameter(self, name: str, data: SomeTensor) -> None:
        """Give a weight another value; the device takes it up with the next input. Raises `InputError` for a wrong
        shape."""
        self.get_device().set_weight(self._node(name), to_torch(data))

    def set_parameters(self, **kwargs: SomeTensor) -> None:
        self.load_parameter_dict(kwargs)

    def load_parameter_dict(self, data: dict[str, SomeTensor]) -> None:
        for name, value in data.items():
            self.set_parameter(name, value)

    def get_parameter(self, name: str) -> Parameter:
        """The weight as it is now. Raises `InputError` where the image was written without it and none was set."""
        node = self._node(name)
        value = self.get_device().weights().get(node)
        if value is None:
            raise InputError(f"parameter {name!r} has no value: the image was written without weights")
        return Parameter(torch.from_numpy(np.array(value)), name=name)

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        weights = self.get_device().weights()
        return [self.get_parameter(own) for own, node in self.facts.parameters.items() if node in weights]

    def forward(self, *args: Any) -> Any:
        """The module's graph evaluated on the host in float32; for devices of one module."""
        device = self.get_device()
        if len(device.modules) != 1:
            raise not_supported("forward of one of several modules of an image", "run the device: its graph is one")
        return tuple(reference(device.loaded.graph, as_inputs(args)))

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)


def batch_of(graph: Graph, microbatch: int) -> int:
    """Dim 0 of what is pushed: a model that reshapes dim 0 is traced on all of it, any other on one element."""
    return microbatch * next((node.shape[0] for node in graph.inputs if node.shape), 1)


class LoadedDevice(CompiledDevice):
    """A TTDevice that holds an image. See `TTDevice.load_image`."""

    def __init__(self, image: TTDeviceImage) -> None:
        self.image = image
        self.loaded: LoadedImage = image.loaded
        self._set: dict[str, np.ndarray] = {}
        CONTEXT.devices[:] = [
            d for d in CONTEXT.devices if not (isinstance(d, CompiledDevice) and d.imaged and not d.inputs)
        ]
        super().__init__(
            image.device_image_name,
            chip_ids=image.chip_ids,
            arch=image.arch,
            devtype=image.devtype,
            device_mode=DeviceMode.RunOnly,
            fp32_fallback=image.fp32_fallback,
        )
        if self.devtype is BackendType.Golden:  # the image does not say whether the script named it
            self.numerics = "golden"
        self.modules = [LoadedModule(facts, self) for facts in self.loaded.modules]
        self.optimizer = image.optimizer

    # -- training ----------------------------------------------------------------------------------------------
    @property
    def ends_in_loss(self) -> bool:
        return any(node.attrs.get(LOSS) for node in self.loaded.graph.outputs)

    def training(self) -> LoadedTraining:
        return LoadedTraining(self)

    def sample(self, values: Any) -> Inputs:
        """Nothing is compiled, so that shapes of the image are sample enough."""
        if len(values) == 0 and not self.inputs:
            graph = self.loaded.graph
            named = zip(graph.inputs, sample_of(graph, self.loaded.options.microbatch), strict=True)
            return tuple(tensor for node, tensor in named if not node.attrs.get("target"))
        return super().sample(values)

    # -- weights -----------------------------------------------------------------------------------------------
    def weights(self) -> dict[str, np.ndarray]:
        """Current values of the model's parameters by their names in the graph."""
        return {**self.loaded.weight_values(), **self._set}

    def set_weight(self, node: str, value: torch.Tensor) -> None:
        if self.trainer is not None:
            self.trainer.set_parameters({node: value})
            return
        if self.loaded.chain is not None:
            raise not_supported(
                f"new weights of the image {self.name!r}, which is in sections",
                "compile the model with them, compile_to_image",
            )
        shape = tuple(self.loaded.graph[node].shape)
        if tuple(value.shape) != shape:
            raise InputError(f"parameter {node!r} has shape {shape}; got a value of {tuple(value.shape)}")
        self._set[node] = value.detach().to(torch.float32).numpy().copy()

    def update_device_parameters(self, parameters: Sequence[Any]) -> None:
        for name, value in new_values(self.name, parameters).items():
            for module in self.modules:
                assert isinstance(module, LoadedModule)
                if name in module.facts.parameters:
                    module.set_parameter(name, value)
                    break
            else:
                raise PipelineError(f"device {self.name!r} has no parameter {name!r}")

    def _fold(self) -> None:
        """Take up the weights that were set. Raises `InputError` for those still missing."""
        if self.loaded.options.training is not None and self._set:
            self.trainer = self.trainer or self.training()
            self.trainer.set_parameters({name: torch.from_numpy(value) for name, value in self._set.items()})
            self._set = {}
        if self._set or self.loaded.missing:
            self.loaded = self.loaded.with_weights(self._set)
            self._set = {}
            self._runner = None

    # -- what a compile would say --------------------------------------------------------------------------------
    @property
    def spec(self) -> DeviceSpec:
        return self.loaded.device

    def _accepts(self, module: Module) -> None:
        raise not_supported(
            f"placing {module.get_name()!r} on a device that was loaded from an image",
            "place it on a TTDevice of its own",
        )

    def remove_modules(self) -> None:
        raise not_supported("removing the modules of an image", "call shutdown() and make another device")

    def trace(self, sample: Inputs, training: bool = False) -> Graph:
        return self.loaded.graph.clone()

    def compile_for_inputs(self, sample: Inputs, microbatch_size: int = 1) -> Any:
        raise not_supported(
            "compiling a device that was loaded from an image",
            "Session.open(path) does; compile() then gives graphs and placement",
        )

    def fallback_report(self) -> str:
        return "" if self.loaded.chain is None else self.loaded.chain.report()

    def get_compiled_results(self) -> LoadedResults:
        return LoadedResults(self)

    @property
    def _compiled_graph_state(self) -> CompiledGraphState:
        return self.image.compiled_graph_state

    @property
    def has_subgraphs(self) -> bool:
        return has_subgraphs(self.loaded.graph)

    @property
    def subgraph_count(self) -> int:
        return subgraphs(self.loaded.graph) if self.has_subgraphs else 1

    def subgraph_runner(self, inputs: Inputs) -> Runner:
        self._fold()
        if not isinstance(self._runner, Runner):
            self._runner = Runner(self.loaded, self.numerics)
        return self._runner

    # -- running -----------------------------------------------------------------------------------------------
    def prepare(self, sample: Inputs) -> Outputs:
        """Checks that inputs like `sample` fit; nothing is compiled."""
        if self.has_subgraphs:
            self._runner = None  # caches begin anew
            return self.blank_of_active(self.loaded.graph, self.loaded.options.microbatch)
        if self.loaded.options.training is None:
            feeds(self.loaded.graph, sample)
        return blank_outputs(self.loaded.graph, self.loaded.options.microbatch)

    def check_pushed(self, inputs: Inputs) -> None:
        graph = self.loaded.graph
        runs_one_graph = self.loaded.options.training is None and not self.has_subgraphs
        if runs_one_graph and beside_batch(inputs) == [node.shape[1:] for node in graph.inputs]:
            self._batch = batch_of(graph, self.loaded.options.microbatch)
            self._check_batch(inputs)

    def run_forward(self, inputs: Inputs) -> Outputs:
        if self.devtype is BackendType.NoBackend:
            raise PipelineError(f"the image {self.name!r} was made for NoBackend, which compiles only")
        if self.has_subgraphs:
            return self.run_subgraph(inputs, 0)
        self._fold()
        self._microbatch = self.loaded.options.microbatch
        self._batch = batch_of(self.loaded.graph, self._microbatch)
        self._check_batch(inputs)
        if self.loaded.options.training is not None:
            self.trainer = self.trainer or self.training()
            return self.trainer.evaluate(inputs)
        if config._get_global_compiler_config().op_intermediates_to_save:
            raise not_supported("op_intermediates_to_save with an image", "run the model that was compiled")
        if self._runner is None:
            self._runner = Runner(self.loaded, self.numerics)
        return tuple(self._runner.run([inputs])[0])

    def compile_to_image(self, img_path: Any = None, *_: Any, **__: Any) -> TTDeviceImage:
        """The image again, with weights and the optimizer's state as they are now; written where `img_path` says."""
        self._fold()
        if self.loaded.options.training is not None and self.trainer is not None:
            self.loaded = trained_image(self.loaded, self)
        image = TTDeviceImage(self.loaded, self.image.facts, _manifest_of(self.loaded, self.image.facts))
        image.save_to_disk(img_path)
        return image


class LoadedTraining(TTTraining):
    """A device made of a training image trains: its programs, weights and optimizer's state are those of the image."""

    def __init__(self, device: LoadedDevice) -> None:
        super().__init__(device)
        self.image: LoadedImage = device.loaded.for_training()
        graph = device.loaded.graph
        self.targets = tuple(n.name for n in graph.inputs if n.attrs.get("target"))
        self.model = Graph(graph.name)
        self.model.nodes = {n.name: n for n in graph.inputs if n.name not in self.targets}
        assert self.image.options.training is not None
        self.options = self.image.options.training

    @property
    def compile_result(self) -> Runnable:
        return self.image

    def _new_trainer(self) -> Trainer:
        return Trainer(self.image, self.device.numerics)

    def prepare(self, sample: Inputs, targets: tuple[Any, ...] | None, sends_back: bool, batches: int) -> Outputs:
        """Nothing is compiled. Raises `PipelineError` where the device before needs gradients that it lacks."""
        if sends_back and not self.options.input_gradients:
            raise PipelineError(
                f"the image {self.device.name!r} was compiled as the first device of its pipeline: it "
                "sends no gradients back; compile_to_image in the pipeline that it belongs to"
            )
        self.device._microbatch = self.image.options.microbatch
        self.device._batch = batch_of(self.image.graph, self.device._microbatch)
        return blank_outputs(self.image.graph, self.image.options.microbatch)

    def room_for(self, count: int) -> None:
        trainer = self._ready()
        if trainer.keeps and not trainer.waiting and trainer.room < count * self.image.options.microbatch:
            raise PipelineError(
                f"the image {self.device.name!r} keeps {self.options.batches} inputs between forward and backward, not "
                f"{count}; compile_to_image(microbatch_count={count}) makes one that does"
            )


class LoadedResults:
    """What an image holds of a compile. Graphs after the first and the placement are not in it."""

    def __init__(self, device: LoadedDevice) -> None:
        self._device = device
        self.outputs: list[Tensor] = []
        self.golden_outputs: list[torch.Tensor] = []

    @property
    def initial_graph(self) -> Graph:
        return self._device.loaded.graph

    @property
    def netlist_filename(self) -> str:
        """Path of the netlist; it is written on the first read, as after a compile."""
        folder = make_folder(netlist_folder(config._get_global_compiler_config()))
        path = folder / f"{file_stem(self._device.name)}_netlist.yaml"
        with atomic_text(path) as stream:
            stream.write(netlists.dumps(self._device.loaded.netlist))
        return str(path)

    @property
    def lowered_graph(self) -> Graph:
        raise not_supported("lowered_graph of a device that was loaded from an image", "Session.open(path).compile()")

    @property
    def pass_specific_output_kwargs(self) -> dict[str, Any]:
        raise not_supported("the placement of a device that was loaded from an image", "Session.open(path).compile()")
