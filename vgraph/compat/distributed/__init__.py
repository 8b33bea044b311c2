"""``dgl.distributed``: what programs of DistDGL call, on ``vgraph.distributed``.

Takes: DGL's arguments. Gives: what DGL would give. Runs once per process or graph, and at every step.
There are no servers: torchrun starts the program, and each of its processes is a trainer and a part of the graph.
"""

from vgraph.compat.distributed.dist_graph import DistGraph
from vgraph.compat.distributed.dist_tensor import DistTensor
from vgraph.compat.distributed.job import exit_client, initialize
from vgraph.compat.distributed.loaders import DistDataLoader, DistNodeDataLoader, sample_neighbors
from vgraph.compat.distributed.partition_book import GraphPartitionBook, PartitionPolicy
from vgraph.compat.distributed.partitions import (
    load_partition,
    load_partition_book,
    load_partition_feats,
    partition_graph,
)
from vgraph.compat.distributed.splits import edge_split, node_split

__all__ = [
    "DistDataLoader",
    "DistGraph",
    "DistNodeDataLoader",
    "DistTensor",
    "GraphPartitionBook",
    "PartitionPolicy",
    "edge_split",
    "exit_client",
    "initialize",
    "load_partition",
    "load_partition_book",
    "load_partition_feats",
    "node_split",
    "partition_graph",
    "sample_neighbors",
]
