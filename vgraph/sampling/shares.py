"""Shares: the places of a list that each process of a program visits in an epoch.

Takes: how many places, their order. Gives: a process's own. Runs once per epoch.
Source: PyTorch, ``torch.utils.data.DistributedSampler``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vgraph.errors import FunctionError
from vgraph.runtime.distributed.ranks import rank_in_group


@dataclass(frozen=True)
class Share:
    """What process ``rank`` of ``size`` visits; all visit equally many places, so that they make as many steps."""

    rank: int
    size: int

    def count(self, total: int, *, drop_last: bool) -> int:
        """How many of so many places."""
        return total // self.size if drop_last else -(-total // self.size)

    def of(self, order: Tensor, *, drop_last: bool) -> Tensor:
        """The places of this process: one slice of the order, which begins anew where it does not suffice."""
        count = self.count(len(order), drop_last=drop_last)
        places = torch.arange(self.rank * count, (self.rank + 1) * count, device=order.device)
        return order[places % max(len(order), 1)]


WHOLE = Share(0, 1)


def own_share(use_ddp: bool) -> Share:
    """This process's among those of the program's group; all of it without ``use_ddp``."""
    if not use_ddp:
        return WHOLE
    found = rank_in_group()
    if found is None:
        fact = "use_ddp is set, and this process is in no group of processes"
        raise FunctionError(fact, cure="call torch.distributed.init_process_group first, as for torch's own DDP")
    return Share(*found)
