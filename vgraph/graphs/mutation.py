"""Mutation: nodes and edges that come and go, with their features.

Takes: counts, ids and features. Gives: the same Graph with other Topologies. Runs once per sample.
Source: DGL section 3. A Topology is replaced, never changed, so what was planned on it stays right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral

import torch
from torch import Tensor

from vgraph.arguments import checked
from vgraph.errors import GraphError
from vgraph.graphs.edge_formats import ROWS, check_idtype, check_likely
from vgraph.graphs.frame import add_rows, as_ids, keep_rows, refuse_meta, resolve_ids
from vgraph.graphs.matrices import Matrices
from vgraph.graphs.types import EdgeType, EType, Ids
from vgraph.graphs.views import AllOrNothing
from vgraph.ir.topology import Topology

Counts = Tensor | Sequence[int]  # one a graph
ID = "_ID"  # the feature that holds the ids of before


class Mutation(Matrices):
    """The part of a Graph that changes its nodes and edges; what raises has changed nothing."""

    def all_or_nothing(self) -> AllOrNothing:
        """A context that an error leaves with features and edges as they were at its beginning.

        Returns:
            What a ``with`` statement takes. It gives no name of its own: the graph itself is used within.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> try:
            ...     with g.all_or_nothing():
            ...         g.ndata["h"] = torch.ones(3)
            ...         g.ndata["x"] = torch.ones(2)
            ... except vgraph.VGraphError as error:
            ...     print(error.fact, "h" in g.ndata)
            node feature 'x' has 2 rows where 3 are needed False
        """
        return AllOrNothing(self.__dict__, self._frames)

    @checked(num=ROWS)
    def add_nodes(self, num: int, data: Mapping[str, Tensor] | None = None, ntype: str | None = None) -> None:
        """Appends nodes, numbered after those there are.

        A batch is one graph afterwards, and its ``gdata`` are gone, as the new nodes belong to none of its graphs.

        Args:
            num: how many.
            data: features by name, (num, ...) each; what it leaves out comes from the initializer, which gives zeros.
            ntype: the type of nodes, or None where there is one.

        Raises:
            ArgumentError: ``num`` is no whole number from 0 up.
            GraphError: the graph is a block, or messages that were sent lie on its edges.
            FeatureError: a feature has not one row a new node, or another shape than there is.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.add_nodes(2)
            >>> g.num_nodes()
            5
        """
        with self.all_or_nothing():
            name = self._mutable(ntype)
            check_idtype(self.idtype, self._src[name].num_rows + num, 0)
            add_rows(self._src[name], int(num), data)
            self._grow({name: int(num)})

    def _mutable(self, ntype: str | None) -> str:
        if self.is_block:
            fact = "a block's nodes and edges do not change"
            raise GraphError(fact, cure="turn it into a graph with block_to_graph")
        if any(ids.numel() for ids, _ in self.messages.values()):
            cure = "call recv before nodes or edges come and go, or g.messages.clear()"
            raise GraphError("messages that were sent lie on the edges", cure=cure)
        self._leave_shared_frames()
        return self._node_type(ntype)

    def _grow(self, extra: Mapping[str, int]) -> None:
        """Node counts follow the frames; new nodes belong to none of the graphs of a batch."""
        if not any(extra.values()):
            return
        if self._sizes is not None:
            self._gdata.columns, self._gdata.num_rows = {}, 1
        counts = {t: frame.num_rows for t, frame in self._src.items()}
        self._join({e: _resized(t, counts, e) for e, t in self._topologies.items()}, None)

    def add_edges(self, u: Ids, v: Ids, data: Mapping[str, Tensor] | None = None, etype: EType = None) -> None:
        """Appends edges ``u[i] -> v[i]``, numbered after those there are; ``add_edge`` is the same.

        Nodes that do not exist yet are added, with features from their initializers.

        Args:
            u: the sources: an id or ids (k,); one is joined to every ``v``.
            v: the destinations: an id or ids (k,); one is joined to every ``u``.
            data: features by name, (k, ...) each; what it leaves out comes from the initializer, which gives zeros.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Raises:
            GraphError: the ends differ in length, an id is negative or so large that most nodes would have no edge,
                the graph is a block, or messages that were sent lie on its edges.
            DTypeError: ids are not whole numbers.
            FeatureError: a feature has not one row a new edge, or another shape than there is.
            DeviceError: ids are on the meta device.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.add_edges([2, 2], 3)
            >>> g.num_edges(), g.num_nodes()
            (4, 4)
        """
        with self.all_or_nothing():
            key = self._edge_type(etype)
            self._mutable(key[0])
            old = self._topologies[key]
            ends = [self._new_ends(end, what) for end, what in ((u, "u"), (v, "v"))]
            src, dst = _as_many(*ends)
            check_idtype(self.idtype, 0, old.num_edges + src.shape[0])
            extra = self._missing_nodes({key[0]: src, key[2]: torch.cat([src, dst]) if key[0] == key[2] else dst})
            add_rows(self._edges[key], src.shape[0], data)
            for name, count in extra.items():
                add_rows(self._src[name], count)
            self._grow(extra)
            old = self._topologies[key]
            joined = replace(old, src=torch.cat([old.src, src]), dst=torch.cat([old.dst, dst]), parts=None, host=None)
            self._join({**self._topologies, key: joined}, self._sizes)

    add_edge = add_edges

    def _new_ends(self, end: Ids, what: str) -> Tensor:
        is_one = isinstance(end, Integral) or (isinstance(end, Tensor) and end.ndim == 0)
        given = end.reshape(1) if isinstance(end, Tensor) and is_one else [end] if is_one else end
        ids = as_ids(given, what)
        refuse_meta(ids, what)
        ids = ids.to(self.device)
        if ids.numel() and int(ids.min()) < 0:
            first = int((ids < 0).nonzero()[0])
            raise GraphError(f"{what}[{first}] is {int(ids[first])}", cure="ids count from 0")
        if ids.numel():
            check_idtype(self.idtype, int(ids.max()) + 1, 0)
        return ids.to(self.idtype)

    def _missing_nodes(self, ends: Mapping[str, Tensor]) -> dict[str, int]:
        largest = {name: int(ids.max()) for name, ids in ends.items() if ids.numel()}
        found = {name: most + 1 - self._src[name].num_rows for name, most in largest.items()}
        for name, count in found.items():
            check_likely(count, largest[name], ends[name].shape[0], "call add_nodes first")
        return {name: count for name, count in found.items() if count > 0}

    @checked()
    def remove_edges(self, eids: Ids, etype: EType = None, store_ids: bool = False) -> None:
        """Removes edges by id; the others keep their order and features, and are numbered anew.

        Args:
            eids: the edges: an id, ids (k,), a mask or a slice.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.
            store_ids: set the feature ``"_ID"`` of edges to the ids of before.

        Raises:
            GraphError: there is no such edge, the graph is a block, or messages that were sent lie on its edges.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.remove_edges(0, store_ids=True)
            >>> g.edges(), g.edata["_ID"]
            ((tensor([1]), tensor([2])), tensor([1]))
        """
        with self.all_or_nothing():
            key = self._edge_type(etype)
            self._mutable(key[0])
            count = self._topologies[key].num_edges
            gone = resolve_ids(eids, count, self.device, "edge")
            self._keep({}, {key: _others(gone, count)}, store_ids)

    @checked()
    def remove_nodes(self, nids: Ids, ntype: str | None = None, store_ids: bool = False) -> None:
        """Removes nodes by id and the edges at them; the others are numbered anew, in order.

        Args:
            nids: the nodes: an id, ids (k,), a mask or a slice.
            ntype: the type of nodes, or None where there is one.
            store_ids: set the features ``"_ID"`` of nodes and edges to the ids of before.

        Raises:
            GraphError: there is no such node, the graph is a block, or messages that were sent lie on its edges.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.remove_nodes([0])
            >>> g.edges()
            (tensor([0]), tensor([1]))
        """
        with self.all_or_nothing():
            name = self._mutable(ntype)
            count = self._src[name].num_rows
            kept = _others(resolve_ids(nids, count, self.device), count)
            is_kept = torch.zeros(count, dtype=torch.bool, device=self.device).index_fill_(0, kept, True)
            edges: dict[EdgeType, Tensor] = {}
            for key, t in self._topologies.items():
                sides = [is_kept[end] for end, side in ((t.src, key[0]), (t.dst, key[2])) if side == name]
                if sides:
                    edges[key] = (sides[0] & sides[-1]).nonzero().squeeze(1)
            self._keep({name: kept}, edges, store_ids)

    def _keep(self, nodes: Mapping[str, Tensor], edges: Mapping[EdgeType, Tensor], store_ids: bool) -> None:
        """Drops all other nodes and edges of the types named; what is not named stays."""
        frames = [(self._src[t], ids) for t, ids in nodes.items()]
        frames += [(self._edges[t], ids) for t, ids in edges.items()]
        for frame, ids in frames:
            keep_rows(frame, ids)
        if store_ids:
            for frame in (*(self._src.values() if nodes else ()), *self._edges.values()):
                known = next((ids for own, ids in frames if own is frame), None)
                frame[ID] = self._arange(frame.num_rows) if known is None else known.to(self.idtype)
        sizes = _kept_sizes(self._sizes, nodes)
        topologies = {key: kept_topology(t, key, nodes, edges, sizes) for key, t in self._topologies.items()}
        self._join(topologies, sizes)

    # ------------------------------------------------------------ batches
    def set_batch_num_nodes(self, val: Counts | Mapping[str, Counts]) -> None:
        """Says that the nodes are those of several graphs, one after the other; see ``batch_num_nodes``.

        Args:
            val: the number of nodes of every graph, (batch_size,); by type, where there are several.

        Raises:
            GraphError: the numbers of a type do not sum to its nodes, one is negative, or types have other numbers of
                graphs.
            DTypeError: they are not whole numbers.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 2], [1, 3]))
            >>> g.set_batch_num_nodes(torch.tensor([2, 2]))
            >>> g.batch_size, g.batch_num_edges()
            (2, tensor([1, 1]))
        """
        given = val if isinstance(val, Mapping) else {self._node_type(None): val}
        sizes = {t: tuple(as_ids(n, "batch_num_nodes").tolist()) for t, n in given.items()}
        num_graphs = len(next(iter(sizes.values()), ()))
        for t in self._src:
            own = sizes.get(t, ())
            if sum(own) != self._src[t].num_rows or len(own) != num_graphs or min(own, default=-1) < 0:
                fact = f"batch_num_nodes of {t!r} is {sizes.get(t)} for {self._src[t].num_rows} nodes"
                raise GraphError(fact, cure="give the nodes of every graph, for every type")
        self._join({k: _of_sizes(t, sizes[k[2]]) for k, t in self._topologies.items()}, sizes)
        if self._gdata.num_rows != self.batch_size:
            self._gdata.columns, self._gdata.num_rows = {}, self.batch_size

    def set_batch_num_edges(self, val: Counts | Mapping[EdgeType, Counts]) -> None:
        """Checks the number of edges of every graph, which follows from ``set_batch_num_nodes``, called before.

        Args:
            val: the number of edges of every graph, (batch_size,); by type, where there are several.

        Raises:
            GraphError: other numbers of edges end in the graphs.
            DTypeError: they are not whole numbers.
            NameLookupError: there is no such type.

        Example:
            >>> import torch, vgraph
            >>> g = vgraph.graph(([0, 2], [1, 3]))
            >>> g.set_batch_num_nodes(torch.tensor([2, 2]))
            >>> g.set_batch_num_edges(torch.tensor([1, 1]))
        """
        given = val if isinstance(val, Mapping) else {self._edge_type(None): val}
        for key, counts in given.items():
            there, wanted = self.batch_num_edges(key).tolist(), as_ids(counts, "batch_num_edges").tolist()
            if there != wanted:
                fact = f"batch_num_edges is {wanted}; {there} edges end in the graphs"
                raise GraphError(fact, cure="call set_batch_num_nodes first, with every graph's")


def _resized(t: Topology, counts: Mapping[str, int], key: EdgeType) -> Topology:
    return replace(_of_sizes(t, None), num_src=counts[key[0]], num_dst=counts[key[2]])


def _of_sizes(t: Topology, sizes: tuple[int, ...] | None) -> Topology:
    """The same edges of a batch of other graphs; what the CPU knows of them is of the former ones."""
    return replace(t, graph_sizes=sizes, parts=None, host=None)


def _as_many(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if u.shape != v.shape and 1 not in (len(u), len(v)):
        fact = f"there are {len(u)} ids in u and {len(v)} in v"
        raise GraphError(fact, cure="pass as many of both, or one")
    return (u.expand_as(v), v) if len(u) == 1 else (u, v.expand_as(u))


def _others(gone: Tensor, count: int) -> Tensor:
    """All ids below ``count`` but those, ascending."""
    kept = torch.ones(count, dtype=torch.bool, device=gone.device).index_fill_(0, gone, False)
    return kept.nonzero().squeeze(1)


def _kept_sizes(
    sizes: Mapping[str, tuple[int, ...]] | None, nodes: Mapping[str, Tensor]
) -> Mapping[str, tuple[int, ...]] | None:
    """How many nodes each graph of a batch has left; the kept ones ascend."""
    if sizes is None:
        return None
    found = dict(sizes)
    for name, ids in nodes.items():
        ends = torch.tensor(sizes[name], device=ids.device).cumsum(0)
        until = torch.searchsorted(ids, ends)
        found[name] = tuple(torch.diff(until, prepend=until.new_zeros(1)).tolist())
    return found


def kept_topology(
    t: Topology,
    key: EdgeType,
    nodes: Mapping[str, Tensor],
    edges: Mapping[EdgeType, Tensor],
    sizes: Mapping[str, tuple[int, ...]] | None,
) -> Topology:
    """Some of the edges, in the order given, their ends numbered anew where nodes were chosen."""
    if key not in edges and key[0] not in nodes and key[2] not in nodes:
        return t if sizes is None or t.graph_sizes == sizes[key[2]] else _of_sizes(t, sizes[key[2]])
    src, dst = (end if key not in edges else end.index_select(0, edges[key]) for end in (t.src, t.dst))
    src, num_src = _renumbered(src, nodes.get(key[0]), t.num_src)
    dst, num_dst = _renumbered(dst, nodes.get(key[2]), t.num_dst)
    return Topology(src, dst, num_src, num_dst, None if sizes is None else sizes[key[2]])


def _renumbered(end: Tensor, kept: Tensor | None, count: int) -> tuple[Tensor, int]:
    if kept is None:
        return end, count
    places = torch.empty(count, dtype=end.dtype, device=end.device)
    places[kept] = torch.arange(kept.shape[0], dtype=end.dtype, device=end.device)
    return places.index_select(0, end), kept.shape[0]
