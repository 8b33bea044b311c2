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
from vgraph.distributed.sampled.graph_loader import DistGraphLoader
from vgraph.distributed.sampled.loader import DistDataLoader
from vgraph.distributed.sampled.sample_neighbors import sample_neighbors
from vgraph.distributed.sampled.split import edge_split, node_split
from vgraph.distributed.stored.check import check_graph
from vgraph.distributed.stored.partitioned_graph import PartitionedGraph, StoredPart
from vgraph.runtime.distributed.groups import lost_workers

__all__ = [
    "BatchNorm1d",
    "DistDataLoader",
    "DistGraph",
    "DistGraphLoader",
    "GraphPlan",
    "PartitionSummary",
    "PartitionedGraph",
    "StoredPart",
    "agreed_seed",
    "all_reduce_gradients",
    "barrier",
    "check_graph",
    "convert_batch_norm",
    "edge_split",
    "gather_rows",
    "init",
    "lost_workers",
    "mean",
    "node_split",
    "num_ranks",
    "partition_files",
    "partition_graph",
    "plan_graph",
    "plan_on_paper",
    "rank",
    "sample_neighbors",
]
