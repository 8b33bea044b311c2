"""Readouts over ranks: one row from the rows of all of them.

Takes: own rows. Gives: one row, the same on every rank; differentiable as often as one likes. Runs at every call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.runtime.distributed.halo_exchange import total
from vgraph.runtime.distributed.ranks import Ranks


def reduce_rows(ranks: Ranks, rows: Tensor, reducer: str) -> Tensor:
    """``sum``, ``mean``, ``max`` or ``min`` of the rows of all ranks, (1, ...); 0 of none."""
    if reducer in ("sum", "mean"):
        summed = total(ranks, _not_short(rows).sum(0, keepdim=True), f"readout {reducer}")
        if reducer == "mean":
            summed = summed / max(sum(ranks.gather(len(rows), "readout rows")), 1)
        return summed.to(rows.dtype) if _is_short(rows) else summed
    counts = ranks.gather(len(rows), "readout rows")
    mine = _picked(rows, reducer) if len(rows) else rows.new_zeros(rows.shape[1:]) + rows.sum(0)
    every = total(ranks, _at_rank(ranks, mine), f"readout {reducer}")
    there = [rank for rank, count in enumerate(counts) if count]
    if not there:
        return every[:1] * 0
    chosen = every.index_select(0, torch.tensor(there, device=every.device))
    return _picked(chosen, reducer).unsqueeze(0)


def _is_short(rows: Tensor) -> bool:
    return rows.dtype in (torch.bfloat16, torch.float16)


def _not_short(rows: Tensor) -> Tensor:
    """Sums of numbers of 16 bits would be rounded rank by rank, or infinite."""
    return rows.float() if _is_short(rows) else rows


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
    raised = torch.exp(_not_short(rows) - _not_short(peak))
    return (raised / total(ranks, raised.sum(0), "readout softmax")).to(rows.dtype)
