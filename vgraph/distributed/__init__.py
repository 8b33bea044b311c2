"""Graphs beyond one process: partitions on disk, sampled and full-graph training over torch.distributed.

Takes: a graph, processes that torchrun started. Gives: parts on disk, and training that is the same on any number of
ranks. Runs once per graph (partitions) and at every step (training). Names follow ``dgl.distributed``.
"""

from vgraph.distributed.partition.partition_graph import PartitionSummary, partition_graph
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph, StoredPart

__all__ = [
    "PartitionSummary",
    "PartitionedGraph",
    "StoredPart",
    "partition_graph",
]
