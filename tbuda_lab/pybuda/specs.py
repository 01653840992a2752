"""Which device a script means: its arch or board, chips, cluster, and rows that are off."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.device import MOST_CHIPS, DeviceSpec, load_device
from tbuda_lab.core.errors import InputError, PipelineError
from tbuda_lab.core.files import yaml_map
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile_outputs import write_runtime_params
from tbuda_lab.pybuda.enums import BackendDevice

_MASK = re.compile(r"system-device(\d+)-harvesting_mask")


def default_arch() -> BackendDevice:
    """The architecture of a device that names none: Grayskull, unless the environment asks for another."""
    if "PYBUDA_GOLDEN_BLACKHOLE" in os.environ:
        return BackendDevice.Blackhole
    return BackendDevice.Wormhole_B0 if "GOLDEN_WORMHOLE_B0" in os.environ else BackendDevice.Grayskull


def check_chips(name: str, num_chips: Any, chip_ids: Any) -> None:
    """Raises `PipelineError` for chips that no device has."""
    if num_chips is not None and (type(num_chips) is not int or not 0 <= num_chips <= MOST_CHIPS):
        raise PipelineError(f"device {name!r}: num_chips is a number from 1 to {MOST_CHIPS}, not {num_chips!r}")
    if chip_ids is None:
        return
    listed = list(chip_ids) if isinstance(chip_ids, Iterable) and not isinstance(chip_ids, str) else None
    if listed is None or any(type(c) is not int or c < 0 for c in listed) or len(set(listed)) != len(listed):
        fix = "; where chips stand is said by the cluster descriptor (backend_cluster_descriptor_path)"
        places = listed is not None and any(isinstance(c, tuple | list) for c in listed)
        raise PipelineError(f"device {name!r}: chip_ids are different numbers from 0, not {chip_ids!r}{fix * places}")


def device_spec(
    arch: BackendDevice,
    chip_ids: Sequence[int] | None,
    *,
    cluster: str = "",
    runtime_params: str = "",
    store: bool = False,
) -> DeviceSpec:
    """The device of an arch (or of the device that the configuration names) with these chips.

    store: write what is known of the device to the file of runtime parameters, where it is not there yet.
    cluster: a cluster descriptor; runtime_params: YAML with `system-device<N>-harvesting_mask`; both also by
    `set_configuration_options`. Rows harvested by `harvested_rows` come first, then those of runtime_params, then the
    board's. Raises `InputError` and `UnknownDevice` as `load_device` does.
    """
    settings = config._get_global_compiler_config()
    name = settings.backend_device_descriptor_path or arch.arch
    chips = list(chip_ids) if chip_ids and list(chip_ids) != [0] else None
    path = cluster or settings.backend_cluster_descriptor_path or None
    spec = load_device(name, chips=chips, cluster=path)
    masks = settings.harvesting_masks or ((settings.harvesting_mask,) if settings.harvesting_mask else ())
    params = runtime_params or settings.backend_runtime_params_path
    if params and (store or settings.store_backend_db_to_yaml) and not Path(params).exists():
        device_spec = _with_rows_off(name, chips, path, spec, masks)
        write_runtime_params(device_spec, Path(params))
        return device_spec
    if not masks and params:
        stored = masks_of(Path(params))
        masks = tuple(stored.get(chip, spec.harvesting_mask(i)) for i, chip in enumerate(spec.chips))
    return _with_rows_off(name, chips, path, spec, masks)


def _with_rows_off(
    name: str, chips: list[int] | None, path: str | None, spec: DeviceSpec, masks: Sequence[int]
) -> DeviceSpec:
    if not masks:
        return spec
    if len(masks) == 1:
        return load_device(name, harvested_rows=masks[0], chips=chips, cluster=path)
    if len(masks) != len(spec.chips):
        raise InputError(
            f"rows are given for {len(masks)} chips, the device has {len(spec.chips)}: give one list for "
            "all, or one for each"
        )
    return load_device(name, harvested_by_chip=tuple(masks), chips=chips, cluster=path)


def masks_of(path: Path) -> dict[int, int]:
    """Harvesting masks by chip of a file of runtime parameters."""
    result = {}
    for key, value in yaml_map(path, "file of runtime parameters").items():
        match = _MASK.fullmatch(str(key))
        if match:
            if type(value) is not int or value < 0:
                raise InputError(f"{path}: {key} is a mask of rows, not {value!r}")
            result[int(match[1])] = value
    return result
