"""What ``dgl.dataloading`` has beside samplers and loaders: clusters, collators, edges that are left out.

Takes: graphs and ids. Gives: parts of graphs. Runs at every step. Samplers themselves are ``vgraph.sampling``'s.
"""

from vgraph.compat.loading.biased import sample_neighbors_biased
from vgraph.compat.loading.clusters import ClusterGCNSampler
from vgraph.compat.loading.collators import Collator, EdgeCollator, GraphCollator, NodeCollator
from vgraph.compat.loading.excluded import SpotTarget, find_exclude_eids
from vgraph.compat.loading.fused import sample_neighbors_fused
from vgraph.compat.loading.lazy import (
    LazyFeature,
    set_dst_lazy_features,
    set_edge_lazy_features,
    set_node_lazy_features,
    set_src_lazy_features,
)

__all__ = [
    "ClusterGCNSampler",
    "Collator",
    "EdgeCollator",
    "GraphCollator",
    "LazyFeature",
    "NodeCollator",
    "SpotTarget",
    "find_exclude_eids",
    "sample_neighbors_biased",
    "sample_neighbors_fused",
    "set_dst_lazy_features",
    "set_edge_lazy_features",
    "set_node_lazy_features",
    "set_src_lazy_features",
]
