"""Fetch: rows of nodes that any rank owns, asked for by new ids.

Takes: ids, one feature of own nodes. Gives: rows in the order of the ids. Runs at every call, on all ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vgraph.distributed.whole import Whole
from vgraph.runtime.distributed.halo_exchange import make_route, spread


def fetch_rows(whole: Whole, ntype: str, own: Tensor, ids: Tensor) -> Tensor:
    """Rows of a feature by new ids; each is sent once, however often it is asked for. Differentiable."""
    bounds, ranks = whole.bounds[ntype], whole.ranks
    asked, places = torch.unique(ids.cpu(), return_inverse=True)
    ends = torch.searchsorted(asked, bounds)
    first, last = whole.own(ntype)
    wanted = [asked[ends[r] : ends[r + 1]] - bounds[r] for r in range(ranks.size)]
    mine = wanted[ranks.rank]
    wanted[ranks.rank] = mine[:0]
    route = make_route(ranks, last - first, wanted)
    rows = spread(route, [own], f"fetch from {ntype}")[0]
    # own rows lie before those of others, of which the first ranks' come first
    start, stop = int(ends[ranks.rank]), int(ends[ranks.rank + 1])
    others = torch.arange(len(asked) - len(mine)) + (last - first)
    there = torch.cat([others[:start], mine, others[start:]])
    assert len(there) == len(asked) and stop - start == len(mine)
    return rows.index_select(0, there.index_select(0, places).to(rows.device))
