"""Parts by type: a vertex function's view of the vertices of one type, and rows of all types put together.

Takes: the Vertex of a whole graph. Gives: one of a part. Runs while a function is traced. What is here runs beneath
``ByType``; captured functions watch the code of that one, as it calls the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from vgraph.api.vertex.vertex import Vertex
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.errors import FunctionError
from vgraph.ir.moves import Gather, Move, PutSlot, SegmentReduce, Select, Spread, TakeSlot
from vgraph.ir.space import EDGE, VERTEX, Space, part_of


def spaces_of_parts(keys: Iterable[str]) -> tuple[Space, ...]:
    """The spaces of vertices and edges of each type."""
    return tuple(part_of(space, key) for key in keys for space in (VERTEX, EDGE))


class PartVertex(Vertex):
    """A vertex function's view of the vertices of one type."""

    def __init__(self, whole: Vertex, key: str) -> None:
        session = _PartSession(whole.session, key)
        super().__init__(session, whole.states, whole.find)  # pyright: ignore[reportArgumentType]
        self._whole, self._part = whole, session
        self.gather_lines = whole.gather_lines

    def child_state(self, name: str) -> RowTensor:
        slots = plain(self._whole.child_state(name))
        picked = move_rows(self._part.whole, Select("edge", self._part.key), slots)
        return as_rows(picked, EDGE, self._part)


class _Needs:
    """``gather(k)`` of one type asks nothing of the others' vertices."""

    def __init__(self, needs: set[int | tuple[int, str]], key: str) -> None:
        self._needs, self._key = needs, key

    def add(self, k: int) -> None:
        self._needs.add((k, self._key))


class _PartSession:
    """A Session whose Moves touch the vertices of one type."""

    mailbox: tuple[int, int] | None = None
    per_vertex = True

    def __init__(self, whole: Session, key: str) -> None:
        self.whole, self.key = whole, key
        self.num_vertices = whole.sizes[part_of(VERTEX, key)]
        self.num_slots_needed = _Needs(whole.num_slots_needed, key)
        self.widens, self.guesses_whole = whole.widens, whole.guesses_whole

    @property
    def row_sizes(self) -> frozenset[int]:
        return self.whole.row_sizes

    @property
    def asked(self) -> Asked:
        return self.whole.asked

    def note_branch(self) -> None:
        self.whole.note_branch()

    def note_count(self) -> None:
        self.whole.note_count()

    def note_look(self, name: str) -> None:
        self.whole.note_look(name)

    def note_whole(self, name: str) -> None:
        self.whole.note_whole(name)

    def note_mixed(self, error: FunctionError) -> None:
        self.whole.note_mixed(error)

    def is_numbering(self, numbers: Tensor) -> bool:
        return self.whole.is_numbering(numbers)

    def _select(self, kind: str, rows: Tensor) -> Tensor:
        return move_rows(self.whole, Select(kind, self.key), rows)

    def input(self, name: str) -> RowTensor:
        rows = self.whole.input(name)
        space = rows.vg_space
        if space in (VERTEX, EDGE):
            return as_rows(self._select(space.kind, plain(rows)), space, self)
        return as_rows(plain(rows), space, self)

    def in_degree(self) -> Tensor:
        return self._select("vertex", self.whole.in_degree())

    def slots(self) -> Tensor:
        return self._select("edge", self.whole.slots())

    def run_move(self, move: Move, rows: Tensor) -> Any:
        if isinstance(move, (TakeSlot, PutSlot)) or _is_within(move):
            return self.whole.run_move(replace(move, part=self.key), rows)
        if isinstance(move, Gather):  # from a graph or a subset to all vertices, then to mine
            return self.whole.run_move(Select("vertex", self.key), self.whole.run_move(move, rows))
        return self.whole.run_move(move, self.whole.run_move(Spread("vertex", self.key), rows))


def _is_within(move: Move) -> bool:
    """Whether it goes between all vertices and their in-edges."""
    return isinstance(move, (Gather, SegmentReduce)) and move.end == "dst" and not move.part


def joined(v: Vertex, parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of all types at their vertices: each spread over zeros, added up."""
    joined: dict[str, Tensor] = {}
    for key, named in parts.items():
        for name, rows in named.items():
            whole = move_rows(v.session, Spread("vertex", key), plain(rows))
            joined[name] = whole if name not in joined else joined[name] + whole
    return {name: as_rows(rows, VERTEX, v.session) for name, rows in joined.items()}
