"""Writes labextension/src/views/editmessages.ts: the types of the edits that a page may send, from the Python classes.

`python tools/edit_messages.py` writes the file anew; `tests/widgets/test_edits.py` checks that it is current.
"""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

from tbuda_lab.core.session.command import Command
from tbuda_lab.widgets.handlers.edit_messages import GESTURES, MANY, PAGE_COMMANDS, Gesture, type_text

FILE = Path(__file__).resolve().parents[1] / "labextension/src/views/editmessages.ts"
HEAD = """\
/** The edits that a page may send. Written by tools/edit_messages.py from the classes in Python: do not edit. */
"""


def declaration(kind: type[Command] | type[Gesture]) -> str:
    """One member of the union: the name of an edit and its fields."""
    hints = typing.get_type_hints(kind)
    fields = "".join(
        f"; {f.name}{'' if f.default is dataclasses.MISSING else '?'}: {type_text(hints[f.name])}"
        for f in dataclasses.fields(kind)
    )
    return f"  | {{ do: '{kind.name}'{fields} }}"


def typescript() -> str:
    """The text of the file."""
    parts = [HEAD]
    for title, name, kinds in (
        ("Commands of the session, as its journal holds them.", "CommandEdit", PAGE_COMMANDS.values()),
        ("Edits whose commands depend on the placement or the present overrides.", "GestureEdit", GESTURES.values()),
    ):
        members = "\n".join(map(declaration, kinds))
        parts.append(f"/** {title} */\nexport type {name} =\n{members};\n")
    parts.append("export type SingleEdit = CommandEdit | GestureEdit;\n")
    parts.append(
        "/** One edit, or several as one undo step. */\n"
        f"export type Edit = SingleEdit | {{ do: '{MANY}'; label: string; edits: SingleEdit[] }};\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(typescript(), encoding="utf-8")
