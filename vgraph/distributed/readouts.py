"""Readouts over ranks: one row from the rows of all of them.

Takes: own rows. Gives: one row, the same on every rank; differentiable as often as one likes. Runs at every call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.ir.reduction import ACCUMULATED
from vgraph.runtime.distributed.halo_exchange import total
from vgraph.runtime.distributed.ranks import Ranks


def reduce_rows(ranks: Ranks, rows: Tensor, reducer: str) -> Tensor:
    """``sum``, ``mean``, ``max`` or ``min`` of the rows of all ranks, (1, ...); 0 of none."""
    if reducer in ("sum", "mean"):
        summed = total(ranks, _longer(rows).sum(0, keepdim=True), f"readout {reducer}")
        if reducer == "mean":
            summed = summed / max(sum(ranks.gather(len(rows), "readout rows")), 1)
        return _as_given(summed, rows)
    counts = ranks.gather(len(rows), "readout rows")
    mine = _picked(rows, reducer) if len(rows) else rows.new_zeros(rows.shape[1:]) + rows.sum(0)
    every = total(ranks, _at_rank(ranks, mine), f"readout {reducer}")
    there = [rank for rank, count in enumerate(counts) if count]
    if not there:
        return every[:1] * 0
    chosen = every.index_select(0, torch.tensor(there, device=every.device))
    return _picked(chosen, reducer).unsqueeze(0)


def _longer(rows: Tensor) -> Tensor:
    """Sums of numbers of 16 bits would be rounded rank by rank, or infinite."""
    return rows.to(ACCUMULATED.get(rows.dtype, rows.dtype))


def _as_given(found: Tensor, rows: Tensor) -> Tensor:
    """In the dtype of the rows; what is made of whole numbers keeps its own."""
    return found.to(rows.dtype) if rows.dtype in ACCUMULATED else found


def _picked(rows: Tensor, reducer: str) -> Tensor:
    """The extreme row, of several alike the first one's."""
    return torch.max(rows, 0).values if reducer == "max" else torch.min(rows, 0).values


def _at_rank(ranks: Ranks, row: Tensor) -> Tensor:
    """The row at this rank's place among zeros."""
    places = torch.arange(ranks.size, device=row.device) == ranks.rank
    return torch.where(places.reshape(-1, *(1,) * row.ndim), row.unsqueeze(0), 0)


def softmax_rows(ranks: Ranks, rows: Tensor) -> Tensor:
    """Own rows of the softmax over the rows of all ranks."""
    lowest = torch.full(rows.shape[1:], -torch.inf, dtype=rows.dtype, device=rows.device)
    peak = ranks.max(torch.amax(rows.detach(), 0) if len(rows) else lowest, "readout peak")
    raised = torch.exp(_longer(rows) - _longer(peak))
    return _as_given(raised / total(ranks, raised.sum(0), "readout softmax"), rows)
