"""Overrides read from a file: what `export_overrides(form="json")` wrote, or anybody who knows the format."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from tbuda_lab.core.errors import Diagnostic, InputError, TbudaError
from tbuda_lab.core.files import bounded_text, parse_json
from tbuda_lab.core.options import Override
from tbuda_lab.core.session.exports import OVERRIDES_FORMAT
from tbuda_lab.core.session.journal import override_of

MAX_BYTES = 4 << 20
MOST = 20_000


def read_overrides(path: str | Path) -> tuple[Override, ...]:
    """The overrides of a JSON file. Raises `InputError` with the record and what is wrong with it."""
    path = Path(path)
    return parse_overrides(bounded_text(path, MAX_BYTES, "holds no overrides"), path.name)


def parse_overrides(text: str, name: str = "overrides") -> tuple[Override, ...]:
    """Overrides from their JSON text; `name` stands in errors. Raises `InputError`."""

    def fail(where: str, message: str, fix: str) -> NoReturn:
        raise InputError(f"{where}: {message}", [Diagnostic("error", where, "overrides-file", message, fix)])

    try:
        data = parse_json(text, name)
    except InputError as error:
        fail(name, str(error).removeprefix(f"{name}: "), "export overrides as JSON")
    if not isinstance(data, dict) or data.get("format") != OVERRIDES_FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        fail(name, f"format is {found!r}", f"a file of overrides has the format {OVERRIDES_FORMAT!r}")
    records = data.get("overrides")
    if not isinstance(records, list) or len(records) > MOST:
        fail(name, "overrides is no list", f"a list of kind, target and value, at most {MOST}")
    made = []
    for index, record in enumerate(records):
        try:
            made.append(override_of(record))
        except TbudaError as error:
            fix = "; ".join(d.fix for d in error.diagnostics if d.fix)
            fail(f"{name}, override {index + 1}", str(error).splitlines()[0], fix)
    return tuple(made)
