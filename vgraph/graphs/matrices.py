"""Matrices: a graph's adjacency in every format that other libraries read.

Takes: a Topology. Gives: index tensors, torch's and SciPy's sparse matrices. Runs once per topology.
Source: DGL section 3; SciPy's names of the formats are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import checked
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.adjacency import Adjacency
from vgraph.graphs.edge_formats import check_device
from vgraph.graphs.types import Device, EType
from vgraph.ir.topology import Compressed
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

FORMATS = ("coo", "csr", "csc")


class Matrices(Adjacency):
    """The part of a Graph that gives matrices; rows are sources, columns destinations."""

    def coo(self, etype: EType = None) -> tuple[Tensor, Tensor]:
        """The edges in order of their ids.

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Sources and destinations, each (num_edges,) in the dtype of ids: copies, as those of ``csr`` and ``csc``.

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([1, 0], [2, 2])).coo()
            (tensor([1, 0]), tensor([2, 2]))
        """
        t = self._topology(etype)
        return t.src.to(self.idtype, copy=True), t.dst.to(self.idtype, copy=True)

    def csr(self, etype: EType = None) -> tuple[Tensor, Tensor, Tensor]:
        """The out-edges, source by source (compressed sparse rows).

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Where each source's edges begin (num_src + 1,), destinations (num_edges,) and edge ids (num_edges,).

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([1, 0], [2, 2])).csr()
            (tensor([0, 1, 2, 2]), tensor([2, 2]), tensor([1, 0]))
        """
        return self._compressed(self._topology(etype).csr)

    def csc(self, etype: EType = None) -> tuple[Tensor, Tensor, Tensor]:
        """The in-edges, destination by destination (compressed sparse columns).

        Args:
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Where each destination's edges begin (num_dst + 1,), sources (num_edges,) and edge ids (num_edges,).

        Raises:
            GraphError: there are several such types, and none of them is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([1, 0], [2, 2])).csc()
            (tensor([0, 0, 0, 2]), tensor([1, 0]), tensor([0, 1]))
        """
        return self._compressed(self._topology(etype).csc)

    def _compressed(self, grouped: Compressed) -> tuple[Tensor, Tensor, Tensor]:
        given = grouped.edge_ids
        edges = self._arange(grouped.other.shape[0]) if given is None else given.to(self.idtype, copy=True)
        return grouped.ptr.to(self.idtype, copy=True), grouped.other.to(self.idtype, copy=True), edges

    def adj_tensors(self, fmt: str, etype: EType = None) -> tuple[Tensor, ...]:
        """``coo``, ``csr`` or ``csc``, by name; ``adj_sparse`` is the same.

        Args:
            fmt: "coo", "csr" or "csc".
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            Two tensors for "coo", three for the others, as those methods give them.

        Raises:
            GraphError: ``fmt`` is another word, or there are several types of edges and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([1, 0], [2, 2])).adj_tensors("coo")
            (tensor([1, 0]), tensor([2, 2]))
        """
        check_format(fmt)
        return {"coo": self.coo, "csr": self.csr, "csc": self.csc}[fmt](etype)

    adj_sparse = adj_tensors

    @checked()
    def adj_external(
        self,
        transpose: bool = False,
        ctx: Device = None,
        scipy_fmt: str | None = None,
        etype: EType = None,
        eweight_name: str | None = None,
    ) -> Any:
        """The adjacency as a sparse tensor of torch, or as a SciPy matrix that counts the edges from row to column.

        Args:
            transpose: make destinations the rows.
            ctx: the device of a tensor; a SciPy matrix lies in host memory.
            scipy_fmt: "coo", "csr" or "csc"; None: a sparse tensor of torch.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.
            eweight_name: the edge feature (num_edges,) that gives the entries; None: ones, in a SciPy matrix of the
                ids' dtype.

        Returns:
            A sparse COO tensor or a SciPy matrix (num_src, num_dst), with an entry an edge in order of ids. In "csr"
            and "csc" the entries of edges between the same nodes are summed; where there are none, those of a row (a
            column) stand in order of edge ids.

        Raises:
            GraphError: ``scipy_fmt`` is another word, or there are several types of edges and none is named.
            NameLookupError: there is no such type or feature.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 0], [1, 1])).adj_external(scipy_fmt="csr").toarray().tolist()
            [[0, 2], [0, 0]]
        """
        t, _, _, frame = self.relation(etype)
        if scipy_fmt is None:
            entries = torch.ones(t.num_edges, device=self.device) if eweight_name is None else frame[eweight_name]
            t = t.reversed if transpose else t
            ends, shape = torch.stack([t.src, t.dst]).long(), (t.num_src, t.num_dst)
            made = torch.sparse_coo_tensor(ends, entries, shape, check_invariants=False)
            return _moved(made, ctx)
        check_format(scipy_fmt)
        src, dst = t.src.cpu().numpy(), t.dst.cpu().numpy()
        entries = np.ones_like(src) if eweight_name is None else frame[eweight_name].numpy(force=True)
        made = sparse.coo_matrix((entries, (src, dst)), shape=(t.num_src, t.num_dst), copy=True)
        made = made.T if transpose else made
        summed = made.asformat(scipy_fmt)
        if scipy_fmt == "coo" or summed.nnz < t.num_edges:
            return summed
        made.has_canonical_format = True  # no entry is there twice, so SciPy need not put them into order to add them
        return made.asformat(scipy_fmt)

    @checked()
    def to_scipy(self, transpose: bool = False, *, scipy_fmt: str = "csr", etype: EType = None) -> Any:
        """The adjacency as a SciPy matrix, as ``adj_external`` gives it.

        Args:
            transpose: make destinations the rows.
            scipy_fmt: "coo", "csr" or "csc".
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A sparse matrix (num_src, num_dst) of the ids' dtype, which counts edges.

        Raises:
            GraphError: ``scipy_fmt`` is another word, or there are several types of edges and none is named.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).to_scipy().nnz
            2
        """
        return self.adj_external(transpose, None, scipy_fmt, etype)

    def inc(self, typestr: str, ctx: Device = None, etype: EType = None) -> Tensor:
        """The incidence of nodes (rows) and edges (columns) as a sparse tensor.

        Args:
            typestr: "in" has 1 where an edge ends, "out" 1 where it begins, "both" -1 where it begins and 1 where it
                ends, and nothing for self-loops.
            ctx: the device of the result; None: that of the graph.
            etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where
                there is one.

        Returns:
            A float32 sparse COO tensor (nodes, num_edges): nodes are destinations for "in", else sources.

        Raises:
            FunctionError: ``typestr`` is another word.
            GraphError: there are several such types, and none of them is named; or "both" of edges that join two types
                of nodes, or of a block.
            NameLookupError: there is no such type.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).inc("in").to_dense()
            tensor([[0., 0.],
                    [0., 0.],
                    [1., 1.]])
        """
        t = self._topology(etype)
        edges = torch.arange(t.num_edges, device=self.device)
        ones = torch.ones(t.num_edges, device=self.device)
        if typestr not in ("in", "out", "both"):
            raise FunctionError(f"typestr is {typestr!r}", cure='pass "in", "out" or "both"')
        if typestr == "both" and (self.is_block or self._edge_type(etype)[0] != self._edge_type(etype)[2]):
            fact = "edges begin and end in different nodes, which would share their rows"
            raise GraphError(fact, cure='pass "in" or "out"')
        rows, entries, count = (t.dst, ones, t.num_dst) if typestr == "in" else (t.src, ones, t.num_src)
        if typestr == "both":
            kept = (t.src != t.dst).nonzero().squeeze(1)
            rows, edges = torch.cat([t.src[kept], t.dst[kept]]), torch.cat([kept, kept])
            entries = torch.cat([-ones[kept], ones[kept]])
        made = torch.sparse_coo_tensor(
            torch.stack([rows.long(), edges]), entries, (count, t.num_edges), check_invariants=False
        )
        return _moved(made, ctx)

    incidence_matrix = inc

    # ------------------------------------------------------------ formats are made when asked for
    def formats(self, formats: str | Sequence[str] | None = None) -> Any:
        """The formats of the adjacency that are there already; they are made when they are first used.

        Args:
            formats: None to ask; words of "coo", "csr", "csc" change nothing, as every format can be made at any
                time.

        Returns:
            A dict of the words "created" and "not created", each with a list of names; with ``formats`` the graph
            itself.

        Raises:
            GraphError: a word is no format.

        Example:
            >>> import vgraph
            >>> vgraph.graph(([0, 1], [2, 2])).formats()
            {'created': ['coo'], 'not created': ['csr', 'csc']}
        """
        if formats is None:
            made = ["coo", *(name for name in FORMATS[1:] if all(name in vars(t) for t in self._topologies.values()))]
            return {"created": made, "not created": [name for name in FORMATS if name not in made]}
        for name in formats if isinstance(formats, (list, tuple)) else (formats,):
            check_format(name)
        return self

    def create_formats_(self) -> None:
        """Makes every format of every edge type now, for instance before processes are forked.

        Example:
            >>> import vgraph
            >>> g = vgraph.graph(([0, 1], [2, 2]))
            >>> g.create_formats_()
            >>> g.formats()["not created"]
            []
        """
        for t in self._topologies.values():
            _ = t.csr, t.csc, t.in_degrees, t.out_degrees


def check_format(name: object) -> None:
    """GraphError: a word is no format."""
    if name not in FORMATS:
        raise GraphError(f"scipy_fmt is {name!r}", cure='pass "csr", "csc" or "coo"')


def _moved(made: Tensor, ctx: Device) -> Tensor:
    """The tensor on another device; DeviceError: there is none such."""
    if ctx is None:
        return made
    check_device(ctx)
    return made.to(ctx)
