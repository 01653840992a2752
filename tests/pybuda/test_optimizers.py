"""Optimizers and schedulers as scripts make them: what is trained, numbers, learning rates that change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.pybuda.optimizers import OPTIMIZERS, LearningRateScheduler, get_optimizer_type_from_string


class Grows(LearningRateScheduler):
    def get_lr(self) -> float:
        return self.optimizer.learning_rate + 1


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_one_of_parameters_and_device_params(kind: str) -> None:
    result: Any = get_optimizer_type_from_string(kind)
    rate: Any = {"learning_rate": 0.5}
    weight = pybuda.Parameter(torch.ones(2, 2), name="w")
    assert result(**rate, device_params=True).trains("anything")
    chosen = result(**rate, parameters=[weight])
    assert chosen.trains("w") and not chosen.trains("v")
    for wrong in ({}, {"parameters": [weight], "device_params": True}):
        with pytest.raises(AssertionError, match="exactly one"):
            result(**rate, **wrong)
    with pytest.raises(PipelineError, match="learning_rate"):
        result(learning_rate=-1.0, device_params=True)


def test_a_learning_rate_of_zero_is_one_and_schedulers_set_it() -> None:
    sgd = pybuda.optimizers.SGD(learning_rate=3.0, device_params=True)
    sgd.set_optimizer_parameters(learning_rate=0.0)
    assert sgd.learning_rate == 0.0
    schedule = Grows(sgd)
    schedule.step()
    schedule.step()
    assert sgd.learning_rate == 2.0 and schedule.get_scheduler_params() == {"learning_rate": 2.0}
    device = pybuda.TTDevice("tt0", optimizer=sgd, scheduler=schedule)
    assert (device.optimizer, device.scheduler) == (sgd, schedule)
    with pytest.raises(PipelineError, match=r"one of pybuda\.optimizers"):
        pybuda.TTDevice("tt1", optimizer=torch.optim.SGD([torch.ones(1)], lr=1.0))


def test_torch_has_the_same_rules() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    adam = pybuda.optimizers.AdamW(learning_rate=0.1, weight_decay=0.5, device_params=True)
    twin = adam.get_pytorch_optimizer({"w": weight})
    assert isinstance(twin, torch.optim.AdamW) and twin.param_groups[0]["weight_decay"] == 0.5
    assert isinstance(pybuda.optimizers.SGD(0.1, device_params=True).get_pytorch_optimizer([weight]), torch.optim.SGD)
    with pytest.raises(PipelineError, match="torch has no LAMB"):
        pybuda.optimizers.LAMB(device_params=True).get_pytorch_optimizer([weight])


@pytest.mark.parametrize("kind", sorted(set(OPTIMIZERS) - {"sgd"}))
def test_eps_is_another_name_of_epsilon(kind: str) -> None:
    result: Any = get_optimizer_type_from_string(kind)
    by_both = [result(learning_rate=0.1, device_params=True, **{name: 1e-3}) for name in ("eps", "epsilon")]
    assert by_both[0].options() == by_both[1].options() and by_both[0].epsilon == 1e-3
