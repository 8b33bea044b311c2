"""DistGraph as programs of DistDGL know it: features are DistTensors, and there is a partition book.

Takes: the name of a graph, where its parts are. Gives: a ``vgraph.distributed.DistGraph``. Runs once per process.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

import vgraph.distributed as vd
from vgraph.compat.distributed.dist_tensor import Columns, OwnRows, remember
from vgraph.compat.distributed.partition_book import GraphPartitionBook, PartitionPolicy
from vgraph.compat.distributed.partitions import folder_of
from vgraph.distributed.fetch import fetch_from
from vgraph.graphs.frame import Frame
from vgraph.graphs.views import FeatureView


class DistGraph(vd.DistGraph):
    """The graph of that name in the folder of ``part_config``, or in the current one.

    Layers and ``update_all`` take and give own rows, as ``vgraph.distributed.DistGraph`` says. ``ndata`` and ``edata``
    give DistTensors, of which brackets fetch the rows of any ids.
    """

    def __init__(self, graph_name: str, gpb: Any = None, part_config: Any = None) -> None:
        super().__init__(folder_of(graph_name, part_config))
        self.graph_name = graph_name
        graph = weakref.ref(self)
        remember(lambda: _policies(graph()))

    # ------------------------------------------------------------ who has what
    def get_partition_book(self) -> GraphPartitionBook:
        """Which process has which nodes and edges."""
        whole = self.whole
        edges = {e: whole.stored.edge_bounds(e)[list(whole.first_parts)] for e in self.canonical_etypes}
        return GraphPartitionBook(whole.ranks.rank, whole.bounds, edges)

    def get_node_partition_policy(self, ntype: str) -> PartitionPolicy:
        """Which process has which nodes of a type."""
        name = self._node_type(ntype)
        return PartitionPolicy("node", name, self.whole.bounds[name])

    def get_edge_partition_policy(self, etype: Any) -> PartitionPolicy:
        """Which process has which edges of a type."""
        key = self._edge_type(etype)
        return PartitionPolicy("edge", key, self.get_partition_book().edge_bounds(key))

    def rank(self) -> int:
        """This process."""
        return vd.rank()

    def barrier(self) -> None:
        """Waits for all processes."""
        vd.barrier()

    # ------------------------------------------------------------ features
    @property
    def ndata(self) -> Any:
        """Features of the nodes, as DistTensors; by type where there are several."""
        found = super().ndata
        return Columns(found, self.get_node_partition_policy(self.ntypes[0])) if isinstance(found, Frame) else found

    @property
    def edata(self) -> Any:
        """Features of the edges, as DistTensors; by type where there are several."""
        found = super().edata
        if not isinstance(found, Frame):
            return found
        return Columns(found, self.get_edge_partition_policy(self.canonical_etypes[0]))

    @property
    def srcdata(self) -> Any:
        """Features of sources, by own rows, as layers take and give them."""
        found = super().srcdata
        return OwnRows(found) if isinstance(found, Frame) else found

    @property
    def dstdata(self) -> Any:
        """Features of destinations, by own rows, as layers take and give them."""
        found = super().dstdata
        return OwnRows(found) if isinstance(found, Frame) else found

    @property
    def nodes(self) -> Any:
        """Called: new ids of own nodes; in brackets: features of a type."""
        return _Features(super().nodes, lambda key: self.get_node_partition_policy(key), self.ntypes)

    @property
    def edges(self) -> Any:
        """Called: own edges; in brackets: features of a type."""
        known = [*self.canonical_etypes, *self.etypes]
        return _Features(super().edges, lambda key: self.get_edge_partition_policy(key), known)

    # ------------------------------------------------------------ degrees
    def in_degrees(self, v: Any = None, etype: Any = None) -> Any:
        """In-degrees by new ids of any nodes, for which all processes ask; of own nodes where no ids are given."""
        own = super().in_degrees(None, etype)
        return own if v is None else self._fetched(own, v, self._edge_type(etype)[2])

    def out_degrees(self, u: Any = None, etype: Any = None) -> Any:
        """Out-degrees by new ids of any nodes, for which all processes ask; of own nodes where no ids are given."""
        own = super().out_degrees(None, etype)
        return own if u is None else self._fetched(own, u, self._edge_type(etype)[0])

    def _fetched(self, own: Tensor, ids: Any, ntype: str) -> Tensor:
        asked = self._known(torch.as_tensor(ids), ntype)
        return fetch_from(self.whole.ranks, self.whole.bounds[ntype], own, asked, "degrees")


class _Data:
    """What ``g.nodes["user"]`` gives: features."""

    def __init__(self, data: Any) -> None:
        self.data = data


class _Features:
    """``g.nodes`` or ``g.edges``: as in one process, but that features of a type are DistTensors."""

    def __init__(self, view: FeatureView, policy: Any, types: list[Any]) -> None:
        self._view, self._policy, self._types = view, policy, types

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._view(*args, **named)

    def __getitem__(self, key: Any) -> Any:
        found = self._view[key]
        is_type = isinstance(key, (str, tuple)) and key in self._types
        return _Data(Columns(found.data, self._policy(key))) if is_type else found


def _policies(g: DistGraph | None) -> list[PartitionPolicy]:
    if g is None:
        return []
    nodes = [g.get_node_partition_policy(t) for t in g.ntypes]
    return [*nodes, *(g.get_edge_partition_policy(e) for e in g.canonical_etypes)]
