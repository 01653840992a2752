"""PopXL programs on the simulated grid: `tbuda script FILE`, or `import tbuda_lab.popxl as popxl`."""

from tbuda_lab.popxl import (
    context,
    dtypes,
    errors,
    fp8_utils,
    ops,
    random_seed,
    replica_grouping,
    session,
    streams,
    tensor,
    transforms,
    utils,
)
from tbuda_lab.popxl.archive import OpenedProgram, open_program
from tbuda_lab.popxl.context import (
    gcg,
    get_current_context,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    in_sequence,
    io_tiles,
    ipu,
    name_scope,
)
from tbuda_lab.popxl.custom_op import CustomOp
from tbuda_lab.popxl.dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tbuda_lab.popxl.errors import UndefinedValue, popart_exception
from tbuda_lab.popxl.executable import options
from tbuda_lab.popxl.fp8_utils import host_pow2scale_cast_from_fp8, host_pow2scale_cast_to_fp8
from tbuda_lab.popxl.graph import Graph
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.module import Module
from tbuda_lab.popxl.random_seed import create_seeds
from tbuda_lab.popxl.remote_buffer import RemoteBuffer, remote_buffer
from tbuda_lab.popxl.replica_grouping import CommGroup, CommGroupType, ReplicaGrouping
from tbuda_lab.popxl.session import Session
from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from tbuda_lab.popxl.tensor import (
    Constant,
    Tensor,
    TensorByRef,
    TensorSpec,
    Variable,
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
    variable,
)
from tbuda_lab.popxl.tensorlocation import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
    TileSet,
)

ops.faults.tell_where(globals())
