"""What bodies run on while their traces are looked up: a session that knows what its steps gave before.

Takes: what a body asks of a session, calls of torch functions. Gives: fake rows, by a Cursor; and the same steps
played on a session of examples. Runs at every call of a function whose reads no guard can watch. Source: docs/adr/0026.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vgraph.capture.body import Body, Given
from vgraph.capture.errors import CaptureError, OutsideWriteError
from vgraph.capture.guards.asked_features import Asked
from vgraph.capture.lookup.fake_rows import FakeRows
from vgraph.capture.lookup.trace_tree import Cursor
from vgraph.capture.player import Event, Leaf, Player, which_sizes
from vgraph.capture.record.aliases import share_memory
from vgraph.capture.record.op_tables import writes_in_place
from vgraph.capture.record.row_counts import counts_rows
from vgraph.capture.rows.row_tensor import RowContext, RowTensor, TorchFunction, as_rows, plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.ir.moves import Move
from vgraph.ir.space import EDGE, VERTEX, Space
from vgraph.user_line import recorded_line


class SessionPlayer(Player):
    """Plays what bodies ask of a session, beside torch functions."""

    def _context(self, kind: Callable[..., RowContext] | None = None, key: str = "") -> RowContext:
        return self.session if kind is None else kind(self.session, key)

    def input(self, name: str, _look: object) -> Tensor:
        return self.session.input(name)

    def rows(self, tensor: Tensor, space: Space, *part: Any) -> Tensor:
        return as_rows(plain(tensor), space, self._context(*part))

    def brought(self, tensor: RowTensor, space: Space) -> Tensor:
        return tensor.brought_to(space)

    def moved(self, tensor: Tensor, move: Move, *part: Any) -> Tensor:
        return move_rows(self._context(*part), move, tensor)

    def needs(self, element: int | tuple[int, str]) -> None:
        self.session.num_slots_needed.add(element)


@dataclass(eq=False)
class ReplayedBody:
    """A Body that plays a trace: the same for every call that took it."""

    name: str
    mailbox: bool | int
    per_vertex: bool
    spaces: tuple[Space, ...]
    events: tuple[Sequence[Event], Sequence[Event]]  # for examples of either size
    outputs: tuple[Leaf, ...]
    carries: tuple[tuple[int, str, Move], ...]
    num_outputs: int
    known_facts: object

    def run(self, session: Session) -> Given:
        player = SessionPlayer(session)
        for event in self.events[which_sizes(session)]:
            player.play(event)
        outputs = [plain(player.get(leaf)) for leaf in self.outputs]
        return Given(outputs, [(i, session.leaf(name), move) for i, name, move in self.carries], self.num_outputs)

    def facts(self) -> object:
        return self.known_facts


# ---------------------------------------------------------------- what bodies run on
class _Needs:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def add(self, element: object) -> None:
        self._cursor.note("needs", (element,), {})


@dataclass(frozen=True)
class NamedLeaf:
    """What a carry feeds, by name."""

    name: str


class LookupSession:
    """A Session that knows what its steps gave before; see ``session.Session`` for what each method gives.

    ``sizes``: numbers of rows, each as on the examples of either size.
    """

    widens = guesses_whole = False
    mixed = None  # what is looked up was recorded, and refused then

    def __init__(self, body: Body, sizes: Mapping[Space, int], cursor: Cursor, find: Callable[[str], Tensor]) -> None:
        self.cursor, self._find, self.per_vertex, self.sizes = cursor, find, body.per_vertex, sizes
        self.mailbox = None if body.mailbox is False else (self.sizes[VERTEX], self.sizes[EDGE] // self.sizes[VERTEX])
        self.num_vertices = self.sizes[VERTEX]
        self.row_sizes: frozenset[int] = frozenset()
        self.num_slots_needed, self.asked = _Needs(cursor), Asked()
        self.inputs: dict[str, Tensor] = {}

    def note(self, action: str, *args: object) -> Any:
        return self.cursor.note(action, args, {})

    def row_count(self, size: int) -> int:
        self.cursor.counts = True
        return self.cursor.given.given(size)

    def input(self, name: str) -> Tensor:
        tensor = self.inputs.get(name)
        if tensor is None:
            tensor = self.inputs[name] = self._find(name)
        look = (tuple(tensor.shape[1:]), tensor.dtype, tensor.requires_grad)
        return self.note("input", name, look)

    def child(self, name: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.note("child", name, row_shape, dtype)

    def leaf(self, name: str) -> NamedLeaf:
        return NamedLeaf(name)

    def ids(self, name: str, space: Space) -> Tensor:
        return self.note("ids", name, space)

    def in_degree(self) -> Tensor:
        return self.note("in_degree")

    def slots(self) -> Tensor:
        return self.note("slots")

    def note_checked(self) -> None:
        self.note("checked")

    def note_branch(self) -> None:
        raise CaptureError("it branches on a number of rows or slots", recorded_line())

    def note_count(self) -> None:
        self.cursor.counts = True

    def note_look(self, name: str) -> None:
        raise CaptureError(f"{name} looks at the data of a tensor", recorded_line())

    def note_whole(self, name: str) -> None:
        raise CaptureError(f"what {name} does to rows is not described", recorded_line())


class OnFakeRows(TorchFunctionMode):
    """Sees every torch function: those on fake rows are steps, as are those that are given numbers of rows.

    All others run, on tensors from outside and on what was made of those.
    """

    def __init__(self, cursor: Cursor) -> None:
        super().__init__()
        self.cursor = cursor
        self.own: dict[int, Tensor] = {}  # made by the function, in memory of its own

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Collection[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        cursor, named = self.cursor, kwargs or {}
        if cursor.playing:
            return func(*args, **named)
        if FakeRows in types or counts_rows(args) or (named and counts_rows(named.values())):
            return cursor.call(func, args, named)
        if writes_in_place(func) or named.get("out") is not None:
            written = named.get("out", args[0] if args else None)
            if isinstance(written, Tensor) and id(written) not in self.own:
                raise OutsideWriteError("a tensor from outside the function is written in place", recorded_line())
            cursor.keep_as_they_are()
        out = func(*args, **named)
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor) and not self._is_view(tensor, (*args, *named.values())):
                self.own[id(tensor)] = tensor
        return out

    def _is_view(self, tensor: Tensor, given: Iterable[object]) -> bool:
        """Whether it lies in the memory of a tensor from outside."""
        outside = [leaf for leaf in given if isinstance(leaf, Tensor) and id(leaf) not in self.own]
        return any(share_memory(tensor, leaf) for leaf in outside)
