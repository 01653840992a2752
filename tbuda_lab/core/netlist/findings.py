"""What reading and checking a netlist say."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.errors import Diagnostic


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken rule at one element.

    `where` is the path of the element, such as ("graphs", "fwd_0", "matmul_1", "ublock"); `line` and `column` are
    1-based, None for a netlist made in code; `fix` says what would be legal.
    """

    severity: str  # "error" | "warning"
    rule: str
    where: tuple[str, ...]
    message: str
    fix: str = ""
    line: int | None = None
    column: int | None = None

    def text(self, path: str | None = None) -> str:
        """One line: file, place, element, what is wrong, the rule, what would be legal."""
        place = f"{path or '<netlist>'}:"
        if self.line is not None:
            place += f"{self.line}:{self.column}:"
        line = f"{place} {self.severity}: {'/'.join(self.where) or 'netlist'}: {self.message} [{self.rule}]"
        return " ".join((f"{line}; {self.fix}" if self.fix else line).split())

    def diagnostic(self, path: str | None = None) -> Diagnostic:
        """The same for a `NetlistError`."""
        where = "/".join(self.where) or "netlist"
        if self.line is not None:
            where = f"{path or '<netlist>'}:{self.line}:{self.column} {where}"
        return Diagnostic(self.severity, where, self.rule, self.message, self.fix)

    def __str__(self) -> str:
        return self.text()
