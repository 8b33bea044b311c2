"""Adjacency: what a graph answers about its nodes and edges.

Takes: a Topology and ids. Gives: ids, counts, index arrays. Runs once per topology.
Source: DGL section 3; its words (uv, eid, all) are kept.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from vgraph.compiled_calls import compiled_calls
from vgraph.errors import GraphError
from vgraph.graphs.data import Relations
from vgraph.graphs.frame import as_ids, resolve_ids
from vgraph.ir.topology import Compressed, Topology


class Adjacency(Relations):
    """The part of a Graph that asks its topologies only; ``etype`` may be left out where there is one."""

    def in_degrees(self, v: Any = None, etype: Any = None) -> Any:
        """The number of in-edges of all nodes, or of ``v`` (k,); a plain int where v is one."""
        t = self._topology(etype)
        return self._degrees(_degrees_of(t, out=False), v, t.num_dst)

    def out_degrees(self, u: Any = None, etype: Any = None) -> Any:
        """The number of out-edges of all nodes, or of ``u`` (k,); a plain int where u is one."""
        t = self._topology(etype)
        return self._degrees(_degrees_of(t, out=True), u, t.num_src)

    def _degrees(self, degrees: Tensor, v: Any, count: int) -> Any:
        if is_all(v):
            return degrees.to(self.idtype, copy=True)  # the topology's own must not be written to
        found = degrees.index_select(0, self._ids(v, count)).to(self.idtype)
        return int(found) if isinstance(v, Integral) else found

    # ------------------------------------------------------------ who is joined to whom
    def all_edges(self, form: str = "uv", order: str | None = "eid", etype: Any = None) -> Any:
        """All edges: (src, dst), their ids, or (src, dst, ids) for form "uv", "eid", "all".

        ``order`` is "eid" or "srcdst". The tensors are copies, which may be written into.
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

    def in_edges(self, v: Any, form: str = "uv", etype: Any = None) -> Any:
        """The edges that end in ``v``, node by node; ``form`` as in ``all_edges``."""
        t = self._topology(etype)
        src, dst, ids = self._incident(t.csc, v, t)
        return _pick(form, src, dst, ids)

    def out_edges(self, u: Any, form: str = "uv", etype: Any = None) -> Any:
        """The edges that begin in ``u``, node by node; ``form`` as in ``all_edges``."""
        t = self._topology(etype)
        dst, src, ids = self._incident(t.csr, u, t)
        return _pick(form, src, dst, ids)

    def predecessors(self, v: Any, etype: Any = None) -> Tensor:
        """Where the in-edges of ``v`` begin: one entry an edge."""
        return self.in_edges(v, etype=etype)[0]

    def successors(self, v: Any, etype: Any = None) -> Tensor:
        """Where the out-edges of ``v`` end: one entry an edge."""
        return self.out_edges(v, etype=etype)[1]

    def find_edges(self, eid: Any, etype: Any = None) -> tuple[Tensor, Tensor]:
        """The ends (src, dst) of edges by id, each (k,)."""
        t = self._topology(etype)
        ids = resolve_ids(eid, t.num_edges, self.device, "edge")
        return t.src.index_select(0, ids), t.dst.index_select(0, ids)

    def has_nodes(self, vid: Any, ntype: str | None = None) -> Any:
        """Whether there are such nodes: bool (k,); a plain bool where vid is one id."""
        ids = as_ids([vid] if isinstance(vid, Integral) else vid, "node ids").to(self.device)
        found = (ids >= 0) & (ids < self.node_frame(ntype).num_rows)
        return bool(found) if isinstance(vid, Integral) else found

    def has_edges_between(self, u: Any, v: Any, etype: Any = None) -> Any:
        """Whether an edge u[i] -> v[i] exists: bool (k,); a plain bool where both are one id."""
        found = self._find(self._topology(etype), u, v)[1] >= 0
        return bool(found) if isinstance(u, Integral) and isinstance(v, Integral) else found

    def edge_ids(self, u: Any, v: Any, return_uv: bool = False, etype: Any = None) -> Any:
        """The id of an edge u[i] -> v[i], the first of several: (k,); an int where both are one id.

        With ``return_uv`` all edges from any u[i] to v[i]: (their u, their v, their ids).

        Raises:
            GraphError: there is no such edge.
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

    def has_edge_between(self, u: Any, v: Any, etype: Any = None) -> bool:
        """Whether there is an edge u -> v."""
        return bool(self.has_edges_between(u, v, etype))

    edge_id = edge_ids

    @property
    def is_multigraph(self) -> bool:
        """Whether any two nodes are joined by several edges of one type and direction."""
        return any(t.keep("is multigraph", lambda t=t: _has_twins(t)) for t in self._topologies.values())

    def _find(self, t: Topology, u: Any, v: Any) -> tuple[Tensor, Tensor]:
        """Pairs as numbers, and the edge that joins each, or -1."""
        starts, ends = self._ids(u, t.num_src), self._ids(v, t.num_dst)
        if starts.shape != ends.shape and 1 not in (len(starts), len(ends)):
            fact = f"there are {len(starts)} ids in u and {len(ends)} in v"
            raise GraphError(fact, cure="pass as many of both, or one")
        pairs, (known, edges) = starts * t.num_dst + ends, _sorted_pairs(t)
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

    def _incident(self, grouped: Compressed, v: Any, t: Topology) -> tuple[Tensor, Tensor, Tensor]:
        """The other end, this end and the id of every edge of ``v``."""
        own = self._ids(v, grouped.ptr.shape[0] - 1)
        first = grouped.ptr[own]
        counts = grouped.ptr[own + 1] - first
        at = runs(first, counts)
        edges = (at if grouped.edge_ids is None else grouped.edge_ids[at]).to(self.idtype)
        return grouped.other[at], own.repeat_interleave(counts).to(self.idtype), edges

    def _ids(self, v: Any, count: int) -> Tensor:
        return resolve_ids(v, count, self.device)

    def _arange(self, count: int) -> Tensor:
        return torch.arange(count, dtype=self.idtype, device=self.device)


def _degrees_of(topology: Topology, *, out: bool) -> Tensor:
    if torch.compiler.is_dynamo_compiling():
        return compiled_calls.degrees(topology.handle, out, topology.num_src if out else topology.num_dst)
    return topology.out_degrees if out else topology.in_degrees


def is_all(ids: Any) -> bool:
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
    return t.keep("sorted pairs", lambda: torch.sort(t.src.long() * t.num_dst + t.dst, stable=True))


def _has_twins(t: Topology) -> bool:
    pairs = _sorted_pairs(t)[0]
    return bool((pairs[1:] == pairs[:-1]).any())


def _pick(form: str, src: Tensor, dst: Tensor, ids: Tensor) -> Any:
    forms = {"uv": (src, dst), "eid": ids, "all": (src, dst, ids)}
    if form in forms:
        return forms[form]
    raise GraphError(f"form is {form!r}", cure='pass "uv", "eid" or "all"')
