"""Groups: rows that belong together, as a compiled graph knows them before their topology is made.

Takes: an operator's results. Gives: what passes for a topology inside ``torch.compile``, and the topology outside.
Runs at every compilation, and where a call leaves the compiled graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vgraph.ir.topology import Topology


class Groups(NamedTuple):
    """What a compiled graph knows of groups of rows: their topology is made when it runs."""

    handle: Tensor
    dst: Tensor
    num_src: int
    num_dst: int
    num_edges: int
    halo: None = None  # what is divided among processes runs outside a compiled graph
    idtype: torch.dtype = torch.int64  # of ids, which nobody asks for here


def segments(ids: Tensor, count: int) -> Topology:
    """``ids`` (rows,) say which of ``count`` groups a row belongs to."""
    return Topology(ids, ids, count, count)


def outside_a_graph(topology: Topology | Groups) -> Topology:
    """The topology itself, where a call has left the compiled graph."""
    return segments(topology.dst, topology.num_dst) if isinstance(topology, Groups) else topology
