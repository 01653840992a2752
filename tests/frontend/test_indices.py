"""Look-ups at indices that inputs give: what torch reads is read, what torch refuses is refused when it is fed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tbuda_lab.core.errors import InputError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

FLOATS = CompileOptions(default_df_override=DataFormat.Float32)
Case = tuple[Callable[..., Tensor], tuple[int, ...], list[int], list[int], list[int] | None]
"""The function of (x, i), the shape of x; indices of the sample, others that torch takes, those that it refuses."""

CASES: dict[str, Case] = {
    "x[i]": (lambda x, i: x[i], (5, 4), [0, 3, 1], [-5, 4, -1], [5, 0, 0]),
    "x[:, i]": (lambda x, i: x[:, i], (5, 4), [0, 3, 1], [-4, 3, -1], [0, -5, 0]),
    "x[i, i]": (lambda x, i: x[i, i], (5, 4), [0, 3, 1], [-4, 3, -1], [0, 4, 0]),
    "x[i - 3]": (lambda x, i: x[i - 3], (5, 4), [0, 3, 1], [2, 7, 0], [8, 0, 0]),
    "x[i + 1]": (lambda x, i: x[i + 1], (5, 4), [0, 3, 1], [-6, -1, 0], [4, 0, 0]),
    "take": (lambda x, i: x.take(i), (5, 4), [0, 13, 1], [-20, 19, -1], [20, 0, 0]),
    "index_select": (lambda x, i: x.index_select(1, i), (5, 4), [0, 3, 1], [3, 3, 2], [-1, 0, 0]),
    "gather": (lambda x, i: x.gather(0, i.reshape(-1, 1).expand(-1, 4)), (5, 4), [0, 3, 1], [4, 4, 2], [5, 0, 0]),
    "embedding": (lambda x, i: F.embedding(i, x), (5, 4), [0, 3, 1], [4, 4, 2], [-1, 0, 0]),
    "one_hot": (lambda x, i: F.one_hot(i, 5).float() @ x, (5, 4), [0, 3, 1], [4, 4, 2], [5, 0, 0]),
    "one_hot of a product": (lambda x, i: F.one_hot(i * 2, 5).float() @ x, (5, 4), [0, 2, 1], [2, 2, 0], [3, 0, 0]),
    "bincount": (lambda x, i: x.sum() + torch.bincount(i, minlength=5), (5, 4), [0, 3, 1], [4, 4, 2], [-1, 0, 0]),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), (3, 4), [0, 3, 1], [-100, 3, 0], [4, 0, 0]),
    "nll_loss": (lambda x, i: F.nll_loss(x, i, ignore_index=2), (3, 4), [0, 3, 1], [2, 3, 0], [-1, 0, 0]),
    "scatter_add": (
        lambda x, i: torch.zeros(3, 6).scatter_add(1, i.reshape(3, 1).expand(3, 4), x),
        (3, 4),
        [0, 3, 1],
        [5, 5, 0],
        [6, 0, 0],
    ),
    "index_add": (lambda x, i: torch.zeros(6, 4).index_add(0, i, x), (3, 4), [0, 3, 1], [5, 5, 0], [6, 0, 0]),
    "index_copy": (lambda x, i: torch.zeros(6, 4).index_copy(0, i, x), (3, 4), [0, 3, 1], [5, 2, 0], [6, 0, 1]),
    "index_put": (lambda x, i: torch.zeros(6, 4).index_put((i,), x), (3, 4), [0, 3, 1], [-1, 2, 0], [6, 0, 1]),
    "index_put twice": (lambda x, i: torch.zeros(6, 4).index_put((i,), x), (3, 4), [0, 3, 1], [2, 5, 2], [6, 0, 1]),
    "index_copy twice": (lambda x, i: torch.ones(6, 4).index_copy(0, i, x), (3, 4), [0, 3, 1], [2, 5, 2], [6, 0, 1]),
    "index_copy thrice": (lambda x, i: torch.ones(4, 6).index_copy(1, i, x), (4, 3), [0, 3, 1], [2, 2, 2], [6, 0, 1]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.5), (5, 4), [0, 3, 1], [4, 4, 4], [5, 0, 1]),
    "scatter twice": (
        lambda x, i: torch.ones(3, 6).scatter(1, i.expand(3, 3), x),
        (3, 3),
        [0, 3, 1],
        [5, 5, 0],
        [6, 0, 0],
    ),
    "argmax among more": (
        lambda x, i: x[(F.one_hot(i, 9).float() * x.sum().exp()).argmax(1)],
        (5, 4),
        [0, 3, 1],
        [4, 0, 2],
        [7, 0, 0],
    ),
    "argmax": (lambda x, i: x[(x + i.reshape(3, 1)).argmax(1) - 1], (3, 3), [0, 3, 1], [5, 5, 0], None),
}


class Looks(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return self.function(x, i)


@pytest.mark.parametrize("name", CASES)
def test_indices_that_come_later_mean_what_torch_says(name: str) -> None:
    function, shape, sample, taken, refused = CASES[name]
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(shape, generator=generator)
    module = Looks(function)
    session = Session(module, (x, torch.tensor(sample)), options=FLOATS, cache=False)
    for indices in (sample, taken):
        (result,) = session.run([(x, torch.tensor(indices))])[0]
        assert torch.allclose(result, module(x, torch.tensor(indices)), atol=1e-5), indices
    if refused is not None:
        with pytest.raises((IndexError, RuntimeError)):
            module(x, torch.tensor(refused))
        with pytest.raises(InputError, match=r"ind(ex|ices)"):
            session.run([(x, torch.tensor(refused))])


WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_fill": lambda n, i: n.index_fill(0, i, 1),
    "index_copy": lambda n, i: n.index_copy(0, i, n[:3]),
    "index_add": lambda n, i: n.index_add(0, i, n[:3]),
    "scatter": lambda n, i: n.scatter(0, i.reshape(1, 3), n[:1, :3]),
    "nearest": lambda n, i: F.interpolate(n[None], size=7),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in WRITES for dtype in (torch.int64, torch.int32, torch.uint8) if name != "nearest"]
    + [("nearest", torch.uint8)],  # torch resizes no others
)
def test_whole_numbers_are_written_exactly(name: str, dtype: torch.dtype) -> None:
    numbers, indices = (torch.arange(20).reshape(5, 4) + 2**24).to(dtype), torch.tensor([3, 0, 3])

    class Both(nn.Module):
        def forward(self, n: Tensor, i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return WRITES[name](n, i), x * 2

    have = Session(Both(), (numbers, indices, torch.ones(3)), options=FLOATS, cache=False).run()[0][0]
    assert have.dtype == dtype and torch.equal(have, WRITES[name](numbers, indices))


def test_a_refusal_names_the_input_the_line_and_the_range() -> None:
    session = Session(Looks(lambda x, i: x[:, i]), (torch.ones(5, 4), torch.tensor([0])), options=FLOATS, cache=False)
    with pytest.raises(
        InputError, match=r"input 'i' holds the index 7; aten.index .*test_indices.py:\d+ reads -4 to 3"
    ):
        session.run([(torch.ones(5, 4), torch.tensor([7]))])


def test_counts_of_more_numbers_than_the_graph_has_room_for_are_refused() -> None:
    module = Looks(lambda x, i: x.sum() + torch.bincount(i, minlength=5))
    session = Session(module, (torch.ones(5, 4), torch.tensor([0, 3, 1])), options=FLOATS, cache=False)
    with pytest.raises(InputError, match=r"holds the index 5; aten.bincount .* reads 0 to 4"):
        session.run([(torch.ones(5, 4), torch.tensor([0, 5, 1]))])
    short = Looks(lambda x, i: x.sum() + torch.bincount(i, minlength=2))
    with pytest.raises(UnsupportedOp):
        Session(short, (torch.ones(5, 4), torch.tensor([0, 3, 1])), options=FLOATS, cache=False).compile()


def test_a_training_refuses_a_class_that_there_is_not() -> None:
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 1])
    session = Session.for_training(nn.Linear(6, 3), (x,), nn.CrossEntropyLoss(), y, "sgd", 0.1, cache=False)
    with pytest.raises(InputError, match="holds the index 3"):
        session.train([((x,), torch.tensor([0, 1, 2, 3]))])
    assert session.train([((x,), torch.tensor([2, 0, 2, 1]))])
