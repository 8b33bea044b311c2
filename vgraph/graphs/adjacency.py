"""Adjacency: what a graph answers about its nodes and edges.

Takes: a Topology and ids. Gives: ids, counts, index arrays. Runs once per topology.
Source: DGL section 3; its words (uv, eid, all) are kept.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from vgraph.arguments import checked
from vgraph.compiled_calls import compiled_calls
from vgraph.errors import GraphError
from vgraph.graphs.counts import Counts
from vgraph.graphs.edge_formats import number_pairs
from vgraph.graphs.frame import as_ids, resolve_ids
from vgraph.graphs.types import EType, Ids
from vgraph.ir.topology import Compressed, Topology


class Adjacency(Counts):
    """The part of a Graph that asks its topologies only; ``etype`` may be left out where there is one."""

    def in_degrees(self, v: Ids | None = None, etype: EType = None) -> Any:
        """The number of in-edges of all nodes, or of some.

        Args:
            v: the nodes: an id, ids (k,), a mask, a slice, or None for all of the type where edges end.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (k,) in the dtype of ids, a copy that may be written into; a plain int where ``v`` is one. Several edges
            from one node count one by one.

        Raises:
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).in_degrees()
            tensor([0, 0, 2])
        """
        t = self._topology(etype)
        return self._degrees(_degrees_of(t, out=False), v, t.num_dst)

    def out_degrees(self, u: Ids | None = None, etype: EType = None) -> Any:
        """The number of out-edges of all nodes, or of some.

        Args:
            u: the nodes: an id, ids (k,), a mask, a slice, or None for all of the type where edges begin.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (k,) in the dtype of ids, a copy that may be written into; a plain int where ``u`` is one. Several edges
            to one node count one by one.

        Raises:
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).out_degrees(1)
            1
        """
        t = self._topology(etype)
        return self._degrees(_degrees_of(t, out=True), u, t.num_src)

    def _degrees(self, degrees: Tensor, v: Ids | None, count: int) -> Any:
        if is_all(v):
            return degrees.to(self.idtype, copy=True)  # the topology's own must not be written to
        found = degrees.index_select(0, self._ids(v, count)).to(self.idtype)
        return int(found) if isinstance(v, Integral) else found

    # ------------------------------------------------------------ who is joined to whom
    def all_edges(self, form: str = "uv", order: str | None = "eid", etype: EType = None) -> Any:
        """All edges of a type: their ends, their ids, or both.

        Args:
            form: "uv" for (src, dst), "eid" for ids, "all" for (src, dst, ids).
            order: "eid", in order of ids (None means the same), or "srcdst", by source, then by destination, then by
                id.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A tensor or a tuple of tensors, each (num_edges,) in the dtype of ids: copies, which may be written into.

        Raises:
            GraphError: ``form`` or ``order`` is another word, or there are several types of edges and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([1, 0], [2, 2])).all_edges(form="all", order="srcdst")
            (tensor([0, 1]), tensor([2, 2]), tensor([1, 0]))
        """
        t = self._topology(etype)
        if order in ("eid", None):
            if form == "eid":
                return self._arange(t.num_edges)
            src, dst = t.src.clone(), t.dst.clone()  # compiled loops trust the graph's own
            return _pick(form, src, dst, src if form == "uv" else self._arange(t.num_edges))
        if order != "srcdst":
            raise GraphError(f"order is {order!r}", cure='pass "eid" or "srcdst"')
        ids = _sorted_pairs(t)[1]
        return _pick(form, t.src.index_select(0, ids), t.dst.index_select(0, ids), ids.to(self.idtype, copy=True))

    def in_edges(self, v: Ids, form: str = "uv", etype: EType = None) -> Any:
        """The edges that end in some nodes, node by node, and by id within a node.

        Args:
            v: the nodes: an id, ids (k,), a mask or a slice.
            form: "uv" for (src, dst), "eid" for ids, "all" for (src, dst, ids).
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A tensor or a tuple of tensors with one entry an edge, in the dtype of ids. A node without in-edges adds
            none; one that is named twice adds its edges twice.

        Raises:
            GraphError: an id is out of range, ``form`` is another word, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).in_edges([0, 2])
            (tensor([0, 1]), tensor([2, 2]))
        """
        t = self._topology(etype)
        src, dst, ids = self._incident(t.csc, v, t)
        return _pick(form, src, dst, ids)

    def out_edges(self, u: Ids, form: str = "uv", etype: EType = None) -> Any:
        """The edges that begin in some nodes, node by node, and by id within a node.

        Args:
            u: the nodes: an id, ids (k,), a mask or a slice.
            form: "uv" for (src, dst), "eid" for ids, "all" for (src, dst, ids).
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A tensor or a tuple of tensors with one entry an edge, in the dtype of ids. A node without out-edges adds
            none; one that is named twice adds its edges twice.

        Raises:
            GraphError: an id is out of range, ``form`` is another word, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).out_edges(1, form="eid")
            tensor([1])
        """
        t = self._topology(etype)
        dst, src, ids = self._incident(t.csr, u, t)
        return _pick(form, src, dst, ids)

    def predecessors(self, v: Ids, etype: EType = None) -> Tensor:
        """The nodes where the in-edges of ``v`` begin.

        Args:
            v: the nodes: an id, ids (k,), a mask or a slice.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            One entry an edge, in the dtype of ids; a node that is joined by several edges occurs as often.

        Raises:
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).predecessors(2)
            tensor([0, 1])
        """
        return self.in_edges(v, etype=etype)[0]

    def successors(self, v: Ids, etype: EType = None) -> Tensor:
        """The nodes where the out-edges of ``v`` end.

        Args:
            v: the nodes: an id, ids (k,), a mask or a slice.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            One entry an edge, in the dtype of ids; a node that is joined by several edges occurs as often.

        Raises:
            GraphError: an id is out of range, or there are several types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).successors(0)
            tensor([2])
        """
        return self.out_edges(v, etype=etype)[1]

    def find_edges(self, eid: Ids, etype: EType = None) -> tuple[Tensor, Tensor]:
        """The ends of edges by id.

        Args:
            eid: the edges: an id, ids (k,), a mask or a slice.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Sources and destinations, each (k,) in the dtype of ids.

        Raises:
            GraphError: an id is out of range, or there are several types and none is named.
            DTypeError: ids are not whole numbers.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).find_edges([1, 0])
            (tensor([1, 0]), tensor([2, 2]))
        """
        t = self._topology(etype)
        ids = resolve_ids(eid, t.num_edges, self.device, "edge")
        return t.src.index_select(0, ids), t.dst.index_select(0, ids)

    def has_nodes(self, vid: Ids, ntype: str | None = None) -> Any:
        """Whether there are nodes of such ids.

        Args:
            vid: an id or ids (k,); negative ones are of no node.
            ntype: the type of nodes, or None where there is one.

        Returns:
            bool (k,); a plain bool where ``vid`` is one id.

        Raises:
            GraphError: ids have more than one dim, or there are several types and none is named.
            DTypeError: ids are not whole numbers.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).has_nodes([0, 3])
            tensor([ True, False])
        """
        ids = as_ids([vid] if isinstance(vid, Integral) else vid, "node ids").to(self.device)
        found = (ids >= 0) & (ids < self.node_frame(ntype).num_rows)
        return bool(found) if isinstance(vid, Integral) else found

    def has_edges_between(self, u: Ids, v: Ids, etype: EType = None) -> Any:
        """Whether edges ``u[i] -> v[i]`` exist.

        Args:
            u: the sources: an id or ids (k,); one is paired with every ``v``.
            v: the destinations: an id or ids (k,); one is paired with every ``u``.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            bool (k,); a plain bool where both are one id.

        Raises:
            GraphError: an id is out of range, the numbers of ids differ, or there are several types and none is
                named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).has_edges_between([0, 2], [2, 0])
            tensor([ True, False])
        """
        found = self._find(self._topology(etype), u, v)[1] >= 0
        return bool(found) if isinstance(u, Integral) and isinstance(v, Integral) else found

    @checked()
    def edge_ids(self, u: Ids, v: Ids, return_uv: bool = False, etype: EType = None) -> Any:
        """The id of an edge ``u[i] -> v[i]``, or of all such edges; ``edge_id`` is the same.

        Args:
            u: the sources: an id or ids (k,); one is paired with every ``v``.
            v: the destinations: an id or ids (k,); one is paired with every ``u``.
            return_uv: give all edges from ``u[i]`` to ``v[i]``, with their ends. Pairs that no edge joins are left
                out then.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            (k,) in the dtype of ids, the smallest where several edges join a pair; an int where both ends are one id.
            With ``return_uv`` three tensors of one length: sources, destinations and ids.

        Raises:
            GraphError: there is no such edge, an id is out of range, the numbers of ids differ, or there are several
                types and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1, 0], [2, 2, 2])).edge_ids(0, 2, return_uv=True)
            (tensor([0, 0]), tensor([2, 2]), tensor([0, 2]))
        """
        t = self._topology(etype)
        pairs, found = self._find(t, u, v)
        if return_uv:
            return self._find_all(t, pairs)
        if found.numel() and int(found.min()) < 0:
            first = int((found < 0).nonzero()[0])
            src, dst = divmod(int(pairs[first]), t.num_dst)
            fact = f"there is no edge {src} -> {dst}"
            raise GraphError(fact, cure="ask has_edges_between first")
        is_one = isinstance(u, Integral) and isinstance(v, Integral)
        return int(found) if is_one else found.to(self.idtype)

    def has_edge_between(self, u: Ids, v: Ids, etype: EType = None) -> bool:
        """Whether there is an edge ``u -> v``.

        Args:
            u: the source, an id.
            v: the destination, an id.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A bool.

        Raises:
            GraphError: an id is out of range, these are several pairs or none, or there are several types and none
                is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).has_edge_between(0, 2)
            True
        """
        found = self.has_edges_between(u, v, etype)
        if isinstance(found, Tensor) and found.numel() != 1:
            fact = f"has_edge_between asks of one pair of nodes, not of {found.numel()}"
            raise GraphError(fact, cure="call has_edges_between")
        return bool(found)

    edge_id = edge_ids

    @property
    def is_multigraph(self) -> bool:
        """Whether any two nodes are joined by several edges of one type and direction.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 0], [2, 2])).is_multigraph, vgraph.graph(([0, 2], [2, 0])).is_multigraph
            (True, False)
        """
        return any(t.keep("is multigraph", lambda t=t: _has_twins(t)) for t in self._topologies.values())

    def _find(self, t: Topology, u: Ids, v: Ids) -> tuple[Tensor, Tensor]:
        """Pairs as numbers, and the edge that joins each, or -1."""
        starts, ends = self._ids(u, t.num_src), self._ids(v, t.num_dst)
        if starts.shape != ends.shape and 1 not in (len(starts), len(ends)):
            fact = f"there are {len(starts)} ids in u and {len(ends)} in v"
            raise GraphError(fact, cure="pass as many of both, or one")
        pairs, (known, edges) = number_pairs(starts, ends, t.num_src, t.num_dst), _sorted_pairs(t)
        if not len(known):
            return pairs, torch.full_like(pairs, -1)
        at = torch.searchsorted(known, pairs).clamp_(max=len(known) - 1)
        return pairs, torch.where(known[at] == pairs, edges[at], -1)

    def _find_all(self, t: Topology, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        known, edges = _sorted_pairs(t)
        first = torch.searchsorted(known, pairs)
        places = runs(first, torch.searchsorted(known, pairs, right=True) - first)
        ids = edges.index_select(0, places)
        return t.src.index_select(0, ids), t.dst.index_select(0, ids), ids.to(self.idtype)

    def _incident(self, grouped: Compressed, v: Ids, t: Topology) -> tuple[Tensor, Tensor, Tensor]:
        """The other end, this end and the id of every edge of ``v``."""
        own = self._ids(v, grouped.ptr.shape[0] - 1)
        first = grouped.ptr[own]
        counts = grouped.ptr[own + 1] - first
        at = runs(first, counts)
        edges = (at if grouped.edge_ids is None else grouped.edge_ids[at]).to(self.idtype)
        return grouped.other[at], own.repeat_interleave(counts).to(self.idtype), edges

    def _ids(self, v: Ids | None, count: int) -> Tensor:
        return resolve_ids(v, count, self.device)

    def _arange(self, count: int) -> Tensor:
        return torch.arange(count, dtype=self.idtype, device=self.device)


def _degrees_of(topology: Topology, *, out: bool) -> Tensor:
    if torch.compiler.is_dynamo_compiling():
        return compiled_calls.degrees(topology.handle, out, topology.num_src if out else topology.num_dst)
    return topology.out_degrees if out else topology.in_degrees


def is_all(ids: object) -> bool:
    """Whether ids are left out, or DGL's word for all of them."""
    return ids is None or (isinstance(ids, str) and ids == "__ALL__")


def incident(grouped: Compressed, own: Tensor) -> Tensor:
    """The ids of all edges of the groups ``own`` (k,) distinct ids; ascending."""
    first = grouped.ptr.index_select(0, own)
    at = runs(first, grouped.ptr.index_select(0, own + 1) - first)
    return torch.sort(at if grouped.edge_ids is None else grouped.edge_ids.index_select(0, at)).values


def runs(first: Tensor, counts: Tensor) -> Tensor:
    """first[0], first[0] + 1, ... (counts[0] of them), first[1], ...: (sum of counts,)."""
    at = (first - counts.cumsum(0) + counts).repeat_interleave(counts)
    return at.add_(torch.arange(at.shape[0], device=at.device))


def _sorted_pairs(t: Topology) -> tuple[Tensor, Tensor]:
    """All edges as src * num_dst + dst, ascending, and their ids."""
    return t.keep("sorted pairs", lambda: torch.sort(number_pairs(t.src, t.dst, t.num_src, t.num_dst), stable=True))


def _has_twins(t: Topology) -> bool:
    pairs = _sorted_pairs(t)[0]
    return bool((pairs[1:] == pairs[:-1]).any())


def _pick(form: object, src: Tensor, dst: Tensor, ids: Tensor) -> Any:
    forms = {"uv": (src, dst), "eid": ids, "all": (src, dst, ids)}
    if isinstance(form, str) and form in forms:
        return forms[form]
    raise GraphError(f"form is {form!r}", cure='pass "uv", "eid" or "all"')
