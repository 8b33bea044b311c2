"""``dgl.backend``: products of graphs with features, and of matrices by groups of rows.

Takes: graphs (DGL gives their indices), tensors. Gives: tensors. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

import vgraph
from vgraph import function, ops, sparse
from vgraph.api.messages.multi_update import Functions
from vgraph.compat.graph_index import HeteroGraphIndex, graph_of
from vgraph.errors import FunctionError

Data = Tensor | None
Index = vgraph.Graph | HeteroGraphIndex


def gspmm(gidx: Index, op: str, reduce_op: str, lhs_data: Data, rhs_data: Data) -> Tensor:
    """Messages ``op`` of sources and edges, reduced at destinations."""
    return ops.gspmm(graph_of(gidx), op, reduce_op, lhs_data, rhs_data)


def gsddmm(
    gidx: Index, op: str, lhs_data: Data, rhs_data: Data, lhs_target: str = "u", rhs_target: str = "v"
) -> Tensor:
    """``op`` of two of sources, edges and destinations, at every edge."""
    return ops.gsddmm(graph_of(gidx), op, lhs_data, rhs_data, lhs_target, rhs_target)


def gspmm_hetero(g: vgraph.Graph, op: str, reduce_op: str, lhs_len: int, *lhs_and_rhs_tuple: Data) -> tuple[Data, ...]:
    """The same over all types of edges: data of each type of nodes, then of edges; a result for each type of nodes."""
    nodes, edges = lhs_and_rhs_tuple[:lhs_len], lhs_and_rhs_tuple[lhs_len:]
    name = {"copy_lhs": "copy_u", "copy_rhs": "copy_e"}.get(op, f"u_{op}_e")
    fields = {"copy_u": ("_x", "_m"), "copy_e": ("_w", "_m")}.get(name, ("_x", "_w", "_m"))
    message, reduce = getattr(function, name)(*fields), getattr(function, reduce_op)("_m", "_y")
    g = g.local_var()  # which other threads do not see
    used = dict[tuple[str, str, str], Functions]()
    for kind, rows in zip(g.ntypes, nodes, strict=False):
        if rows is not None:
            g.nodes[kind].data["_x"] = rows
    for number, etype in enumerate(g.canonical_etypes):
        rows = edges[number] if number < len(edges) else None
        if rows is not None:
            g.edges[etype].data["_w"] = rows
        if ("_w" not in fields or rows is not None) and ("_x" not in fields or "_x" in g.nodes[etype[0]].data):
            used[etype] = message, reduce
    g.multi_update_all(used, reduce_op)
    return tuple(g.nodes[kind].data.get("_y") for kind in g.ntypes)


def gsddmm_hetero(
    g: vgraph.Graph, op: str, lhs_len: int, lhs_target: str = "u", rhs_target: str = "v", *lhs_and_rhs_tuple: Data
) -> tuple[Tensor, ...]:
    """The same over all types of edges, with a result for each of them."""
    left, right = lhs_and_rhs_tuple[:lhs_len], lhs_and_rhs_tuple[lhs_len:]
    found: list[Tensor] = []
    for number, etype in enumerate(g.canonical_etypes):
        place = {"u": g.get_ntype_id(etype[0]), "v": g.get_ntype_id(etype[2]), "e": number}
        one, other = (
            data[place[target]] if place[target] < len(data) else None
            for data, target in ((left, lhs_target), (right, rhs_target))
        )
        found.append(ops.gsddmm(g[etype], op, one, other, lhs_target, rhs_target))
    return tuple(found)


def edge_softmax(gidx: Index, logits: Tensor, eids: object = "__ALL__", norm_by: str = "dst") -> Tensor:
    """The softmax over the edges of each destination, or source."""
    return ops.edge_softmax(graph_of(gidx), logits, eids, norm_by)


def edge_softmax_hetero(
    gidx: vgraph.Graph, eids: object = "__ALL__", norm_by: str = "dst", *logits: Tensor
) -> tuple[Tensor, ...]:
    """The softmax over the edges of all types at each node; a result for each type of edges.

    Raises:
        FunctionError: some edges are asked for.
    """
    if not (isinstance(eids, str) and eids == "__ALL__"):
        raise FunctionError("a softmax over some edges of several types", cure="leave eids out")
    side = 1 if norm_by == "dst" else 0
    counts = [gidx.num_nodes(kind) for kind in gidx.ntypes]
    first = dict(zip(gidx.ntypes, torch.tensor([0, *counts]).cumsum(0).tolist(), strict=False))
    nodes = torch.cat([gidx.edges(etype=e)[side].long() + first[e[2 * side]] for e in gidx.canonical_etypes])
    order = nodes.argsort(stable=True)
    sizes = torch.bincount(nodes, minlength=sum(counts))
    sorted_rows = ops.segment_softmax(sizes, torch.cat(logits)[order])
    return torch.split(sorted_rows[order.argsort()], [len(rows) for rows in logits])


def segment_reduce(op: str, x: Tensor, offsets: Tensor) -> Tensor:
    """Rows between two offsets as one."""
    return ops.segment_reduce(offsets.diff(), x, op)


def scatter_add(x: Tensor, idx: Tensor, m: int) -> Tensor:
    """M rows, each the sum of those that are sent to it."""
    return x.new_zeros((m, *x.shape[1:])).index_add(0, idx.long(), x)


def gather_mm(A: Tensor, B: Tensor, idx_A: Tensor | None = None, idx_B: Tensor | None = None) -> Tensor:
    """Each row of A (or of those that idx_A names) times the matrix of B that idx_B names."""
    rows = A if idx_A is None else A[idx_A.long()]
    return torch.bmm(rows.unsqueeze(1), B).squeeze(1) if idx_B is None else ops.gather_mm(rows, B, idx_b=idx_B)


def segment_mm(A: Tensor, B: Tensor, seglen_A: Tensor) -> Tensor:
    """Each group of rows of A times its matrix of B."""
    return ops.segment_mm(A, B, seglen_A)


# ---------------------------------------------------------------- products of graphs
def csrmm(
    gidxA: Index,
    A_weights: Tensor,
    gidxB: Index,
    B_weights: Tensor,
    num_vtypes: int,
) -> tuple[vgraph.Graph, Tensor]:
    """The product of two matrices of weights as a graph, of one or two types of nodes, and its weights."""
    return _made_of(_matrix(gidxA, A_weights) @ _matrix(gidxB, B_weights), num_vtypes)


def csrsum(gidxs: Sequence[Index], weights: Sequence[Tensor]) -> tuple[vgraph.Graph, Tensor]:
    """The sum of matrices of weights as a graph, and its weights."""
    first, *others = (_matrix(g, rows) for g, rows in zip(gidxs, weights, strict=True))
    for other in others:
        first = first + other
    return _made_of(first, 1 if len(graph_of(gidxs[0]).ntypes) == 1 else 2)


def csrmask(gidxA: Index, A_weights: Tensor, gidxB: Index) -> Tensor:
    """The weights of one graph at the edges of another, 0 where the first has no edge."""
    count = graph_of(gidxA).num_dst_nodes()
    keys, wanted = (src.long() * count + dst.long() for src, dst in (graph_of(g).edges() for g in (gidxA, gidxB)))
    order = keys.argsort()
    place = torch.searchsorted(keys[order], wanted).clamp(max=max(len(keys) - 1, 0))
    found = order[place] if len(keys) else place
    there = keys[found] == wanted if len(keys) else torch.zeros_like(wanted, dtype=torch.bool)
    rows = A_weights[found] if len(keys) else A_weights.new_zeros(len(wanted))
    return torch.where(there, rows, 0)


def _matrix(gidx: Index, weights: Tensor) -> sparse.SparseMatrix:
    g = graph_of(gidx)
    return sparse.spmatrix(torch.stack(g.edges()), weights, (g.num_src_nodes(), g.num_dst_nodes()))


def _made_of(matrix: sparse.SparseMatrix, num_vtypes: int) -> tuple[vgraph.Graph, Tensor]:
    rows, columns = matrix.shape
    ends = matrix.row, matrix.col
    if num_vtypes == 1:
        return vgraph.graph(ends, num_nodes=max(rows, columns)), matrix.val
    return vgraph.heterograph({("_U", "_E", "_V"): ends}, {"_U": rows, "_V": columns}), matrix.val


# ---------------------------------------------------------------- what DGL's torch has not either
def _refused(name: str) -> NoReturn:
    raise FunctionError(f"dgl.backend.{name} is of other libraries than torch", cure="call dgl.backend.gspmm")


def binary_reduce(*arguments: object) -> NoReturn:
    """Raises FunctionError, as DGL with torch raises."""
    _refused("binary_reduce")


def copy_reduce(*arguments: object) -> NoReturn:
    """Raises FunctionError, as DGL with torch raises."""
    _refused("copy_reduce")


def get_preferred_sparse_format() -> str:
    """How sparse matrices are given."""
    return "coo"


def sparse_matrix(
    data: Tensor, index: tuple[str, Tensor], shape: Sequence[int], force_format: bool = False
) -> tuple[Tensor, None]:
    """A sparse tensor of torch, from ``("coo", (2, entries))``; the second of the pair is always None.

    Raises:
        FunctionError: another format is given.
    """
    if index[0] != "coo":
        raise FunctionError(f"a sparse matrix in the format {index[0]!r}", cure='give ("coo", rows and columns)')
    return torch.sparse_coo_tensor(index[1], data, tuple(shape), check_invariants=True), None


def sparse_matrix_indices(spmat: Tensor) -> tuple[str, Tensor]:
    """The format and the places of a sparse tensor's entries."""
    return "coo", (spmat if spmat.is_coalesced() else spmat.coalesce()).indices()
