"""Device images (TTI files): a compiled device in one archive, under PyBuda's names. `core.tti` reads and writes it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.files import make_folder
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import as_read_alone
from tbuda_lab.core.tti import ImageFacts, LoadedImage, as_trained, load_image, loaded_of, module_facts, write_image
from tbuda_lab.core.tti.loaded_image import on_chips
from tbuda_lab.core.tti.manifest import ARCHS, RELEASE, manifest_of
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.enums import BackendDevice, BackendType, RuntimeTensorTransformType, TTIDumpFormat
from tbuda_lab.pybuda.optimizers import optimizer_of

FOLDER = Path("device_images")
_DUMPS = {TTIDumpFormat.DEFAULT: "default", TTIDumpFormat.BACKEND: "backend"}
_ENVIRONMENT = ("PYBUDA_", "TT_BACKEND_")


class RuntimeTensorTransform:
    """What the host does to an input or output between the model and its queue. type: a member of
    `RuntimeTensorTransformType`, or "HostRecipe" for a graph of `ops` that none of those describes; the other
    attributes are the numbers of that type."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            setattr(self, name, value["dims_"] if isinstance(value, Mapping) and "dims_" in value else value)
        self.type = RuntimeTensorTransformType.__members__.get(fields["type"], fields["type"])

    def __repr__(self) -> str:
        return f"RuntimeTensorTransform({getattr(self.type, 'name', self.type)})"


class CompiledGraphState:
    """`ordered_input_names`, `ordered_parameter_node_names`, `netlist_filename`, ...: see
    docs/design/netlist-format.md#devicejson."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = dict(fields)
        for name in ("ordered_input_shapes", "ordered_target_shapes"):
            self._fields.setdefault(name, [])

    def __getattr__(self, name: str) -> Any:
        fields: dict[str, Any] = self.__dict__.get("_fields", {})  # a copy is asked before it has any
        if not name.startswith("_") and name in fields:
            value = fields[name]
            return list(map(RuntimeTensorTransform, value)) if name.endswith("_runtime_tensor_transforms") else value
        raise AttributeError(f"the state of a compiled graph has no {name!r}; it has {', '.join(fields)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})


class TTDeviceImage:
    """A compiled device: its netlist, its weights, the graph it came from, and what it was compiled for.

    Made by `TTDevice.compile_to_image` or `load_from_disk`; `TTDevice.load_image` makes a device of it.
    """

    def __init__(self, loaded: LoadedImage, facts: ImageFacts, manifest: dict[str, Any] | None = None) -> None:
        record = manifest if manifest is not None else loaded.manifest
        self.loaded = loaded
        self.facts = facts
        self.version = str(record["version"])
        self.device_image_name = loaded.name
        self.arch = BackendDevice[ARCHS[loaded.device.arch]]
        self.devtype = BackendType.__members__.get(facts.devtype, BackendType.Golden)
        self.chip_ids = list(loaded.device.chips)
        self.fp32_fallback = DataFormat.__members__.get(facts.fp32_fallback, DataFormat.Float16_b)
        plan = loaded.options.training
        self.training = plan is not None
        self.optimizer = None if plan is None or plan.optimizer is None else optimizer_of(plan.optimizer)
        self.loss_module = None  # of a training image the loss is a part of its graph
        self.microbatch_size = loaded.options.microbatch
        self.microbatch_count = facts.microbatch_count
        self.grid_size = [loaded.device.rows, loaded.device.cols]
        self.harvested_rows = [loaded.device.harvesting_mask(i) for i in range(len(self.chip_ids))]
        self.verify_cfg = facts.verify_cfg
        self.compiler_cfg = dict(facts.compiler_cfg)
        self.compiled_graph_state = CompiledGraphState(record["compiled_graph_state"])
        self.module_name_to_metadata = dict(record["module_name_to_metadata"])
        self.pybuda_pip_version_id = str(record.get("pybuda_pip_version_id", ""))
        self.pybuda_commit_hash = str(record.get("pybuda_commit_hash", ""))
        self.budabackend_commit_hash = str(record.get("budabackend_commit_hash", ""))

    # -- making ------------------------------------------------------------------------------------------------
    @staticmethod
    def create_image_from_device(
        device: CompiledDevice,
        training: bool = False,
        microbatch_count: int = 1,
        verify_cfg: Any = None,
        sample_targets: Any = (),
        **_: Any,
    ) -> TTDeviceImage:
        """The image of a device that has been compiled; training: of one that is set up for training, with weights and
        the optimizer's state as they are now. Of a model of which the host runs a part it holds that part as
        graphs. Raises `PipelineError` before a compile, `NotSupported` for a model that torch itself runs, and for
        sections that train."""
        result = device.result
        if result is None or (training and device.trainer is None):
            raise PipelineError(f"device {device.name!r} has not been compiled yet; compile_to_image does it")
        split = device.split
        if device.fallback_report() and split is None and result.chain is None:
            raise not_supported(
                f"an image of {device.name!r}, whose model torch itself leads or runs",
                "write the model without paths that depend on data, or give the device a part of it "
                "with ops of its own",
            )
        if split is not None and training:
            raise not_supported(
                f"a training image of {device.name!r}, part of whose model runs on the host",
                "compile_to_image(training=False) of the trained weights, or a CPUDevice for that part",
            )
        facts = ImageFacts(
            devtype=device.devtype.name,
            fp32_fallback=device.fp32_fallback.name,
            microbatch_count=microbatch_count,
            compiler_cfg=_plain_config(config._get_global_compiler_config()),
            environment=_environment(),
            verify_cfg=None if verify_cfg is None else _plain_config(verify_cfg),
            target_shapes=[list(t.shape) for t in _tensors(sample_targets)],
        )
        loaded = loaded_of(result, device.name, module_facts(device.modules, result.graph))
        if training:
            loaded = trained_image(loaded, device)
        elif device.compiled_sample is not None and len(device.modules) == 1:
            graph = as_read_alone(loaded.graph, device.modules[0], device.compiled_sample)
            loaded = dataclasses.replace(loaded, graph=graph)
        return TTDeviceImage(loaded, facts, _manifest_of(loaded, facts))

    # -- files -------------------------------------------------------------------------------------------------
    def save_to_disk(
        self, img_path: str | os.PathLike[str] | None = None, backend_api: Any = None, *, weights: bool = True
    ) -> str:
        """Write the archive, whole or not at all; returns its path. Folders that are not there are made.

        img_path: default `device_images/tt_<12 digits>.tti`, the digits from the netlist. weights: without them the
        file is small, and whoever loads it sets them first. The tensors are `.npy` files, or raw numbers where the
        compiler's `tti_dump_format` (or PYBUDA_TTI_BACKEND_FORMAT) says so. Raises `OutputError`.
        """
        if img_path is None:
            digits = hashlib.sha256(netlists.dumps(self.loaded.netlist).encode()).hexdigest()[:12]
            img_path = FOLDER / f"tt_{digits}.tti"
        path = Path(img_path)
        dump_format = _dump_format()
        make_folder(path.parent)
        write_image(path, self.loaded, self.facts, weights=weights, dump_format=dump_format)
        return str(path)

    @staticmethod
    def load_from_disk(
        tti_file_path: str | os.PathLike[str] | None = None,
        device_id_overrides: Sequence[int] | None = None,
        *,
        img_path: str | os.PathLike[str] | None = None,
        device_id_override: Sequence[int] | None = None,
    ) -> TTDeviceImage:
        """The image of a file (`img_path` is the other name of the argument). Nothing is extracted or unpickled.

        device_id_overrides: other numbers for its chips, in order. Raises `InputError` that says what is wrong.
        """
        path = tti_file_path if tti_file_path is not None else img_path
        if path is None:
            raise PipelineError("load_from_disk takes the path of a .tti file")
        loaded = load_image(Path(path))
        image = TTDeviceImage(loaded, _facts_of(loaded.manifest))
        image.validate_image_version_compatibility()
        chips = device_id_overrides if device_id_overrides is not None else device_id_override
        return image if chips is None else image.on_chips(chips)

    def on_chips(self, chips: Sequence[int]) -> TTDeviceImage:
        """The image for other chips, as many as it has, in its order. Raises `InputError`."""
        loaded = on_chips(self.loaded, chips)
        return TTDeviceImage(loaded, self.facts, _manifest_of(loaded, self.facts))

    # -- reading -----------------------------------------------------------------------------------------------
    def get_input_shapes(self) -> list[list[int]]:
        """Shapes of what is pushed, dim 0 the microbatch."""
        return [list(s) for s in self.compiled_graph_state.ordered_input_shapes]

    def get_target_shapes(self) -> list[list[int]]:
        """Shapes of the sample targets it was compiled with; inference has none."""
        return [list(s) for s in self.compiled_graph_state.ordered_target_shapes]

    def is_compiled_for_training(self) -> bool:
        return self.training

    def validate_image_version_compatibility(self) -> None:
        """Warns when another release wrote the image; another version of the format is refused while reading."""
        if self.pybuda_pip_version_id != RELEASE:
            warnings.warn(
                f"{self.device_image_name} was written by {self.pybuda_pip_version_id}, this is {RELEASE}",
                UserWarning,
                stacklevel=3,
            )

    def info(self) -> None:
        """Print what the image was made by, for which device, and what it takes."""
        rows = self.harvested_rows
        print(
            "\n".join(
                [
                    "Image Info...",
                    "- Version Info:",
                    f"    - pybuda_version: {self.pybuda_pip_version_id}",
                    f"    - pybuda_commit: {self.pybuda_commit_hash}",
                    f"    - buda_backend_commit: {self.budabackend_commit_hash}",
                    f"- Device Name: {self.device_image_name}",
                    "",
                    "Device Info...",
                    f"- arch: {self.arch}",
                    f"- chip_ids: {self.chip_ids}",
                    f"- backend device type: {self.devtype}",
                    f"- grid size: {self.grid_size}",
                    f"- harvested rows: {rows[0] if len(rows) == 1 else rows}",
                    "",
                    "Compilation Graph State...",
                    f"- training: {self.training}",
                    f"- modules: {list(self.module_name_to_metadata)}",
                    f"- ordered input shapes: {self.get_input_shapes()}",
                    f"- ordered targets shapes: {self.get_target_shapes()}",
                ]
            )
        )


def trained_image(loaded: LoadedImage, device: CompiledDevice) -> LoadedImage:
    """An image with weights, optimizer's state and learning rate as they are on a device that trains."""
    training = device.in_training()
    weights = {name: value.numpy() for name, value in training.parameters().items()}
    contents = training.contents()
    plan = loaded.options.training
    if plan is not None and plan.optimizer is not None and device.optimizer is not None:
        settings = {**dict(plan.optimizer.settings), "learning_rate": device.optimizer.learning_rate}
        optimizer = dataclasses.replace(plan.optimizer, settings=tuple(sorted(settings.items())))
        options = dataclasses.replace(loaded.options, training=dataclasses.replace(plan, optimizer=optimizer))
        loaded = dataclasses.replace(loaded, options=options)
    return as_trained(loaded, weights, contents)


def _manifest_of(loaded: LoadedImage, facts: ImageFacts) -> dict[str, Any]:
    return manifest_of(loaded, facts, f"{loaded.name}_netlist.yaml", {}, {})


def _facts_of(manifest: dict[str, Any]) -> ImageFacts:
    """What a manifest that was read says beside the compile."""

    def member(name: str) -> str:
        value = manifest.get(name)
        text = value.get("__enum__") if isinstance(value, dict) else value
        return str(text).rpartition(".")[2]

    count, verify, cfg = manifest.get("microbatch_count"), manifest.get("verify_cfg"), manifest.get("compiler_cfg")
    shapes = manifest["compiled_graph_state"].get("ordered_target_shapes")
    return ImageFacts(
        devtype=member("devtype"),
        fp32_fallback=member("fp32_fallback"),
        microbatch_count=count if type(count) is int and count > 0 else 1,
        compiler_cfg=cfg if isinstance(cfg, dict) else {},
        verify_cfg=verify if isinstance(verify, dict) else None,
        target_shapes=shapes if isinstance(shapes, list) else (),
    )


def _dump_format() -> str:
    chosen = config._get_global_compiler_config().tti_dump_format
    if "PYBUDA_TTI_BACKEND_TILIZED_FORMAT" in os.environ:
        chosen = TTIDumpFormat.BACKEND_TILIZED
    elif "PYBUDA_TTI_BACKEND_FORMAT" in os.environ:
        chosen = TTIDumpFormat.BACKEND
    if chosen not in _DUMPS:
        raise not_supported(
            "an image of tilized tensors",
            "TTIDumpFormat.BACKEND writes raw row-major numbers, which the machine's tools tilize when they load them",
        )
    return _DUMPS[chosen]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_ENVIRONMENT)}


def _plain_config(settings: Any) -> dict[str, Any]:
    """A configuration as plain data, for readers; what has no plain form is left out."""
    values = {f.name: _plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
    return {name: value for name, value in values.items() if value is not _NONE}


_NONE = object()


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return {"__enum__": f"{type(value).__name__}.{value.name}"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, set | frozenset):
        return sorted(str(v) for v in value)
    if isinstance(value, dict):
        return {str(k): p for k, v in value.items() if (p := _plain(v)) is not _NONE}
    if isinstance(value, list | tuple):
        return [p for v in value if (p := _plain(v)) is not _NONE]
    return _NONE


def _tensors(targets: Any) -> list[Any]:
    many = targets if isinstance(targets, list | tuple) else [targets]
    return [t for t in many if hasattr(t, "shape")]
