"""Edges written as JSON objects, one a line: a producer, the TMs on one input of a reader, and the reader.

A case has `id`, `arch`, `input_count`, `producer`, `tms`, `consumer`, and optionally `unpad` and `pad` ([rows, columns]
in tiles, before and after the TMs). producer: `kind` "op" or "queue", `type`, `grid`, `t`, `mblock`, `ublock`, `order`,
`buf_size_mb`. tms: `["hstack", n]`, `["vslice", n]`, ...; `["r" | "c" | "z", n]` broadcasts, `["transpose"]`,
`["pad", rows, columns]`. consumer: `type` (an op type, "fused", "sparse_matmul" or "queue"), `input` and the layout;
`m_k`, `u_kt`, `z`, `dim`, `bias`, `num_sparse_tiles`, `num_index_tiles` as in a netlist; `mode` of a splice; `fused`
("eltwise", "matmul", "reduce") and `operand`, of the first sub-op that reads the input, whose mblock and ublock then
stand there; `kernel_broadcast` and `kb_per_t`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist.routing.edge import MOST_TILES, RoutedEdge, judge_alone
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source, Step

MOST_LINE = 1 << 20
_TYPES = ("matmul", "depthwise", "reduce", "splice", "sparse_matmul", "fused", "queue")


def judge_lines(lines: Iterable[str]) -> Iterator[str]:
    """One JSON object for each case: its `id`, the `verdict` "legal" or "illegal" and the `rule` ("ok" if legal).
    Raises InputError with the number of a line that is no case."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if len(line) > MOST_LINE:
                raise ValueError(f"longer than {MOST_LINE} characters")
            case = json.loads(line)
            edge = edge_of(case)
            result = judge_alone(edge, dram_inputs(edge.source))
            if result.huge:
                raise ValueError(f"an edge of more than {MOST_TILES} tiles")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            text = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"line {number} does not describe an edge: {text}") from None
        verdict = "illegal" if result.rule else "legal"
        yield json.dumps({"id": case.get("id", number), "verdict": verdict, "rule": result.rule.label})


def dram_inputs(source: Source) -> int:
    """Reads from DRAM that the fullest core of a producer carries whose operands all lie in DRAM."""
    return 2 if source.op_type in ("matmul", "depthwise") else 1


def edge_of(case: Mapping[str, Any]) -> RoutedEdge:
    """The edge of a case; the module says what the fields are. Raises ValueError, KeyError or TypeError for no case."""
    result, read = case["producer"], case["consumer"]
    kind = read["type"] if read["type"] in _TYPES else "eltwise"
    source = Source(
        _pair(result["grid"]), _whole(result["t"]), _pair(result["mblock"]), _pair(result["ublock"]), _order(
            result["order"]),
        _whole(result.get("buf_size_mb", 1), least=0), "queue" if result["kind"] == "queue" else str(result["type"]),
        bool(result.get("untilize_output", False)),
    )
    use = str(read.get("fused", "eltwise"))
    port = _whole(read["input"], least=0)
    tiles = read.get("num_index_tiles" if port == 2 else "num_sparse_tiles", 1)
    reader = EdgeReader(
        kind, port, _pair(read["grid"]), _whole(read["t"]), _pair(read["mblock"]),
        _pair(read["ublock"]), _order(read["order"]), {"sparse_matmul": "matmul", "fused": "fused_op"}.get(
            read["type"], str(read["type"])),
        _whole(read.get("buf_size_mb", 2), least=0), _whole(read.get("m_k", 1), least=0),
        _whole(read.get("u_kt", 1), least=0), _whole(read.get("z", 1)), str(read.get("dim", "")),
        bool(read.get("bias", False)), use, _whole(read.get("operand", 0), least=0), str(read.get("mode", "t")),
        _whole(tiles), _whole(read.get("kernel_broadcast", 0) or 0, least=0), bool(read.get("kb_per_t", False)),
    )
    steps = tuple(_step(step) for step in case.get("tms", ()))
    return RoutedEdge(
        source, steps, reader, _whole(case.get("input_count", 1)), _pair(case.get("unpad") or (0, 0), least=0),
        _pair(case.get("pad") or (0, 0), least=0), str(case["arch"]), _whole(case.get("dst", 8)),
    )


def _whole(value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1 << 31:
        raise ValueError(f"{value!r} is not a whole number of at least {least}")
    return value


def _pair(value: Any, least: int = 1) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair")
    return _whole(value[0], least), _whole(value[1], least)


def _order(value: Any) -> str:
    if value not in ("r", "c"):
        raise ValueError(f"{value!r} is not a ublock order")
    return str(value)


def _step(value: Any) -> Step:
    name, *arguments = value
    count = {"transpose": 0, "pad": 2, "tile_broadcast": 0}.get(name, 1)
    if name not in ("hslice", "vslice", "hstack", "vstack", "r", "c", "z", "transpose", "pad", "tile_broadcast"):
        raise ValueError(f"{name!r} is not a TM")
    if len(arguments) < count:
        raise ValueError(f"the TM {name} takes {count} numbers")
    return (name, *(_whole(a, least=0 if name == "pad" else 1) for a in arguments[:count]))
