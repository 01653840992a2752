"""A model that handles exceptions: its own are its own, those of the tracer are refused by line."""

from __future__ import annotations

import contextlib
import inspect

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import TbudaError, UnsupportedOp
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.session import Session


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)


class Path(Base):
    def forward(self, x):
        try:
            return self.layer(x) if x.sum() > 0 else x * 5  # here
        except Exception:
            return self.layer(x)


class Number(Base):
    def forward(self, x):
        try:
            scale = 1.0 if float(x.abs().max()) > 0.1 else 3.0  # here
        except Exception:
            scale = 1.0
        return self.layer(x) * scale


class Item(Base):
    def forward(self, x):
        scale = 1.0
        try:
            if x.mean().item() < 0:  # here
                scale = 2.0
        except Exception as error:
            scale = 1.0 + 0 * len(str(error))
        return self.layer(x) * scale


class Numpy(Base):
    def forward(self, x):
        try:
            positive = int(x.detach().numpy().sum() > 0)  # here
        except Exception:
            positive = 1
        return self.layer(x) * positive


class Asarray(Base):
    def forward(self, x):
        try:
            positive = int(np.asarray(x.detach()).sum() > 0)  # here
        except Exception:
            positive = 1
        return self.layer(x) * positive


class Listed(Base):
    def forward(self, x):
        order = [0, 1, 2, 3]
        try:
            order = [int(k) for k in x.sum((0, 1)).argsort()]  # here
        except Exception:
            order.sort()
        return self.layer(x).sum(-1, keepdim=True) * (order[0] < 9) if len(order) > 3 else x


class Suppressed(Base):
    def forward(self, x):
        y = self.layer(x)
        with contextlib.suppress(Exception):
            if x.sum() < 0:  # here
                y = y * 3
        return y


class Asserted(Base):
    """The assertion fails, on the sample as in the trace: for another reason."""

    def forward(self, x):
        y = self.layer(x)
        try:
            assert bool((x < 0).all())  # here
        except BaseException:
            return y
        return y * 2


def is_positive(x: torch.Tensor) -> bool:
    try:
        return bool(x.sum() > 0)  # here
    except RuntimeError:
        return True
    finally:
        pass


class Helper(Base):
    def forward(self, x):
        return self.layer(x) if is_positive(x) else x


class Deep(Base):
    """The handler is around a layer, whose line it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Strict()

    def forward(self, x):
        try:
            return self.inner(x)  # here
        except Exception:
            return x * 1


class Strict(Base):
    def forward(self, x):
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 1


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "kind", [Path, Number, Item, Numpy, Asarray, Listed, Suppressed, Asserted, Helper, Deep], ids=lambda k: k.__name__
)
def test_an_error_of_the_tracer_is_not_handled_in_silence(kind: type[nn.Module], trains: bool) -> None:
    x = torch.randn(1, 8, 4, generator=torch.Generator().manual_seed(0)).abs()
    with pytest.raises(TbudaError) as error:
        from_torch(kind(), (x,), trains=trains)
    if not isinstance(error.value, UnsupportedOp) or "handles an error of the tracer" not in str(error.value):
        assert kind in (Numpy, Deep)  # torch reads the code of NumPy's calls; it loses its place in layers that fail
        return
    source, first = inspect.getsourcelines(is_positive if kind is Helper else kind)
    line = first + next(k for k, text in enumerate(source) if "# here" in text)
    assert any(d.where.endswith(f"test_handled.py:{line}") for d in error.value.diagnostics), error.value
    with pytest.raises(TbudaError):
        Session(kind(), (x,), cache=False).compile()


class Shape(Base):
    def forward(self, x):
        try:
            return self.layer(x).view(3, 100)
        except RuntimeError:
            return self.layer(x)


class Missing(Base):
    def forward(self, x):
        try:
            return self.layer(x) * self.scale
        except AttributeError:
            return self.layer(x) * 2


class Key(Base):
    def __init__(self) -> None:
        super().__init__()
        self.table = {1: 2.0}

    def forward(self, x):
        try:
            scale = self.table[int(x.shape[-1])]
        except KeyError:
            scale = 3.0
        with torch.no_grad():
            return self.layer(x) * scale


class Many(Base):
    def forward(self, x):
        try:
            return torch.cat([self.layer(x), x[..., :3].reshape(2, 12)], dim=0)
        except (RuntimeError, ValueError):
            pass
        rows = iter(self.layer(x).unbind(1))
        total = next(rows)
        while True:
            try:
                total = total + next(rows)
            except StopIteration:
                return total


class Raises(Base):
    def forward(self, x):
        y = self.layer(x)
        try:
            if y.shape[-1] == 4:
                raise ValueError("four")
        except ValueError:
            y = y * 2
        finally:
            y = y + 1
        return y


@pytest.mark.parametrize("kind", [Shape, Missing, Key, Many, Raises], ids=lambda k: k.__name__)
def test_a_models_own_errors_are_its_own(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(1, 8, 4)
    torch.testing.assert_close(evaluate(from_torch(module, (x,)), {"x": x})["model.output_0"], module(x).detach())
