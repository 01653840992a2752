"""Values of ops from outside: npz, safetensors, and JSON lines with a name and values.

The report of tt-mlir's chisel is JSON lines, too, with errors and verdicts of a card's ops but no values: what it says
is told, and what to give instead.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.core.errors import InputError, quantity
from tbuda_lab.core.files import bounded_bytes, bounded_text, read_npz, unique_names
from tbuda_lab.core.files.bounded import Budget, parse_json

LARGEST = 2 << 30
_FORMATS = ".npz, .safetensors, or .jsonl with a name and values in each line"
_SAFE = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "?",
}
_NAMES = ("op", "name", "op_name", "location", "loc")
_VALUES = ("device", "golden", "values", "value", "data", "tensor")
"""Keys of a line's values. Of a line with both a card's and a reference's the card's are judged."""


def read_goldens(goldens: str | Path | Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Values by op, float32 or truth values. Raises `InputError` naming the file, and its line where there is one, or
    where there are none."""
    if goldens is None:
        return {}
    if isinstance(goldens, Mapping):
        values = {str(name): _array(value, str(name)) for name, value in goldens.items()}
    elif isinstance(goldens, str | Path):
        values = _read_file(Path(goldens))
    else:
        raise InputError(f"goldens are a mapping of values by op, or a file ({_FORMATS}), not {type(goldens).__name__}")
    if not values:
        raise InputError("goldens hold no values; leave them out, or name at least one op of the traced graph")
    return values


def of_elements(goldens: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Values, float32, in the shapes that ops have. Those of a batch, along dim 0, are cut to its first element, which
    is what a graph holds; leading ones may be more or fewer, and values in one row are taken in the op's order. values:
    tensors by op; where they are 0 and 1 alone truth values are taken, too. Raises `InputError` for a name that no op
    has, values of another shape, even of as many, and truth values for an op of numbers."""
    known = {}
    for name, value in goldens.items():
        if name not in values:
            near = difflib.get_close_matches(name, values, 3, 0.5)
            fix = f"; near: {', '.join(near)}" if near else ""
            raise InputError(f"golden {name!r}: no op of the traced graph is called so{fix}")
        own = values[name]
        shape, given = tuple(own.shape), value.shape
        size = math.prod(shape)
        if value.size != size and value.ndim and value.shape[0] and value.size == size * value.shape[0]:
            value = value[0]
        in_a_row = value.ndim == 1 and value.size == size
        if not in_a_row and _without_leading_ones(value.shape) != _without_leading_ones(shape):
            raise InputError(
                f"golden {name!r} has the shape {given}; the op has {shape}, or a batch of that: no other layout is "
                "taken; turn it, or give it in the op's shape"
            )
        if value.dtype == bool and not bool(((own == 0) | (own == 1)).all()):
            raise InputError(f"golden {name!r} holds truth values; the op has numbers: give what it computes")
        known[name] = value.reshape(shape).astype(np.float32)
    return known


def _without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(itertools.dropwhile(lambda n: n == 1, shape))


def _read_file(path: Path) -> dict[str, np.ndarray]:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return {name: _array(value, f"{path.name}: {name[:80]!r}") for name, value in read_npz(path).items()}
    if suffix == ".safetensors":
        return _safetensors(path)
    if suffix in (".jsonl", ".json"):
        return _json_lines(path)
    raise InputError(f"{path.name}: values of ops come as {_FORMATS}")


def _array(value: Any, where: str) -> np.ndarray:
    """float32, or truth values where all are."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value if value.is_complex() or str(value.dtype) == "torch.bool" else value.float()
        value = value.numpy()
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "biuf":
            raise ValueError("no real numbers")
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: its values are no real numbers") from error
    if given.dtype == bool:
        return given
    if _holds_truth(value):
        raise InputError(f"{where}: a truth value stands among its numbers")
    return given.astype(np.float32)


def _holds_truth(value: Any) -> bool:
    """Of lists in lists, as deep as an array."""
    if isinstance(value, list | tuple):
        return any(map(_holds_truth, value))
    return isinstance(value, bool | np.bool_)


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    """Eight bytes with the length of a JSON header, the header, then the tensors one after the other."""
    data = bounded_bytes(path, LARGEST, "is no file of tensors")
    if len(data) < 8:
        raise InputError(f"{path.name} is cut: it has {len(data)} bytes")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, 64 << 20):
        raise InputError(f"{path.name} is cut or no safetensors: its header would have {length} bytes")
    try:
        header = parse_json(data[8 : 8 + length].decode("utf-8"), path.name)
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name}: its header is not UTF-8 text") from error
    body = memoryview(data)[8 + length :]
    if not isinstance(header, dict):
        raise InputError(f"{path.name}: its header is no object")
    return {
        str(name): _tensor(entry, body, f"{path.name}: {str(name)[:80]}")
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _tensor(entry: Any, body: memoryview, where: str) -> np.ndarray:
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    if isinstance(dtype, str) and dtype not in _SAFE:
        raise InputError(f"{where}: values of type {dtype[:20]} are not read; save them as F32, or {', '.join(_SAFE)}")
    try:
        code, shape, (begin, end) = _SAFE[entry["dtype"]], _shape(entry["shape"], where), entry["data_offsets"]
        if not 0 <= begin <= end <= len(body):
            raise ValueError("it lies outside the file")
        array = np.frombuffer(body[begin:end], code)
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        array = array.reshape(shape)
        return array if array.dtype == bool else array.astype(np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not a tensor: {error}") from error


def _shape(given: Any, where: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not all(type(n) is int and n >= 0 for n in given):
        raise InputError(f"{where}: {str(given)[:40]!r} is no shape; write for example [2, 3]")
    return tuple(given)


def _json_lines(path: Path) -> dict[str, np.ndarray]:
    budget = Budget(path.name, 1 << 30)
    values: dict[str, np.ndarray] = {}
    records: list[Mapping[str, Any]] = []
    for number, line in enumerate(bounded_text(path, LARGEST, "is no file of values").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            entry = json.loads(line, object_pairs_hook=unique_names)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON, or a key comes twice") from error
        if not isinstance(entry, dict):
            raise InputError(f"{where}: expected an object with a name and values")
        name, key = _name(entry), next((k for k in _VALUES if isinstance(entry.get(k), list)), None)
        if name is not None and key is None and isinstance(entry.get("payload"), dict):
            records.append(entry)
            continue
        if name is None or key is None:
            raise InputError(f"{where}: {_lacking(entry, name)}")
        array = _array(entry[key], where)
        budget.take(array.nbytes, f"line {number}")
        if entry.get("shape") is not None:
            shape = _shape(entry["shape"], where)
            if math.prod(shape) != array.size:
                raise InputError(f"{where}: {array.size} values do not fill the shape {list(shape)}")
            array = array.reshape(shape)
        if name in values and not np.array_equal(values[name], array, equal_nan=True):
            raise InputError(f"{where}: {name!r} has other values than in a line before; keep one of them")
        values[name] = array
    if records and (not values or _failed(records)):
        raise InputError(_verdicts(path.name, records))
    if not values:
        raise InputError(f"{path.name}: no line has a name ({', '.join(_NAMES)}) and values ({', '.join(_VALUES)})")
    return values


def _name(entry: Mapping[str, Any]) -> str | None:
    return next((entry[k] for k in _NAMES if isinstance(entry.get(k), str)), None)


def _lacking(entry: Mapping[str, Any], name: str | None) -> str:
    """What a line has not: no line is passed over, for a misspelt key would hide an op."""
    keys = ", ".join(repr(str(k)[:40]) for k in list(entry)[:8]) or "nothing"
    if name is None:
        return f"it has no name ({', '.join(_NAMES)}) but {keys}"
    return f"{name[:80]!r} has no list of values ({', '.join(_VALUES)}) but {keys}"


_PASSED = frozenset(("ok", "skipped_numerics", "no_golden", "golden_promoted", "golden_evicted"))


def _failed(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [r for r in records if str(r["payload"].get("status", "")) not in _PASSED]


def _verdicts(file: str, records: Sequence[Mapping[str, Any]]) -> str:
    """What chisel's report says, in one line. A record: op, check, ssa, payload with status and, of numerics, mode
    ("isolated", "accumulated"), pcc, atol and rtol."""
    failed = _failed(records)
    first = ""
    if failed:
        record, payload = failed[0], failed[0]["payload"]
        measures = ", ".join(f"{k} {payload[k]:.4g}" for k in ("pcc", "atol", "rtol") if _is_number(payload.get(k)))
        said = " ".join(str(payload[k])[:40] for k in ("mode", "status") if k in payload)
        name = f"{str(_name(record))[:60]} {str(record.get('ssa') or '')[:40]}".rstrip()
        first = f", first {name} ({said}{measures and ': '}{measures})"
    return (
        f"{file} is a report of chisel: {len(failed)} of {quantity(len(records), 'check')} failed{first}. Checks have "
        "no values to compare: save the tensors of the ops in question as .npz or .safetensors by their names in the "
        "model"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
