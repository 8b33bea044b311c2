"""Matrices: a graph's adjacency in every format that other libraries read.

Takes: a Topology. Gives: index tensors, torch's and SciPy's sparse matrices. Runs once per topology.
Source: DGL section 3; SciPy's names of the formats are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.adjacency import Adjacency
from vgraph.ir.topology import Compressed
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

FORMATS = ("coo", "csr", "csc")


class Matrices(Adjacency):
    """The part of a Graph that gives matrices; rows are sources, columns destinations."""

    def coo(self, etype: Any = None) -> tuple[Tensor, Tensor]:
        """(src, dst), each (num_edges,), in order of edge ids: copies, as of ``csr`` and ``csc``."""
        t = self._topology(etype)
        return t.src.clone(), t.dst.clone()

    def csr(self, etype: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """Out-edges: (indptr (num_src + 1,), dst, edge ids)."""
        return self._compressed(self._topology(etype).csr)

    def csc(self, etype: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        """In-edges: (indptr (num_dst + 1,), src, edge ids)."""
        return self._compressed(self._topology(etype).csc)

    def _compressed(self, grouped: Compressed) -> tuple[Tensor, Tensor, Tensor]:
        given = grouped.edge_ids
        edges = self._arange(grouped.other.shape[0]) if given is None else given.to(self.idtype, copy=True)
        return grouped.ptr.to(self.idtype, copy=True), grouped.other.clone(), edges

    def adj_tensors(self, fmt: str, etype: Any = None) -> tuple[Tensor, ...]:
        """``coo``, ``csr`` or ``csc``, by name."""
        _check_format(fmt)
        return {"coo": self.coo, "csr": self.csr, "csc": self.csc}[fmt](etype)

    adj_sparse = adj_tensors

    def adj(
        self,
        etype: Any = None,
        eweight_name: str | None = None,
        *,
        transpose: bool = False,
        ctx: Any = None,
        scipy_fmt: str | None = None,
    ) -> Any:
        """The adjacency as a sparse torch tensor (num_src, num_dst), its entries in order of edge ids.

        Args:
            etype: the type of edges, where there are several.
            eweight_name: the edge feature that gives the entries; else they are ones.
            transpose: rows are destinations.
            ctx: the device of the result.
            scipy_fmt: "coo", "csr" or "csc" for a SciPy matrix instead.
        """
        if isinstance(etype, bool):  # as before DGL 1.0, where transpose came first
            etype, transpose = None, etype
        t, _, _, frame = self.relation(etype)
        if scipy_fmt is not None:
            return self.adj_external(transpose, scipy_fmt=scipy_fmt, etype=etype, eweight_name=eweight_name)
        entries = torch.ones(t.num_edges, device=self.device) if eweight_name is None else frame[eweight_name]
        ends, shape = (
            ((t.dst, t.src), (t.num_dst, t.num_src)) if transpose else ((t.src, t.dst), (t.num_src, t.num_dst))
        )
        made = torch.sparse_coo_tensor(torch.stack(ends).long(), entries, shape, check_invariants=False)
        return made if ctx is None else made.to(ctx)

    adjacency_matrix = adj

    def adj_external(
        self,
        transpose: bool = False,
        ctx: Any = None,
        scipy_fmt: str | None = None,
        etype: Any = None,
        eweight_name: str | None = None,
    ) -> Any:
        """As ``adj``; with ``scipy_fmt`` the SciPy matrix that counts the edges from row to column."""
        if scipy_fmt is None:
            return self.adj(etype, eweight_name, transpose=transpose, ctx=ctx)
        _check_format(scipy_fmt)
        t, _, _, frame = self.relation(etype)
        src, dst = t.src.cpu().numpy(), t.dst.cpu().numpy()
        entries = np.ones_like(src) if eweight_name is None else frame[eweight_name].numpy(force=True)
        made = sparse.coo_matrix((entries, (src, dst)), shape=(t.num_src, t.num_dst), copy=True)
        return (made.T if transpose else made).asformat(scipy_fmt)

    def to_scipy(self, transpose: bool = False, *, scipy_fmt: str = "csr", etype: Any = None) -> Any:
        """``adj_external`` as a SciPy matrix."""
        return self.adj_external(transpose, None, scipy_fmt, etype)

    def inc(self, typestr: str, ctx: Any = None, etype: Any = None) -> Tensor:
        """The incidence of nodes (rows) and edges as a sparse tensor.

        ``typestr``: "in" has 1 where an edge ends, "out" where it begins, "both" -1 where it begins
        and 1 where it ends (nothing for self-loops).
        """
        t = self._topology(etype)
        edges = torch.arange(t.num_edges, device=self.device)
        ones = torch.ones(t.num_edges, device=self.device)
        if typestr not in ("in", "out", "both"):
            raise FunctionError(f"typestr is {typestr!r}", cure='pass "in", "out" or "both"')
        rows, entries, count = (t.dst, ones, t.num_dst) if typestr == "in" else (t.src, ones, t.num_src)
        if typestr == "both":
            kept = (t.src != t.dst).nonzero().squeeze(1)
            rows, edges = torch.cat([t.src[kept], t.dst[kept]]), torch.cat([kept, kept])
            entries = torch.cat([-ones[kept], ones[kept]])
        made = torch.sparse_coo_tensor(torch.stack([rows.long(), edges]), entries, (count, t.num_edges))
        return made if ctx is None else made.to(ctx)

    # ------------------------------------------------------------ formats are made when asked for
    def formats(self, formats: Any = None) -> Any:
        """What is there already; with ``formats`` (words of coo, csr, csc) the graph itself."""
        if formats is None:
            made = ["coo", *(name for name in FORMATS[1:] if all(name in vars(t) for t in self._topologies.values()))]
            return {"created": made, "not created": [name for name in FORMATS if name not in made]}
        for name in (formats,) if isinstance(formats, str) else formats:
            _check_format(name)
        return self

    def create_formats_(self) -> None:
        """Makes every format now, for instance before processes are forked."""
        for t in self._topologies.values():
            _ = t.csr, t.csc, t.in_degrees, t.out_degrees


def _check_format(name: Any) -> None:
    if name not in FORMATS:
        raise GraphError(f"scipy_fmt is {name!r}", cure='pass "csr", "csc" or "coo"')
