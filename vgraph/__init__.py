"""vgraph: neural networks whose shape is data.

Takes: graphs, features, functions of one vertex or one edge in ordinary PyTorch. Gives: tensors with gradient.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vgraph import function, ops, tdl
from vgraph.api.build.bipartite import bipartite_from_networkx, bipartite_from_scipy
from vgraph.api.build.construct import block_to_graph, create_block, graph, heterograph, rand_bipartite, rand_graph
from vgraph.api.build.files import load_graphs, load_labels, save_graphs
from vgraph.api.build.from_dgl import from_dgl
from vgraph.api.build.knn import knn_graph, radius_graph, segmented_knn_graph
from vgraph.api.build.networkx_scipy import from_networkx, from_scipy
from vgraph.api.build.pyg import from_pyg, to_pyg
from vgraph.api.build.tables import from_pandas, to_pandas
from vgraph.api.explain import explain
from vgraph.api.graph import Graph
from vgraph.api.kept_memory import release_memory
from vgraph.api.linear import linear
from vgraph.api.messages.filter import filter_edges, filter_nodes
from vgraph.api.messages.non_backtracking import non_backtracking
from vgraph.api.messages.propagation import prop_edges, prop_edges_dfs, prop_nodes, prop_nodes_bfs, prop_nodes_topo
from vgraph.api.messages.readout import (
    broadcast_edges,
    broadcast_nodes,
    max_edges,
    max_nodes,
    mean_edges,
    mean_nodes,
    readout_edges,
    readout_nodes,
    softmax_edges,
    softmax_nodes,
    sum_edges,
    sum_nodes,
    topk_edges,
    topk_nodes,
)
from vgraph.api.reduce import reduce
from vgraph.api.serving.collate import collate
from vgraph.api.serving.grow import GrowingGraph, grow
from vgraph.api.serving.loader import GraphLoader
from vgraph.api.serving.serve import Server, serve
from vgraph.api.torch_compile.fill import fill as _fill
from vgraph.api.vertex.by_type import ByType
from vgraph.api.vertex.call_features import at, rows_at
from vgraph.api.vertex.function import VertexFunction
from vgraph.api.vertex.vertex import Vertex
from vgraph.compiled_calls import compiled_calls as _compiled_calls
from vgraph.errors import VGraphError
from vgraph.graphs.batching import batch, merge, slice_batch, unbatch
from vgraph.graphs.blocks import compact_graphs, to_block
from vgraph.graphs.homogeneous import to_heterogeneous, to_homogeneous
from vgraph.graphs.positional import lap_pe, laplacian_lambda_max, norm_by_dst, random_walk_pe
from vgraph.graphs.reorder import khop_adj, khop_graph, metapath_reachable_graph, reorder_graph
from vgraph.graphs.seed import seed
from vgraph.graphs.subgraph import (
    edge_subgraph,
    edge_type_subgraph,
    in_subgraph,
    khop_in_subgraph,
    khop_out_subgraph,
    node_subgraph,
    node_type_subgraph,
    out_subgraph,
)
from vgraph.graphs.to_networkx import to_networkx
from vgraph.graphs.transform import (
    add_edges,
    add_nodes,
    add_reverse_edges,
    add_self_loop,
    line_graph,
    remove_edges,
    remove_nodes,
    remove_self_loop,
    reverse,
    to_bidirected,
    to_simple,
)
from vgraph.graphs.traversal import (
    bfs_edges_generator,
    bfs_nodes_generator,
    dfs_edges_generator,
    dfs_labeled_edges_generator,
    topological_nodes_generator,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from torch.nn import Module

    from vgraph.api.dense.parallel import parallelize
    from vgraph.api.dense.place import Placement, place

    _Model = TypeVar("_Model", bound=Module | Iterable[object])

    def accelerate(model: _Model) -> _Model:
        """``vgraph.compat.pyg.accelerate``, which stands in a package that is written with the names here."""
        ...


_fill(_compiled_calls)
DGLGraph, DGLError = Graph, VGraphError  # the names that programs written for DGL use
ALL, NID, EID, NTYPE, ETYPE = "__ALL__", "_ID", "_ID", "_TYPE", "_TYPE"

__version__ = "0.2.0"
__all__ = [
    "ByType",
    "Graph",
    "GraphLoader",
    "GrowingGraph",
    "Placement",
    "Server",
    "VGraphError",
    "Vertex",
    "VertexFunction",
    "__version__",
    "accelerate",
    "add_edges",
    "add_nodes",
    "add_reverse_edges",
    "add_self_loop",
    "at",
    "rows_at",
    "batch",
    "bfs_edges_generator",
    "bfs_nodes_generator",
    "bipartite_from_networkx",
    "bipartite_from_scipy",
    "block_to_graph",
    "broadcast_edges",
    "broadcast_nodes",
    "collate",
    "compact_graphs",
    "create_block",
    "dfs_edges_generator",
    "dfs_labeled_edges_generator",
    "edge_subgraph",
    "edge_type_subgraph",
    "explain",
    "filter_edges",
    "filter_nodes",
    "from_dgl",
    "from_networkx",
    "from_pandas",
    "from_pyg",
    "from_scipy",
    "function",
    "graph",
    "grow",
    "heterograph",
    "in_subgraph",
    "khop_adj",
    "khop_graph",
    "khop_in_subgraph",
    "khop_out_subgraph",
    "knn_graph",
    "lap_pe",
    "laplacian_lambda_max",
    "line_graph",
    "linear",
    "load_graphs",
    "load_labels",
    "max_edges",
    "max_nodes",
    "mean_edges",
    "mean_nodes",
    "merge",
    "metapath_reachable_graph",
    "node_subgraph",
    "node_type_subgraph",
    "non_backtracking",
    "norm_by_dst",
    "ops",
    "out_subgraph",
    "parallelize",
    "place",
    "prop_edges",
    "prop_edges_dfs",
    "prop_nodes",
    "prop_nodes_bfs",
    "prop_nodes_topo",
    "radius_graph",
    "rand_bipartite",
    "rand_graph",
    "random_walk_pe",
    "readout_edges",
    "readout_nodes",
    "reduce",
    "release_memory",
    "remove_edges",
    "remove_nodes",
    "remove_self_loop",
    "reorder_graph",
    "reverse",
    "save_graphs",
    "seed",
    "segmented_knn_graph",
    "serve",
    "slice_batch",
    "softmax_edges",
    "softmax_nodes",
    "sum_edges",
    "sum_nodes",
    "tdl",
    "to_bidirected",
    "to_block",
    "to_heterogeneous",
    "to_homogeneous",
    "to_networkx",
    "to_pandas",
    "to_pyg",
    "to_simple",
    "topk_edges",
    "topk_nodes",
    "topological_nodes_generator",
    "unbatch",
]


_LATE = {
    "parallelize": "vgraph.api.dense.parallel",
    "Placement": "vgraph.api.dense.place",
    "place": "vgraph.api.dense.place",
    "accelerate": "vgraph.compat.pyg.layers",
}  # what divides programs, and torch's part of it; what runs programs written for others


def __getattr__(name: str) -> Any:
    """Packages that are written with the names above, and large parts, are imported when they are asked for."""
    if name in ("compat", "data", "nn", "sampling"):
        return import_module(f"vgraph.{name}")
    if name in _LATE:
        globals()[name] = found = getattr(import_module(_LATE[name]), name)
        return found
    raise AttributeError(f"module 'vgraph' has no attribute {name!r}")
