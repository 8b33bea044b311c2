"""Products of sparse matrices: with dense ones by message passing, with sparse ones entry by entry.

Takes: patterns, values, dense matrices. Gives: dense matrices, values. Runs at every call; no product of an entry and
a row is stored. Source: Wang et al. 2019 (DGL), section 4 (SpMM, SDDMM); Bell, Dalton and Olson 2012, section 3.2
(products of sparse matrices: expand, sort, compress).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.api.messages.batches import EdgeBatch, NodeBatch
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.api.sparse.pattern import Pattern, at_keys, number_places
from vgraph.errors import DTypeError, FeatureError

Rows = dict[str, Tensor]


def _scaled(edges: EdgeBatch) -> Rows:
    return {"m": edges.src["x"] * edges.data["value"]}


def _summed(nodes: NodeBatch) -> Rows:
    return {"y": nodes.mailbox["m"].sum(1)}


def _product(edges: EdgeBatch) -> Rows:
    return {"y": edges.dst["left"] * edges.src["right"] * edges.data["value"]}


def _dot(edges: EdgeBatch) -> Rows:
    return {"y": (edges.dst["left"] * edges.src["right"]).sum(-1) * edges.data["value"]}


def times_dense(pattern: Pattern, value: Tensor, x: Tensor) -> Tensor:
    """``A @ x``: (cols,) or (cols, n) with a number an entry, (cols, n, k) with k numbers an entry."""
    _check_dense(pattern.shape[1], value, x, "columns")
    if not pattern.num_entries:
        return x[:0].sum(0).expand(pattern.shape[0], *x.shape[1:])  # zeros that have a gradient
    if x.dim() > 1:
        value = value.unsqueeze(1)
    frames = {"src": {"x": x}, "dst": {}, "edge": {"value": value}}
    return propagate(pattern.topology, frames, _scaled, _summed)["y"]


def _check_dense(count: int, value: Tensor, x: Tensor, what: str) -> None:
    dims = (1, 2) if value.dim() == 1 else (3,)
    if x.dim() not in dims or x.shape[0] != count or (value.dim() == 2 and x.shape[2] != value.shape[1]):
        per = "a number" if value.dim() == 1 else f"{tuple(value.shape[1:])} numbers"
        fact = f"a matrix with {count} {what} and {per} an entry, and a tensor {tuple(x.shape)}"
        raise FeatureError(fact, cure=f"give ({count},) or ({count}, n), or ({count}, n, k) for k numbers an entry")
    check_dtypes(value, x)


def check_dtypes(value: Tensor, x: Tensor) -> None:
    """DTypeError: entries and what they meet are not of one dtype."""
    if value.dtype != x.dtype:
        raise DTypeError(f"entries are {value.dtype}, the other tensor is {x.dtype}", cure="A.to(dtype=x.dtype)")


def sampled_dense(pattern: Pattern, value: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The values of ``A * (left @ right)``: (rows, n) and (n, cols), or with a last dim of as many as an entry has.

    Vectors (rows,) and (cols,) make an outer product. Where an entry is one number, it counts for all of a last dim.
    """
    num_rows, num_cols = pattern.shape
    if value.dim() == 1 and left.dim() == right.dim() == 3:
        value = value[:, None].expand(-1, left.shape[2])
    is_outer = left.dim() == right.dim() == value.dim() == 1
    if is_outer:
        fits = left.shape[0] == num_rows and right.shape[0] == num_cols
    else:
        fits = left.dim() == right.dim() == value.dim() + 1 and left.shape[2:] == right.shape[2:] == value.shape[1:]
        fits = fits and (left.shape[0], right.shape[1]) == (num_rows, num_cols) and left.shape[1] == right.shape[0]
    if not fits:
        fact = (
            f"{tuple(left.shape)} and {tuple(right.shape)} for a matrix {pattern.shape}, {tuple(value.shape)} entries"
        )
        raise FeatureError(fact, cure="give (rows, n) and (n, cols), with k last for k numbers an entry")
    check_dtypes(value, left)
    check_dtypes(value, right)
    if not is_outer:
        last = (1,) if value.dim() == 1 else (2, 1)  # the dim that is summed comes last
        left, right = left.permute(0, *last), right.permute(1, *((0,) if value.dim() == 1 else (2, 0)))
    if not pattern.num_entries:
        return value
    frames = {"src": {"right": right}, "dst": {"left": left}, "edge": {"value": value}}
    return evaluate_edges(pattern.topology, frames, _product if is_outer else _dot)["y"]


def times_sparse(a: Pattern, a_value: Tensor, b: Pattern, b_value: Tensor) -> tuple[Pattern, Tensor]:
    """``A @ B``, with entries in order; gradients of any order."""
    check_dtypes(a_value, b_value)
    if a.is_diagonal and a.shape[0] == a.shape[1]:  # rows are scaled: places, and what is known of them, stay
        return b, a_value[b.rows] * b_value
    if b.is_diagonal and b.shape[0] == b.shape[1]:
        return a, a_value * b_value[a.cols]
    lists = b.topology.csc
    begins = lists.ptr[:-1][a.cols].long()
    lengths = lists.ptr.diff()[a.cols].long()
    owner = torch.repeat_interleave(torch.arange(a.num_entries, device=begins.device), lengths)
    slot = torch.arange(len(owner), device=begins.device) - (lengths.cumsum(0) - lengths)[owner]
    place = begins[owner] + slot
    shape = (a.shape[0], b.shape[1])
    keys, into = torch.unique(number_places(a.rows[owner], lists.other[place], shape), return_inverse=True)
    entry = place if lists.edge_ids is None else lists.edge_ids[place]
    products = a_value[owner] * b_value[entry]
    return at_keys(keys, shape), products.new_zeros(len(keys)).index_add(0, into, products)
