"""Parts of a sparse matrix: rows or columns by id, entries drawn of each, and rows or columns without entries left out.

Takes: a pattern; row ids, or column ids of its transpose. Gives: a pattern and which entries it has. Runs at every
call. Source: DGL 2.1, ``dgl.sparse`` (index_select, sample, compact).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.api.sparse.pattern import Pattern, at_places, check_ids
from vgraph.errors import DeviceError, FeatureError
from vgraph.graphs.draw.lists import Lists
from vgraph.graphs.draw.neighbors import draw_from
from vgraph.graphs.draw.pick import are_weights
from vgraph.graphs.draw.random_numbers import Array, next_key
from vgraph.graphs.frame import as_ids


def select_rows(pattern: Pattern, ids: Tensor) -> tuple[Pattern, Tensor]:
    """Rows by id, which may come several times: (the rows, which entries they have)."""
    check_ids("rows", ids, pattern.shape[0])
    lists = pattern.topology.csc
    begins, lengths = lists.ptr[:-1][ids.long()].long(), lists.ptr.diff()[ids.long()].long()
    row = torch.repeat_interleave(torch.arange(len(ids), device=ids.device), lengths)
    place = begins[row] + torch.arange(len(row), device=ids.device) - (lengths.cumsum(0) - lengths)[row]
    entry = place if lists.edge_ids is None else lists.edge_ids[place]
    return at_places(row, lists.other[place].long(), (len(ids), pattern.shape[1])), entry


def draw_in_rows(
    pattern: Pattern, weights: Tensor | None, fanout: int, ids: Tensor | None, *, replace: bool
) -> tuple[Pattern, Tensor]:
    """Up to ``fanout`` entries of every row in ``ids``, by weight where entries have one."""
    if pattern.rows.device.type != "cpu":
        raise DeviceError(f"the matrix is on {pattern.rows.device}", cure="sample from A.cpu(), and move what is drawn")
    ids = torch.arange(pattern.shape[0], device="cpu") if ids is None else ids
    check_ids("rows", ids, pattern.shape[0])
    lists = pattern.topology.csc
    taken = None if weights is None else _weights(weights, lists.edge_ids).take
    other, entry, row = draw_from(Lists.of(lists), taken, ids.long().numpy(), fanout, next_key(), replace=replace)
    made = at_places(torch.from_numpy(row), torch.from_numpy(other).long(), (len(ids), pattern.shape[1]))
    return made, torch.from_numpy(entry)


def _weights(weights: Tensor, order: Tensor | None) -> Array:
    """Numbers from 0 up in the order of the rows' lists."""
    if weights.dim() > 1 or weights.is_complex() or not are_weights(weights):
        raise FeatureError("entries are no finite weights from 0 up", cure="draw with bias=False, or give other values")
    numbers = weights.detach().double()
    return (numbers if order is None else numbers[order]).numpy()


def without_empty_rows(pattern: Pattern, leading: Tensor | None) -> tuple[Pattern, Tensor]:
    """Rows that have entries, after those of ``leading``, in order: (the matrix, its rows' former ids)."""
    rows = pattern.rows.long()
    leading = rows[:0] if leading is None else as_ids(leading, "leading_indices").to(rows.device, torch.int64)
    check_ids("leading_indices", leading, pattern.shape[0])
    order, place = torch.unique(leading, return_inverse=True)
    first = place.new_full((len(order),), len(leading)).scatter_reduce(
        0, place, torch.arange(len(leading), device=rows.device), "amin"
    )
    leading = leading[first.sort().values]
    is_left = torch.zeros(pattern.shape[0], dtype=torch.bool, device=rows.device)
    is_left[rows] = True
    is_left[leading] = False
    former = torch.cat([leading, is_left.nonzero().squeeze(1)])
    new = rows.new_zeros(pattern.shape[0])
    new[former] = torch.arange(len(former), device=rows.device)
    return at_places(new[rows], pattern.cols, (len(former), pattern.shape[1])), former
