"""Modules of the PyBuda API: what a device runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import ModelError, not_supported
from tbuda_lab.core.frontend.pybuda import tracer
from tbuda_lab.core.frontend.pybuda.tensor import Parameter, SomeTensor, Tensor, to_torch
from tbuda_lab.core.frontend.torch_model.state import contents, writes


class PyBudaModelError(ModelError, RuntimeError):
    """A module used in a way it cannot be; a RuntimeError too, as scripts written for PyBuda expect."""


class Module:
    """A piece of a model with a name, for one device."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise PyBudaModelError(f"a module needs a name, not {name!r}")
        self.__dict__["name"] = name
        self.__dict__["device"] = None

    def get_name(self) -> str:
        return str(self.__dict__["name"])

    @property
    def state(self) -> tuple[int, ...]:
        """Changes whenever a weight is written to, as far as that is counted; quick."""
        return ()

    @property
    def contents(self) -> Any:
        """What the module answers by beside its inputs, to be compared by devices and sessions."""
        return self.state

    def get_device(self) -> Any:
        """The device that the module is placed on, or None."""
        return self.__dict__.get("device")

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        raise NotImplementedError


class PyTorchModule(Module):
    """A torch.nn.Module for a device: lowered on a TTDevice, run as it is on a CPUDevice."""

    def __init__(self, name: str, module: torch.nn.Module, redirect_forward: bool = True) -> None:
        super().__init__(name)
        if isinstance(module, torch.export.ExportedProgram):
            module = module.module()
        if not isinstance(module, torch.nn.Module):
            raise PyBudaModelError(f"PyTorchModule {name!r} takes a torch.nn.Module, not {type(module).__name__}")
        self.module = module
        self.redirect_forward = redirect_forward
        self._parameters: dict[str, Parameter] | None = None

    @property
    def training(self) -> bool:
        return bool(self.module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The torch module's own forward, on the host."""
        plain = [a if a is None else to_torch(a) if isinstance(a, Tensor) else a for a in args]
        return self.module(*plain, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def backward(self, *args: tuple[torch.Tensor, torch.Tensor]) -> None:
        """The torch module's own backward, on the host. args: pairs of an output of `forward` and its gradient; the
        parameters' gradients add up in their `grad`. Raises `PyBudaModelError` for anything but such pairs."""
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in args):
            raise PyBudaModelError(f"{self.get_name()}.backward takes pairs (output, gradient of it)")
        outputs, gradients = (
            ([to_torch(t) if isinstance(t, Tensor) else t for t in side] for side in zip(*args, strict=True))
            if args
            else ([], [])
        )
        torch.autograd.backward(outputs, gradients)

    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        """Register it at the root of the torch module, by its plain name: torch's own names have no module before them,
        so `prepend_name` changes nothing."""
        if name in dict(self.module.named_parameters()):
            raise PyBudaModelError(f"Module {self.get_name()!r} already has parameter {name!r}")
        if "." in name:
            raise PyBudaModelError(f"a parameter added to a torch module belongs to its root: {name!r} has a dot")
        self.module.register_parameter(name, torch.nn.Parameter(parameter.fill(), parameter.requires_grad))

    def set_parameters(self, **kwargs: SomeTensor) -> None:
        """Set weights by their state-dict names."""
        for name, value in kwargs.items():
            self.set_parameter(name, value)

    def set_parameter(self, name: str, data: SomeTensor) -> None:
        tensors = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        if name not in tensors:
            raise PyBudaModelError(
                f"Module {self.get_name()!r} doesn't have parameter {name!r}; it has {', '.join(tensors)}"
            )
        value = to_torch(data)
        if value.shape != tensors[name].shape:
            raise PyBudaModelError(
                f"parameter {name!r} has shape {tuple(tensors[name].shape)}; got a value of {tuple(value.shape)}"
            )
        with torch.no_grad():
            tensors[name].copy_(value)

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        """Weights, and buffers, which require no gradient; names as in the state dict."""
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        return [Parameter(value.detach(), requires_grad=value.requires_grad, name=name) for name, value in named]

    @property
    def state(self) -> tuple[int, ...]:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return tuple(v for t in tensors for v in (id(t), writes(t)))

    @property
    def contents(self) -> Any:
        return contents(self.module)


class PyBudaModule(Module):
    """Base of modules written with `pybuda.op`. Subclasses define `forward(self, *tensors)`.

    Attributes that are Parameters, modules, or lists or dicts of those register themselves as "<module>.<attribute>";
    a Parameter of a dict as "<module>.<key>", unless another one has that name. A module "inner" becomes "outer.inner"
    by the first that holds it, unless it is on a device; parameters keep the names they have.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__dict__["_parameters"] = {}
        self.__dict__["_constants"] = {}
        self.__dict__["_long_names"] = {}
        self.__dict__["_submodules"] = {}
        self.__dict__["_held"] = False

    # -- registration ----------------------------------------------------------------------------------------
    def __setattr__(self, attribute: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise PyBudaModelError("Make sure to call super().__init__(name) in module init")
        self._forget(attribute)
        self._adopt(attribute, value)
        object.__setattr__(self, attribute, value)

    def _forget(self, attribute: str) -> None:
        old = self.__dict__.get(attribute)
        if isinstance(old, Parameter):
            self._parameters = {k: v for k, v in self.__dict__["_parameters"].items() if v is not old}

    def _adopt(self, attribute: str, value: Any, name: str = "") -> None:
        """Register what an attribute holds. name: of a parameter, where it is not the attribute's."""
        if attribute in ("_parameters", "_constants", "_submodules", "_held"):
            return
        if isinstance(value, Parameter):
            full = f"{self.get_name()}.{name or attribute}"
            if not value.get_name() and any(p.get_name() == full for p in self.__dict__["_parameters"].values()):
                raise PyBudaModelError(f"two parameters would be called {full!r}; give one of them a name")
            value._set_auto_name(full)
            self.__dict__["_parameters"][attribute] = value
        elif isinstance(value, Module):
            self.__dict__["_submodules"][attribute] = value
            if isinstance(value, PyBudaModule) and not value.__dict__["_held"] and value.get_device() is None:
                value.__dict__["_held"] = True
                own = value.get_name().removeprefix(f"{self.get_name()}.")  # scripts also write it in full
                value._rename(f"{self.get_name()}.{own}")
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self._adopt(f"{attribute}.{i}", item)
        elif isinstance(value, dict):
            taken = {p.get_name() for p in self.__dict__["_parameters"].values()}
            for key, item in value.items():
                own = str(key) if f"{self.get_name()}.{key}" not in taken else ""
                self._adopt(f"{attribute}.{key}", item, own)

    def _rename(self, name: str) -> None:
        """Take a name, and give the modules that this one holds theirs in turn."""
        before, self.__dict__["name"] = self.get_name(), name
        for module in self.__dict__["_submodules"].values():
            if isinstance(module, PyBudaModule) and module.get_name().startswith(f"{before}."):
                module._rename(name + module.get_name().removeprefix(before))

    def _items(self) -> Iterator[tuple[str, Parameter]]:
        """(local name, parameter); lists that grew after they were assigned are looked through again."""
        for attribute, value in list(self.__dict__.items()):
            if isinstance(value, list | dict) and not attribute.startswith("_"):
                self._adopt(attribute, value)
        yield from self.__dict__["_parameters"].items()

    # -- parameters ------------------------------------------------------------------------------------------
    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        full = f"{self.get_name()}.{name}" if prepend_name else name
        if any(local == name or p.get_name() == full for local, p in self._items()):
            raise PyBudaModelError(f"Module {self.get_name()!r} already has parameter {full!r}")
        parameter._set_auto_name(full)
        self.__dict__["_parameters"][name] = parameter

    def get_parameter(self, name: str) -> Parameter:
        """By its attribute, its name, or the last part of its attribute ("w1" of a list or dict) where that is one's
        alone."""
        for local, parameter in self._items():
            if name in (local, parameter.get_name()):
                return parameter
        short = [parameter for local, parameter in self._items() if local.rpartition(".")[2] == name]
        if len(short) == 1:
            return short[0]
        names = ", ".join(local for local, _ in self._items()) or "none"
        raise PyBudaModelError(f"Module {self.get_name()!r} doesn't have parameter {name!r}; it has {names}")

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        parameters = [p for _, p in self._items()]
        if submodules:
            for module in self.get_submodules().values():
                parameters.extend(p for p in module.get_parameters() if all(p is not q for q in parameters))
        return parameters

    def get_submodules(self) -> dict[str, Module]:
        list(self._items())
        return dict(self.__dict__["_submodules"])

    def set_parameter(self, name: str, data: SomeTensor) -> None:
        self.get_parameter(name).set_value(data)

    def load_parameter_dict(self, data: Mapping[str, SomeTensor]) -> None:
        for name, value in data.items():
            self.set_parameter(name, value)

    def initialize_parameters(self) -> None:
        """Give a value to every parameter that has none (see `Parameter.fill`)."""
        for parameter in self.get_parameters():
            parameter.fill()

    # -- constants -------------------------------------------------------------------------------------------
    def add_constant(self, name: str, prepend_name: bool = False, shape: tuple[int, ...] | None = None) -> None:
        """A constant; `set_constant` gives it its value. It is found by its plain name, with `prepend_name` also by
        "<module>.<name>"; with `shape` it is zeros until it is set."""
        if name in self.__dict__["_constants"]:
            raise PyBudaModelError(f"Module {self.get_name()!r} already has constant {name!r}")
        zeros = torch.zeros(shape) if shape is not None else None
        self.__dict__["_constants"][name] = Tensor(shape or (1,), zeros, constant=True)
        if prepend_name:
            self.__dict__["_long_names"][f"{self.get_name()}.{name}"] = name

    def get_constant(self, name: str) -> Tensor:
        constant = self._constant(name)
        if not constant.has_value():
            raise PyBudaModelError(f"Constant {name!r} has not been initialized; call set_constant first")
        return constant

    def set_constant(self, name: str, data: SomeTensor) -> None:
        value = to_torch(data)
        constant = self._constant(name)
        plain = self.__dict__["_long_names"].get(name, name)
        self.__dict__["_constants"][plain] = Tensor.create_from_torch(value, constant=True)
        constant.set_value(value)

    def _constant(self, name: str) -> Tensor:
        constants = self.__dict__["_constants"]
        name = self.__dict__["_long_names"].get(name, name)
        if name not in constants:
            raise PyBudaModelError(
                f"Module {self.get_name()!r} doesn't have constant {name!r}; it has {', '.join(constants)}"
            )
        constant: Tensor = constants[name]
        return constant

    # -- running ---------------------------------------------------------------------------------------------
    def pre_forward(self, *args: Any, **kwargs: Any) -> None:
        """Called before forward; for subclasses."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise PyBudaModelError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with tracer.inside(self):
            self.pre_forward(*args, **kwargs)
            return self.forward(*args, **kwargs)

    def insert_tapout_queue_for_op(self, op_name: str, output_index: int = 0) -> int:
        raise not_supported(
            "insert_tapout_queue_for_op", "read intermediates with Session.verify or the executor's `keep`"
        )

    @property
    def state(self) -> tuple[int, ...]:
        own = tuple(v for p in self.get_parameters() for v in (id(p), p.version))
        return own + tuple(id(c) for c in self.__dict__["_constants"].values())


def device_names(modules: Sequence[Module]) -> list[dict[str, str]]:
    """By module, for modules of one device that feed each other: own name of a weight or buffer -> its name on the
    device. That is the own one, with "<module>." in front where a module before has one of the same name."""
    taken: set[str] = set()
    names_of: list[dict[str, str]] = []
    for module in modules:
        own = [p.get_name() for p in module.get_parameters()]
        names_of.append({name: f"{module.get_name()}.{name}" if name in taken else name for name in own})
        taken |= set(names_of[-1].values())
    return names_of
