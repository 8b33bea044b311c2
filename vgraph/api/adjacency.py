"""Adjacency: what a graph answers about its nodes and edges.

Takes: a Topology and ids. Gives: ids, counts, index arrays; tempo: once a topology.
Source: DGL section 3; its words (uv, eid, all) are kept.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from vgraph.api.frame import as_ids, resolve_ids
from vgraph.api.tracer import user_line
from vgraph.errors import GraphError
from vgraph.ir.topology import Compressed, Topology


class Adjacency:
    """The part of a Graph that needs its topology only."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    # ------------------------------------------------------------ counts
    def num_nodes(self) -> int:
        return self.topology.num_dst

    def num_edges(self) -> int:
        return self.topology.src.shape[0]

    number_of_nodes, number_of_edges = num_nodes, num_edges

    @property
    def device(self) -> torch.device:
        return self.topology.src.device

    @property
    def idtype(self) -> torch.dtype:
        return self.topology.src.dtype

    @property
    def is_homogeneous(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        """The number of graphs that were batched."""
        sizes = self.topology.graph_sizes
        return 1 if sizes is None else len(sizes)

    def batch_num_nodes(self) -> Tensor:
        """The number of nodes of every graph of the batch, (batch_size,)."""
        sizes = self.topology.graph_sizes or (self.topology.num_dst,)
        return torch.tensor(sizes, dtype=self.idtype, device=self.device)

    def batch_num_edges(self) -> Tensor:
        """The number of edges of every graph of the batch, (batch_size,)."""
        graphs = self.topology.graph_ids.index_select(0, self.topology.dst)
        return torch.bincount(graphs, minlength=self.batch_size).to(self.idtype)

    def in_degrees(self, v: Any = None) -> Any:
        """The number of in-edges of all nodes, or of ``v`` (k,); a plain int where v is one."""
        return self._degrees(self.topology.in_degrees, v)

    def out_degrees(self, v: Any = None) -> Any:
        """The number of out-edges of all nodes, or of ``v`` (k,); a plain int where v is one."""
        return self._degrees(self.topology.out_degrees, v)

    def _degrees(self, degrees: Tensor, v: Any) -> Any:
        if v is None:
            return degrees.to(self.idtype, copy=True)  # the topology's own must not be written to
        found = degrees.index_select(0, self._node_ids(v)).to(self.idtype)
        return int(found) if isinstance(v, Integral) else found

    # ------------------------------------------------------------ who is joined to whom
    def all_edges(self, form: str = "uv", order: str | None = "eid") -> Any:
        """All edges: (src, dst), their ids, or (src, dst, ids) for form "uv", "eid", "all".

        ``order`` is "eid" or "srcdst". The tensors may be the graph's own: do not write into them.
        """
        t = self.topology
        if order in ("eid", None):
            return _pick(form, t.src, t.dst, t.src if form == "uv" else self._arange(t.num_edges))
        if order != "srcdst":
            raise GraphError(f"order is {order!r}", cure='pass "eid" or "srcdst"', line=user_line())
        ids = self._sorted_pairs()[1]
        return _pick(form, t.src.index_select(0, ids), t.dst.index_select(0, ids), ids.to(self.idtype))

    def in_edges(self, v: Any, form: str = "uv") -> Any:
        """The edges that end in ``v``, node by node; ``form`` as in ``all_edges``."""
        src, dst, ids = self._incident(self.topology.csc, v)
        return _pick(form, src, dst, ids)

    def out_edges(self, u: Any, form: str = "uv") -> Any:
        """The edges that begin in ``u``, node by node; ``form`` as in ``all_edges``."""
        dst, src, ids = self._incident(self.topology.csr, u)
        return _pick(form, src, dst, ids)

    def predecessors(self, v: Any) -> Tensor:
        """Where the in-edges of ``v`` begin: one entry an edge."""
        return self._incident(self.topology.csc, v)[0]

    def successors(self, v: Any) -> Tensor:
        """Where the out-edges of ``v`` end: one entry an edge."""
        return self._incident(self.topology.csr, v)[0]

    def find_edges(self, eid: Any) -> tuple[Tensor, Tensor]:
        """The ends (src, dst) of edges by id, each (k,)."""
        ids = resolve_ids(eid, self.num_edges(), self.device, "edge")
        return self.topology.src.index_select(0, ids), self.topology.dst.index_select(0, ids)

    def has_nodes(self, v: Any) -> Any:
        """Whether there are such nodes: bool (k,); a plain bool where v is one id."""
        ids = as_ids([v] if isinstance(v, Integral) else v, "node ids").to(self.device)
        found = (ids >= 0) & (ids < self.num_nodes())
        return bool(found) if isinstance(v, Integral) else found

    def has_edges_between(self, u: Any, v: Any) -> Any:
        """Whether an edge u[i] -> v[i] exists: bool (k,); a plain bool where both are one id."""
        found = self._find(u, v)[1] >= 0
        return bool(found) if isinstance(u, Integral) and isinstance(v, Integral) else found

    def edge_ids(self, u: Any, v: Any) -> Any:
        """The id of an edge u[i] -> v[i], the first of several: (k,); an int where both are one id.

        Raises:
            GraphError: there is no such edge.
        """
        pairs, found = self._find(u, v)
        if found.numel() and int(found.min()) < 0:
            first = int((found < 0).nonzero()[0])
            src, dst = divmod(int(pairs[first]), self.num_nodes())
            fact = f"there is no edge {src} -> {dst}"
            raise GraphError(fact, cure="ask has_edges_between first", line=user_line())
        is_one = isinstance(u, Integral) and isinstance(v, Integral)
        return int(found) if is_one else found.to(self.idtype)

    def _find(self, u: Any, v: Any) -> tuple[Tensor, Tensor]:
        """Pairs as numbers, and the edge that joins each, or -1."""
        starts, ends = self._node_ids(u), self._node_ids(v)
        if starts.shape != ends.shape and 1 not in (len(starts), len(ends)):
            fact = f"there are {len(starts)} ids in u and {len(ends)} in v"
            raise GraphError(fact, cure="pass as many of both, or one", line=user_line())
        pairs, (known, edges) = starts * self.num_nodes() + ends, self._sorted_pairs()
        if not len(known):
            return pairs, torch.full_like(pairs, -1)
        at = torch.searchsorted(known, pairs).clamp_(max=len(known) - 1)
        return pairs, torch.where(known[at] == pairs, edges[at], -1)

    def _sorted_pairs(self) -> tuple[Tensor, Tensor]:
        """All edges as src * num_nodes + dst, ascending, and their ids."""
        t = self.topology
        return t.keep("sorted pairs", lambda: torch.sort(t.src.long() * t.num_dst + t.dst, stable=True))

    def _incident(self, grouped: Compressed, v: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The other end, this end and the id of every edge of ``v``."""
        own = self._node_ids(v)
        first = grouped.ptr[own]
        counts = grouped.ptr[own + 1] - first
        at = (first - counts.cumsum(0) + counts).repeat_interleave(counts)
        at += torch.arange(at.shape[0], device=at.device)
        edges = (at if grouped.edge_ids is None else grouped.edge_ids[at]).to(self.idtype)
        return grouped.other[at], own.repeat_interleave(counts).to(self.idtype), edges

    def _node_ids(self, v: Any) -> Tensor:
        return resolve_ids(v, self.num_nodes(), self.device)

    def _arange(self, count: int) -> Tensor:
        return torch.arange(count, dtype=self.idtype, device=self.device)

    # ------------------------------------------------------------ other forms
    def coo(self) -> tuple[Tensor, Tensor]:
        """(src, dst), each (num_edges,), in order of edge ids."""
        return self.topology.src, self.topology.dst

    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        """Out-edges: (indptr (num_nodes + 1,), dst, edge ids), made once and kept."""
        return self.topology.keep("csr ids", lambda: self._compressed(self.topology.csr))

    def csc(self) -> tuple[Tensor, Tensor, Tensor]:
        """In-edges: (indptr (num_nodes + 1,), src, edge ids), made once and kept."""
        return self.topology.keep("csc ids", lambda: self._compressed(self.topology.csc))

    def _compressed(self, grouped: Compressed) -> tuple[Tensor, Tensor, Tensor]:
        given = grouped.edge_ids
        edges = self._arange(self.num_edges()) if given is None else given.to(self.idtype)
        return grouped.ptr.to(self.idtype), grouped.other, edges

    def adj_external(self, transpose: bool = False, *, scipy_fmt: str = "csr") -> Any:
        """The SciPy matrix ("csr", "csc" or "coo") that counts the edges from row to column."""
        if scipy_fmt not in ("csr", "csc", "coo"):
            fact = f"scipy_fmt is {scipy_fmt!r}"
            raise GraphError(fact, cure='pass "csr", "csc" or "coo"', line=user_line())
        src, dst = (end.cpu().numpy() for end in self.coo()[:: -1 if transpose else 1])
        shape = (self.num_nodes(), self.num_nodes())
        made = scipy.sparse.coo_matrix((np.ones_like(src), (src, dst)), shape=shape)
        return made.asformat(scipy_fmt)

    to_scipy = adj_external


def _pick(form: str, src: Tensor, dst: Tensor, ids: Tensor) -> Any:
    forms = {"uv": (src, dst), "eid": ids, "all": (src, dst, ids)}
    if form in forms:
        return forms[form]
    raise GraphError(f"form is {form!r}", cure='pass "uv", "eid" or "all"', line=user_line())
