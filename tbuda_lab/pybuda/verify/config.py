"""`pybuda.verify.config`."""

from typing import ClassVar

from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.runtime.enums import BackendDevice, BackendType, DeviceMode, TestKind
from tbuda_lab.runtime.verify import VerifyConfig

__all__ = [
    "BackendDevice", "BackendType", "DataFormat", "DeviceMode", "MathFidelity", "NebulaGalaxy", "TestKind",
    "VerifyConfig",
]  # fmt: skip


class NebulaGalaxy:
    """The chips of a Galaxy of 32 behind a Nebula, by number, as scripts give them to `VerifyConfig(chip_ids=)`."""

    chip_ids: ClassVar[list[int]] = list(range(33))
