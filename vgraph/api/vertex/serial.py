"""Serial: a vertex function that cannot be captured, one vertex after another.

Takes: the user's module and features. Gives: one row a vertex, by ordinary autograd. Runs at every call.
Source: Cavs section 3.2 (the serial policy is its baseline).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn

from vgraph.api.vertex.call_features import Feed
from vgraph.api.vertex.infer_states import ask_for_states, has_fractions, likely_shapes
from vgraph.api.vertex.vertex import StateSpec, Vertex, check_scattered
from vgraph.capture.errors import CaptureError
from vgraph.capture.rows.row_tensor import RowTensor, as_rows, plain
from vgraph.errors import ChildIndexError, FunctionError
from vgraph.ir.moves import Gather, Move, PutSlot, SegmentReduce, TakeSlot
from vgraph.ir.space import EDGE, VERTEX
from vgraph.scheduler.frontiers import levels
from vgraph_kernels import reference


class VertexSession:
    """A Session on one real vertex: Moves happen at once."""

    mailbox = None
    row_sizes: frozenset[int] = frozenset()
    per_vertex = True

    def __init__(
        self, feed: Feed, vertex: int, edge_ids: Tensor, children: Mapping[str, Tensor], user_id: int | None = None
    ) -> None:
        """``vertex``: its row among the features; ``user_id``: its number where that is another."""
        # autograd's nodes hold the session, and the graph, to which results may be given, would hold these; the
        # caller and the Vertex, which is all that asks for features, hold the feed
        self._feed, self.vertex, self.edge_ids, self.children = ref(feed), vertex, edge_ids, children
        self.num_slots_needed = _Needs(vertex if user_id is None else user_id, edge_ids.shape[0])
        self.widens = edge_ids.shape[0] == 0
        self.guesses_whole = False
        self.num_vertices = 1
        self.gave_numbers = False  # rows without any dim of features
        self.floats: list[torch.dtype] = []  # of features

    def input(self, name: str) -> RowTensor:
        feed = self._feed()
        assert feed is not None, name
        rows, kind = feed.find(name), name.partition(":")[0]
        assert rows is not None, name
        self.gave_numbers |= rows.dim() == 1
        if has_fractions(rows.dtype) and rows.dtype not in self.floats:
            self.floats.append(rows.dtype)
        if kind == "edge":
            return as_rows(rows.index_select(0, self.edge_ids), EDGE, self)
        if self.vertex < 0:
            return as_rows(rows.new_zeros((1, *rows.shape[1:])), VERTEX, self)
        if kind == "subset":
            place = feed.place_of("@" + name.partition(":")[2], self.vertex)
        elif kind == "graph":
            place = int(feed.topology.graph_ids[self.vertex])
        else:
            place = self.vertex
        return as_rows(rows[place : place + 1], VERTEX, self)

    def child(self, name: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> RowTensor:
        rows = self.children.get(name)
        none = torch.zeros((0, *row_shape), dtype=dtype, device=self.edge_ids.device)
        return as_rows(none if rows is None else rows, EDGE, self)

    def in_degree(self) -> Tensor:
        self.gave_numbers = True
        return self.edge_ids.new_tensor([self.edge_ids.shape[0]])

    def note_branch(self) -> None:
        """Nothing is recorded, so any branch is right."""

    def note_count(self) -> None:
        """Here a number of rows is that of one vertex."""

    def note_whole(self, name: str) -> None:
        """Here all rows are those of one vertex."""

    def note_mixed(self, error: FunctionError) -> None:
        """Here all rows are those of one vertex."""

    def is_numbering(self, numbers: Tensor) -> bool:
        """Here an index is torch's own."""
        return False

    def note_look(self, name: str) -> None:
        """Here numbers may be looked at."""

    def slots(self) -> Tensor:
        return torch.arange(self.edge_ids.shape[0], device=self.edge_ids.device)

    def run_move(self, move: Move, rows: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        count = self.edge_ids.shape[0]
        ptr = self.edge_ids.new_tensor([0, count])
        if isinstance(move, Gather):
            return rows.expand(count, *rows.shape[1:]).clone() if move.end == "dst" else rows.clone()
        if isinstance(move, TakeSlot):
            return reference.take_slot(rows, ptr, count, move.k)
        if isinstance(move, PutSlot):
            return reference.put_slot(rows, ptr, count, count, move.k)
        assert isinstance(move, SegmentReduce)
        reduced = move.info.segments(rows, ptr, count)
        return reduced.clone() if isinstance(reduced, Tensor) else reduced


def child_error(k: int, vertex: int, degree: int, line: str | None = None) -> ChildIndexError:
    """``gather(k)`` without a default at a vertex with some children, but too few."""
    return ChildIndexError(
        f"gather({k}) without a default, but vertex {vertex} has {degree} {'child' if degree == 1 else 'children'}",
        cure=f"gather({k}, default=0.0) gives that value where a vertex has some but too few",
        line=line,
    )


class _Needs(set[int]):
    """``gather(k)`` without a default, checked on the spot."""

    def __init__(self, vertex: int, degree: int) -> None:
        super().__init__()
        self.vertex, self.degree = vertex, degree

    def add(self, element: int) -> None:
        if 0 < self.degree <= element:
            raise child_error(element, self.vertex, self.degree)


_MOST_ROUNDS = 4


class Known(dict[str, StateSpec]):
    """States seen so far; before the first scatter each is as ``guess`` says; ``is_told``: its dtype, by parameters."""

    dtype, is_told = torch.float32, False
    guess = StateSpec((1,), torch.float32)
    shapes: Sequence[tuple[int, ...]] = ()

    def get(self, key: str, default: object = None) -> StateSpec:
        return super().get(key) or self.guess

    def guesses(self, session: VertexSession) -> Iterator[StateSpec]:
        """Numbers first, whole ones if they may be: beside a vertex's one row they are as neutral as nothing is."""
        yield StateSpec((), torch.int64)
        for shape in ((), (1,), *self.shapes):
            yield StateSpec(shape, self.dtype if len(session.floats) != 1 or self.is_told else session.floats[0])


def run_serially(
    module: nn.Module,
    given_states: Mapping[str, tuple[int, ...]],
    parts: Sequence[nn.Module],
    part_of_vertex: Sequence[int],
    feed: Feed,
) -> dict[str, Tensor]:
    """Evaluates vertices in an order that puts children first; ordinary autograd does the rest.

    ``parts``: the functions; ``part_of_vertex``: which of them each vertex runs.
    """
    topology = feed.topology
    csc = topology.csc
    known, ptr, others = known_states(module, given_states), csc.ptr.tolist(), csc.other.tolist()
    states: list[dict[str, Tensor]] = [{} for _ in range(topology.num_dst)]
    pushed: list[dict[str, Tensor]] = [{} for _ in range(topology.num_dst)]
    order = np.argsort(levels(topology), kind="stable").tolist()
    ids = torch.arange(topology.num_edges, device=topology.device)
    edge_ids = ids if csc.edge_ids is None else csc.edge_ids
    is_alone = len(parts) == 1
    for v in order:
        first, last = ptr[v], ptr[v + 1]
        kids = _stacked([states[u] for u in others[first:last]])
        session = VertexSession(feed, v, edge_ids[first:last], kids)
        part = parts[part_of_vertex[v]]
        states[v], pushed[v] = _run_vertex(part, session, known, feed, is_alone)
    if not order:  # a made-up vertex tells which outputs there are
        made_up = VertexSession(feed, -1, ids, {})
        found = [_run_vertex(part, made_up, known, feed, is_alone)[1] for part in parts]
        pushed = [{name: rows[:0] for name, rows in one.items()} for one in found]
    return _stacked(pushed)


def run_frontier(
    module: nn.Module, known: Known, feed: Feed, below: Mapping[str, Tensor], user_ids: Sequence[int]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What vertices push and scatter whose children's states are given, one vertex after another.

    ``below``: the states of children by name, a row an edge. ``user_ids``: the vertices' numbers, which errors name.
    """
    csc, ptr = feed.topology.csc, feed.topology.csc.ptr.tolist()
    ids = torch.arange(feed.topology.num_edges, device=feed.topology.device)
    edge_ids = ids if csc.edge_ids is None else csc.edge_ids
    pushed, scattered = list[dict[str, Tensor]](), list[dict[str, Tensor]]()
    for v, user_id in enumerate(user_ids):
        inward = slice(ptr[v], ptr[v + 1])
        kids = {name: rows.index_select(0, edge_ids[inward]) for name, rows in below.items()}
        session = VertexSession(feed, v, edge_ids[inward], kids, user_id)
        states, outputs = _run_vertex(module, session, known, feed, True)
        pushed.append(outputs)
        scattered.append(states)
    return _stacked(pushed), _stacked(scattered)


def known_states(module: nn.Module, given_states: Mapping[str, tuple[int, ...]]) -> Known:
    """What is known of the states before any vertex ran."""
    own = next((p.dtype for p in module.parameters() if has_fractions(p.dtype)), None)
    dtype = own or torch.get_default_dtype()
    known = Known({name: StateSpec(shape, dtype) for name, shape in given_states.items()})
    known.dtype, known.is_told, known.shapes = dtype, own is not None, likely_shapes(module, ())
    return known


def _run_vertex(
    module: nn.Module, session: VertexSession, known: Known, feed: Feed, is_alone: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What one vertex scatters and pushes; the first is run again where states were not as assumed."""
    rounds = _MOST_ROUNDS if not session.edge_ids.shape[0] else 1  # children give what they have
    scattered: dict[str, Tensor] = {}
    pushed: dict[str, Tensor] = {}
    for _ in range(rounds):
        vertex = _run_somehow(module, session, known, feed)
        if is_alone:
            check_scattered(vertex)
        scattered = {name: plain(t) for name, t in vertex.scattered.items()}
        pushed = {name: plain(t) for name, t in vertex.pushed.items()}
        specs = {n: StateSpec(tuple(t.shape[1:]), t.dtype) for n, t in scattered.items()}
        was_right = all(known.get(name) == specs.get(name) for name in vertex.gathered)
        known.update(specs)
        if was_right:
            break
    return scattered, pushed


def _run_somehow(module: nn.Module, session: VertexSession, known: Known, feed: Feed) -> Vertex:
    """A vertex function run once; states of unknown shape are tried in several."""
    failed: tuple[Exception, str] | None = None  # the first
    for guess in known.guesses(session):
        known.guess = guess
        session.guesses_whole = not known and not guess.dtype.is_floating_point
        vertex = Vertex(session, known, feed.full_name)  # pyright: ignore[reportArgumentType]
        try:
            module.forward(vertex)
        except CaptureError as error:  # there is no other way left
            raise FunctionError(error.reason, cure=error.cure, line=error.line) from None
        except Exception as error:
            if known.keys() >= vertex.state_lines.keys():
                raise
            failed = failed or (error, next(iter(vertex.state_lines.values())))
        else:
            if not _is_unsure(vertex, session, known):
                return vertex
    assert failed is not None, "a column is a guess that is kept"
    error, line = failed
    if not isinstance(error, (RuntimeError, IndexError)):
        raise error
    raise ask_for_states(module, f"evaluating it without children fails: {error}", line) from error


def _is_unsure(vertex: Vertex, session: VertexSession, known: Known) -> bool:
    """Whether states are numbers because they were guessed so, where nothing else is a number: columns are meant."""
    if known.guess.row_shape:
        return False
    if any(0 in t.shape for t in (*vertex.scattered.values(), *vertex.pushed.values())):
        return True  # no slots beside a column: torch takes them for features
    if session.gave_numbers:
        return False
    guessed = [vertex.scattered[name] for name in vertex.gathered if name not in known and name in vertex.scattered]
    return any(plain(t).dim() == 1 for t in guessed)


def _stacked(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows by name, one below the other; zeros for vertices of a type that does not give them."""
    like = {name: one[name] for one in rows for name in one}
    return {
        name: torch.cat([one[name] if name in one else zero.new_zeros(zero.shape) for one in rows])
        for name, zero in like.items()
    }
