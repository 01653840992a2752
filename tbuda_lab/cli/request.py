"""What a command line asks of a compile: the flags that say it, and the record of it in a compiled folder."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tbuda_lab.cli.target import is_image, is_model_file, load_target, read_settings, split_target
from tbuda_lab.core.errors import InputError, ModelError, OverrideError, TbudaError
from tbuda_lab.core.files import json_map

if TYPE_CHECKING:
    from tbuda_lab.core.device import DeviceSpec
    from tbuda_lab.core.session import Session


RECORD = "compile.json"
"""The file of a compiled folder that says what was asked for."""
NETLIST = "netlist.yaml"
"""Its netlist."""


COMPILE_FLAGS = (
    "device",
    "harvested_rows",
    "df",
    "accumulate_df",
    "fidelity",
    "op_size",
    "epoch_break",
    "seed",
    "microbatch",
    "policy",
    "objective",
    "set",
    "chips",
    "cluster",
)
"""Arguments of the command line that say how a model is compiled."""


def target_arguments(parser: argparse.ArgumentParser, *, batch: bool = True) -> None:
    """A model's file or a compiled folder, and how it is to be compiled. batch: not where `--batch` says something else
    (then `--set microbatch=N` does)."""
    parser.add_argument(
        "target",
        metavar="MODEL",
        help="FILE.py:FUNCTION, a function that returns (module, tuple of sample inputs), "
        "a model file (FILE.onnx), a folder that `tbuda compile` wrote, or a device image "
        "(FILE.tti)",
    )
    parser.add_argument(
        "--device",
        default=None,
        metavar="NAME",
        help="arch, board or device file: wormhole_b0 (default), grayskull, blackhole, e150, e300, "
        "n150, n300, path.yaml, or an expression as in `tbuda explore` (n150+harvest=2)",
    )
    parser.add_argument("--harvested-rows", default=None, metavar="ROWS", help="harvested physical rows, e.g. 3,7")
    parser.add_argument("--df", default=None, metavar="FORMAT", help="data format: Float16_b (default), Float32, ...")
    parser.add_argument("--accumulate-df", default=None, metavar="FORMAT", help="accumulation format")
    parser.add_argument("--fidelity", default=None, metavar="NAME", help="math fidelity: HiFi3 (default), LoFi, ...")
    parser.add_argument(
        "--op-size",
        action="append",
        default=[],
        metavar="OP=RxC",
        help="put this op on R rows and C columns of cores (repeatable)",
    )
    parser.add_argument(
        "--epoch-break", action="append", default=[], metavar="OP", help="start a new epoch at this op (repeatable)"
    )
    parser.add_argument("--seed", type=int, default=None, help="passed to FUNCTION when it has a parameter `seed`")
    if batch:
        parser.add_argument(
            "--batch",
            type=int,
            default=None,
            metavar="N",
            dest="microbatch",
            help="inputs per run for which the model is placed (default 1)",
        )
    _placement_arguments(parser)


def _placement_arguments(parser: argparse.ArgumentParser) -> None:
    """How epochs are chosen, what else is set, and on how many chips."""
    parser.add_argument(
        "--policy", default=None, metavar="NAME", help="policy that chooses epochs: Optimal (default), Ribbon, ..."
    )
    parser.add_argument(
        "--objective",
        default=None,
        metavar="NAME",
        help="what is minimised: auto (time of the batch, default), latency, throughput",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of a session, e.g. enable_auto_fusing=false (repeatable)",
    )
    parser.add_argument(
        "--no-host",
        action="append_const",
        dest="set",
        const="cpu_fallback=none",
        help="refuse a model that has ops for the host between those of the device",
    )
    parser.add_argument("--chips", type=int, default=None, metavar="N", help="how many chips")
    parser.add_argument("--cluster", default=None, metavar="FILE.yaml", help="cluster descriptor: chips and links")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="neither read nor write the placement cache (in $TBUDA_CACHE, or tbuda-lab in "
        "$XDG_CACHE_HOME or ~/.cache)",
    )


@dataclasses.dataclass(frozen=True)
class CompileRequest:
    """What one compile was asked for, in words that survive in `compile.json`."""

    target: str
    device: str = "wormhole_b0"
    harvested_rows: tuple[int, ...] | None = None
    df: str | None = None
    accumulate_df: str | None = None
    fidelity: str | None = None
    op_size: tuple[str, ...] = ()
    epoch_break: tuple[str, ...] = ()
    seed: int | None = None
    batch: int | None = None
    policy: str | None = None
    objective: str | None = None
    set: tuple[str, ...] = ()
    chips: int | None = None
    cluster: str | None = None

    def session(self, cache: bool = True) -> Session:
        """Load the model and open a session on it; nothing is compiled yet. cache: see `Session`."""
        from tbuda_lab.core.device import load_device
        from tbuda_lab.core.formats import FIDELITIES, MathFidelity, parse_format
        from tbuda_lab.core.options import CompileOptions
        from tbuda_lab.core.overrides import Override
        from tbuda_lab.core.session import Session

        if is_image(self.target):
            return Session.open(self.target, cache=cache)
        options = CompileOptions()
        if self.df is not None:
            options = dataclasses.replace(options, default_df_override=_parse_flag(parse_format, self.df, "--df"))
        if self.accumulate_df is not None:
            df = _parse_flag(parse_format, self.accumulate_df, "--accumulate-df")
            options = dataclasses.replace(options, default_accumulate_df=df)
        if self.fidelity is not None:
            names = ", ".join(f.name for f in FIDELITIES)
            if self.fidelity not in names.split(", "):
                raise TbudaError(f"--fidelity {self.fidelity}: no such math fidelity; there are {names}")
            options = dataclasses.replace(options, default_math_fidelity=MathFidelity[self.fidelity])
        named = {"microbatch": self.batch, "balancer_policy": self.policy, "objective": self.objective}
        settings = read_settings(self.set) | {name: value for name, value in named.items() if value is not None}
        options = dataclasses.replace(options, **settings)
        overrides = [Override("op_size", *_op_size(text), source="command line") for text in self.op_size]
        overrides += [Override("epoch_break", name, True, source="command line") for name in self.epoch_break]
        device = self._expressed_device() or load_device(
            self.device, harvested_rows=self.harvested_rows, chips=self.chips, cluster=self.cluster
        )
        target = load_target(self.target, seed=self.seed)
        session = Session(
            target.module, target.inputs, device, options=options, overrides=overrides, name=target.name, cache=cache
        )
        session.source = self.words()
        return session

    def _expressed_device(self) -> DeviceSpec | None:
        """The device where it is an expression (`core.explore.parse_device`). Raises `InputError` where flags say of it
        what the expression says."""
        from tbuda_lab.core.explore import parse_device

        if "+" not in self.device and not re.fullmatch(r"[^:]+:\d+", self.device):
            return None
        if (self.harvested_rows, self.chips, self.cluster) != (None, None, None):
            raise InputError(f"--device {self.device} is an expression: it says chips and harvested rows itself")
        return parse_device(self.device)

    def words(self) -> tuple[str, ...]:
        """The target and the flags that say the same on a command line."""
        words = [self.target]
        rows = None if self.harvested_rows is None else ",".join(map(str, self.harvested_rows))
        single = (
            ("--device", None if self.device == "wormhole_b0" else self.device),
            ("--harvested-rows", rows),
            ("--df", self.df),
            ("--accumulate-df", self.accumulate_df),
            ("--fidelity", self.fidelity),
            ("--seed", self.seed),
            ("--batch", self.batch),
            ("--policy", self.policy),
            ("--objective", self.objective),
            ("--chips", self.chips),
            ("--cluster", self.cluster),
        )
        for flag, value in single:
            words += [] if value is None else [flag, str(value)]
        words += [w for text in self.op_size for w in ("--op-size", text)]
        words += [w for name in self.epoch_break for w in ("--epoch-break", name)]
        words += [w for text in self.set for w in ("--set", text)]
        return tuple(words)


def read_request(arguments: argparse.Namespace) -> CompileRequest:
    """The request of a command line; of a compiled folder, the one that made it. Raises `TbudaError`s."""
    rows = _rows(arguments.harvested_rows)
    if is_image(arguments.target):
        refuse_flags(arguments, "an image says for which device it was compiled, and how")
        return CompileRequest(arguments.target)
    named = {
        "device": arguments.device,
        "harvested_rows": rows,
        "df": arguments.df,
        "accumulate_df": arguments.accumulate_df,
        "fidelity": arguments.fidelity,
        "op_size": tuple(arguments.op_size),
        "epoch_break": tuple(arguments.epoch_break),
        "seed": arguments.seed,
        "batch": getattr(arguments, "microbatch", None),
        "policy": arguments.policy,
        "objective": arguments.objective,
        "set": tuple(arguments.set),
        "chips": arguments.chips,
        "cluster": arguments.cluster,
    }
    named = {key: value for key, value in named.items() if value not in (None, ())}
    folder = Path(arguments.target)
    if not folder.is_dir():
        split_target(arguments.target)
        return CompileRequest(arguments.target, **named)
    record = read_record(folder)
    if flags := flags_given(arguments):
        raise ModelError(f"{folder} was compiled already: {flags} would change that; compile FILE.py:FUNCTION again")
    _check_netlist(folder, record)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record["request"].items()}
    path, function = fields.pop("target"), ""
    if not is_model_file(path):
        path, _, function = path.rpartition(":")
    file = os.path.normpath(folder / path)
    print(f"{folder} was compiled from {file}: executing it", file=sys.stderr)
    return CompileRequest(f"{file}:{function}" if function else file, **fields)


def flags_given(arguments: argparse.Namespace, but: Collection[str] = ()) -> str:
    """The flags of a command line that say how to compile, with commas between them; `but` those of these names."""
    given = [n for n in COMPILE_FLAGS if n not in but and getattr(arguments, n, None) not in (None, [])]
    return ", ".join("--batch" if name == "microbatch" else "--" + name.replace("_", "-") for name in given)


def refuse_flags(arguments: argparse.Namespace, why: str) -> None:
    """Raise `ModelError` for flags that say how to compile what is compiled already."""
    flags = flags_given(arguments)
    if flags:
        raise ModelError(f"{arguments.target}: {why}; leave {flags} out, or compile FILE.py:FUNCTION")


def read_record(folder: Path) -> dict[str, Any]:
    file = folder / RECORD
    if not file.is_file():
        raise ModelError(f"{folder} has no {RECORD}: give FILE.py:FUNCTION or a folder of `tbuda compile`")
    try:
        record = json_map(file, "record of `tbuda compile`")
        _check_request(record.get("request"), str(file))
    except InputError as error:
        raise ModelError(f"{error}; compile again") from None
    return record


def file_digest(file: Path) -> str:
    """The SHA-256 of a file, as `compile.json` has that of its netlist."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_netlist(folder: Path, record: dict[str, Any]) -> None:
    """What a folder stands for is compiled again, so its netlist must be the one written. Raises `ModelError`."""
    netlist = folder / NETLIST
    if not netlist.is_file() or file_digest(netlist) != record.get("netlist_sha256"):
        raise ModelError(
            f"{netlist} is not what `tbuda compile` wrote: it was edited, or is gone, and the model would be taken in "
            f"its place; `tbuda netlist run {netlist}` runs an edited netlist, "
            "`tbuda compile FILE.py:FUNCTION` writes it anew"
        )


def _check_request(request: Any, where: str) -> None:
    """Raises `InputError` unless `request` holds what a `CompileRequest` can be made of."""
    hints = get_type_hints(CompileRequest)
    if not isinstance(request, dict):
        raise InputError(f"{where}: request is not an object")
    for name, value in request.items():
        if name not in hints:
            raise InputError(f"{where}: request has no field {str(name)[:40]!r}; it has {', '.join(hints)}")
        hint = str(hints[name])
        kind = int if "int" in hint else str
        items = value if "tuple" in hint and isinstance(value, list) else [value]
        if ("tuple" in hint) != isinstance(value, list) or not all(type(item) is kind for item in items):
            raise InputError(f"{where}: request: {name} does not take {str(value)[:60]!r}")
    target = request.get("target", "")
    if ":" not in target and not is_model_file(target):
        raise InputError(f"{where}: request: target is FILE.py:FUNCTION or a model file")


def _rows(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(row) for row in text.split(",") if row.strip())
    except ValueError:
        raise TbudaError(f"--harvested-rows {text}: give row numbers with commas between them, e.g. 3,7") from None


def _parse_flag(parse: Any, text: str, flag: str) -> Any:
    try:
        return parse(text)
    except (ValueError, KeyError) as error:
        raise TbudaError(f"{flag} {text}: {error}") from None


def _op_size(text: str) -> tuple[str, tuple[int, int]]:
    match = re.fullmatch(r"(.+)=(\d+)x(\d+)", text)
    if not match:
        raise OverrideError(f"--op-size {text}: write OP=RxC, e.g. matmul_7=4x8")
    return match[1], (int(match[2]), int(match[3]))
