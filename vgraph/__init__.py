"""vgraph: neural networks whose shape is data.

Takes: graphs, features, functions of one vertex or one edge in ordinary PyTorch. Gives: tensors with gradient.
"""

from vgraph.api.by_type import ByType
from vgraph.api.convert import (
    add_self_loop,
    batch,
    from_networkx,
    from_scipy,
    remove_self_loop,
    reverse,
    to_networkx,
    unbatch,
)
from vgraph.api.explain import explain
from vgraph.api.feed import at
from vgraph.api.graph import Graph, graph
from vgraph.api.vertex import Vertex
from vgraph.api.vertex_function import VertexFunction
from vgraph.errors import VGraphError

__version__ = "0.1.0"
__all__ = [
    "ByType",
    "Graph",
    "VGraphError",
    "Vertex",
    "VertexFunction",
    "__version__",
    "add_self_loop",
    "at",
    "batch",
    "explain",
    "from_networkx",
    "from_scipy",
    "graph",
    "remove_self_loop",
    "reverse",
    "to_networkx",
    "unbatch",
]
