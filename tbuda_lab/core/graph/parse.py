"""Reads the text that `print_graph` writes. No code is executed: ops come from the registry, values are literals."""

from __future__ import annotations

import ast
import base64
import dataclasses
import math
import re
import typing
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import Budget, shape_text, size_text
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph.graph import Edge, Graph, GraphError, Node, NodeKind, Origin
from tbuda_lab.core.graph.op import REGISTRY, Op, Payload
from tbuda_lab.core.graph.text import DIGEST, MAX_FILL, ORIGIN_KEYS, PACKED
from tbuda_lab.core.graph.tm import TM

TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*)|(?P<line>\n)|(?P<string>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.])|-inf\b)|(?P<word>[A-Za-z_][\w.\-/]*)"
    r"|(?P<packed>~[A-Za-z0-9+/=]+)|(?P<digest>\#[0-9a-f]+)|(?P<mark>[=:(){}\[\],|@])"
)
ESCAPE = re.compile(r"\\(?:[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
WORDS: dict[str, Any] = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
ENUMS = {"DataFormat": DataFormat, "MathFidelity": MathFidelity}
KINDS = {kind.value: kind for kind in NodeKind if kind is not NodeKind.OP}
MAX_UNPACKED = 8 * PACKED
"""Bytes a packed payload may unpack to: longer ones are written by digest."""
MAX_MADE = 1 << 29
"""Bytes of arrays that a text may ask for without writing them out (`fill`, `packed`), all together; each `fill` at
most the `MAX_FILL` that graphs are printed with."""
MAX_RANK, MAX_SIZE, MAX_NUMBER = 64, 1 << 48, 400
_UNFIT = (ValueError, TypeError, OverflowError, AttributeError, LookupError, ArithmeticError, MemoryError, zlib.error)
"""What constructors and NumPy raise about values that do not fit."""


class Token(NamedTuple):
    """A word, number or sign of the text, with its line."""

    kind: str
    text: str
    line: int


class GraphSyntaxError(GraphError):
    """Text that is not a graph; the message starts with the line number."""


def parse_graph(text: str, arrays: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that `text` describes.

    arrays: values by digest (see `array_table`); nodes whose array is not there get none and keep the digest in their
    attributes. Raises `GraphSyntaxError` with the line for text that is not a graph, or asks for more than `MAX_MADE`.
    """
    parser = _Parser(_tokens(text), arrays or {})
    try:
        graph = parser.graph()
        parser.expect("end")
    except RecursionError:
        raise parser.error("nested too deeply") from None
    return graph


def _tokens(text: str) -> Iterator[Token]:
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise GraphSyntaxError(f"line {line}: cannot read {text[at : at + 20]!r}")
        kind = match.lastgroup or ""
        if kind == "line":
            line += 1
        elif kind != "skip":
            yield Token(kind, match.group(), line)
        at = match.end()
    while True:
        yield Token("end", "", line)


class _Parser:
    def __init__(self, tokens: Iterator[Token], arrays: Mapping[str, np.ndarray]) -> None:
        self.tokens = tokens
        self.token = self.last = next(tokens)  # what is next, and what was before it
        self.arrays = arrays
        self.budget = Budget("the graph", MAX_MADE)

    # -- tokens ----------------------------------------------------------------------------------------------
    def error(self, message: str, back: int = 0) -> GraphSyntaxError:
        """An error at the token that is next, or, with `back`, at the one before."""
        return GraphSyntaxError(f"line {(self.last if back else self.token).line}: {message}")

    def step(self) -> None:
        self.last, self.token = self.token, next(self.tokens)

    def expect(self, kind: str, text: str | None = None) -> str:
        token = self.token
        if token.kind != kind or (text is not None and token.text != text):
            raise self.error(f"expected {text or kind}, found {token.text or 'the end'!r}")
        self.step()
        return token.text

    def accept(self, text: str) -> bool:
        if self.token.kind in ("mark", "word") and self.token.text == text:
            self.step()
            return True
        return False

    def name(self) -> str:
        if self.token.kind == "string":
            return self.string()
        return self.expect("word")

    def string(self) -> str:
        text = self.expect("string")
        if "\\" not in text:
            return text[1:-1]
        try:
            if "\\" in ESCAPE.sub("", text):
                raise ValueError("an escape that is none")
            return str(ast.literal_eval(text))
        except (ValueError, SyntaxError):
            raise self.error(f"{text[:40]} is not text: an escape in it is unknown", 1) from None

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
        if len(shape) > MAX_RANK or not all(0 <= n < MAX_SIZE for n in shape):
            raise self.error(f"no tensor has the shape {shape_text(shape)} of {name!r}", 1)
        node = Node(name, kind, shape, operation, inputs)
        if self.accept("df"):
            word = self.expect("word")
            if word not in DataFormat.__members__:
                raise self.error(f"{word!r} is not a data format; known: {', '.join(DataFormat.__members__)}", 1)
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
            raise self.error(f"{type_name!r} is not a known op", 1)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        if self.token.text == "[":
            field_names = {f.name for f in dataclasses.fields(cls)}
            for key, value in self.group("[", "]", lambda: self.field(hints)):
                if key not in field_names:
                    allowed = ", ".join(sorted(field_names))
                    raise self.error(f"op {type_name!r} has no attribute {key!r}; it has {allowed}", 1)
                values[key] = value
        try:
            return cls(**values)
        except _UNFIT as e:
            raise self.error(f"{type_name}: {e}", 1) from None

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
        words = self.mapping()
        unknown = set(words) - set(ORIGIN_KEYS)
        if unknown:
            raise self.error(f"an origin has no {', '.join(sorted(unknown))}; it has {', '.join(ORIGIN_KEYS)}", 1)
        return Origin(**{ORIGIN_KEYS[key]: str(value) for key, value in words.items()})

    # -- values ----------------------------------------------------------------------------------------------
    def value(self, node: Node) -> str:
        """Reads the array of a node into it; returns its type and digest if the array is not at hand."""
        dtype = self.dtype()
        try:
            if self.token.text == "[":
                node.value = np.array(self.literal(), dtype).reshape(node.shape)
                return ""
            if self.accept("fill"):
                if math.prod(node.shape) * dtype.itemsize > MAX_FILL:
                    raise self.error(
                        f"the value of {node.name!r}: fill makes {size_text(MAX_FILL)} at most, not "
                        f"{shape_text(node.shape)} of {dtype}",
                        1,
                    )
                self.budget.take_array(node.shape, dtype.itemsize, f"the value of {node.name!r}")
                node.value = np.full(node.shape, self.literal(), dtype)
                return ""
            if self.accept("packed"):
                node.value = self.packed_value(node, dtype)
                return ""
        except (*_UNFIT, InputError) as e:
            raise self.error(f"the value of {node.name!r}: {e}", 1) from None
        digest = self.expect("digest")
        node.value = self.arrays.get(digest[1:])
        if node.value is not None and tuple(node.value.shape) != node.shape:
            raise self.error(f"{node.name!r} has shape {node.shape}, the array for {digest} {node.value.shape}", 1)
        return f"{dtype} {digest}" if node.value is None else ""

    def packed_value(self, node: Node, dtype: np.dtype[Any]) -> np.ndarray:
        """The array of a node that stands in the text. Raises what values that do not fit raise."""
        size = math.prod(node.shape) * dtype.itemsize
        self.budget.take_array(node.shape, dtype.itemsize, f"the value of {node.name!r}")
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(self.expect("packed")[1:], validate=True), size + 1)
        if len(raw) != size or not unpacker.eof:
            raise ValueError(f"what is packed is not {shape_text(node.shape)} of {dtype}")
        return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(node.shape)

    def dtype(self) -> np.dtype[Any]:
        word = self.expect("word")
        try:
            dtype = np.dtype(word)
        except _UNFIT:
            dtype = np.dtype(object)
        if dtype.kind not in "fiub":
            raise self.error(f"{word!r} is not a type of numbers", 1)
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
            return self.string()
        if token.kind == "number":
            text = self.expect("number")
            if len(text) > MAX_NUMBER:
                raise self.error(f"a number of {len(text)} characters, more than {MAX_NUMBER}", 1)
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if token.kind == "digest":
            digest = self.expect("digest")[1:]
            return Payload(self.arrays[digest]) if digest in self.arrays else Payload.absent(digest)
        if token.kind == "word":
            return self.word_value(hint)
        if token.text == "[":
            return self.group("[", "]", self.literal)
        if token.text == "{":
            return self.mapping()
        if token.text == "(":
            return tuple(self.group("(", ")", self.literal))
        raise self.error(f"expected a value, found {token.text or 'the end'!r}")

    def word_value(self, hint: Any) -> Any:
        word = self.expect("word")
        if word in WORDS:
            return WORDS[word]
        if word == "ints":
            dtype = self.dtype()
            try:
                return Payload(np.array(self.literal(), dtype))
            except _UNFIT as e:
                raise self.error(f"integers that are none: {e}", 1) from None
        if word == "packed":
            return self.packed_payload()
        head, _, member = word.partition(".")
        if head in ENUMS and member in ENUMS[head].__members__:
            return ENUMS[head][member]
        for cls in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__name__ == word:
                inner = typing.get_type_hints(cls)
                try:
                    return cls(**dict(self.group("(", ")", lambda inner=inner: self.field(inner))))
                except _UNFIT as e:
                    raise self.error(f"{word}: {e}", 1) from None
        raise self.error(f"{word!r} is not a value", 1)

    def packed_payload(self) -> Payload:
        dtype, shape = self.dtype(), self.literal()
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(base64.b64decode(self.expect("packed")[1:], validate=True), MAX_UNPACKED)
            if not unpacker.eof:
                raise ValueError(f"it is cut off, or has more than {PACKED} entries")
            self.budget.take(2 * len(raw), "a packed payload")
            steps = np.frombuffer(raw, "<i8")
            array = np.cumsum(steps).reshape(shape).astype(dtype)
        except (*_UNFIT, InputError) as e:
            raise self.error(f"a packed payload that cannot be read: {e}", 1) from None
        return Payload(array)
