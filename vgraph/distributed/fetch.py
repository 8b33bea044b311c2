"""Fetch: rows of nodes that any rank owns, asked for by new ids, or written by them.

Takes: ids, one feature of own nodes. Gives: rows in the order of the ids. Runs at every call, on all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.distributed.whole import Whole
from vgraph.runtime.distributed.halo_exchange import make_route, spread
from vgraph.runtime.distributed.ranks import Ranks


def fetch_rows(whole: Whole, ntype: str, own: Tensor, ids: Tensor) -> Tensor:
    """Rows of a feature of nodes by new ids. Differentiable."""
    return fetch_from(whole.ranks, whole.bounds[ntype], own, ids, f"from {ntype}")


def fetch_from(ranks: Ranks, bounds: Tensor, own: Tensor, ids: Tensor, what: str) -> Tensor:
    """Rows by ids, of which each rank owns a range; each is sent once, however often it is asked for. Differentiable.

    ``bounds``: (ranks + 1,), where each rank's ids begin.
    """
    asked, places = torch.unique(ids.cpu(), return_inverse=True)
    ends = torch.searchsorted(asked, bounds)
    first, last = bounds[ranks.rank : ranks.rank + 2].tolist()
    wanted = [asked[ends[r] : ends[r + 1]] - bounds[r] for r in range(ranks.size)]
    mine = wanted[ranks.rank]
    wanted[ranks.rank] = mine[:0]
    route = make_route(ranks, last - first, wanted)
    rows = spread(route, [own], f"fetch {what}")[0]
    # own rows lie before those of others, of which the first ranks' come first
    start, stop = int(ends[ranks.rank]), int(ends[ranks.rank + 1])
    others = torch.arange(len(asked) - len(mine)) + (last - first)
    there = torch.cat([others[:start], mine, others[start:]])
    assert len(there) == len(asked) and stop - start == len(mine)
    return rows.index_select(0, there.index_select(0, places).to(rows.device))


def put_to(ranks: Ranks, bounds: Tensor, own: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    """Own rows, with those that any rank writes, by ids; of several for one id, the last rank's."""
    owners = torch.searchsorted(bounds[1:].contiguous(), ids, right=True)
    order = torch.argsort(owners, stable=True)
    counts = torch.bincount(owners, minlength=ranks.size)
    ones = [1] * ranks.size
    told = ranks.all_to_all(counts, ones, ones, "put sizes").tolist()
    sizes = counts.tolist()
    places = ranks.all_to_all(ids[order], sizes, told, "put ids") - bounds[ranks.rank]
    width = own.shape[1:].numel()
    flat = rows.detach()[order].reshape(len(ids), width).contiguous().view(torch.uint8)
    written = ranks.all_to_all(flat, sizes, told, "put rows").view(own.dtype).reshape(-1, *own.shape[1:])
    found = own.detach().clone()
    for some, new in zip(places.split(told), written.split(told), strict=True):
        found.index_copy_(0, some, new)
    return found
