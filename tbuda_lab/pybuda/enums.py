"""The enumerations of the PyBuda API. Numbers are PyBuda's where scripts can see them."""

from __future__ import annotations

from enum import Enum, IntEnum

from tbuda_lab.core.formats.data_format import Numbered


class BackendType(Numbered):
    """What executes a netlist. Here every type that executes is the simulated device."""

    Model = 0
    Versim = 1
    Silicon = 2
    Golden = 3
    Emulation = 4
    NoBackend = 5


class BackendDevice(Numbered):
    """The architecture of a device."""

    Grayskull = 0
    Wormhole_B0 = 1
    Blackhole = 2
    Invalid = 0xFF

    @property
    def arch(self) -> str:
        """The name `core.device.load_device` knows it by."""
        return self.name.lower()


class DeviceMode(Numbered):
    CompileAndRun = 0
    CompileOnly = 1
    RunOnly = 2


class CompileDepth(IntEnum):
    """How far a compile goes."""

    INIT_COMPILE = 0
    GENERATE_INITIAL_GRAPH = 1
    POST_INITIAL_GRAPH_PASS = 2
    CONSTEVAL_GRAPH = 3
    POST_PATTERN_MATCHER = 4
    OPTIMIZED_GRAPH = 5
    AUTOGRAD = 6
    POST_AUTOGRAD_PASS = 7
    PRE_LOWERING_PASS = 8
    BUDA_GRAPH_PRE_PLACER = 9
    BALANCER_PASS = 10
    PRE_NETLIST_PASS = 11
    GENERATE_NETLIST = 12
    BACKEND_GOLDEN_VERIFY = 13
    FULL = 14


class PerfTraceLevel(Numbered):
    NONE = 0
    LIGHT = 1
    VERBOSE = 2


class DRAMPlacementAlgorithm(Numbered):
    ROUND_ROBIN = 0
    ROUND_ROBIN_FLIP_FLOP = 1
    GREATEST_CAPACITY = 2
    CLOSEST = 3


class TTIDumpFormat(Numbered):
    DEFAULT = 0
    BACKEND = 1
    BACKEND_TILIZED = 2


class NodeEpochType(Numbered):
    Forward = 0
    Backward = 1
    Optimizer = 2


class RuntimeTensorTransformType(Numbered):
    """What the host does to a tensor before the device gets it."""

    NoTransform = 0
    ReinterpretShape = 1
    Prestride = 2
    EmbeddingIndex = 3
    ConstantInput = 4


class TestKind(Enum):
    """What `verify_module` checks."""

    __test__ = False  # pytest would collect a class of this name

    INFERENCE = 1
    TRAINING = 2
    TRAINING_RECOMPUTE = 3

    def is_training(self) -> bool:
        return self is not TestKind.INFERENCE

    def is_recompute(self) -> bool:
        return self is TestKind.TRAINING_RECOMPUTE

    @classmethod
    def get(cls, training: bool, recompute: bool = False) -> TestKind:
        if not training:
            return cls.INFERENCE
        return cls.TRAINING_RECOMPUTE if recompute else cls.TRAINING
