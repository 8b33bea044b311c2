"""Functions that join rows of nodes and edges by ids, captured as one: PyG's message, aggregate and update.

Takes: a topology, tensors by where their rows lie, a function of them. Gives: what it gives. Runs at every call.
Source: Fey and Lenssen 2019 (PyG), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from vgraph.api.messages.batches import as_raised
from vgraph.capture.body import Given
from vgraph.capture.capture import family_of, find_captured
from vgraph.capture.errors import CaptureError
from vgraph.capture.features import ENDS, Features
from vgraph.capture.rows.both_ends import BothEnds
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

    def ids(self, end: str, dtype: torch.dtype = torch.int64) -> IndexedRows:
        """The ids of one end of every edge, (edges,); kernels read them in 64 bits."""
        ids = self._session.ids(f"${end}_ids", EDGE)
        return as_indexed(ids if dtype == torch.int64 else ids.to(dtype), self._session, end)

    def both_ids(self, first: str, second: str, dtype: torch.dtype) -> BothEnds:
        """The ids of both ends of every edge, (2, edges)."""
        return BothEnds.of(self.ids(first, dtype), self.ids(second, dtype))

    def count(self, end: str) -> int:
        """The number of sources or destinations."""
        return self._session.row_count(self._session.sizes[ENDS[end]])

    def has_drawn(self) -> bool:
        """Whether random numbers were drawn so far."""
        return self._session.tracer.recording.num_randoms > 0


Kept = dict[str, Tensor]
Found = dict[str, "Tensor | None"]  # what was kept; None: it is not computed yet
Out = Tensor | Sequence[Tensor]
Function = Callable[[Joined], tuple[Out, Kept]]
Names = tuple[str, ...]


@dataclass(frozen=True)
class _Facts:
    """``kind``: that of several tensors; what of the kept rows is stored, and what is left to be computed later."""

    kind: type | None = None
    stored: Names = ()
    deferred: Names = ()


class _UnguardedError(CaptureError):
    """The function would have to run at every call."""

    is_kept = False


class _JoinedBody:
    """A function of ``Joined`` as it is recorded."""

    mailbox: bool | int = False
    per_vertex = False
    spaces = ()

    def __init__(self, name: str, function: Function, *, defers: bool) -> None:
        self.name, self.function, self.defers = name, function, defers
        self.found = _Facts()

    def facts(self) -> _Facts:
        return self.found

    def run(self, session: Session) -> Given:
        if type(session) is not Session:  # what looks a trace up knows no ids
            raise _UnguardedError("it reads what no guard can watch")
        with as_raised():
            joined = Joined(session)
            given, kept = self.function(joined)
        session.note_checked()
        outputs = _tensors_of(given)
        for rows in (*outputs, *kept.values()):
            if plain(rows).shape[:1] not in _row_counts(session):
                raise CaptureError("what it gives has not one row a node or an edge")
        later = self.defers and not joined.has_drawn()  # what is drawn again would be other numbers
        outputs += () if later else kept.values()
        names = tuple(kept)
        kind = None if isinstance(given, Tensor) else type(given)
        self.found = _Facts(kind, () if later else names, names if later else ())
        return Given([plain(rows) for rows in outputs], [], len(outputs))


def _tensors_of(given: object) -> list[Tensor]:
    """One tensor, or those of a tuple or list."""
    tensors = list(given) if isinstance(given, (tuple, list)) else [given]
    if not tensors or not all(isinstance(one, Tensor) for one in tensors):
        raise CaptureError("what it gives is no tensor, and no tuple or list of tensors")
    return cast("list[Tensor]", tensors)


def _row_counts(session: Session) -> tuple[tuple[int], ...]:
    return (session.sizes[VERTEX],), (session.sizes[EDGE],)


def join(
    topology: Topology,
    rows: Rows,
    function: Function,
    roots: Sequence[Callable[..., object]],
    key: Hashable,
    name: str,
    *,
    defers: bool = False,
) -> tuple[Out, Found]:
    """What ``function`` gives, and what it keeps for later.

    ``roots``: all that it calls; ``key``: what must be equal for one recording to hold; ``defers``: whether rows
    that it keeps are None, for a call that asks for them, where no random numbers are drawn.

    Raises:
        CaptureError: it cannot be captured.
    """
    features = Features.of_known_ends(rows, topology.device)
    family = family_of((key, defers))
    try:
        bound, tensors = find_captured(family, roots, features, lambda: _JoinedBody(name, function, defers=defers))
    except _UnguardedError as error:
        raise CaptureError(family.why_looked_up(roots) or error.reason) from error
    outputs = [_writable(rows) for rows in bound(tensors, topology, "once")]
    facts = cast("_Facts", bound.captured.facts)
    count = len(outputs) - len(facts.stored)
    result = cast("Tensor", outputs[0]) if facts.kind is None else _as_kind(facts.kind, outputs[:count])
    stored = zip(facts.stored, outputs[count:], strict=True)
    found = {name: rows for name, rows in stored if rows is not None}
    return result, {**found, **dict.fromkeys(facts.deferred)}


def _writable(rows: Tensor | None) -> Tensor | None:
    """Rows that the program may write in place: autograd forbids it for views that come from a function of its own."""
    return rows.clone() if rows is not None and rows.requires_grad and rows._base is not None else rows


def _as_kind(kind: Callable[..., Sequence[Tensor]], outputs: Sequence[Tensor | None]) -> Sequence[Tensor]:
    return kind(*outputs) if hasattr(kind, "_fields") else kind(outputs)


def is_plain_tensor(value: object) -> bool:
    """Whether kernels can read it: no subclass that means something else."""
    return type(value) in (Tensor, torch.nn.Parameter)
