"""`python -m tests.frontend.onnx_nodes [EVERY [FIRST]]`: ONNX's own node cases through a device in Float32, every so
many of them: the same as ONNX's stored answers, refused by type, different, or a bare error."""

from __future__ import annotations

import collections
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import torch
from onnx.backend.test.loader import load_node_model_tests

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import TbudaError
from tests.frontend.test_onnx_nodes import tensor

RELATIVE, ABSOLUTE = 2e-3, 1e-3


def outputs_of(case: Any, constants: set[str]) -> list[torch.Tensor]:
    """What a device gives for a case; inputs in `constants` are stored in the model."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    feeds = []
    for entry, value in zip(model.graph.input, case.data_sets[0][0], strict=True):
        array = tensor(value)
        if array is None:
            raise LookupError("an operand is not a tensor")
        if entry.name in constants:
            stored = value if isinstance(value, onnx.TensorProto) else onnx.numpy_helper.from_array(np.asarray(value))
            stored.name = entry.name
            model.graph.initializer.append(stored)
        else:
            feeds.append(array)
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.OnnxModule("node", model))
    return list(device.run_forward(tuple(feeds)))


def verdict(case: Any) -> str:
    """ "same", "refused: ...", "differs: ...", "raw: ..." or "no tensors"."""
    names = [i.name for i in case.model.graph.input]
    refused = ""
    for constants in (set(), set(names[1:]), set(names)):
        try:
            got = outputs_of(case, constants)
        except LookupError as error:
            if type(error) is LookupError:
                return "no tensors"
            return f"raw: {type(error).__name__}: {error}"
        except TbudaError as error:
            refused = f"refused: {str(error).splitlines()[0]}"
            continue
        except Exception as error:
            return f"raw: {type(error).__name__}: {error}"
        for have, value in zip(got, case.data_sets[0][1], strict=False):
            want = tensor(value)
            if want is None:
                return "same"  # a sequence: the graph returned its tensors
            if tuple(have.shape) != tuple(want.shape):
                return f"differs: shape {tuple(have.shape)}, not {tuple(want.shape)}"
            digit = torch.finfo(want.dtype).eps if want.is_floating_point() else 0.0  # the last one that is stored
            a, b = have.double().numpy(), want.double().numpy()
            if not np.allclose(a, b, rtol=max(RELATIVE, digit), atol=ABSOLUTE, equal_nan=True):
                return f"differs: by {np.nanmax(np.abs(a - b))}"
        return "same"
    return refused


def main() -> int:
    numbers = [int(word) for word in sys.argv[1:]]
    every, first = numbers[0] if numbers else 1, numbers[1] if numbers[1:] else 0
    counts: collections.Counter[str] = collections.Counter()
    chosen = sorted(load_node_model_tests(), key=lambda case: str(case.name))[first::every]
    for case in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = verdict(case)
        counts[text.partition(":")[0]] += 1
        if text != "same":
            print(f"{case.name}: {text[:200]}", flush=True)
    print(f"{len(chosen)} cases: {dict(counts)}")
    return int(bool(counts["differs"] + counts["raw"]))


if __name__ == "__main__":
    sys.exit(main())
