"""Functions that join rows of nodes and edges by ids, captured as one: PyG's message, aggregate and update.

Takes: a topology, tensors by where their rows lie, a function of them. Gives: what it gives. Runs at every call.
Source: Fey and Lenssen 2019 (PyG), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from vgraph.api.messages.batches import as_raised
from vgraph.capture.body import Given
from vgraph.capture.capture import family_of, find_captured
from vgraph.capture.errors import CaptureError
from vgraph.capture.features import ENDS, Features
from vgraph.capture.rows.indexed_rows import IndexedRows, as_indexed, gathered
from vgraph.capture.rows.row_tensor import plain
from vgraph.capture.session import Session
from vgraph.ir.space import EDGE, VERTEX
from vgraph.ir.topology import Topology

Rows = Mapping[str, Mapping[str, Tensor]]  # "src", "dst" and "edge" to tensors with one row each


class Joined:
    """What a function that joins rows sees of a call."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def rows(self, kind: str, name: str) -> IndexedRows:
        """The rows of sources, destinations or edges themselves."""
        return as_indexed(self._session.input(f"{kind}:{name}"), self._session)

    def at_edges(self, end: str, name: str) -> IndexedRows:
        """For every edge the row of one end of it."""
        return as_indexed(gathered(self._session, self._session.input(f"{end}:{name}"), end), self._session)

    def ids(self, end: str) -> IndexedRows:
        """The ids of one end of every edge, (edges,)."""
        return as_indexed(self._session.ids(f"${end}_ids", EDGE), self._session, end)

    def count(self, end: str) -> int:
        """The number of sources or destinations."""
        return self._session.row_count(self._session.sizes[ENDS[end]])

    def has_drawn(self) -> bool:
        """Whether random numbers were drawn so far."""
        return self._session.tracer.recording.num_randoms > 0


Kept = dict[str, Tensor]
Out = Tensor | Sequence[Tensor]
Function = Callable[[Joined], tuple[Out, Kept]]
Facts = tuple["type | None", tuple[str, ...]]  # the kind of several tensors, and names of what is kept


class _UnguardedError(CaptureError):
    """The function would have to run at every call."""

    is_kept = False


class _JoinedBody:
    """A function of ``Joined`` as it is recorded."""

    mailbox: bool | int = False
    per_vertex = False
    spaces = ()

    def __init__(self, name: str, function: Function) -> None:
        self.name, self.function = name, function
        self.found: Facts = None, ()

    def facts(self) -> Facts:
        return self.found

    def run(self, session: Session) -> Given:
        if type(session) is not Session:  # what looks a trace up knows no ids
            raise _UnguardedError("it reads what no guard can watch")
        with as_raised():
            given, kept = self.function(Joined(session))
        session.note_checked()
        self.found = None if isinstance(given, Tensor) else type(given), tuple(kept)
        outputs = [given] if isinstance(given, Tensor) else list(given)
        outputs += kept.values()
        for rows in outputs:
            if plain(rows).shape[:1] not in _row_counts(session):
                raise CaptureError("what it gives has not one row a node or an edge")
        return Given([plain(rows) for rows in outputs], [], len(outputs))


def _row_counts(session: Session) -> tuple[tuple[int], ...]:
    return (session.sizes[VERTEX],), (session.sizes[EDGE],)


def join(
    topology: Topology,
    rows: Rows,
    function: Function,
    roots: Sequence[Callable[..., object]],
    key: Hashable,
    name: str,
) -> tuple[Out, Kept]:
    """What ``function`` gives, and what it keeps for later.

    ``roots``: all that it calls; ``key``: what must be equal for one recording to hold.

    Raises:
        CaptureError: it cannot be captured.
    """
    features = Features.of_ends(rows, topology.src.device)
    family = family_of(key)
    try:
        bound, tensors = find_captured(family, roots, features, lambda: _JoinedBody(name, function))
    except _UnguardedError as error:
        raise CaptureError(family.why_looked_up(roots) or error.reason) from error
    outputs = [_writable(rows) for rows in bound(tensors, topology, "once")]
    kind, names = bound.captured.facts
    count = len(outputs) - len(names)
    result = cast("Tensor", outputs[0]) if kind is None else _as_kind(kind, outputs[:count])
    return result, {name: rows for name, rows in zip(names, outputs[count:], strict=True) if rows is not None}


def _writable(rows: Tensor | None) -> Tensor | None:
    """Rows that the program may write in place: autograd forbids it for views that come from a function of its own."""
    return rows.clone() if rows is not None and rows.requires_grad and rows._base is not None else rows


def _as_kind(kind: Callable[..., Sequence[Tensor]], outputs: Sequence[Tensor | None]) -> Sequence[Tensor]:
    return kind(*outputs) if hasattr(kind, "_fields") else kind(outputs)


def is_plain_tensor(value: object) -> bool:
    """Whether kernels can read it: no subclass that means something else."""
    return type(value) in (Tensor, torch.nn.Parameter)
