"""The edges that a mask picks, as layers do for one relation after another: picked once, so that each has its topology.

Takes: an edge_index and a mask, which is a new tensor in every call. Gives: what PyG picks; where this edge_index is
unchanged and had a mask with the same numbers before, what was picked then. Runs at every call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from vgraph.compat.pyg.by_tensor import ByTensor
from vgraph.compat.pyg.layer_types import Method
from vgraph.compat.pyg.topologies import State, state_of

_MOST = 64  # masks of an edge_index, each of which is compared in the worst case


@dataclass(eq=False)
class _Picked:
    mask: Tensor
    edges: Tensor
    state: State  # of the edges

    def is_for(self, mask: Tensor) -> bool:
        return self.state == state_of(self.edges) and torch.equal(self.mask, mask)


@dataclass(eq=False)
class _Picks:
    """All that masks have picked from an edge_index; ``next``: whose turn it is where masks come in turn."""

    source: State
    all: list[_Picked] = field(default_factory=list[_Picked])
    next: int = 0

    def find(self, mask: Tensor) -> Tensor | None:
        for i in (*range(self.next, len(self.all)), *range(self.next)):
            if self.all[i].is_for(mask):
                self.next = (i + 1) % len(self.all)
                return self.all[i].edges
        return None

    def keep(self, mask: Tensor, edges: Tensor) -> None:
        """Masks of relations pick each edge once. What picks more is thrown away, and does not fill memory."""
        count = edges.shape[1] + sum(one.edges.shape[1] for one in self.all)
        if count > self.source[2][1] or len(self.all) == _MOST:
            self.all.clear()
        self.all.append(_Picked(mask, edges, state_of(edges)))
        self.next = 0


_picks: ByTensor[_Picks] = ByTensor()  # of each edge_index


def pick(theirs: Method, edge_index: Tensor, mask: Tensor) -> Tensor:
    """``theirs(edge_index, mask)``; the same tensor again where both are as they were."""
    picks = _picks.get(edge_index)
    if picks is None or picks.source != state_of(edge_index):
        picks = _picks[edge_index] = _Picks(state_of(edge_index))
    found = picks.find(mask)
    if found is None:
        with torch.inference_mode(False):  # it may be part of a backward later
            found, known = cast("Tensor", theirs(edge_index, mask)), mask.clone()
        picks.keep(known, found)
    return found
