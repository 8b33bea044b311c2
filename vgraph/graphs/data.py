"""Relations: the types of a graph's nodes and edges, and one Topology for each type of edges.

Takes: topologies and frames by type. Gives: what a name of a type means, and counts. Runs once per topology.
Source: DGL section 3 (heterogeneous graphs); a graph without types is the case of one of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.frame import Frame
from vgraph.ir.topology import Topology
from vgraph.late import late

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = late("networkx")

EdgeType: TypeAlias = tuple[str, str, str]  # (type of sources, name, type of destinations)
NODE, EDGE = "_N", "_E"  # what DGL calls the types of a graph that has none
UNTYPED: EdgeType = (NODE, EDGE, NODE)
_MOST_FORMS = 1000
_forms: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # one object each, so that hundreds are compared at a glance


class Relations:
    """Topologies by edge type, frames by type; the part of a Graph that knows names."""

    def __init__(
        self,
        topologies: Mapping[EdgeType, Topology],
        src: dict[str, Frame],
        dst: dict[str, Frame],
        edges: dict[EdgeType, Frame],
        gdata: Frame,
        sizes: Mapping[str, tuple[int, ...]] | None,
    ) -> None:
        """``src`` is ``dst``, but in a block; ``sizes``: nodes of each graph of a batch, by type."""
        self._src, self._dst, self._edges, self._gdata = src, dst, edges, gdata
        nodes = src.values() if src is dst else [*src.values(), *dst.values()]
        self._frames = (*nodes, *edges.values(), gdata)
        self._join(topologies, sizes)

    def _join(self, topologies: Mapping[EdgeType, Topology], sizes: Mapping[str, tuple[int, ...]] | None) -> None:
        """Other edges between the nodes that there are."""
        self.member: Any = None  # which slice of a whole this is
        self._topologies, self._sizes = dict(topologies), sizes
        self.messages: dict[EdgeType, tuple[Tensor, dict[str, Tensor]]] = {}  # sent, not received
        self._single = next(iter(self._topologies.values())) if len(self._topologies) == 1 else None
        self._sole = None if self._single is None else self._relation(next(iter(self._topologies)))
        ids = next(iter(self._topologies.values())).src
        self._device = ids.device
        form = (tuple(self._src), tuple(self._topologies), self.is_block, ids.dtype, ids.device)
        self.form = _forms.setdefault(form, form) if len(_forms) < _MOST_FORMS else form

    form: tuple[Any, ...]  # equal for graphs that can be batched: types, and where and what ids are

    @property
    def topology(self) -> Topology:
        """The ids of all edges; GraphError: there are several types of them."""
        return self._single if self._single is not None else self._topologies[self._edge_type(None)]

    @property
    def src_frames(self) -> dict[str, Frame]:
        """Features by type of the nodes where edges begin (of all nodes, but in a block)."""
        return self._src

    @property
    def dst_frames(self) -> dict[str, Frame]:
        """Features by type of the nodes where edges end (of all nodes, but in a block)."""
        return self._dst

    @property
    def edge_frames(self) -> dict[EdgeType, Frame]:
        """Features by type of the edges."""
        return self._edges

    @property
    def sizes(self) -> Mapping[str, tuple[int, ...]] | None:
        """The nodes of each graph of a batch, by type; None: it is no batch."""
        return self._sizes

    # ------------------------------------------------------------ names
    @property
    def ntypes(self) -> list[str]:
        """Names of the node types, sorted; in a block those of the sources, then of the destinations."""
        return list(self._src) if self._src is self._dst else [*self._src, *self._dst]

    @property
    def srctypes(self) -> list[str]:
        """Node types where edges may begin."""
        if self.is_block:
            return list(self._src)
        return [t for t in self._src if any(t == s for s, _, _ in self._topologies)] if self._splits else self.ntypes

    @property
    def dsttypes(self) -> list[str]:
        """Node types where edges may end."""
        if self.is_block:
            return list(self._dst)
        return [t for t in self._src if any(t == d for _, _, d in self._topologies)] if self._splits else self.ntypes

    @property
    def _splits(self) -> bool:
        """Whether no type is at both ends."""
        return not {s for s, _, _ in self._topologies} & {d for _, _, d in self._topologies}

    @property
    def etypes(self) -> list[str]:
        """Names of the edge types, in the order of ``canonical_etypes``."""
        return [name for _, name, _ in self._topologies]

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """Edge types as (type of sources, name, type of destinations), sorted."""
        return list(self._topologies)

    @property
    def is_block(self) -> bool:
        """Whether sources and destinations are kept apart; see ``to_block``."""
        return self._src is not self._dst

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one type of nodes and one of edges."""
        return self._single is not None and self._src is self._dst and len(self._src) == 1

    @property
    def is_unibipartite(self) -> bool:
        """Whether no node type is at both ends of edges."""
        return self.is_block or self._splits

    def to_canonical_etype(self, etype: Any) -> EdgeType:
        """The edge type of that name in full: (type of sources, name, type of destinations)."""
        return self._edge_type(etype)

    def get_ntype_id(self, ntype: str | None = None) -> int:
        """The place of a node type in ``ntypes``."""
        return self.ntypes.index(self._node_type(ntype))

    def get_etype_id(self, etype: Any = None) -> int:
        """The place of an edge type in ``etypes``."""
        return self.canonical_etypes.index(self._edge_type(etype))

    def metagraph(self) -> nx.MultiDiGraph[str]:
        """Types as a NetworkX graph: node types joined by edge types."""
        made: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        made.add_nodes_from(self.ntypes)
        for s, name, d in self._topologies:
            made.add_edge(s, d, key=name)
        return made

    def _edge_type(self, etype: Any) -> EdgeType:
        """What a name, a triple or None (there is only one) means."""
        if isinstance(etype, tuple) and len(etype) == 3 and etype in self._topologies:
            return etype
        found = [t for t in self._topologies if etype is None or t[1] == etype]
        if len(found) == 1:
            return found[0]
        known = ", ".join(map(str, self._topologies))
        if etype is None:
            fact = f"the graph has {len(self._topologies)} edge types: {known}"
            raise GraphError(fact, cure="name one of them with etype=")
        if found:
            raise GraphError(f"there are several edge types {etype!r}: {known}", cure="name its ends too")
        raise NameLookupError(f"there is no edge type {etype!r}; there is: {known}", cure="name one of them")

    def _node_type(self, ntype: str | None, among: Mapping[str, Frame] | None = None) -> str:
        """The type itself, or the only one there is."""
        there = self._src if among is None else among
        if ntype is not None and (ntype in there or (among is None and ntype in self._dst)):
            return ntype
        if ntype is None and len(there) == 1 and (among is not None or not self.is_block):
            return next(iter(there))
        known = ", ".join(map(repr, dict.fromkeys([*there, *(self._dst if among is None else ())])))
        if ntype is not None:
            fact = f"there is no node type {ntype!r}; there is: {known}"
            raise NameLookupError(fact, cure="name one of them")
        if among is None and self.is_block:
            raise GraphError("a block's sources and destinations are apart", cure="use src or dst names")
        fact = f"the graph has {len(there)} node types: {known}"
        raise GraphError(fact, cure="name one of them with ntype=")

    def _topology(self, etype: Any = None) -> Topology:
        if etype is None and self._single is not None:
            return self._single
        return self._topologies[self._edge_type(etype)]

    def node_frame(self, ntype: str | None = None) -> Frame:
        """The features of one node type; in a block of whichever side has it alone."""
        if self._src is self._dst:
            return self._src[self._node_type(ntype)]
        sides = [side[ntype] for side in (self._src, self._dst) if ntype in side]
        if len(sides) == 1:
            return sides[0]
        if not sides:
            self._node_type(ntype)
        fact = f"a block has nodes of type {ntype!r} on either side"
        raise GraphError(fact, cure="use srcnodes or dstnodes, srcdata or dstdata")

    def relation(self, etype: Any = None) -> tuple[Topology, Frame, Frame, Frame]:
        """One type of edges: its topology, and the features of sources, destinations and edges."""
        if etype is None and self._sole is not None:
            return self._sole
        return self._relation(self._edge_type(etype))

    def _relation(self, key: EdgeType) -> tuple[Topology, Frame, Frame, Frame]:
        return self._topologies[key], self._src[key[0]], self._dst[key[2]], self._edges[key]

    # ------------------------------------------------------------ counts
    def num_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes of a type, or of all."""
        if self._single is not None and ntype is None and self._src is self._dst and len(self._src) == 1:
            return self._single.num_dst
        if ntype is None:
            return _num_rows(self._src.values()) + (_num_rows(self._dst.values()) if self.is_block else 0)
        return self.node_frame(ntype).num_rows

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may begin."""
        if ntype is not None:
            return self._src[self._node_type(ntype, self._src)].num_rows
        return _num_rows(self._src[t] for t in self.srctypes)

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """The number of nodes where edges may end."""
        if ntype is not None:
            return self._dst[self._node_type(ntype, self._dst)].num_rows
        return _num_rows(self._dst[t] for t in self.dsttypes)

    def num_edges(self, etype: Any = None) -> int:
        """The number of edges of a type, or of all."""
        if etype is None:
            if self._single is not None:
                return self._single.src.shape[0]
            return sum(t.num_edges for t in self._topologies.values())
        return self._topology(etype).num_edges

    number_of_nodes, number_of_edges = num_nodes, num_edges
    number_of_src_nodes, number_of_dst_nodes = num_src_nodes, num_dst_nodes

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def idtype(self) -> torch.dtype:
        return next(iter(self._topologies.values())).src.dtype

    # ------------------------------------------------------------ batches
    @property
    def batch_size(self) -> int:
        """The number of graphs that were batched."""
        return 1 if self._sizes is None else len(next(iter(self._sizes.values())))

    def batch_num_nodes(self, ntype: str | None = None) -> Tensor:
        """The number of nodes of every graph of the batch, (batch_size,)."""
        name = self._node_type(ntype)
        sizes = (self.node_frame(name).num_rows,) if self._sizes is None else self._sizes[name]
        return torch.tensor(sizes, dtype=self.idtype, device=self.device)

    def batch_num_edges(self, etype: Any = None) -> Tensor:
        """The number of edges of every graph of the batch, (batch_size,)."""
        return torch.tensor(self._edge_sizes(self._edge_type(etype)), dtype=self.idtype, device=self.device)

    def _edge_sizes(self, etype: EdgeType) -> tuple[int, ...]:
        """An edge belongs to the graph of its destination."""
        t = self._topologies[etype]
        if self._sizes is None:
            return (t.num_edges,)
        return t.keep("edges by graph", lambda: count_edges(t))


def count_edges(topology: Topology) -> tuple[int, ...]:
    """The number of edges of every graph of a batch."""
    if topology.parts is not None and len(topology.parts) == len(topology.graph_sizes or ()):
        return tuple(part.num_edges for part in topology.parts)
    graphs = topology.graph_ids.index_select(0, topology.dst)
    return tuple(torch.bincount(graphs, minlength=len(topology.graph_sizes or (1,))).tolist())


def _num_rows(frames: Iterable[Frame]) -> int:
    return sum(frame.num_rows for frame in frames)
