"""Graphs beyond one process: partitions on disk, sampled and full-graph training over torch.distributed.

Takes: a graph, processes that torchrun started. Gives: parts on disk, and training that is the same on any number of
ranks. Runs once per graph (partitions) and at every step (training). Names follow ``dgl.distributed``.
"""

from vgraph.distributed.batch_norm import BatchNorm1d, convert_batch_norm
from vgraph.distributed.dist_graph import DistGraph
from vgraph.distributed.job import agreed_seed, barrier, gather_rows, init, num_ranks, rank
from vgraph.distributed.out_of_core import partition_files
from vgraph.distributed.partition.partition_graph import PartitionSummary, partition_graph
from vgraph.distributed.plan import GraphPlan, plan_graph, plan_on_paper
from vgraph.distributed.reductions import all_reduce_gradients, mean
from vgraph.distributed.stored.check import check_graph
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph, StoredPart

__all__ = [
    "BatchNorm1d",
    "DistGraph",
    "GraphPlan",
    "PartitionSummary",
    "PartitionedGraph",
    "StoredPart",
    "agreed_seed",
    "all_reduce_gradients",
    "barrier",
    "check_graph",
    "convert_batch_norm",
    "gather_rows",
    "init",
    "mean",
    "num_ranks",
    "partition_files",
    "partition_graph",
    "plan_graph",
    "plan_on_paper",
    "rank",
]
