"""Dot: op graphs as text that Graphviz draws, and back.

Takes: an OpGraph, perhaps its placement; or text. Gives: text; or an OpGraph. Runs when asked.
Source: depth-first placement, whose profiler wrote and read Graphviz files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from vgraph.errors import DataError, GraphError
from vgraph.files import read_text
from vgraph.partition.placement.op_graph import Ints, OpGraph, OpGraphBuilder

COLORS = ("#8dd3c7", "#fdb462", "#bebada", "#fb8072", "#80b1d3", "#b3de69", "#fccde5", "#d9d9d9", "#ffffb3", "#ccebc5")


def color_of(device: int) -> str:
    """The colour of a device in every picture."""
    return COLORS[device % len(COLORS)]


# ------------------------------------------------------------------ writing
def format_dot(graph: OpGraph, device_of: Ints | None = None) -> str:
    """One line an op (seconds by kind, results as number:bytes:marks) and one an edge.

    >>> from vgraph.partition.placement.op_graph import OpGraphBuilder
    >>> draft = OpGraphBuilder(("device",))
    >>> read = draft.add_tensor(draft.add_op("embed", [1e-3], []), 4096.0)
    >>> joined = draft.add_op("join", [2e-3], [read])
    >>> parse_dot(format_dot(draft.build())).names
    ('embed', 'join')
    """
    results: list[list[str]] = [[] for _ in graph.names]
    for tensor, op in enumerate(graph.tensor_op.tolist()):
        results[op].append(_format_tensor(graph, tensor))
    lines = ["digraph vgraph {", "  node [shape=box, style=filled, fillcolor=white];"]
    for op, name in enumerate(graph.names):
        seconds = " ".join(f"{kind}={float(graph.costs[k, op])!r}" for k, kind in enumerate(graph.kinds))
        parts = [f'cost="{seconds}"', f'results="{" ".join(results[op])}"']
        if graph.resident[op]:
            parts.append(f"resident={float(graph.resident[op])!r}")
        if graph.group[op] >= 0:
            parts.append(f"group={graph.group[op]}")
        if device_of is not None:
            parts += [f"device={device_of[op]}", f'fillcolor="{color_of(int(device_of[op]))}"']
        lines.append(f"  {_quote(name)} [{', '.join(parts)}];")
    for tensor, op in zip(graph.edge_tensor.tolist(), graph.edge_op.tolist(), strict=True):
        source = _quote(graph.names[graph.tensor_op[tensor]])
        label = float(graph.tensor_bytes[tensor])
        lines.append(f"  {source} -> {_quote(graph.names[op])} [tensor={tensor}, bytes={label!r}];")
    return "\n".join([*lines, "}"]) + "\n"


def _format_tensor(graph: OpGraph, tensor: int) -> str:
    marks = [str(tensor), repr(float(graph.tensor_bytes[tensor]))]
    marks += ["kept"] if graph.tensor_kept[tensor] else []
    marks += ["held"] if graph.tensor_held[tensor] else []
    root = int(graph.tensor_root[tensor])
    return ":".join(marks if root == tensor else [*marks, f"view{root}"])


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ------------------------------------------------------------------ reading
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<mark>->|[\[\]{}=,;])|(?P<word>[\w.+\-*/:]+)""",
    re.DOTALL,
)


@dataclass
class _Draft:
    """What a file says, before it is checked."""

    ops: dict[str, tuple[int, Mapping[str, str]]] = field(default_factory=dict[str, tuple[int, Mapping[str, str]]])
    edges: list[tuple[int, str, str, Mapping[str, str]]] = field(
        default_factory=list[tuple[int, str, str, Mapping[str, str]]]
    )


def read_dot(path: str | Path) -> OpGraph:
    """The op graph of a file; ``parse_dot`` says what it may hold and what is refused."""
    return parse_dot(read_text(path), str(path))


def parse_dot(text: str, name: str = "dot") -> OpGraph:
    """Reads a digraph: what ``format_dot`` wrote, or one whose ops have ``cost`` and whose edges have ``bytes``.

    Raises:
        DataError: the text is no digraph of operators; ``line`` names file and line.
        GraphError: an operator that no edge reaches, or that is not declared.
        CycleError: operators that wait for one another.
    """
    draft = _Reader(text, name).read()
    kinds = _kinds(draft, name)
    builder, op_of, tensor_of = OpGraphBuilder(kinds), dict[str, int](), dict[str, int]()
    groups: dict[str, int] = {}
    for op, (line, given) in draft.ops.items():
        seconds = _seconds(given.get("cost", "0"), kinds, f"{name}:{line}")
        op_of[op] = builder.add_op(op, seconds, resident=_number(given.get("resident", "0"), f"{name}:{line}"))
        if "group" in given:
            builder.keep_together(groups.setdefault(given["group"], op_of[op]), op_of[op])
    for op, (line, given) in draft.ops.items():
        for result in given.get("results", "").split():
            number, size, *marks = (result + ":0" * (":" not in result)).split(":")
            view = next((m.removeprefix("view") for m in marks if m.startswith("view")), None)
            if number in tensor_of or (view is not None and view not in tensor_of):
                cure = "number results 0, 1, 2, ..., and name views after what they are views of"
                raise DataError(
                    f"result {result!r} is there twice, or a view of none", line=f"{name}:{line}", cure=cure
                )
            root = None if view is None else tensor_of[view]
            bytes_ = _number(size, f"{name}:{line}")
            tensor_of[number] = builder.add_tensor(op_of[op], bytes_, root, "kept" in marks, "held" in marks)
    _add_edges(draft, builder, op_of, tensor_of, name)
    _check_reached(draft, name)
    return builder.build()


def _add_edges(
    draft: _Draft, builder: OpGraphBuilder, op_of: Mapping[str, int], tensor_of: dict[str, int], name: str
) -> None:
    """An edge without a tensor's number carries the one result of its source: the largest bytes that any names."""
    sizes: dict[str, float] = {}
    for line, source, _, given in draft.edges:
        if "tensor" not in given:
            sizes[source] = max(sizes.get(source, 0.0), _number(given.get("bytes", "0"), f"{name}:{line}"))
    for line, source, target, given in draft.edges:
        for end in (source, target):
            if end not in op_of:
                raise GraphError(
                    f"an edge names the operator {end!r}, which is not declared",
                    line=f"{name}:{line}",
                    cure="declare it with its cost, as in: a [cost=0.001];",
                )
        number = given.get("tensor", f"of {source}")
        if number not in tensor_of:
            tensor_of[number] = builder.add_tensor(op_of[source], sizes.get(source, 0.0))
        builder.add_read(op_of[target], tensor_of[number])


def _check_reached(draft: _Draft, name: str) -> None:
    """An operator without an edge, among others that have some, is a mistake in the file."""
    touched = {end for _, source, target, _ in draft.edges for end in (source, target)}
    for op, (line, given) in draft.ops.items():
        if draft.edges and op not in touched and "results" not in given:
            raise GraphError(
                f"operator {op!r} is unreachable: no edge leads to it or from it",
                line=f"{name}:{line}",
                cure="add the edge that is missing, or remove the operator",
            )


def _kinds(draft: _Draft, name: str) -> tuple[str, ...]:
    if not draft.ops:
        raise DataError(f"{name} declares no operator", cure="write one line an operator, as in: a [cost=0.001];")
    given = next(iter(draft.ops.values()))[1].get("cost", "0")
    return tuple(part.partition("=")[0] for part in given.split()) if "=" in given else ("device",)


def _seconds(text: str, kinds: tuple[str, ...], where: str) -> list[float]:
    if "=" not in text:
        return [_number(text, where)] * len(kinds)
    found: dict[str, str] = {}
    for part in text.split():
        kind, _, number = part.partition("=")
        found[kind] = number
    if set(found) != set(kinds):
        raise DataError(
            f"costs on {', '.join(found)} where the first has {', '.join(kinds)}",
            line=where,
            cure="give every operator a cost on every kind of device; inf where it cannot run",
        )
    return [_number(found[kind], where) for kind in kinds]


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
        if math.isnan(value):
            raise ValueError(text)
        return value
    except ValueError:
        raise DataError(f"{text!r} is no number", line=where, cure="write seconds and bytes as numbers") from None


class _Reader:
    """A digraph's statements, one after another."""

    def __init__(self, text: str, name: str) -> None:
        self.name, self.tokens = name, _tokens(text, name)
        self.line, self.kind, self.value = 1, "", ""
        self._next()

    def read(self) -> _Draft:
        draft = _Draft()
        self._word("digraph")
        if not self._is("{"):
            self._next()
        self._mark("{")
        while not self._is("}"):
            self._statement(draft)
            while self._is(";"):
                self._next()
        return draft

    def _statement(self, draft: _Draft) -> None:
        line, chain = self.line, [self._id()]
        if self._is("=") and self.kind == "mark":  # rankdir=LR
            self._next()
            self._id()
            return
        while self._is("->"):
            self._next()
            chain.append(self._id())
        given = self._attributes()
        if len(chain) > 1:
            draft.edges += [(line, a, b, given) for a, b in pairwise(chain)]
        elif chain[0] in draft.ops:
            raise DataError(
                f"operator {chain[0]!r} is declared twice", line=f"{self.name}:{line}", cure="give it one line"
            )
        elif chain[0] not in ("node", "edge", "graph"):
            draft.ops[chain[0]] = (line, given)

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._is("["):
            self._next()
            while not self._is("]"):
                key = self._id()
                self._mark("=")
                found[key] = self._id()
                while self._is(",") or self._is(";"):
                    self._next()
            self._next()
        return found

    def _id(self) -> str:
        if self.kind not in ("word", "text") or (self.kind == "word" and self.value == "subgraph"):
            self._refuse("a name")
        value = self.value
        self._next()
        return value

    def _word(self, word: str) -> None:
        if self.value != word:
            self._refuse(word)
        self._next()

    def _is(self, mark: str) -> bool:
        return self.kind == "mark" and self.value == mark

    def _mark(self, mark: str) -> None:
        if not self._is(mark):
            self._refuse(mark)
        self._next()

    def _refuse(self, wanted: str) -> None:
        found = self.value or "the end"
        raise DataError(
            f"{found!r} where {wanted!r} should stand",
            line=f"{self.name}:{self.line}",
            cure="write a plain digraph: operators with cost, edges with bytes, no subgraphs",
        )

    def _next(self) -> None:
        self.line, self.kind, self.value = next(self.tokens)


def _tokens(text: str, name: str) -> Iterator[tuple[int, str, str]]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DataError(
                f"{text[position]!r} is not understood", line=f"{name}:{line}", cure="write a plain digraph"
            )
        kind = match.lastgroup or ""
        if kind != "space":
            value = match[kind]
            yield line, kind, re.sub(r"\\(.)", r"\1", value) if kind == "text" else value
        line += match[0].count("\n")
        position = match.end()
    while True:
        yield line, "end", ""
