"""Served: the parts that a machine has, as lists to draw from and rows to read, and whose every other id is.

Takes: a partitioned graph on disk, which parts each machine has. Gives: lists, rows, owners. Mapped once, read-only,
by each process of the machine; every one of them can serve all of the machine's parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.distributed.whole import Stored
from vgraph.errors import FeatureError
from vgraph.graphs.data import EdgeType
from vgraph.graphs.draw.lists import ListPart, Lists, Rows
from vgraph.graphs.draw.pick import FROM_0, are_weights
from vgraph.graphs.draw.random_numbers import Array
from vgraph.graphs.frame import Frame
from vgraph.ir.halo import EdgesElsewhere
from vgraph.ir.topology import Topology


class Served:
    """What this machine has of a graph; ``first_parts``: the first part of each machine, and the number of parts."""

    def __init__(self, stored: Stored, first_parts: Sequence[int], machine: int) -> None:
        self.stored, self.machine = stored, machine
        self.part_numbers = range(first_parts[machine], first_parts[machine + 1])
        self._parts = [stored.part(number) for number in self.part_numbers]
        at = torch.tensor(first_parts)
        self._nodes = {t: stored.bounds(t).index_select(0, at).numpy() for t in stored.ntypes}
        self._edges = {e: stored.edge_bounds(e).index_select(0, at).numpy() for e in stored.canonical_etypes}
        self._lists: dict[EdgeType, Lists] = {}
        self._rows: dict[tuple[str | EdgeType, str], Rows] = {}

    def machines_of(self, kind: str | EdgeType, ids: Array) -> Array:
        """The machine of every node, or edge, of a type."""
        return np.searchsorted(self._bounds(kind), ids, side="right") - 1

    def _bounds(self, kind: str | EdgeType) -> Array:
        return self._nodes[kind] if isinstance(kind, str) else self._edges[kind]

    def range_of(self, kind: str | EdgeType) -> tuple[int, int]:
        """The first new id that this machine has, and the first that it has not any more."""
        first, last = self._bounds(kind)[self.machine : self.machine + 2].tolist()
        return first, last

    def lists(self, etype: EdgeType) -> Lists:
        """In-edges of this machine's nodes, by new ids; draws follow from original ids, places are new edge ids."""
        if etype not in self._lists:
            parts = [
                ListPart(part.ptr(etype).numpy(), part.src(etype).numpy(), names=part.orig(etype[2]).numpy())
                for part in self._parts
            ]
            nodes, edges = self._nodes[etype[2]], self._edges[etype]
            self._lists[etype] = Lists(parts, int(nodes[self.machine]), int(edges[self.machine]))
        return self._lists[etype]

    def rows(self, kind: str | EdgeType, name: str) -> Rows:
        """A feature of this machine's nodes, or edges, by new ids; NameLookupError: it is not in the files."""
        key = (kind, name)
        if key not in self._rows:
            parts = [
                part.node_data(kind, name) if isinstance(kind, str) else part.edge_data(kind, name)
                for part in self._parts
            ]
            self._rows[key] = Rows(parts, int(self._bounds(kind)[self.machine]))
        return self._rows[key]

    def weights(self, etype: EdgeType, name: str) -> Rows:
        """A feature that edges are drawn by; FeatureError: not one number from 0 up an edge."""
        is_new = (etype, name) not in self._rows
        rows = self.rows(etype, name)
        if is_new:
            for part in rows.parts:
                _check_weights(part, name)
        return rows

    def orig(self, ntype: str, ids: Array) -> Array:
        """Original ids of this machine's nodes."""
        key = (ntype, "\0orig")  # a name that no feature has
        if key not in self._rows:
            parts = [part.orig(ntype) for part in self._parts]
            self._rows[key] = Rows(parts, int(self._nodes[ntype][self.machine]))
        return self._rows[key].take(ids).numpy().astype(np.int64)

    def outline(self) -> Graph:
        """A graph of all nodes, by number alone, without edges: what samplers ask for types and counts."""
        stored, none = self.stored, torch.empty(0, dtype=torch.int64)
        device, several = torch.device("cpu"), len(stored.ntypes) > 1
        sizes = {t: int(stored.bounds(t)[-1]) for t in stored.ntypes}
        nodes = {t: Frame(size, device, "node", type_name=t if several else "") for t, size in sizes.items()}
        topologies = {
            e: Topology(none, none, sizes[e[0]], sizes[e[2]], halo=EdgesElsewhere(sizes[e[0]]))
            for e in stored.canonical_etypes
        }
        edges = {e: Frame(0, device, "edge", type_name=e[1] if len(topologies) > 1 else "") for e in topologies}
        return Graph.of_types(topologies, nodes, None, edges)


def _check_weights(rows: Tensor, name: str) -> None:
    if rows[:1].numel() > 1 or rows.is_complex():
        raise FeatureError(f"{name!r} has shape {tuple(rows.shape)}", cure="give one number an edge")
    if not are_weights(rows):
        raise FeatureError(f"{name!r} has numbers below 0, or that are not finite", cure=FROM_0)
