"""Parts with few edges between them, as ``pyg_lib.partition.metis`` gives them, where pyg-lib is not installed.

Takes: lists of neighbors, how many parts. Gives: the part of each node. Runs once per graph.
Source: Karypis and Kumar 1998; Chiang et al. 2019 (Cluster-GCN).
"""

from __future__ import annotations

import torch
from torch import Tensor

import vgraph
from vgraph.compat.partition import metis_partition_assignment


def metis(rowptr: Tensor, col: Tensor, num_partitions: int, *, recursive: bool = False) -> Tensor:
    """The part of each node, (nodes,), by METIS.

    Args:
        rowptr: where each node's neighbors begin, (nodes + 1,).
        col: the neighbors, (edges,).
        num_partitions: how many parts.
        recursive: by halves.

    Raises:
        VGraphError: pymetis is not installed, or METIS gives up.
    """
    count = len(rowptr) - 1
    row = torch.repeat_interleave(torch.arange(count), rowptr.diff())
    mode = "recursive" if recursive else "k-way"
    return metis_partition_assignment(vgraph.graph((row, col), num_nodes=count), num_partitions, mode=mode)
