"""The simulated device of the PyBuda API: compiles its modules, runs, trains, generates, and goes into images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.graph import Graph
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile import generate_graph
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.context import CONTEXT
from tbuda_lab.pybuda.loaded_device import LoadedDevice
from tbuda_lab.pybuda.results import DeviceConfig, get_device_config
from tbuda_lab.pybuda.stage import ROOM, DeviceTraining, as_inputs, sample_targets_of
from tbuda_lab.pybuda.trainers import TTTraining
from tbuda_lab.pybuda.tti import TTDeviceImage


class TTDevice(CompiledDevice):
    """One or more chips of one architecture, simulated.

    arch: default Grayskull (Wormhole_B0 or Blackhole when GOLDEN_WORMHOLE_B0 or PYBUDA_GOLDEN_BLACKHOLE is set).
    devtype decides what rounds. None: a golden model, float32 arithmetic on inputs and weights in their formats.
    Golden: as the vendor's golden model, which ignores formats unless TT_BACKEND_GOLDEN_QUANTIZE is set: float32
    throughout. Silicon (which warns once, there is none), Model, Versim and Emulation round wherever the machine does:
    fidelity and formats of every op change the numbers. NoBackend compiles and does not run. num_chips or chip_ids:
    chips to use, default one.
    """

    def training(self) -> DeviceTraining:
        return TTTraining(self)

    def generate_graph(
        self,
        *inputs: Tensor,
        target_tensors: Sequence[Any] = (),
        return_intermediate: bool = False,
        graph_name: str = "default_graph",
        compiler_cfg: Any = None,
        trace_only: bool = False,
        verify_cfg: Any = None,
    ) -> tuple[Graph, tuple[Tensor, ...], dict[str, Tensor], tuple[Tensor, ...], Tensor | None]:
        """The nD graph of the placed modules, its outputs, intermediates by node, the inputs, and the first target.

        target_tensors: for the loss on the device, which then is a part of the graph. return_intermediate: what every
        op gives, of the first element. trace_only: outputs have no values. compiler_cfg: whether it is for training.
        verify_cfg: outputs are judged against the modules' own (`AssertionError`). Nothing is compiled. Raises
        `PipelineError` for targets without a loss, or for a loss without them.
        """
        settings = compiler_cfg or config._get_global_compiler_config()
        sample, targets = as_inputs(inputs), as_inputs(target_tensors)
        parts = generate_graph(
            self, sample, targets, settings.enable_training, return_intermediate, trace_only, verify_cfg
        )
        parts[0].name = graph_name
        return parts

    @property
    def _compiled_graph_state(self) -> Any:
        return TTDeviceImage.create_image_from_device(self).compiled_graph_state

    def compile_to_image(
        self,
        img_path: str | os.PathLike[str] | None = None,
        training: bool = False,
        sample_inputs: Any = (),
        sample_targets: Any = (),
        microbatch_count: int = 1,
        verify_cfg: Any = None,
        cpueval_outputs: Any = None,
    ) -> Any:
        """Compile for inputs like `sample_inputs` (or the first one pushed) and write a device image (`*.tti`), which
        `load_image` runs without the model. Works for any devtype; nothing runs.

        training: the image trains, with the loss and optimizer of the device; microbatch_count inputs run forward
        before the first runs backward. On a device that is set up for training already the image is a checkpoint:
        weights and the optimizer's state as they are now.
        img_path: see `TTDeviceImage.save_to_disk`. Returns the `TTDeviceImage`. Raises the errors of compiling, and
        `OutputError`.
        """
        if training:
            self._prepare_training_image(sample_inputs, sample_targets, microbatch_count)
        elif config._get_global_compiler_config().op_intermediates_to_save:
            raise not_supported(
                "op_intermediates_to_save in an image",
                "write the image without, and read intermediates by run_inference of the placed model",
            )
        else:
            self.compile_for_inputs(self.sample(sample_inputs))
        image = TTDeviceImage.create_image_from_device(
            self, training, microbatch_count, verify_cfg, sample_targets=sample_targets
        )
        image.save_to_disk(img_path)
        self.imaged = True
        return image

    def _prepare_training_image(self, sample_inputs: Any, sample_targets: Any, microbatch_count: int) -> None:
        if self.trainer is None:
            targets = None if self.loss_module is None else sample_targets_of(self, sample_targets)
            first = not CONTEXT.devices or CONTEXT.devices[0] is self
            trainer = self.training()
            trainer.prepare(self.sample(sample_inputs), targets, not first, max(microbatch_count, ROOM))
            self.trainer = trainer

    @staticmethod
    def load_image(
        img: Any = None,
        img_path: str | os.PathLike[str] | None = None,
        device_id_overrides: Sequence[int] | None = None,
    ) -> LoadedDevice:
        """A device that runs an image (`img`, or the file at `img_path`): without the model, without compiling.

        Devices that were only compiled to images leave the pipeline. Raises `InputError` as
        `TTDeviceImage.load_from_disk` does.
        """
        if (img is None) == (img_path is None):
            raise PipelineError("load_image takes an image (img=) or the path of one (img_path=)")
        if img is None:
            img = TTDeviceImage.load_from_disk(img_path, device_id_overrides)
        elif not isinstance(img, TTDeviceImage):
            raise PipelineError(f"img is a TTDeviceImage, not a {type(img).__name__}; a path goes in img_path=")
        elif device_id_overrides is not None:
            img = img.on_chips(device_id_overrides)
        return LoadedDevice(img)


TTDevice.register(LoadedDevice)  # to scripts a device made of an image is a TTDevice

__all__ = ["DeviceConfig", "TTDevice", "get_device_config"]
