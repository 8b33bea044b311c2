"""Members: graphs that are slices of one whole, so that a batch of some of them is a few ranges of it.

Takes: a batch. Gives: its graphs, whose features are views; and batches of such graphs. Runs at every step.
Source: DGL section 3 (a batch is one graph); hundreds of small tensors are far apart in memory, one whole is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.graphs.data import NODE, UNTYPED
from vgraph.graphs.edge_formats import MAX_INT32
from vgraph.graphs.frame import Frame
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.ir.topology import Topology
from vgraph.native_part import load_native

Columns = tuple[Mapping[str, Tensor], ...]  # of nodes, edges and graphs
Numbers = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class Member:
    """Graph ``number`` of a whole; ``intact``: no feature was replaced, in any of the graph's frames."""

    whole: Whole
    number: int
    topology: Topology
    intact: bool = True


class Whole:
    """A batch on the CPU as it was when its graphs were asked for, its edges graph by graph.

    ``topologies``: those of its graphs, where they are known; ``ends``: of edges, each counted within its graph.
    """

    def __init__(
        self,
        topology: Topology,
        frames: Sequence[Frame],
        sizes: Sequence[int],
        ends: Sequence[Tensor],
        counts: Sequence[int],
        order: Tensor | None,
        topologies: Sequence[Topology] | None,
    ) -> None:
        self.topology, self.given, self.order = topology, tuple(dict(frame.columns) for frame in frames), order
        self.frames = _in_order(frames, order)
        self.ends, self.topologies = ends, topologies
        self.sizes, self.counts, self.edge_counts = np.array(sizes, np.int64), np.array(counts, np.int64), list(counts)
        self.starts, self.edge_starts = (np.cumsum(n) - n for n in (self.sizes, self.counts))
        self.pairs = np.stack([end.numpy() for end in ends])

    def fits(self, topology: Topology, frames: Sequence[Frame]) -> bool:
        """Whether a graph is still what this was made of."""
        return self.topology is topology and all(
            old.keys() == frame.columns.keys() and all(old[name] is column for name, column in frame.columns.items())
            for old, frame in zip(self.given, frames, strict=True)
        )

    def renewed(self, frames: Sequence[Frame]) -> Whole:
        """The same with features as they are now: edges that were put into order are copies, which age."""
        if self.order is None:
            return self
        made = copy(self)
        made.frames = _in_order(frames, self.order)
        return made

    def graph(self, number: int, kind: type[AnyGraph]) -> AnyGraph:
        """One graph; its ids and features are views."""
        size, at = int(self.sizes[number]), (int(self.edge_starts[number]), int(self.counts[number]))
        bounds = ((int(self.starts[number]), size), at, (number, 1))
        nodes, edges, gdata = (frame.part(*where) for frame, where in zip(self.frames, bounds, strict=True))
        if self.topologies is not None:
            topology = self.topologies[number]
        else:
            src, dst = (end.narrow(0, *at) for end in self.ends)
            topology = Topology(src, dst, size, size)
        made = kind.of_types({UNTYPED: topology}, {NODE: nodes}, None, {UNTYPED: edges}, gdata)
        made.member = nodes.origin = edges.origin = gdata.origin = Member(self, number, topology)
        return made

    def take(self, members: Sequence[Member], sizes: Sequence[int], kind: type[AnyGraph]) -> AnyGraph:
        """Some of its graphs as a batch."""
        chosen = [member.number for member in members]
        numbers, (rows, edges, ends) = np.array(chosen), self._ranges_of(chosen, sum(sizes))
        src, dst = torch.from_numpy(ends).unbind()
        parts = tuple([member.topology for member in members])
        topology = Topology(src, dst, len(rows), len(rows), tuple(sizes), parts)
        nodes, edge_frame, gdata = (
            frame.take(torch.from_numpy(ids)) if frame.columns else frame.rows_alone(len(ids))
            for frame, ids in zip(self.frames, (rows, edges, numbers), strict=True)
        )
        return kind.of_types(
            {UNTYPED: topology}, {NODE: nodes}, None, {UNTYPED: edge_frame}, gdata, {NODE: tuple(sizes)}
        )

    def _ranges_of(self, numbers: Sequence[int], num_rows: int) -> tuple[Numbers, Numbers, NDArray[np.signedinteger]]:
        """Rows and edges of some graphs, and the ends of those edges in a batch of them."""
        native = load_native()
        if native is not None:
            bounds = (self.starts, self.sizes, self.edge_starts, self.counts)
            num_edges = sum([self.edge_counts[number] for number in numbers])
            return native.take_members(numbers, bounds, self.pairs, (num_rows, num_edges))
        counts, own = self.counts[numbers], self.sizes[numbers]
        rows, edges = _ranges(self.starts[numbers], own), _ranges(self.edge_starts[numbers], counts)
        ends = self.pairs.take(edges, 1)
        np.add(ends, np.repeat(np.cumsum(own) - own, counts), out=ends, casting="same_kind")
        return rows, edges, ends


def _in_order(frames: Sequence[Frame], order: Tensor | None) -> tuple[Frame, Frame, Frame]:
    """Features as they are now, whatever the batch is given later; those of edges graph by graph."""
    nodes, edges, gdata = frames
    return nodes.copy(), edges.copy() if order is None else edges.take(order), gdata.copy()


def _ranges(starts: Numbers, counts: Numbers) -> Numbers:
    """The numbers from each start on, as many as its count."""
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def batch_of_members(graphs: Sequence[AnyGraph]) -> AnyGraph | None:
    """A batch of graphs that are slices of one whole, each as it was; None where they are not.

    None inside ``torch.compile``, too: Dynamo cannot read what finds ranges in native code.
    """
    if torch.compiler.is_dynamo_compiling():
        return None
    member = getattr(graphs[0], "member", None) if graphs else None
    if not isinstance(member, Member):
        return None
    whole = member.whole
    members: list[Member] = []
    for g in graphs:
        member = getattr(g, "member", None)
        if not isinstance(member, Member) or member.whole is not whole or not member.intact:
            return None
        members.append(member)
    sizes = whole.sizes[[m.number for m in members]].tolist()
    if whole.pairs.dtype == np.int32 and sum(sizes) > MAX_INT32:
        return None
    if any(_differs(whole, graphs, place) for place in range(3)):
        return None
    return whole.take(members, sizes, type(graphs[0]))


def _differs(whole: Whole, graphs: Sequence[GraphData], place: int) -> bool:
    """Whether a feature has a gradient in a graph and none in the whole, or the other way round."""
    could = {name: c for name, c in whole.frames[place].columns.items() if c.is_floating_point() or c.is_complex()}
    columns = {name: c.requires_grad for name, c in could.items()}
    if not columns:
        return False
    frames = [(g.src_frames[NODE], g.edge_frames[UNTYPED], g.gdata)[place] for g in graphs]
    return any(frame.columns[name].requires_grad is not has for frame in frames for name, has in columns.items())
