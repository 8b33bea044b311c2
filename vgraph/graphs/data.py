"""Relations: the types of a graph's nodes and edges, and one Topology for each type of edges.

Takes: topologies and frames by type. Gives: what a name of a type means, and counts. Runs once per topology.
Source: DGL section 3 (heterogeneous graphs); a graph without types is the case of one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import Self

from vgraph.errors import GraphError, NameLookupError
from vgraph.graphs.frame import Frame
from vgraph.graphs.types import EdgeType, EType
from vgraph.ir.topology import Topology
from vgraph.late import late

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = late("networkx")

NODE, EDGE = "_N", "_E"  # what DGL calls the types of a graph that has none
UNTYPED: EdgeType = (NODE, EDGE, NODE)
_MOST_FORMS = 1000
_forms: dict[tuple[object, ...], tuple[object, ...]] = {}  # one object each, so that hundreds are compared at a glance


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
        self.member: object = None  # which slice of a whole this is
        self._topologies, self._sizes = dict(topologies), sizes
        self.messages: dict[EdgeType, tuple[Tensor, dict[str, Tensor]]] = {}  # sent, not received
        self._single = next(iter(self._topologies.values())) if len(self._topologies) == 1 else None
        self._sole_type = None if self._single is None else next(iter(self._topologies))
        self._sole = None if self._sole_type is None else self._relation(self._sole_type)
        ids = next(iter(self._topologies.values())).src
        self._device = ids.device
        form = (tuple(self._src), tuple(self._topologies), self.is_block, ids.dtype, ids.device)
        self.form = _forms.setdefault(form, form) if len(_forms) < _MOST_FORMS else form

    def _with_own_frames(self) -> Self:
        """The same edges with frames of its own. What is known of the edges is kept: layers ask for one every time."""
        made = type(self).__new__(type(self))
        src = {t: frame.copy() for t, frame in self._src.items()}
        dst = src if self._dst is self._src else {t: frame.copy() for t, frame in self._dst.items()}
        edges, made._gdata = {t: frame.copy() for t, frame in self._edges.items()}, self._gdata.copy()
        made._src, made._dst, made._edges = src, dst, edges
        made._frames = (*src.values(), *(() if dst is src else dst.values()), *edges.values(), made._gdata)
        made.member, made.messages, made.form, made._device = None, {}, self.form, self._device
        made._topologies, made._sizes, made._single = dict(self._topologies), self._sizes, self._single
        made._sole_type = self._sole_type
        made._sole = None if self._sole_type is None else made._relation(self._sole_type)
        return made

    def _leave_shared_frames(self) -> None:
        """Frames of its own where another graph has these, too: rows are about to come or go here alone."""
        if not any(frame.is_shared for frame in self._frames):
            return
        self._src = self._dst = {t: frame.copy() for t, frame in self._src.items()}
        self._edges = {t: frame.copy() for t, frame in self._edges.items()}
        self._frames = (*self._src.values(), *self._edges.values(), self._gdata)
        self._join(self._topologies, self._sizes)

    form: tuple[object, ...]  # equal for graphs that can be batched: types, and where and what ids are

    @property
    def topology(self) -> Topology:
        """The ids of all edges, as a Topology that is never changed.

        Raises:
            GraphError: there are several types of edges; ``g[etype]`` is a graph of one.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.topology.src, g.topology.num_edges
            (tensor([0, 1]), 2)
        """
        return self._single if self._single is not None else self._topologies[self._edge_type(None)]

    @property
    def src_frames(self) -> dict[str, Frame]:
        """The features of the nodes where edges begin, by type: of all nodes, but in a block.

        Example:
            >>> import vgraph
            >>> list(vgraph.graph(([0, 1], [2, 2])).src_frames)
            ['_N']
        """
        return self._src

    @property
    def dst_frames(self) -> dict[str, Frame]:
        """The features of the nodes where edges end, by type: of all nodes, but in a block.

        Example:
            >>> import vgraph
            >>> block = vgraph.to_block(vgraph.graph(([0, 1], [2, 2])), [2])
            >>> block.src_frames["_N"].num_rows, block.dst_frames["_N"].num_rows
            (3, 1)
        """
        return self._dst

    @property
    def edge_frames(self) -> dict[EdgeType, Frame]:
        """The features of the edges, by type.

        Example:
            >>> import vgraph
            >>> list(vgraph.graph(([0, 1], [2, 2])).edge_frames)
            [('_N', '_E', '_N')]
        """
        return self._edges

    @property
    def sizes(self) -> Mapping[str, tuple[int, ...]] | None:
        """The number of nodes of each graph of a batch, by type; None where the graph is no batch.

        Example:
            >>> import vgraph
            >>> tree = vgraph.graph(([0, 1], [2, 2]))
            >>> tree.sizes, vgraph.batch([tree, tree]).sizes
            (None, {'_N': (3, 3)})
        """
        return self._sizes

    # ------------------------------------------------------------ names
    @property
    def ntypes(self) -> list[str]:
        """The names of the node types, sorted; in a block those of the sources, then those of the destinations.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).ntypes
            ['game', 'user']
        """
        return list(self._src) if self._src is self._dst else [*self._src, *self._dst]

    @property
    def srctypes(self) -> list[str]:
        """The names of the node types where edges may begin.

        In a graph in which a type is at both ends of edges, those are all types.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).srctypes
            ['user']
        """
        if self.is_block:
            return list(self._src)
        return [t for t in self._src if any(t == s for s, _, _ in self._topologies)] if self._splits else self.ntypes

    @property
    def dsttypes(self) -> list[str]:
        """The names of the node types where edges may end.

        In a graph in which a type is at both ends of edges, those are all types.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).dsttypes
            ['game']
        """
        if self.is_block:
            return list(self._dst)
        return [t for t in self._src if any(t == d for _, _, d in self._topologies)] if self._splits else self.ntypes

    @property
    def _splits(self) -> bool:
        """Whether no type is at both ends."""
        return not {s for s, _, _ in self._topologies} & {d for _, _, d in self._topologies}

    @property
    def etypes(self) -> list[str]:
        """The names of the edge types, in the order of ``canonical_etypes``; a name may occur more than once.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).etypes
            ['plays']
        """
        return [name for _, name, _ in self._topologies]

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """The edge types as triples (type of sources, name, type of destinations), sorted.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).canonical_etypes
            [('user', 'plays', 'game')]
        """
        return list(self._topologies)

    @property
    def is_block(self) -> bool:
        """Whether sources and destinations are kept apart, as ``vgraph.to_block`` and ``vgraph.create_block`` do.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.is_block, vgraph.to_block(g).is_block
            (False, True)
        """
        return self._src is not self._dst

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one type of nodes and one of edges, and the graph is no block.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).is_homogeneous
            True
        """
        return self._single is not None and self._src is self._dst and len(self._src) == 1

    @property
    def is_unibipartite(self) -> bool:
        """Whether no node type is at both ends of edges.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).is_unibipartite
            True
        """
        return self.is_block or self._splits

    def to_canonical_etype(self, etype: EType) -> EdgeType:
        """The triple (type of sources, name, type of destinations) that an edge type's name means.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Three strings.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).to_canonical_etype("plays")
            ('user', 'plays', 'game')
        """
        return self._edge_type(etype)

    def get_ntype_id(self, ntype: str | None = None) -> int:
        """The place of a node type in ``ntypes``, which numbers the types in ``to_homogeneous``.

        Args:
            ntype: the type of nodes, or None where there is one.

        Returns:
            A number from 0 up.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).get_ntype_id("user")
            1
        """
        return self.ntypes.index(self._node_type(ntype))

    def get_etype_id(self, etype: EType = None) -> int:
        """The place of an edge type in ``canonical_etypes``, which numbers the types in ``to_homogeneous``.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A number from 0 up.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).get_etype_id("plays")
            0
        """
        return self.canonical_etypes.index(self._edge_type(etype))

    def metagraph(self) -> nx.MultiDiGraph[str]:
        """The types as a NetworkX graph: node types joined by edge types.

        Returns:
            A MultiDiGraph whose nodes are the names of node types and whose edges have the names of edge types as
            keys.

        Example:
            >>> import vgraph
            >>> list(vgraph.heterograph({("user", "plays", "game"): ([0], [0])}).metagraph().edges(keys=True))
            [('user', 'game', 'plays')]
        """
        made: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        places = {name: place for place, name in enumerate(self.ntypes)}
        for s, name, d in sorted(self._topologies, key=lambda one: places[one[0]]):  # from whom edges go: DGL's order
            made.add_edge(s, d, key=name)
        made.add_nodes_from(self.ntypes)  # at which no edge is
        return made

    def _edge_type(self, etype: EType) -> EdgeType:
        """What a name, a triple or None (there is only one) means."""
        if etype is None and self._sole_type is not None:
            return self._sole_type
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
        if not (ntype is None or isinstance(ntype, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NameLookupError(f"there is no node type {ntype!r}; types have names", cure="name one, or give None")
        there = self._src if among is None else among
        if ntype is not None and (ntype in there or (among is None and ntype in self._dst)):
            return ntype
        if ntype is not None and among is None and ntype[:4] in ("SRC/", "DST/") and self.is_unibipartite:
            frames, types = (self._src, self.srctypes) if ntype[0] == "S" else (self._dst, self.dsttypes)
            return self._node_type(ntype[4:], {t: frames[t] for t in types})
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

    def _topology(self, etype: EType = None) -> Topology:
        if etype is None and self._single is not None:
            return self._single
        return self._topologies[self._edge_type(etype)]

    def node_frame(self, ntype: str | None = None) -> Frame:
        """The features of one node type; in a block of the sources, where both sides have it.

        Args:
            ntype: the type of nodes, or None where there is one; ``"SRC/name"`` and ``"DST/name"`` say which side of
                a block is meant.

        Returns:
            The Frame itself: what is set in it is set in the graph.

        Raises:
            GraphError: there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.ndata["h"] = torch.ones(3, 4)
            >>> g.node_frame()
            {'h': float32 (3, 4)}
        """
        if self._src is self._dst:
            return self._src[self._node_type(ntype)]
        if ntype is not None and ntype[:4] in ("SRC/", "DST/") and ntype[4:]:
            side = self._src if ntype[0] == "S" else self._dst
            return side[self._node_type(ntype[4:], side)]
        name = self._node_type(ntype)
        return self._src[name] if name in self._src else self._dst[name]

    def relation(self, etype: EType = None) -> tuple[Topology, Frame, Frame, Frame]:
        """One type of edges: its topology, and the features of its sources, destinations and edges.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A Topology and three Frames, which are the graph's own. The first two are the same object where a type is
            joined to itself.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> topology, src, dst, edges = vgraph.graph(([0, 1], [2, 2])).relation()
            >>> topology.num_edges, src is dst, edges.num_rows
            (2, True, 2)
        """
        if etype is None and self._sole is not None:
            return self._sole
        return self._relation(self._edge_type(etype))

    def _relation(self, key: EdgeType) -> tuple[Topology, Frame, Frame, Frame]:
        return self._topologies[key], self._src[key[0]], self._dst[key[2]], self._edges[key]

    # ------------------------------------------------------------ where and what ids are
    @property
    def device(self) -> torch.device:
        """The device where ids and features lie.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).device
            device(type='cpu')
        """
        return self._device

    @property
    def idtype(self) -> torch.dtype:
        """The dtype of ids: ``torch.int64`` or ``torch.int32``.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).idtype
            torch.int64
        """
        return next(iter(self._topologies.values())).idtype
