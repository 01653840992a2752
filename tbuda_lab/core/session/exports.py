"""What can be taken out of a session, and how the same is said on the command line and in Python.

`EXPORTS` lists every kind with its settings, so that a dialog can offer them without knowing any. An `Export` is one
kind with its file and settings: `cli`, `python` and `note` are what a person may copy, `write()` does it. Files appear
when they are complete. Kinds that need the views (report, image) register themselves in
`tbuda_lab.widgets.handlers.exports`. A session can be opened on a device image that it exported.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult, check_netlist
from tbuda_lab.core.device import ARCHS, BOARDS, load_device
from tbuda_lab.core.epochsim import cycles_path, simulate, write_cycles_csv
from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.files import atomic_file, atomic_text, csv_text, file_stem
from tbuda_lab.core.frontend import as_read_alone
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import to_json
from tbuda_lab.core.session.compile_session import CompileSession
from tbuda_lab.core.session.journal import OVERRIDES_FORMAT
from tbuda_lab.core.session.records import records_of

MODEL = "MODEL.py:FUNCTION"
EDITS = "SESSION.buda.json"
TEXTS = ("name", "type", "module", "location", "df", "fidelity", "stream", "limiter")


@dataclasses.dataclass(frozen=True)
class ExportSetting:
    """A setting of a kind of export: its default decides its type (bool, int or str); `choices` where not all go;
    `only`: another setting and the value of it under which this one means something."""

    name: str
    default: bool | int | str
    meaning: str
    choices: tuple[str, ...] = ()
    only: tuple[str, str] | None = None

    def check(self, value: Any) -> bool | int | str:
        """The value, if it may be one. Raises `InputError` saying what may."""
        valid = value in self.choices if self.choices else not isinstance(value, int) or value >= 0
        if valid and isinstance(value, (bool, int, str)) and type(value) is type(self.default):
            return value
        legal = f"one of {', '.join(self.choices)}" if self.choices else _TYPES[type(self.default)]
        raise InputError(f"{self.name} is {legal}, not {value!r}")


_TYPES: dict[type, str] = {bool: "true or false", int: "a whole number from 0", str: "a text"}


@dataclasses.dataclass(frozen=True)
class ExportKind:
    """A kind of export. `call`: the Python call with `{}` where the arguments go; `suffix`: of the usual file name."""

    name: str
    title: str
    meaning: str
    suffix: str
    call: str
    write: Callable[..., object]  # (session, path, **settings)
    settings: tuple[ExportSetting, ...] = ()
    preview: Callable[..., str] | None = None  # (session, **settings): what will come of it, in words
    endings: tuple[str, ...] = ()  # others that a file of this kind may have
    beside: Callable[..., list[Path]] | None = None  # (path, **settings): files that are written beside it


EXPORTS: dict[str, ExportKind] = {}
"""Kinds of export by name, in the order in which a dialog shows them."""


def register(kind: ExportKind) -> ExportKind:
    """Add a kind; a second one of the same name is an error of the program."""
    if kind.name in EXPORTS:
        raise ValueError(f"export {kind.name!r} is there already")
    EXPORTS[kind.name] = kind
    return kind


@dataclasses.dataclass(frozen=True)
class Export:
    """One export: what, to which file, with which settings (those not given have their defaults)."""

    session: CompileSession
    kind: ExportKind
    path: Path
    settings: Mapping[str, bool | int | str]

    @property
    def changed_settings(self) -> dict[str, bool | int | str]:
        """The settings that are not at their defaults, without those that mean nothing beside the others."""
        told = [s for s in self.kind.settings if s.only is None or self.settings[s.only[0]] == s.only[1]]
        return {s.name: self.settings[s.name] for s in told if self.settings[s.name] != s.default}

    @property
    def python(self) -> str:
        """The Python call."""
        words = [repr(str(self.path)), *(f"{k}={v!r}" for k, v in self.changed_settings.items())]
        return self.kind.call.format(", ".join(words))

    @property
    def cli(self) -> str:
        """The command line; placeholders stand in capitals, `note` says what for."""
        words = ["tbuda", "export", self.kind.name, *_origin(self.session), "--out", str(self.path)]
        for name, value in self.changed_settings.items():
            flag = "--" + name.replace("_", "-")
            words += [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, str(value)]
        return shlex.join(words)

    @property
    def note(self) -> str:
        """What has to be done before the command line does the same; empty where nothing has."""
        words = _origin(self.session)
        parts = []
        if MODEL in words:
            parts.append(f"{MODEL} stands for a file with a function that returns the model and its sample inputs")
        if EDITS in words:
            parts.append(f"the edits are in no file yet: session.save({EDITS!r}) writes them")
        return "; ".join(parts)

    @property
    def files(self) -> list[Path]:
        """All that is written: the file, and those beside it."""
        return [self.path, *(self.kind.beside(self.path, **self.settings) if self.kind.beside is not None else ())]

    @property
    def preview(self) -> str:
        """What will come of it, where the kind can say so before it is written: a size, a device. Quick."""
        return "" if self.kind.preview is None else self.kind.preview(self.session, **self.settings)

    def write(self) -> Path:
        """Write the file; returns its path. Raises `OutputError`, or what compiling raises."""
        self.kind.write(self.session, self.path, **self.settings)
        return self.path


def _origin(session: CompileSession) -> list[str]:
    """The part of a command line that leads to the same placement."""
    model = session.source[0] if session.source else MODEL
    if session.journal_path is not None:
        return [model, "--edits", str(session.journal_path)]
    if session.unedited and session.source:
        return list(session.source)
    if session.overrides or session.options != CompileOptions():
        return [model, "--edits", EDITS]
    words, device = [model], session.device
    if device.name in (*ARCHS, *BOARDS):
        words += ["--device", device.name] if device.name != "wormhole_b0" else []
        if device.harvested_rows != load_device(device.name).harvested_rows:
            words += ["--harvested-rows", ",".join(map(str, sorted(device.harvested_rows)))]
    return words


def plan(session: CompileSession, what: str, path: str | Path | None = None, /, **settings: Any) -> Export:
    """An export that is not written yet. path: default is the session's name, as far as it is one of a file, with the
    kind's suffix.

    Raises `InputError` for an unknown kind or setting, or a value that does not fit.
    """
    kind = EXPORTS.get(what)
    if kind is None:
        raise InputError(f"no export {what!r}; there are: {', '.join(EXPORTS)}")
    known_settings = {s.name: s for s in kind.settings}
    for name in settings:
        if name not in known_settings:
            names = ", ".join(known_settings) or "none"
            raise InputError(f"{what} has no setting {name!r}; it has: {names}")
    chosen = {s.name: s.check(settings.get(s.name, s.default)) for s in kind.settings}
    return Export(session, kind, Path(path if path is not None else f"{file_stem(session.name)}{kind.suffix}"), chosen)


# -- the kinds ---------------------------------------------------------------------------------------------------------
def export_netlist(session: CompileSession, path: str | Path, *, cycles: bool = True, validate: bool = False) -> None:
    """Write the netlist (YAML), and beside it `NAME.cycles.csv` with what each op costs.

    validate: read the text back first and check it as strictly as there is. Raises `NetlistError` for a finding, and
    then writes nothing.
    """
    result = session.compile()
    text = netlists.dumps(result.netlist)
    if validate:
        check_netlist(netlists.loads(text), result.device)
    path = Path(path)
    with atomic_text(path) as stream:
        stream.write(text)
    if cycles:
        write_cycles_csv(result, cycles_path(path))


def overrides_text(session: CompileSession, form: str = "python") -> str:
    """The current overrides as a Python script with PyBuda's calls, or as JSON that `load_overrides` reads."""
    if form == "python":
        body = session.to_python()
        return "import tbuda_lab as pybuda\n\n" + (body or "# no overrides\n")
    records = [to_json(o, session.names_of) for o in session.overrides]
    lines = [json.dumps(r, sort_keys=True, ensure_ascii=False) for r in records]
    body = ",\n".join(f"  {line}" for line in lines)
    return f'{{"format": "{OVERRIDES_FORMAT}",\n"overrides": [\n{body}\n]}}\n'


def export_overrides(session: CompileSession, path: str | Path, *, form: str = "python") -> None:
    """Write the overrides of the next compile. form: "python" or "json"; both: the one at `path`, the other beside it
    with the other suffix."""
    path = Path(path)
    if form != "both":
        _write(path, overrides_text(session, form))
        return
    (other,) = _other_form(path, form=form)
    first, second = ("python", "json") if other.suffix == ".json" else ("json", "python")
    texts = overrides_text(session, first), overrides_text(session, second)
    _write(path, texts[0])
    _write(other, texts[1])


def _other_form(path: Path, *, form: str) -> list[Path]:
    return [path.with_suffix(".json" if path.suffix != ".json" else ".py")] if form == "both" else []


def _cycles_beside(path: Path, *, cycles: bool, **_: Any) -> list[Path]:
    return [cycles_path(path)] if cycles else []


def op_columns(session: CompileSession) -> dict[str, list[Any]]:
    """What `export_table` writes, column by column: one row per op in schedule order."""
    result = session.compile()
    frame = session.frames.ops(result)
    names = [c.removeprefix("op_") for c in frame.columns if c.startswith("op_")]
    op_columns: dict[str, list[Any]] = {
        n: frame.text(f"op_{n}") if n in TEXTS else frame.columns[f"op_{n}"].tolist() for n in names
    }
    overrides: dict[str, list[str]] = {}
    for record in records_of(session.overrides, result, pending=False):
        for op in record.matched:
            overrides.setdefault(op, []).append(record.kind)
    op_columns["overrides"] = [" ".join(overrides.get(op, ())) for op in op_columns["name"]]
    return op_columns


def export_table(session: CompileSession, path: str | Path) -> None:
    """Write one line per op in schedule order: its place, its candidate, kernel and limiter cycles per input and what
    limits it, bytes of L1, and which of its properties were asked for by an override.

    CSV, or Parquet (needs pyarrow) where the name of the file ends in `.parquet`. Raises `OutputError` without it.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        _write_parquet(session, path)
        return
    columns = op_columns(session)
    with atomic_text(path) as stream:
        rows = zip(*([_plain(v) for v in c] for c in columns.values()), strict=True)
        stream.write(csv_text([columns, *rows]))


def _write_parquet(session: CompileSession, path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise OutputError(
            "Parquet needs pyarrow: pip install 'tbuda_lab[parquet]'; a name that ends in .csv needs nothing"
        ) from None
    table = pyarrow.table(op_columns(session))
    with atomic_file(path) as scratch:
        parquet.write_table(table, scratch)


def export_trace(session: CompileSession, path: str | Path, *, batch: int = 8) -> None:
    """Write when each op works and what it waits for over `batch` inputs, as Chrome trace JSON."""
    if batch < 1:
        raise InputError("a trace needs at least one input")
    result = session.compile()
    simulate(result, batch).trace.to_chrome_trace(path, result.model_shapes)


def _write(path: Path, text: str) -> None:
    with atomic_text(path) as stream:
        stream.write(text)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


register(
    ExportKind(
        "netlist",
        "Netlist",
        "The netlist as YAML, and beside it the cycles of every op",
        ".netlist.yaml",
        "session.export_netlist({})",
        export_netlist,
        (
            ExportSetting("cycles", True, "write NAME.cycles.csv beside it"),
            ExportSetting("validate", False, "read the text back and check it before it is written"),
        ),
        endings=(".yml",),
        beside=_cycles_beside,
    )
)
register(
    ExportKind(
        "overrides",
        "Overrides",
        "The edits as PyBuda's calls, or as JSON",
        ".overrides.py",
        "session.export_overrides({})",
        export_overrides,
        (ExportSetting("form", "python", "python, json, or both", ("python", "json", "both")),),
        endings=(".json",),
        beside=_other_form,
    )
)
register(
    ExportKind(
        "table",
        "Table",
        "One line per op: place, candidate, cycles, memory (CSV; Parquet if it ends in .parquet)",
        ".ops.csv",
        "session.export_table({})",
        export_table,
        endings=(".parquet",),
    )
)
register(
    ExportKind(
        "trace",
        "Timeline",
        "When each op works and what it waits for (Chrome trace JSON)",
        ".trace.json",
        "session.export_trace({})",
        export_trace,
        (ExportSetting("batch", 8, "how many inputs"),),
    )
)

_sizes: dict[int, tuple[weakref.ref[CompileResult], dict[bool, int]]] = {}


def export_tti(
    session: CompileSession, path: str | Path, *, weights: bool = True, dump_format: str = "default", name: str = ""
) -> None:
    """Write a device image: netlist, weights, the traced graph and what it was compiled for, in one archive, which
    `TTDevice.load_image`, `tbuda run` and `Session.open` take without the model. Compiles what is not compiled.

    weights: without them whoever opens it gives them. dump_format: tensors as "default" (.npy) or "backend" (raw
    numbers). name: of the device image; the session's by default. Raises `OutputError`.
    """
    from tbuda_lab.core.tti import as_trained, loaded_of, model_facts, write_image

    result = session.compile()
    title = name or session.name
    modules = session.image_modules or model_facts(session.model, title, result.graph)
    loaded = loaded_of(result, title, modules)
    if result.options.training is None and session.sample_inputs is not None:
        loaded = dataclasses.replace(loaded, graph=as_read_alone(loaded.graph, session.model, session.sample_inputs))
    if result.options.training is not None:
        trainer = session.trainer
        loaded = as_trained(loaded, {n: v.numpy() for n, v in trainer.parameters().items()}, trainer.contents())
    write_image(path, loaded, weights=weights, dump_format=dump_format)


def preview_tti(session: CompileSession, *, weights: bool = True, dump_format: str = "default", name: str = "") -> str:
    """The device and about how large the archive will be."""
    device = session.device
    chips = f"{len(device.chips)} chips" if len(device.chips) > 1 else "1 chip"
    on = f"for {device.name}: {chips} of {device.rows} x {device.cols} cores"
    result = session.result
    if result is None or session.stale:
        return f"{on}; its size is known when the model is compiled"
    size = _size(result, weights)
    return f"{on}; about {_bytes(size)}" + ("" if weights else ", without weights")


def _size(result: CompileResult, weights: bool) -> int:
    from tbuda_lab.core.tti import image_size

    for gone in [key for key, (ref, _) in _sizes.items() if ref() is None]:
        del _sizes[gone]
    sizes = _sizes.setdefault(id(result), (weakref.ref(result), {}))[1]
    if weights not in sizes:
        sizes[weights] = image_size(result, weights=weights)
    return sizes[weights]


def _bytes(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 1000:.0f} kB"


register(
    ExportKind(
        "tti",
        "TTI",
        "The compiled model in one archive, which runs without the model",
        ".tti",
        "session.export_tti({})",
        export_tti,
        (
            ExportSetting("name", "", "name of the device image; empty: the session's"),
            ExportSetting("weights", True, "include the weights"),
            ExportSetting(
                "dump_format",
                "default",
                "tensors as .npy (default) or as raw numbers (backend)",
                ("default", "backend"),
            ),
        ),
        preview_tti,
    )
)
