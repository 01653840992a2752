"""Calls that cannot work end in an error of ours that says what would, and leave nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, TbudaError, UnknownDevice
from tbuda_lab.core.session import Session

X = torch.ones(1, 32)


@pytest.fixture(autouse=True)
def _own_pipeline() -> Iterator[None]:
    pybuda.shutdown()
    yield
    pybuda.shutdown()


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(nn.Sequential(nn.Linear(32, 32), nn.ReLU()), (X,), "wormhole_b0")


ODD_INPUTS: dict[str, Any] = {
    "sparse": X.to_sparse(),
    "compressed rows": X.to_sparse_csr(),
    "nested": torch.nested.nested_tensor([X[0]]),
    "masked": np.ma.masked_array(X.numpy(), X.numpy() > 0),
    "objects": np.array([[None] * 32]),
    "texts": np.array([["a"] * 32]),
    "complex": X.to(torch.complex64),
    "meta": X.to("meta"),
    "a number": 5,
}


@pytest.mark.parametrize("what", ODD_INPUTS)
def test_inputs_that_are_no_plain_tensors(session: Session, what: str) -> None:
    with pytest.raises(InputError):
        session.run([(ODD_INPUTS[what],)])
    if what not in ("complex", "meta"):  # those are refused by torch's own tracing
        with pytest.raises(InputError):
            Session(nn.ReLU(), (ODD_INPUTS[what],), "wormhole_b0").compile()


def test_arrays_of_any_layout_are_inputs(session: Session) -> None:
    """Byte-swapped, strided backwards, of no dimension: the oracle is the plain array."""
    plain = np.arange(32, dtype=np.float32).reshape(1, 32)
    expected = session.run([(plain,)])[0][0]
    for twin in (plain.astype(">f4"), plain[:, ::-1].copy()[:, ::-1], np.asfortranarray(plain)):
        assert torch.equal(session.run([(twin,)])[0][0], expected)


def test_samples_are_a_list(session: Session) -> None:
    with pytest.raises(InputError, match="a list of samples"):
        session.run(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", [None, 7, object(), ["n300"], "z80", ""])
def test_devices_that_are_none(device: Any) -> None:
    with pytest.raises(UnknownDevice):
        Session(nn.ReLU(), (X,), device)


@pytest.mark.parametrize(
    "arguments",
    [
        {"chips": 10**12},
        {"chips": -1},
        {"chips": 0},
        {"chips": 2.5},
        {"chips": "ab"},
        {"chips": [0, 0]},
        {"harvested_rows": -3},
        {"harvested_rows": 2.5},
        {"harvested_rows": "1"},
        {"harvested_by_chip": ["a", "b"]},
    ],
)
def test_chips_and_rows_that_are_none(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        load_device("n300", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_chips": -1},
        {"num_chips": 10**9},
        {"num_chips": 2.5},
        {"num_chips": "x"},
        {"chip_ids": [-1]},
        {"chip_ids": ["a"]},
        {"chip_ids": 5},
        {"chip_ids": [0, 0]},
        {"arch": "z80"},
        {"arch": 5},
    ],
)
def test_devices_of_the_face_that_are_none(arguments: dict[str, Any]) -> None:
    with pytest.raises(TbudaError, match="device 'tt0'"):
        pybuda.TTDevice("tt0", **arguments)


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999}", 5, b"x"])
def test_patterns_that_are_none(pattern: Any) -> None:
    with pytest.raises(TbudaError):
        pybuda.config.configure_mixed_precision(name_regex=pattern, output_df=pybuda.DataFormat.Float16)


def test_new_weights_fit_or_none_is_taken() -> None:
    module = nn.Linear(32, 32)
    before = [p.detach().clone() for p in module.parameters()]
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("linear", module))
    for wrong in (torch.ones(3), torch.ones(()), torch.ones(1, 32), np.ones((2, 2)), None, "a", X.to(torch.complex64)):
        with pytest.raises(TbudaError):
            pybuda.update_device_parameters(device, [{"bias": torch.zeros(32)}, {"weight": wrong}])
        with pytest.raises(TbudaError):
            device.modules[0].set_parameter("weight", wrong)  # type: ignore[attr-defined]
    for parts in (None, 5, [3], "ab"):
        with pytest.raises(TbudaError, match="list of dicts"):
            device.update_device_parameters(parts)  # type: ignore[arg-type]
    assert all(torch.equal(p, old) for p, old in zip(module.parameters(), before, strict=True))
