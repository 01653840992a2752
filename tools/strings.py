"""Prints every string that a person may read, as file:line and text, for a review of the words.

`python tools/strings.py tbuda_lab/widgets tbuda_lab/cli` reads Python; `--views` adds those of the views, by
`labextension/scripts/strings.mjs`. Docstrings and keys are left out; {code} stands where a value goes.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READS = re.compile(r"[A-Za-z,.:;)] [A-Za-z({]|[)}] [a-z]|^[A-Z][a-z]+$|[a-z]{2} $|^ [a-z]{2}")
MARKUP = re.compile(r"^\s*<|font-|stroke|^[a-z-]+: |px;")


def text_of(node: ast.expr) -> str | None:
    """The words of a literal or f-string; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        values = (p.value if isinstance(p, ast.FormattedValue) else p for p in node.values)
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{" + ast.unparse(v) + "}" for v in values)
    return None


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of each string that reads like words."""
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring
            hidden.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            hidden.update(id(p) for p in node.values)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            hidden.update(id(p) for p in ast.walk(node.annotation))
    for expression in ast.walk(tree):
        if not isinstance(expression, ast.expr) or id(expression) in hidden:
            continue
        text = text_of(expression)
        if text and READS.search(re.sub(r"\{[^{}]*\}", "x", text)) and not MARKUP.search(text):
            yield expression.lineno, " ".join(text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="*", type=Path, help="Python files or folders")
    parser.add_argument("--views", action="store_true", help="add the strings of the TypeScript views")
    args = parser.parse_args()
    for path in args.path:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for line, text in sorted(strings(ast.parse(file.read_text()))):
                print(f"{file}:{line}: {text}")
    if args.views:
        subprocess.run(["node", "scripts/strings.mjs"], cwd=ROOT / "labextension", check=True)


if __name__ == "__main__":
    main()
