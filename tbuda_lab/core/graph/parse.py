"""Reads the text that `print_graph` writes. No code is executed: ops come from the registry, values are literals."""

from __future__ import annotations

import ast
import base64
import dataclasses
import math
import re
import typing
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph.graph import Edge, Graph, GraphError, Node, NodeKind, Origin
from tbuda_lab.core.graph.op import REGISTRY, Op, Payload
from tbuda_lab.core.graph.text import DIGEST, ORIGIN_KEYS
from tbuda_lab.core.graph.tm import TM

TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*)|(?P<line>\n)|(?P<string>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.])|-inf\b)|(?P<word>[A-Za-z_][\w.\-/]*)"
    r"|(?P<packed>~[A-Za-z0-9+/=]+)|(?P<digest>\#[0-9a-f]+)|(?P<mark>[=:(){}\[\],|@])"
)
WORDS: dict[str, Any] = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
ENUMS = {"DataFormat": DataFormat, "MathFidelity": MathFidelity}
KINDS = {kind.value: kind for kind in NodeKind if kind is not NodeKind.OP}
MAX_UNPACKED = 1 << 24
"""Bytes a packed payload may unpack to: text of unknown origin must not fill the memory."""


class Token(NamedTuple):
    kind: str
    text: str
    line: int


class GraphSyntaxError(GraphError):
    """Text that is no graph; the message starts with the line number."""


def parse_graph(text: str, arrays: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes.

    arrays: values by digest (see `array_table`); nodes whose array is not there get none and keep the digest in their
    attributes. Raises `GraphSyntaxError` with the line for text that is no graph.
    """
    parser = _Parser(_tokens(text), arrays or {})
    graph = parser.graph()
    parser.expect("end")
    return graph


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise GraphSyntaxError(f"line {line}: cannot read {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind == "line":
            line += 1
        elif kind != "skip":
            found.append(Token(kind, match.group(), line))
        at = match.end()
    found.append(Token("end", "", line))
    return found


class _Parser:
    def __init__(self, tokens: list[Token], arrays: Mapping[str, np.ndarray]) -> None:
        self.tokens = tokens
        self.at = 0
        self.arrays = arrays

    # -- tokens ----------------------------------------------------------------------------------------------
    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def error(self, message: str, back: int = 0) -> GraphSyntaxError:
        """An error at the token that is next, or at the one `back` tokens before."""
        return GraphSyntaxError(f"line {self.tokens[max(0, self.at - back)].line}: {message}")

    def expect(self, kind: str, text: str | None = None) -> str:
        token = self.token
        if token.kind != kind or (text is not None and token.text != text):
            raise self.error(f"expected {text or kind}, found {token.text or 'the end'!r}")
        self.at += 1
        return token.text

    def accept(self, text: str) -> bool:
        if self.token.kind in ("mark", "word") and self.token.text == text:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        if self.token.kind == "string":
            return str(ast.literal_eval(self.expect("string")))
        return self.expect("word")

    # -- graph -----------------------------------------------------------------------------------------------
    def graph(self) -> Graph:
        self.expect("word", "graph")
        graph = Graph(self.name())
        self.expect("mark", "{")
        while not self.accept("}"):
            node = self.node()
            if node.name in graph.nodes:
                raise self.error(f"node {node.name!r} is defined twice", 1)
            graph.nodes[node.name] = node
        for node in graph:
            for source in node.sources:
                if source not in graph:
                    raise self.error(f"{node.name!r} reads {source!r}, which is not defined")
        return graph

    def node(self) -> Node:
        name = self.name()
        self.expect("mark", "=")
        type_name = self.expect("word")
        kind = KINDS.get(type_name, NodeKind.OP)
        operation = self.operation(type_name) if kind is NodeKind.OP else None
        inputs = tuple(self.group("(", ")", self.edge)) if self.token.text == "(" else ()
        self.expect("mark", ":")
        shape = self.literal()
        if not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
            raise self.error(f"the shape of {name!r} is {shape!r}, not a tuple of integers", 1)
        node = Node(name, kind, shape, operation, inputs)
        if self.accept("df"):
            word = self.expect("word")
            if word not in DataFormat.__members__:
                raise self.error(f"{word!r} is no data format; known are {', '.join(DataFormat.__members__)}", 1)
            node.df = DataFormat[word]
        digest = self.value(node) if self.accept("=") else ""
        if self.token.kind == "mark" and self.token.text == "{":
            node.attrs = self.mapping()
        if digest:
            node.attrs[DIGEST] = digest
        if self.accept("@"):
            node.origin = self.origin()
        if self.accept("recipe"):
            node.recipe = self.graph()
        return node

    def operation(self, type_name: str) -> Op:
        cls = REGISTRY.get(type_name)
        if cls is None:
            raise self.error(f"{type_name!r} is no known op", 1)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        if self.token.text == "[":
            known = {f.name for f in dataclasses.fields(cls)}
            for key, value in self.group("[", "]", lambda: self.field(hints)):
                if key not in known:
                    raise self.error(f"op {type_name!r} has no attribute {key!r}; it has {', '.join(sorted(known))}", 1)
                values[key] = value
        try:
            return cls(**values)
        except TypeError as e:
            raise self.error(str(e), 1) from None

    def field(self, hints: Mapping[str, Any]) -> tuple[str, Any]:
        key = self.expect("word")
        self.expect("mark", "=")
        return key, self.literal(hints.get(key))

    def edge(self) -> Edge:
        source = self.name()
        tms: list[TM] = []
        while self.accept("|"):
            move = self.name()
            args = tuple(self.group("(", ")", self.literal)) if self.token.text == "(" else ()
            tms.append(TM(move, args))
        return Edge(source, tuple(tms))

    def origin(self) -> Origin:
        found = self.mapping()
        unknown = set(found) - set(ORIGIN_KEYS)
        if unknown:
            raise self.error(f"an origin has no {', '.join(sorted(unknown))}; it has {', '.join(ORIGIN_KEYS)}", 1)
        return Origin(**{ORIGIN_KEYS[key]: str(value) for key, value in found.items()})

    # -- values ----------------------------------------------------------------------------------------------
    def value(self, node: Node) -> str:
        """Reads the array of a node into it; returns its type and digest if the array is not at hand."""
        dtype = self.dtype()
        try:
            if self.token.text == "[":
                node.value = np.array(self.literal(), dtype).reshape(node.shape)
                return ""
            if self.accept("fill"):
                node.value = np.full(node.shape, self.literal(), dtype)
                return ""
        except (ValueError, TypeError, OverflowError) as e:
            raise self.error(f"the value of {node.name!r}: {e}", 1) from None
        digest = self.expect("digest")
        node.value = self.arrays.get(digest[1:])
        if node.value is not None and tuple(node.value.shape) != node.shape:
            raise self.error(f"{node.name!r} has shape {node.shape}, the array for {digest} {node.value.shape}", 1)
        return f"{dtype} {digest}" if node.value is None else ""

    def dtype(self) -> np.dtype[Any]:
        word = self.expect("word")
        try:
            dtype = np.dtype(word)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "fiub":
            raise self.error(f"{word!r} is no type of numbers", 1)
        return dtype

    def group(self, opening: str, closing: str, item: Any) -> list[Any]:
        self.expect("mark", opening)
        items: list[Any] = []
        while not self.accept(closing):
            items.append(item())
            if not self.accept(","):
                self.expect("mark", closing)
                break
        return items

    def mapping(self) -> dict[str, Any]:
        def pair() -> tuple[str, Any]:
            key = self.name()
            self.expect("mark", ":")
            return key, self.literal()

        return dict(self.group("{", "}", pair))

    def literal(self, hint: Any = None) -> Any:
        token = self.token
        if token.kind == "string":
            return ast.literal_eval(self.expect("string"))
        if token.kind == "number":
            text = self.expect("number")
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if token.kind == "digest":
            digest = self.expect("digest")[1:]
            return Payload(self.arrays[digest]) if digest in self.arrays else Payload.absent(digest)
        if token.kind == "word":
            return self.worded(hint)
        if token.text == "[":
            return self.group("[", "]", self.literal)
        if token.text == "{":
            return self.mapping()
        if token.text == "(":
            return tuple(self.group("(", ")", self.literal))
        raise self.error(f"expected a value, found {token.text or 'the end'!r}")

    def worded(self, hint: Any) -> Any:
        word = self.expect("word")
        if word in WORDS:
            return WORDS[word]
        if word == "ints":
            dtype = self.dtype()
            return Payload(np.array(self.literal(), dtype))
        if word == "packed":
            return self.packed()
        head, _, member = word.partition(".")
        if head in ENUMS and member in ENUMS[head].__members__:
            return ENUMS[head][member]
        for cls in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__name__ == word:
                inner = typing.get_type_hints(cls)
                return cls(**dict(self.group("(", ")", lambda inner=inner: self.field(inner))))
        raise self.error(f"{word!r} is no value", 1)

    def packed(self) -> Payload:
        dtype, shape = self.dtype(), self.literal()
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(base64.b64decode(self.expect("packed")[1:], validate=True), MAX_UNPACKED)
            steps = np.frombuffer(raw, "<i8")
            array = np.cumsum(steps).reshape(shape).astype(dtype)
        except (ValueError, TypeError, zlib.error) as e:
            raise self.error(f"a packed payload that cannot be read: {e}", 1) from None
        return Payload(array)
