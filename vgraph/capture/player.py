"""Player: plays again, on a session's examples, what a user's function did when it was noted call by call.

Takes: events (calls of torch functions, features read, states scattered). Gives: their results on examples. Runs
once a function: when it is noted, and when its Programs are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.capture.record.example_sizes import sizes_for
from vgraph.capture.record.modes import CPU, autocast_kind
from vgraph.capture.record.row_counts import plain_number
from vgraph.capture.rows.row_tensor import as_rows, plain
from vgraph.capture.rows.slot_reductions import move_rows
from vgraph.capture.session import Session
from vgraph.ir.moves import Gather
from vgraph.ir.space import EDGE, GRAPH, SHARED, SOURCE, VERTEX, Space

Leaf = tuple[Any, ...]  # an argument or a result in words: ("const", value), ("probe", number), ("tuple", leaves) ...
Event = tuple[Any, ...]  # an action, its arguments and keywords as leaves, the modes; of some a line
SPACES = {"src": SOURCE, "dst": VERTEX, "vertex": VERTEX, "edge": EDGE, "graph": GRAPH, "shared": SHARED}


class PlayedVertex(Protocol):
    """What a vertex function was given: its methods are played by name."""

    def gather(self, k: int | None = None, *, default: float | None = None) -> Mapping[str, Tensor]: ...


class Player:
    """Plays events on a session; tensors that come out are numbered in order."""

    def __init__(self, session: Session, vertex: PlayedVertex | None = None) -> None:
        self.session, self.vertex, self.results = session, vertex, list[Tensor]()

    def play(self, event: Event) -> Leaf:
        """What the event gives, as a tree of ("probe", number, shape, dtype) and ("const", value)."""
        action, args, kwargs, (grad, enabled, dtype, *_), *line = event
        self.session.tracer.line = line[0] if line else ""
        kind = autocast_kind(self.session.tracer.device or CPU)
        with torch.set_grad_enabled(grad), torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False):
            given = [self.get(arg) for arg in args]
            named = {name: self.get(arg) for name, arg in kwargs}
            do = getattr(self, action, None) or getattr(self.session, action) if isinstance(action, str) else action
            out = _call(do, given, named)
        return self._put(out)

    def get(self, leaf: Leaf) -> Any:
        kind, *rest = leaf
        if kind == "probe":
            return self.results[rest[0]]
        if kind == "lifted":
            return plain(self.session.input(f"shared:{rest[0]}"))
        if kind == "plain":
            return plain(self.results[rest[0]])
        if kind == "slice":
            return slice(*(self.get(item) for item in rest[0]))
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(self.get(item) for item in rest[0])
        return rest[0]

    def _put(self, out: object) -> Leaf:
        if isinstance(out, Tensor):
            self.results.append(out)
            bare = plain(out)
            return "probe", len(self.results) - 1, tuple(bare.shape), bare.dtype
        if isinstance(out, torch.Size):
            return "const", tuple(map(plain_number, out))  # numbers for Dynamo, which nobody compares here
        if isinstance(out, (tuple, list)):
            kind = type(out).__name__.rpartition(".")[2] if hasattr(out, "_fields") or hasattr(out, "n_fields") else ""
            return "items", tuple(self._put(item) for item in out), kind
        number = plain_number(out)
        return "const", int.__int__(number) if isinstance(number, int) and type(number) is not bool else number

    # ------------------------------------------------------------ what is not a torch function
    def column(self, name: str) -> Tensor:
        """A feature's rows, at the ends of edges where a message reads them."""
        kind = name.partition(":")[0]
        rows = self.session.input(name)
        if kind not in ("src", "dst"):
            return rows
        return as_rows(move_rows(self.session, Gather(kind), plain(rows)), EDGE, self.session)

    def at_vertex(self, name: str) -> Tensor:
        return self.session.input(name)

    def ids(self, name: str, kind: str | Space) -> Tensor:
        return self.session.ids(name, SPACES[kind] if isinstance(kind, str) else kind)

    def mailbox(self, message: Tensor) -> Tensor:
        rows, mailbox = plain(message), self.session.mailbox
        assert mailbox is not None
        return as_rows(rows.reshape(*mailbox, *rows.shape[1:]), VERTEX, self.session)

    def checked(self) -> None:
        self.session.note_checked()

    def on_vertex(self, method: str, *args: object, **kwargs: object) -> object:
        """pull, pull_edge, pull_graph, scatter, push or in_degree of ``v``."""
        found = getattr(self.vertex, method)
        return found(*args, **kwargs) if callable(found) and not isinstance(found, Tensor) else found

    def gathered(self, name: str, k: int | None, default: float | None) -> Tensor:
        assert self.vertex is not None
        return self.vertex.gather(k, default=default)[name]


def _call(function: Callable[..., object], args: list[object], kwargs: dict[str, object]) -> object:
    """A method of tensors is looked up on the tensor: rows have some of their own."""
    if type(function).__name__ == "method_descriptor" and args and isinstance(args[0], Tensor):
        return getattr(args[0], function.__name__)(*args[1:], **kwargs)
    return function(*args, **kwargs)


def which_sizes(session: Session) -> int:
    """0 for the first examples, 1 for those of the other size."""
    first = sizes_for(False)[0]
    return 0 if session.tracer.recording.sizes[VERTEX] == first[VERTEX] else 1
