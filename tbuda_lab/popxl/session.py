"""Sessions: an Ir on simulated devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.popxl.dtypes import as_array
from tbuda_lab.popxl.environment import log, take_environment
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.executable import Executable
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.programs import program_of
from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream, Stream
from tbuda_lab.popxl.tensor import Constant, Tensor, Variable
from tbuda_lab.popxl.utils import DeviceDescription, check_whole, product, to_device_count, to_numpy

d2hStreamBufferMaps = dict[DeviceToHostStream, np.ndarray]
DEVICES = ("cpu", "ipu_model", "ipu_hw")
"""Names of devices. All of them are the simulated grid."""


class Session:
    """An Ir compiled for a device, and attached to it inside `with`.

    device_desc: "cpu", "ipu_model" or "ipu_hw", or what `popart.DeviceManager` gives. Raises `ValueError` for other
    devices, and for several IPUs of "cpu"; `TypeError` for what is no Ir, `RuntimeError` for an Ir without ops;
    `popart_exception` for an Ir that cannot be compiled.
    """

    def __init__(self, ir: Ir, device_desc: Any = "cpu", weights_to_host_on_exit: bool = True) -> None:
        if not isinstance(ir, Ir):
            raise TypeError(f"a Session is of an Ir, not of {type(ir).__name__}")
        if not any(g._ops for g in ir._graphs.values()):
            raise RuntimeError("the Ir has no ops: there is nothing to run")
        self._ir = ir
        self._weights_to_host_on_exit = weights_to_host_on_exit
        self._compiled_for = self._device = self._described(device_desc)
        take_environment()
        self.executable = Executable(ir)
        self.buda_programs = lambda: (program_of(self.executable),)  # what the workbench opens
        ir._frozen = True
        ir._session = self  # type: ignore[attr-defined]
        self._attached = False
        self._depth: list[bool] = []
        self._variables = list(ir.main_graph.variables)
        for v in self._variables:
            v._in_sync = True
        if getattr(device_desc, "isAttached", False):
            self.weights_from_host_to_device()

    def _described(self, device: Any) -> Any:
        """A device by its name and the number of IPUs that the Ir needs; one of the caller's as it is."""
        if not isinstance(device, str):
            return device
        self._check_device(device)
        ops = [op for g in self._ir._graphs.values() for op in g._ops]
        ends = [int(op.attrs["destination"]) for op in ops if op.kind == "IpuCopy"]
        ipus = 1 + max([*ends, *(op.ipu or 0 for op in ops)], default=0)
        return DeviceDescription(device, to_device_count(ipus * self._ir.replication_factor))

    def _check_device(self, device: Any) -> None:
        if isinstance(device, str):
            if device not in DEVICES:
                raise ValueError(f"device_desc is one of {', '.join(DEVICES)}, not {device!r}")
            ops = [op for g in self._ir._graphs.values() for op in g._ops]
            ipus = 1 + max((op.ipu or 0 for op in ops), default=0)
            if device == "cpu" and to_device_count(ipus * self._ir.replication_factor) > 1:
                raise ValueError(
                    f"'cpu' is one device, and the Ir needs {ipus * self._ir.replication_factor}: use 'ipu_model'"
                )

    # -- attaching -------------------------------------------------------------------------------------------
    @property
    def ir(self) -> Ir:
        return self._ir

    @property
    def is_attached(self) -> bool:
        return self._attached

    def __enter__(self) -> Session:
        was = self._attached
        wanted, given = _device_kind(self._compiled_for), _device_kind(self._device)
        if wanted != given:
            raise ValueError(
                f"the Session is compiled for {wanted[0]} with {wanted[1]} IPUs, and the device is "
                f"{given[0]} with {given[1]}"
            )
        self._depth.append(was)
        if not was:
            self._attached = True
            self.weights_from_host()
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        was = self._depth.pop()
        if was:
            return
        try:
            if kind is None and self._weights_to_host_on_exit and not self._ir._readonly_memmaps:
                self.weights_to_host()
        finally:
            self._attached = False

    def _need_attached(self, what: str) -> None:
        if not self._attached:
            raise ValueError(f"{what} needs an attached device: write `with session:` around it")

    # -- weights ---------------------------------------------------------------------------------------------
    def weights_from_host_to_device(self) -> None:
        """Write all variables to the device, whether it is attached or not."""
        self.executable.load({v: v._data for v in self._variables})
        for v in self._variables:
            v._in_sync = True
        log("INFO", "Writing weights from host complete.")

    def weights_from_host(self) -> None:
        """Write all variables to the device. Raises `ValueError` without one."""
        self._need_attached("weights_from_host")
        self.weights_from_host_to_device()

    def weights_to_host(self) -> None:
        """Read all variables from the device. Raises an exception where one of them is a file that cannot be written,
        and `ValueError` without a device."""
        if self._ir._readonly_memmaps:
            raise Exception("weights_to_host: a variable is a memory-mapped file that is read-only")
        self._need_attached("weights_to_host")
        for v, value in self.executable.store(self._variables).items():
            v._data[...] = value
            v._in_sync = True
            if isinstance(v._data, np.memmap):
                v._data.flush()
        log("INFO", "Writing weights to host complete.")

    # -- running ---------------------------------------------------------------------------------------------
    def run_with_outputs(
        self,
        inputs: Mapping[HostToDeviceStream, Any] | None = None,
        outputs: d2hStreamBufferMaps | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """One run into arrays of the caller. Raises `ValueError` without a device, for missing and unexpected streams,
        and for arrays of other shapes and types."""
        self._need_attached("run")
        given = {s: _given(s, v, downcast_inputs) for s, v in _by_stream("inputs", inputs).items()}
        wanted = self._ir.get_all_h2d_streams()
        stores = self._ir.get_all_d2h_streams()
        out = _by_stream("outputs", outputs)
        self._check_streams("inputs", given, wanted)
        self._check_streams("outputs", out, stores)
        self.executable.run(given, out, self._frames())
        for v in self._variables:
            v._in_sync = False

    def run(
        self, inputs: Mapping[HostToDeviceStream, Any] | None = None, downcast_inputs: bool = True
    ) -> d2hStreamBufferMaps:
        """One run; the tensors of all streams to the host."""
        self._need_attached("run")
        outputs = self.create_host_outputs()
        self.run_with_outputs(inputs, outputs, downcast_inputs)
        return outputs

    def _frames(self) -> tuple[int, int]:
        return self._ir.num_host_transfers, self._ir.replication_factor

    def _full_shape(self, stream: Stream) -> tuple[int, ...]:
        return (*(n for n in self._frames() if n > 1), *stream.shape)

    def _check_streams(self, what: str, given: Mapping[Any, np.ndarray], wanted: Iterable[Stream]) -> None:
        if what == "outputs":
            _check_outputs(given)
        streams = set(wanted)
        missing = sorted(s.tensor_id for s in streams - set(given))
        if missing:
            raise ValueError(f"{what}: nothing is given for {', '.join(missing)}")
        wrong = sorted(s.tensor_id if isinstance(s, Stream) else repr(s) for s in set(given) - streams)
        if wrong:
            raise ValueError(f"{what}: no op uses {', '.join(wrong)}")
        lead = sum(n > 1 for n in self._frames())
        for stream, array in given.items():
            full = self._full_shape(stream)
            shape = tuple(np.asarray(array).shape)
            if what == "inputs" and array.dtype != stream.dtype.as_numpy() and not _bytes(array, stream):
                raise ValueError(f"{what}: {stream.tensor_id!r} takes {stream.dtype}, not {array.dtype}")
            if all(n == 1 for n in full) and np.asarray(array).size == 1:
                continue
            if (
                np.asarray(array).squeeze().shape[lead:] == ()
                and stream.shape in ((), (1,))
                and shape[:lead] == full[:lead]
            ):
                continue
            fits = (
                len(shape) == len(full)
                and shape[1:] == full[1:]
                and (shape[:1] == full[:1] or (lead and shape[:1] > full[:1]))
            )
            if not fits:
                raise ValueError(
                    f"{what}: {stream.tensor_id!r} takes shape {full} (transfers, replicas, tensor), not {shape}"
                )

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """The streams that a run has to be given."""
        return list(self._ir.get_all_h2d_streams())

    def create_host_outputs(self) -> d2hStreamBufferMaps:
        """An empty array for every stream to the host."""
        return {s: np.empty(self._full_shape(s), s.dtype.as_numpy()) for s in self._ir.get_all_d2h_streams()}

    # -- data of tensors -------------------------------------------------------------------------------------
    def get_tensor_data(self, tensor: Variable | Constant) -> np.ndarray:
        """The data of a variable or constant; see `get_tensors_data`."""
        return self.get_tensors_data([tensor])[tensor]

    def get_tensors_data(self, tensors: Iterable[Variable | Constant]) -> dict[Any, np.ndarray]:
        """Data by tensor, fetched from the device where it is attached and a run has changed them. Raises `TypeError`
        for other tensors."""
        wanted = list(tensors)
        for t in wanted:
            if not isinstance(t, Variable | Constant):
                raise TypeError(f"Tensor {getattr(t, 'id', t)} is not of type Constant or Variable")
            if t.ir is not self._ir:
                raise ValueError(f"tensor {t.id!r} belongs to another Ir")
        stale = [t for t in wanted if isinstance(t, Variable) and not t._in_sync]
        if self._attached and stale and not self._ir._readonly_memmaps:
            self.weights_to_host()
        return {t: self._host_data(t) for t in wanted}

    def _host_data(self, t: Any) -> np.ndarray:
        if isinstance(t, Variable) and t._retrieval == "all_replicas":
            return self.executable.all_replicas(t)
        return t._data if isinstance(t._data, np.memmap) else np.array(t._data)

    def write_variable_data(self, tensor: Variable, data: Any) -> None:
        """New data of a variable; see `write_variables_data`."""
        self.write_variables_data({tensor: data})

    def write_variables_data(self, tensors: Mapping[Variable, Any]) -> None:
        """New data of variables, on the device at once where it is attached. Raises `TypeError` for other tensors and
        types, `ValueError` for other shapes, `NotImplementedError` for variables that are read from all replicas."""
        arrays: dict[Variable, np.ndarray] = {}
        for t, data in tensors.items():
            if not isinstance(t, Variable):
                raise TypeError(f"Tensor {getattr(t, 'id', t)} is not of type Variable, and cannot be written")
            if t._retrieval == "all_replicas":
                raise NotImplementedError(f"variable {t.id!r} is read from all replicas: it cannot be written")
            if t.ir is not self._ir:
                raise ValueError(f"variable {t.id!r} belongs to another Ir")
            arrays[t] = self._checked(t, data)
        if self._attached:
            self.get_tensors_data([v for v in self._variables if not v._in_sync])
        for t, array in arrays.items():
            if t._data.dtype.names:
                t._data = np.array(array)
            else:
                t._data[...] = array
        if self._attached:
            self.executable.load({t: t._data for t in arrays})
        for t in arrays:
            t._in_sync = True

    @staticmethod
    def _checked(t: Variable, data: Any) -> np.ndarray:
        given = as_array(data)
        plain = isinstance(data, bool | int | float | list | tuple)
        if plain and not t.dtype.is_float8:
            check_whole(given, t.dtype.as_numpy(), f"variable {t.id!r}")
            given = to_numpy(given, t.dtype)
        if given.dtype != t.dtype.as_numpy():
            raise TypeError(f"variable {t.id!r} is {t.dtype}, the data are {given.dtype}")
        wanted = t.shape_on_host
        if given.shape != wanted:
            raise ValueError(f"variable {t.id!r} has shape {wanted}, the data have {given.shape}")
        return given

    def _set_device(self, device: Any) -> None:
        """Another device. Raises `ValueError` for one that there is not."""
        self._device = self._described(device)

    def save(self, path: str | Path) -> None:
        """Write the compiled program with the data of its variables to a file, which `popxl.open_program` runs without
        this script. Raises `InputError` where the file cannot be written."""
        from tbuda_lab.popxl.archive import save

        data = self.get_tensors_data(self._variables)
        save(self.executable, {v.id: np.asarray(v._data) for v in data}, path)

    # -- what became of it -----------------------------------------------------------------------------------
    @property
    def report(self) -> tuple[Any, ...]:
        """What every op became: `dialects.realisation.Realisation` entries."""
        return self.executable.report

    def __repr__(self) -> str:
        return f"Session({self._ir!r}, {self._device!r})"


def _device_kind(device: Any) -> tuple[str, int]:
    if isinstance(device, DeviceDescription):
        return device.name, device.ipus
    return type(device).__name__, int(getattr(device, "numIpus", 1))


def _by_stream(what: str, given: Any) -> dict[Any, Any]:
    """Raises `TypeError` for what is no mapping."""
    if not isinstance(given, Mapping | None):
        raise TypeError(f"{what} are given by stream, as {{stream: array}}, and not as {type(given).__name__}")
    return dict(given or {})


def _given(stream: Any, value: Any, downcast: bool) -> np.ndarray:
    """The array for a stream. Raises `ValueError` with its name for what is none."""
    plain = isinstance(stream, Stream) and isinstance(value, bool | int | float)
    try:
        if plain and not stream.dtype.is_float8:
            check_whole(np.asarray(value), stream.dtype.as_numpy(), "the stream")
            return to_numpy(value, stream.dtype)
        return to_numpy(value, downcast=downcast, copy=False)
    except ValueError as error:
        raise ValueError(f"inputs: {getattr(stream, 'tensor_id', stream)!r}: {error}") from error


def _check_outputs(arrays: Mapping[Any, Any]) -> None:
    """Raises `TypeError` for what is no array, `ValueError` for one that cannot take what its stream gives."""
    for stream, array in arrays.items():
        name = getattr(stream, "tensor_id", stream)
        if not isinstance(array, np.ndarray):
            raise TypeError(f"outputs: an array takes {name!r}, not {type(array).__name__}")
        if not array.flags["WRITEABLE"]:
            raise ValueError(f"outputs: the array for {name!r} is read-only")
        if (
            isinstance(stream, Stream)
            and not np.can_cast(stream.dtype.as_numpy(), array.dtype)
            and not _bytes(array, stream)
        ):
            raise ValueError(f"outputs: {name!r} gives {stream.dtype}, which {array.dtype} does not hold")


def _bytes(array: Any, stream: Stream) -> bool:
    """Whether an array is the bytes of 8-bit floats."""
    return stream.dtype.is_float8 and np.asarray(array).dtype == np.uint8


__all__ = ["Session", "Tensor", "d2hStreamBufferMaps", "popart_exception", "product"]
