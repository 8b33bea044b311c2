"""DistGraph: a partitioned graph of which every process has its own nodes and the edges that end there.

Takes: a folder of ``partition_graph``. Gives: a graph on which layers and ``update_all`` give own rows of what they
would give on the whole. Runs once per process and graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, FINITE, checked
from vgraph.distributed.fetch import fetch_rows
from vgraph.distributed.job import init
from vgraph.distributed.kept_halos import KeptHalos
from vgraph.distributed.loading import joined, load_topologies, load_whole
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph
from vgraph.distributed.whole import SourceHalo, Stored, Whole
from vgraph.errors import GraphError
from vgraph.graphs.adjacency import is_all
from vgraph.graphs.data import EdgeType
from vgraph.graphs.frame import Frame, resolve_ids
from vgraph.graphs.types import EType, Ids
from vgraph.graphs.views import FeatureView
from vgraph.ir.topology import Topology
from vgraph.runtime.distributed.ranks import current_ranks


class DistGraph(Graph):
    """A graph on several processes, started by torchrun, each with consecutive parts of a partitioned graph.

    ``ndata`` and ``edata`` hold own rows: one for each own node, in order of new ids, and one for each edge that ends
    there. ``update_all``, ``apply_edges`` and layers called as ``layer(g, x)`` with own rows give own rows; what
    sources on other ranks hold is exchanged where it is read. All ranks call the same functions in the same order.
    Counts are those of the whole graph; degrees are those of own nodes in the whole. Functions of messages see
    original ids, by which random numbers are drawn, too.

    Args:
        path: the folder that ``partition_graph`` wrote, or what has been opened; each machine needs the parts of its
            ranks.
        shares: how much of the graph each rank gets, for unequal machines; None: as much as any other.
        cache_bytes: of every rank, for rows of other ranks that are the same at each step (features without gradient):
            they come once, also where a function makes less of them than they are. None: where what comes is the rows
            as they are, in 256 MiB.
        halo_bytes: of every rank, for rows of other ranks that one function of messages reads at a time: nodes are
            computed in groups that read no more, and rows come once more in the backward, which has no further
            derivative. None: all rows that are read come at once.
        overlap: whether nodes that read own rows alone are computed while others' rows come, and gradients of others'
            rows leave before theirs are computed.

    Raises:
        DataError: the folder is missing or damaged.
        WorkerError: there are more ranks than parts; ranks have different partitions; a rank is lost.
        ArgumentError: a number of bytes is below 0, or a share not above 0.
        GraphError: an operation that needs edges of other ranks; ``cache_bytes`` or ``overlap`` beside ``halo_bytes``.

    Source: DGL 1.1, ``dgl.distributed.DistGraph``.

    Example:
        >>> import tempfile, torch, vgraph, vgraph.distributed as vd, vgraph.function as fn
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> g.ndata["h"] = torch.ones(3)
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(g, folder, num_parts=1)
        >>> own = vd.DistGraph(folder)
        >>> own.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
        >>> own.ndata["s"][own.new_ids(torch.tensor([2]))]
        tensor([2.])
    """

    @checked(shares=FINITE.each().or_none(), cache_bytes=COUNT.or_none(), halo_bytes=COUNT.or_none())
    def __init__(
        self,
        path: str | Path | Stored,
        *,
        shares: Sequence[float] | None = None,
        cache_bytes: int | None = None,
        halo_bytes: int | None = None,
        overlap: bool = False,
    ) -> None:
        if halo_bytes is not None and cache_bytes:
            fact = f"rows are to be kept in {cache_bytes} bytes and let go beyond {halo_bytes}"
            raise GraphError(fact, cure="give cache_bytes or halo_bytes")
        if overlap and halo_bytes is not None:
            fact = f"rows are to come while others are computed, and in windows of {halo_bytes} bytes"
            raise GraphError(fact, cure="give overlap or halo_bytes")
        init()
        stored = PartitionedGraph.open(path) if isinstance(path, (str, Path)) else path
        whole, mine = load_whole(stored, current_ranks(), shares)
        whole.halo_bytes, whole.overlap = halo_bytes, overlap
        if cache_bytes is not None or halo_bytes is not None:
            whole.kept = KeptHalos(whole.ranks, cache_bytes or 0, prefers=True)
        topologies = load_topologies(whole, mine)
        nodes, edges = _frames(whole, mine, topologies)
        made = type(self).of_types(topologies, nodes, None, edges)
        self.__dict__.update(made.__dict__)

    # ------------------------------------------------------------ what is known of the whole
    @property
    def whole(self) -> Whole:
        """What is known of the graph of which this is a part, such as where every node lies."""
        return halo_of(next(iter(self._topologies.values()))).whole

    def num_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes on all ranks, of a type or of all types together.

        Args:
            ntype: the type of nodes; None counts all.

        Returns:
            A number from 0 up, equal on all ranks.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return sum(map(self.whole.num_nodes, self._node_types(ntype)))

    def num_edges(self, etype: EType = None) -> int:
        """The number of edges on all ranks, of a type or of all types together.

        Args:
            etype: the type of edges, a name or a triple; None counts all.

        Returns:
            A number from 0 up, equal on all ranks.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return sum(self.whole.num_edges[name] for name in self._edge_types(etype))

    number_of_nodes, number_of_edges = num_nodes, num_edges

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may begin, on all ranks.

        Args:
            ntype: the type of nodes; None counts those of all ``srctypes``.

        Returns:
            A number from 0 up, equal on all ranks.

        Raises:
            NameLookupError: there is no such type.
        """
        return sum(map(self.whole.num_nodes, self.srctypes)) if ntype is None else self.num_nodes(ntype)

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may end, on all ranks.

        Args:
            ntype: the type of nodes; None counts those of all ``dsttypes``.

        Returns:
            A number from 0 up, equal on all ranks.

        Raises:
            NameLookupError: there is no such type.
        """
        return sum(map(self.whole.num_nodes, self.dsttypes)) if ntype is None else self.num_nodes(ntype)

    def num_own_nodes(self, ntype: str | None = None) -> int:
        """The number of rows of ``ndata``, of a type or of all types together.

        Args:
            ntype: the type of nodes; None counts all.

        Returns:
            A number from 0 up.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return sum(self._src[name].num_rows for name in self._node_types(ntype))

    def num_own_edges(self, etype: EType = None) -> int:
        """The number of rows of ``edata``, of a type or of all types together.

        Args:
            etype: the type of edges, a name or a triple; None counts all.

        Returns:
            A number from 0 up.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return sum(self._topologies[name].num_edges for name in self._edge_types(etype))

    def _node_types(self, ntype: str | None) -> list[str]:
        """All types of nodes, or the one that is named."""
        return list(self._src) if ntype is None else [self._node_type(ntype)]

    def _edge_types(self, etype: EType) -> list[EdgeType]:
        """All types of edges, or the one that is named."""
        return list(self._topologies) if etype is None else [self._edge_type(etype)]

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """The number of nodes of the one graph that this is, on all ranks.

        Args:
            ntype: the type of nodes, or None where there is one.

        Returns:
            (1,) in the dtype of ids.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return torch.tensor([self.num_nodes(self._node_type(ntype))], dtype=self.idtype, device=self.device)

    def batch_num_edges(self, etype: EType = None) -> Tensor:
        """The number of edges of the one graph that this is, on all ranks.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (1,) in the dtype of ids.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return torch.tensor([self.num_edges(self._edge_type(etype))], dtype=self.idtype, device=self.device)

    # ------------------------------------------------------------ ids
    def own_ids(self, ntype: str | None = None) -> Tensor:
        """The new ids of own nodes: those of the rows of ``ndata``.

        Args:
            ntype: the type of nodes, or None where there is one.

        Returns:
            (own nodes,) int64, ascending.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return torch.arange(*self.whole.own(self._node_type(ntype)), device=self.device)

    def orig_ids(self, ids: Ids | None = None, ntype: str | None = None) -> Tensor:
        """The ids that nodes had before the graph was partitioned.

        Args:
            ids: new ids (k,) of nodes of any rank; None: own nodes.
            ntype: the type of nodes, or None where there is one.

        Returns:
            (k,) in the order of ``ids``.

        Raises:
            GraphError: there is no such node, or there are several types and none is named.
            DataError: their part is not on this machine.
            NameLookupError: there is no such type.
        """
        name = self._node_type(ntype)
        if ids is None:
            return self.whole.original[name].to(self.device, copy=True)
        return self.whole.original_ids(name, self._known(ids, name))

    def new_ids(self, ids: Ids, ntype: str | None = None) -> Tensor:
        """The ids that nodes have since the graph was partitioned.

        Args:
            ids: original ids (k,).
            ntype: the type of nodes, or None where there is one.

        Returns:
            (k,) int64 in the order of ``ids``.

        Raises:
            GraphError: there is no such node, or there are several types and none is named.
            DataError: the table is not on this machine.
            NameLookupError: there is no such type.
        """
        name = self._node_type(ntype)
        return self.whole.stored.new_ids(name).index_select(0, self._known(ids, name)).long()

    def _known(self, ids: Ids, ntype: str) -> Tensor:
        return resolve_ids(torch.as_tensor(ids).reshape(-1), self.whole.num_nodes(ntype), torch.device("cpu"))

    def own_edge_ids(self, etype: EType = None) -> Tensor:
        """The ids that own edges had before the graph was partitioned.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (own edges,), in the order of ``edata``.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.
        """
        return self._topology(etype).original_ids["edge"].to(self.idtype, copy=True)

    @property
    def nodes(self) -> FeatureView:
        """The own nodes: called, their new ids; in brackets, some of them with their features.

        ``g.nodes()`` gives all new ids; ``g.nodes["user"].data`` are features.
        """
        split = super().nodes
        return FeatureView(self.node_frame, self.own_ids, split.split)

    def int(self) -> NoReturn:
        """Refused: ids are those of the whole graph.

        Raises:
            GraphError: always.
        """
        raise GraphError("the ids of a distributed graph are int64", cure="convert those you are given: ids.int()")

    def astype(self, idtype: torch.dtype) -> DistGraph:
        """The graph itself, whose ids are int64.

        Args:
            idtype: ``torch.int64``.

        Returns:
            The graph.

        Raises:
            GraphError: ``idtype`` is another dtype.
        """
        return self if idtype == torch.int64 else self.int()

    def all_edges(self, form: str = "uv", order: str | None = "eid", etype: EType = None) -> Any:
        """The own edges by new ids of their ends; their own ids count from 0.

        Args:
            form: "uv" for (src, dst), "eid" for ids, "all" for (src, dst, ids).
            order: "eid", in order of ids; None means the same.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A tensor or a tuple of tensors, each (own edges,).

        Raises:
            GraphError: another order, or there are several types of edges and none is named.
            NameLookupError: there is no such type.
        """
        if order not in ("eid", None):
            raise GraphError(f"order is {order!r} on a distributed graph", cure='pass "eid"')
        key, t = self._edge_type(etype), self._topology(etype)
        src = self.whole.new_ids(key[0], t.src.long())
        dst = t.dst.long() + self.whole.own(key[2])[0]
        ids = torch.arange(t.num_edges, device=self.device)
        return {"uv": (src, dst), "eid": ids}.get(form, (src, dst, ids))

    def out_degrees(self, u: Ids | None = None, etype: EType = None) -> Any:
        """The number of out-edges of own nodes in the whole graph.

        Args:
            u: places among own nodes: an id, ids (k,), a mask or a slice; None: all.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (k,) in the dtype of ids; a plain int where ``u`` is one.

        Raises:
            GraphError: a place is out of range, or there are several types and none is named.
            NameLookupError: there is no such type.
        """
        degrees = halo_of(self._topology(etype)).out_degrees.to(self.device)
        return self._degrees(degrees, None if is_all(u) else u, len(degrees))

    # ------------------------------------------------------------ rows of others
    def fetch(self, name: str, ids: Ids, ntype: str | None = None) -> Tensor:
        """Rows of a feature of any nodes; all ranks call, also those that ask nothing.

        Args:
            name: the feature's name.
            ids: new ids (k,).
            ntype: the type of nodes, or None where there is one.

        Returns:
            (k, ...), in the order of ``ids``.

        Raises:
            GraphError: there is no such node, or there are several types and none is named.
            NameLookupError: there is no such feature or type.
        """
        kind = self._node_type(ntype)
        return fetch_rows(self.whole, kind, self._src[kind][name], self._known(ids, kind))

    # ------------------------------------------------------------ the same part with other frames
    @classmethod
    def of_types(cls, topologies: Any, *args: Any, **named: Any) -> Any:
        """A distributed graph of parts that fit, of topologies that know the whole.

        Args:
            topologies: the edges by type, as of another DistGraph.
            *args: as of ``Graph.of_types``.
            **named: as of ``Graph.of_types``.

        Returns:
            A graph of the class that it is called on.

        Raises:
            GraphError: a function has made other edges.
        """
        _check_topologies(topologies.values())
        return super().of_types(topologies, *args, **named)

    def _join(self, topologies: Any, sizes: Any) -> None:
        _check_topologies(topologies.values())
        super()._join(topologies, sizes)

    def __reduce__(self) -> NoReturn:
        fact = "a distributed graph cannot be pickled: its other parts are in other processes"
        raise GraphError(fact, cure="make it in each process: vgraph.distributed.DistGraph(path)")

    def __repr__(self) -> str:
        of = f"rank={self.whole.ranks.rank} of {self.whole.ranks.size}"
        nodes = f"num_nodes={self.num_nodes()}, num_edges={self.num_edges()}"
        own = f"num_own_nodes={self.num_own_nodes()}, num_own_edges={self.num_own_edges()}"
        return f"DistGraph({of}, {nodes}, {own}, ndata={self.ndata}, edata={self.edata})"


def halo_of(topology: Topology) -> SourceHalo:
    """What a distributed graph's topology knows of the whole."""
    assert isinstance(topology.halo, SourceHalo)
    return topology.halo


def _check_topologies(topologies: Any) -> None:
    if not all(isinstance(topology.halo, SourceHalo) for topology in topologies):
        raise _immutable("its edges would change")


def _immutable(fact: str) -> GraphError:
    return GraphError(
        f"a distributed graph stays as it was partitioned: {fact}",
        cure="change the graph before vgraph.distributed.partition_graph",
    )


def _frames(
    whole: Whole, mine: range, topologies: Mapping[EdgeType, Topology]
) -> tuple[dict[str, Frame], dict[EdgeType, Frame]]:
    """Features of own nodes and edges; those of one part stay files that are mapped."""
    stored, device = whole.stored, torch.device("cpu")
    parts = [stored.part(p) for p in mine]
    nodes: dict[str, Frame] = {}
    for ntype in stored.ntypes:
        columns = {n: joined([part.node_data(ntype, n) for part in parts]) for n in stored.node_schemes(ntype)}
        nodes[ntype] = Frame(whole.num_own(ntype), device, "node", columns, ntype if len(stored.ntypes) > 1 else "")
    edges: dict[EdgeType, Frame] = {}
    for etype, topology in topologies.items():
        columns = {n: joined([part.edge_data(etype, n) for part in parts]) for n in stored.edge_schemes(etype)}
        edges[etype] = Frame(topology.num_edges, device, "edge", columns, etype[1] if len(topologies) > 1 else "")
    return nodes, edges


# ---------------------------------------------------------------- what needs edges that other ranks have
_BEFORE = "do it before the graph is partitioned, or take what you need of update_all on the whole graph"
_REFUSED = {
    "changes nodes or edges": "add_nodes add_edges remove_nodes remove_edges set_batch_num_nodes set_batch_num_edges "
    "add_self_loop remove_self_loop to_simple to_bidirected reorder_graph",
    "makes another graph": "reverse line_graph subgraph node_subgraph edge_subgraph in_subgraph out_subgraph "
    "khop_in_subgraph khop_out_subgraph to_networkx adj adj_external adjacency_matrix inc sample_neighbors "
    "select_topk global_uniform_negative_sampling to_homogeneous",
    "passes messages along some edges": "send_and_recv pull push send recv prop_nodes prop_edges",
    "asks for edges by their ends": "in_edges out_edges predecessors successors find_edges has_edges_between "
    "edge_ids has_edge_between edge_id",
}


_REFUSAL = """Refused, as it {what}, of which a distributed graph has only those that end in own nodes.

Args:
    *args: whatever is given.
    **named: whatever is given.

Raises:
    GraphError: always, with what to do in its place.
"""


def _refusing(name: str, what: str) -> Any:
    def method(self: DistGraph, *args: Any, **named: Any) -> NoReturn:
        fact = f"{name} {what}, of which a distributed graph has only those that end in own nodes"
        raise GraphError(fact, cure=_BEFORE)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = _REFUSAL.format(what=what)
    return method


for _what, _names in _REFUSED.items():
    for _name in _names.split():
        if hasattr(Graph, _name):
            setattr(DistGraph, _name, _refusing(_name, _what))
