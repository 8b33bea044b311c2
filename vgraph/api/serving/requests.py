"""Requests: graphs on their way through a server, as they were given and in row order.

Takes: a graph's features. Gives: them by frontier, and its result in the user's order. Runs once per graph.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.api.serving.frontier_body import FrontierBody
from vgraph.api.vertex.call_features import At, Features, Feed
from vgraph.capture.session import Spec
from vgraph.compiler import level_schedule
from vgraph.ir.schedule import Schedule
from vgraph.ir.space import EDGE, GRAPH, SOURCE, VERTEX
from vgraph.ir.topology import Topology

_SPACES = {"vertex": VERTEX, "edge": EDGE, "graph": GRAPH}


class Answer(Future[dict[str, Tensor]]):
    """A Future of what a graph's function pushes."""

    def abandon(self, error: Exception) -> None:
        """In a forked child: another thread of the parent may have had the lock, and callbacks are the parent's."""
        self._condition = threading.Condition()
        self._done_callbacks = []
        if not self.done():
            self.set_exception(error)


@dataclass(eq=False)
class Request:
    """A graph on its way, and the frontier that comes next; ``given``: features by full name."""

    feed: Feed
    given: dict[str, Tensor | At]
    future: Answer
    depth: int  # frontiers
    width: int  # vertices of the next frontier
    body: FrontierBody | None = None  # the function on one frontier of such features
    alone: Features | None = None  # all features as they came, of a graph that nothing is batched with
    base: int = 0  # where its states begin in the pool
    at: int = 0
    found: list[Sequence[Tensor]] = field(default_factory=list[Sequence[Tensor]])

    @property
    def num_rows(self) -> int:
        return self.feed.topology.num_dst

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """Equal for graphs that can be batched."""
        if self.alone is not None:
            return (id(self),)
        rows = ((n, isinstance(t, At), t.rows if isinstance(t, At) else t) for n, t in self.given.items())
        return (self.feed.graph.form, *((n, is_at, t.shape[1:], t.dtype) for n, is_at, t in rows))

    # ------------------------------------------------------------ a frontier at a time, in row order
    @cached_property
    def schedule(self) -> Schedule:
        return level_schedule(self.feed.topology)

    @cached_property
    def features(self) -> dict[str, Tensor]:
        return {name: _in_rows(value, name, self.schedule) for name, value in self.given.items()}

    @cached_property
    def ends(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Rows of tails and of heads of each frontier's in-edges."""
        order, edges = self.schedule.order, [f.e1 - f.e0 for f in self.schedule.frontiers]
        return order.src_rows.long().split(edges), order.dst_rows.long().split(edges)

    @cached_property
    def parts(self) -> dict[str, Sequence[Tensor]]:
        """The features of each frontier."""
        frontiers = self.schedule.frontiers
        counts = {"vertex": [f.batch_size for f in frontiers], "edge": [f.e1 - f.e0 for f in frontiers]}
        return {
            name: tensor.split(counts[kind]) if (kind := name.partition(":")[0]) in counts else [tensor] * self.depth
            for name, tensor in self.features.items()
        }

    @property
    def row(self) -> int:
        """The row of the graph where the next frontier begins."""
        return self.schedule.frontiers[self.at].v0

    def advance(self) -> bool:
        """Whether there is a next frontier."""
        self.at += 1
        if self.at < self.depth:
            self.width = self.schedule.frontiers[self.at].batch_size
        return self.at < self.depth


# ---------------------------------------------------------------- a frontier of several
@dataclass(eq=False)
class Tick:
    """The features of one frontier: those of its graphs one below the other, and the states below."""

    requests: Sequence[Request]
    pool: Mapping[str, Tensor]

    def find(self, full: str) -> Tensor | None:
        kind, _, name = full.partition(":")
        if kind == "below":
            return self.pool.get(name)
        if full not in self.requests[0].features:
            return None
        return torch.cat([request.parts[full][request.at] for request in self.requests])

    def spec(self, full: str) -> Spec:
        kind, _, name = full.partition(":")
        found = self.pool[name] if kind == "below" else self.requests[0].features[full]
        space = SOURCE if kind == "below" else _SPACES[kind]
        return Spec(space, tuple(found.shape[1:]), found.dtype, requires_grad=False)


def next_frontier(now: Sequence[Request], room: int) -> Topology:
    """The next frontier of each graph, as edges from rows of a pool of ``room``."""
    src, dst = [r.ends[0][r.at] for r in now], [r.ends[1][r.at] for r in now]
    sizes = [r.width for r in now]
    ends = np.cumsum(sizes)
    shifts = np.array([[r.base for r in now], ends - sizes - [r.row for r in now]]).repeat([len(s) for s in src], 1)
    moved = torch.cat([torch.cat(src), torch.cat(dst)]).view(2, -1) + torch.from_numpy(shifts)
    return Topology(moved[0], moved[1], max(room, 1), int(ends[-1]), tuple(sizes))


def pool_rows(now: Sequence[Request]) -> Tensor:
    """The rows of the pool that a frontier writes."""
    sizes = [r.width for r in now]
    starts = np.array([r.base + r.row for r in now]) - (np.cumsum(sizes) - sizes)
    return torch.from_numpy(starts.repeat(sizes) + np.arange(sum(sizes)))


# ---------------------------------------------------------------- in and out
def result_of(request: Request, names: Sequence[str]) -> dict[str, Tensor]:
    """One row a vertex, in the order of ids."""
    rows = request.schedule.order.vertex_rows
    whole = [torch.cat(parts) for parts in zip(*request.found, strict=True)]
    return {n: t if rows is None else t.index_select(0, rows) for n, t in zip(names, whole, strict=True)}


def dense(value: Tensor | At, topology: Topology) -> Tensor:
    """A feature of some vertices is one of all where a frontier is run alone: it has few rows."""
    if not isinstance(value, At):
        return value
    whole = value.rows.new_zeros((topology.num_dst, *value.rows.shape[1:]))
    return whole.index_copy(0, value.ids, value.rows)


def rows_or_at(feed: Feed, features: Features, full: str) -> Tensor | At:
    """A copy of a feature, without gradient: whoever gave it may change it while it waits."""
    kind, _, name = full.partition(":")
    value = features.get(name)
    if kind == "vertex" and isinstance(value, At):
        return own(value)
    found = feed.find(full)
    assert found is not None, full
    return own(found)


def own(value: Any) -> Any:
    """A copy of rows, which nobody else changes; anything else as it is."""
    if isinstance(value, At):
        return At(own(value.rows), own(value.ids))
    return value.detach().clone() if isinstance(value, Tensor) else value


def own_graph(graph: Graph) -> Graph:
    """The same edges, and copies of all features."""
    found = graph.local_var()
    for frame in (found.ndata, found.edata, found.gdata):
        for name, column in list(frame.items()):
            frame[name] = own(column)
    return found


def _in_rows(value: Tensor | At, full: str, schedule: Schedule) -> Tensor:
    rows = dense(value, schedule.topology)
    ids = {"vertex": schedule.order.vertex_ids, "edge": schedule.order.edge_ids}.get(full.partition(":")[0])
    return rows if ids is None else rows.index_select(0, ids)
