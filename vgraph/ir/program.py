"""Program: typed dataflow on rows.

Takes: ops recorded once a function. Gives: the value that every stage reads. Runs once per function.
Source: Cavs section 3.1 (vertex functions), DGL section 3 (message passing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch


@dataclass(frozen=True)
class Space:
    """What the rows of a value are; ``key`` tells several spaces of one kind apart."""

    kind: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.key}" if self.key else self.kind


SHARED = Space("shared")  # parameters and numbers: no rows
GRAPH = Space("graph")  # one row a graph of the batch
VERTEX = Space("vertex")  # one row a vertex where the function is evaluated
SOURCE = Space("source")  # one row a vertex at the tail of edges; never sliced by a frontier
EDGE = Space("edge")  # one row an edge, in order of destination rows
INNER = Space("inner")  # one row a vertex that has in-edges: the last rows under a policy with frontiers
SLOT = Space("slot")  # a position in a mailbox: a dim beside VERTEX, never rows of its own


OF_LEAVES = "|leaves"  # ends the name of a subset that holds the vertices without in-edges, in order


def subset(name: str) -> Space:
    """Rows given for some vertices only (``vgraph.at``), and one row of zeros for the rest."""
    return Space("subset", f"@{name}")


def part_of(space: Space, part: str) -> Space:
    """The rows of ``space`` (vertex or edge) that belong to vertices of one type; "": all."""
    return Space(space.kind, part)


@dataclass(frozen=True)
class Rows:
    """A symbolic size: ``times`` entries for each row of ``space``; the row is the slow factor."""

    space: Space
    times: int = 1

    def __str__(self) -> str:
        return f"{self.times}*{self.space}" if self.times != 1 else str(self.space)


Dim = int | Rows


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of a Program; compared by identity."""

    id: int
    space: Space
    dtype: torch.dtype
    shape: tuple[Dim, ...]
    line: str = ""

    @cached_property
    def row_dim(self) -> int | None:
        """The position of the dim that counts rows, or None."""
        return next((i for i, d in enumerate(self.shape) if isinstance(d, Rows)), None)

    @cached_property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row: the factor inside the row dim first, where it is not 1."""
        rows = [d for d in self.shape if isinstance(d, Rows)]
        inner = [r.times for r in rows if r.times != 1]
        return (*inner, *(d for d in self.shape if isinstance(d, int)))

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row (of the whole tensor, if SHARED)."""
        return math.prod(self.row_shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"%{self.id}"


Target = Any  # an aten OpOverload, a Move of ir.moves or a Random of ir.moves


@dataclass(frozen=True, eq=False)
class Op:
    """``results = target(*args, **kwargs)``; args hold Values, Rows and constants, nested."""

    target: Target
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Value, ...]
    line: str = ""
    returns_sequence: bool = False
    is_rowwise: bool = True  # False: needs all its rows at once, or is not described by TDL

    def operands(self) -> Iterator[Value]:
        """Every Value among the arguments, in order, repeats included."""
        return iter(self._operands)

    @cached_property
    def _operands(self) -> tuple[Value, ...]:
        found: list[Value] = []
        for part in (*self.args, *self.kwargs.values()):
            _collect(part, found)
        return tuple(found)


def _collect(tree: Any, found: list[Value]) -> None:
    if isinstance(tree, Value):
        found.append(tree)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            _collect(item, found)


def map_leaves(tree: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest of tuples and lists with every leaf replaced."""
    if isinstance(tree, tuple):
        items = tuple(map_leaves(item, function) for item in tree)
        return items if type(tree) is tuple else _like_tuple(tree, items)
    if isinstance(tree, list):
        return [map_leaves(item, function) for item in tree]
    return function(tree)


def _like_tuple(tree: Any, items: tuple[Any, ...]) -> Any:
    """Named tuples and torch's return types keep their names."""
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def needed_ops(ops: Sequence[Op], wanted: Iterable[int], given: Container[int] = ()) -> tuple[Op, ...]:
    """The ops that lead to values of ids ``wanted``, in order; those of ids ``given`` come from elsewhere."""
    needed, kept = set(wanted), list[Op]()
    for op in reversed(ops):
        if any(v.id in needed and v.id not in given for v in op.results):
            kept.append(op)
            needed.update(v.id for v in op.operands())
    return tuple(reversed(kept))


@dataclass(frozen=True, eq=False)
class Carry:
    """``source`` feeds ``target`` along the edges, through ``move``: what makes frontiers."""

    source: Value
    target: Value
    move: Any


@dataclass(frozen=True, eq=False)
class Input:
    """A Value given from outside: by the caller, or by the topology (a name that begins with $)."""

    value: Value
    name: str

    @property
    def is_topological(self) -> bool:
        return self.name.startswith("$")


@dataclass(frozen=True, eq=False)
class Program:
    """Inputs, ops in an order that respects dataflow, outputs (None: no such value) and carries."""

    name: str
    inputs: tuple[Input, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Value | None, ...]
    carries: tuple[Carry, ...] = ()

    def producers(self) -> dict[int, Op]:
        """Value id to the op that makes it."""
        return {value.id: op for op in self.ops for value in op.results}
