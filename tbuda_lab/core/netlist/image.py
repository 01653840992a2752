"""TTI archives, read only: what the manifest says and the netlists inside. Nothing is extracted, nothing unpickled.

The layout is that of netlist-format.md#device-images: a tar (older ones: a zip) with one folder, in it `device.json`,
the netlist, and tensors, which are listed by name and size alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import parse_json
from tbuda_lab.core.netlist.archive import Archive, Member

MAX_TEXT = 64 << 20  # bytes of the manifest or one netlist
MAX_TEXTS = 4 * MAX_TEXT  # of all of them
MANIFEST = "device.json"


class Files(Protocol):
    """What reading an image needs of an archive, or of a folder of one."""

    @property
    def path(self) -> Path: ...
    @property
    def members(self) -> Mapping[str, Member]: ...
    def read(self, name: str, most: int) -> bytes: ...
    def text(self, name: str, most: int) -> str: ...


@dataclasses.dataclass(frozen=True)
class Image:
    """An archive in memory. manifest: device.json as it stands. netlists: text by name, the manifest's own first.
    cycles: by the name of the netlist beside which it lies, the text of its `NAME.cycles.csv`."""

    path: str
    manifest: dict[str, Any]
    netlists: dict[str, str]
    members: tuple[Member, ...]
    cycles: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def pickles(self) -> int:
        """Files that only unpickling could read; they stay closed."""
        return sum(is_pickle(m.name) for m in self.members)


def is_pickle(name: str) -> bool:
    """Whether a file of that name is read by unpickling, which runs whatever it says: such files stay closed."""
    return name.lower().endswith((".pkl", ".pickle", ".pt", ".pth"))


def read_image(path: str | Path) -> Image:
    """Reads a `*.tti` file. Raises `InputError` that says what is wrong with it."""
    with Archive(path) as archive:
        return image_of(archive)


def image_of(archive: Files) -> Image:
    """Manifest and netlists of an archive that is open. Raises `InputError`."""
    pures = {name: PurePosixPath(name) for name in archive.members}
    named = [
        name
        for name, pure in pures.items()
        if len(pure.parts) <= 2 and (pure.name == MANIFEST or pure.suffix in (".yaml", ".yml"))
    ]
    size = sum(archive.members[name].size for name in named)
    if size > MAX_TEXTS:
        raise InputError(f"{archive.path} has {size} bytes of manifests and netlists, more than {MAX_TEXTS}")
    texts = {name: archive.text(name, MAX_TEXT) for name in named}
    name = manifest_name(archive)
    manifest = _manifest(texts[name], name, archive.path)
    state = manifest.get("compiled_graph_state")
    own = PurePosixPath(str(state.get("netlist_filename", ""))).name if isinstance(state, dict) else ""
    netlists = {n: t for n, t in texts.items() if not n.endswith(".json")}
    first = sorted(netlists, key=lambda n: (PurePosixPath(n).name != own, n))
    members = tuple(sorted(archive.members.values(), key=lambda m: m.name))
    beside = {n: str(PurePosixPath(n).with_suffix(".cycles.csv")) for n in first}
    cycles = {n: archive.text(c, MAX_TEXT) for n, c in beside.items() if c in archive.members}
    return Image(str(archive.path), manifest, {n: netlists[n] for n in first}, members, cycles)


def manifest_name(archive: Files) -> str:
    """Where the manifest lies, which tells the archive's folder. Raises `InputError` where there is none."""
    manifest_name = [
        n for n in archive.members if PurePosixPath(n).name == MANIFEST and len(PurePosixPath(n).parts) <= 2
    ]
    if not manifest_name:
        raise InputError(f"{archive.path} has no {MANIFEST}: it is not a TTI archive, or one of an unknown version")
    return min(manifest_name, key=lambda n: len(PurePosixPath(n).parts))


def _manifest(text: str, name: str, path: Path) -> dict[str, Any]:
    manifest = parse_json(text, f"{name} in {path}")
    if not isinstance(manifest, dict):
        raise InputError(f"{name} in {path} is not an object")
    return manifest


def image_facts(image: Image) -> list[tuple[str, str]]:
    """The manifest in words: (what, value), in the order a reader wants."""
    m = image.manifest
    entry = m.get("compiled_graph_state")
    state: dict[str, Any] = entry if isinstance(entry, dict) else {}
    section = m.get("tbuda_lab")
    ours: dict[str, Any] = section if isinstance(section, dict) else {}
    size = sum(member.size for member in image.members)
    facts = [
        ("name", _text(m.get("device_image_name"))),
        ("version", _text(m.get("version"))),
        ("arch", _enum(m.get("arch"))),
        ("backend", _enum(m.get("devtype"))),
        ("chip ids", _text(m.get("chip_ids"))),
        ("grid", " rows x ".join(map(str, g)) + " columns" if isinstance(g := m.get("grid_size"), list) else ""),
        ("harvested", _harvested_rows(m.get("harvested_rows"))),
        ("microbatch", _text(m.get("microbatch_size"))),
        ("training", ("yes" if t else "no") if isinstance(t := m.get("training"), bool) else _text(t)),
        ("inputs", _text(state.get("ordered_input_names"))),
        ("input shapes", _text(state.get("ordered_input_shapes"))),
        ("outputs", _text(state.get("ordered_output_names"))),
        ("output shapes", _text(state.get("ordered_output_shapes"))),
        ("weights", "" if "weights" not in ours else "included" if ours["weights"] is True else "not included"),
        ("made by", _text(m.get("pybuda_pip_version_id"))),
        (
            "files",
            f"{len(image.members):,}, {size:,} bytes"
            + (f"; {image.pickles} of them pickles, which are not opened" if image.pickles else ""),
        ),
    ]
    name = PurePosixPath(image.path).name
    use = "view only: it has no model graph to compile; `tbuda tti netlist` extracts its netlist"
    if ours:
        use = f"Session.open({name!r}) edits it, `tbuda run {name}` runs it, and TTDevice.load_image in scripts"
    facts.append(("use it", use))
    return [(what, value) for what, value in facts if value]


def _harvested_rows(masks: Any) -> str:
    """Rows of every chip whose mask of harvested rows the manifest has."""
    if not isinstance(masks, list) or not all(isinstance(v, int) and 0 <= v < 1 << 32 for v in masks):
        return _text(masks)
    chips = []
    for mask in masks[:12]:
        rows = [str(row) for row in range(32) if mask >> row & 1]
        chips.append(f"row{'s' if len(rows) > 1 else ''} {', '.join(rows)}" if rows else "no row")
    if len(masks) == 1:
        return chips[0]
    more = f" and {len(masks) - 12} more" if len(masks) > 12 else ""
    return "; ".join(f"chip {at}: {rows}" for at, rows in enumerate(chips)) + more


def _enum(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("__enum__", "")
    return str(value).rpartition(".")[2] if value else ""


def _text(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, list):
        return ", ".join(str(v) for v in value[:12]) + (f" and {len(value) - 12} more" if len(value) > 12 else "")
    return str(value)[:300]
