"""All ops."""

from tbuda_lab.popxl.ops import collectives, faults, utils, var_updates
from tbuda_lab.popxl.ops.call import CallSiteInfo, call, call_with_info
from tbuda_lab.popxl.ops.conditional import ConditionalSiteInfo, conditional, conditional_with_info
from tbuda_lab.popxl.ops.elementwise import *  # noqa: F403
from tbuda_lab.popxl.ops.moves import (
    cast,
    cast_then_pow2scale,
    concat,
    concat_,
    detach,
    detach_,
    flatten,
    flatten_,
    identity,
    init,
    io_tile_copy,
    ipu_copy,
    pow2scale_cast_from_fp8,
    pow2scale_cast_to_fp8,
    pow2scale_then_cast,
    rename,
    reshape,
    reshape_,
    slice,
    slice_,
    split,
    squeeze,
    subsample,
    transpose,
    transpose_,
)
from tbuda_lab.popxl.ops.picking import (
    dynamic_slice,
    dynamic_update,
    dynamic_update_,
    gather,
    grouped_scatter_reduce,
    groupedgather,
    interpolate,
    nll_loss,
    nll_loss_with_softmax_grad,
    onehot,
    roi_align,
    scatter,
    scatter_reduce,
    tied_gather,
)
from tbuda_lab.popxl.ops.products import (
    average_pool,
    batch_norm_inference,
    conv,
    conv_pow2scaled,
    conv_transpose,
    conv_transpose_pow2scaled,
    group_norm,
    layer_norm,
    matmul,
    matmul_pow2scaled,
    max_pool,
    softmax,
)
from tbuda_lab.popxl.ops.randoms import (
    create_random_seed,
    dropout,
    random_normal,
    random_uniform,
    shaped_dropout,
    split_random_seed,
)
from tbuda_lab.popxl.ops.reductions import (
    argmax,
    argmin,
    cumsum,
    histogram,
    l1,
    l2,
    lamb_square,
    logsum,
    logsumexp,
    max,
    mean,
    median,
    min,
    prod,
    sum,
    sumsquare,
    topk,
)
from tbuda_lab.popxl.ops.repeat import repeat, repeat_with_info
from tbuda_lab.popxl.ops.transfers import (
    code_copy,
    host_load,
    host_store,
    print_tensor,
    remote_code_load,
    remote_load,
    remote_load_,
    remote_store,
)

faults.tell_where(globals())
faults.tell_where_of_methods({"__getitem__": "an index", "_ensure_tensor": "an operand", "diag": "diag"})
