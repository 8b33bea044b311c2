"""A graph as one of NetworkX, which knows many algorithms that are not needed here.

Takes: GraphData. Gives: a networkx.MultiDiGraph. Runs once per sample. What comes from NetworkX is made in
``vgraph/api/build/networkx_scipy.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgraph.arguments import WORDS, checked
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.transform import one_type
from vgraph.late import late

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = late("networkx")


@checked(g=GRAPH, node_attrs=WORDS.or_none(), edge_attrs=WORDS.or_none())
def to_networkx(
    g: GraphData, node_attrs: Sequence[str] | None = None, edge_attrs: Sequence[str] | None = None
) -> nx.MultiDiGraph[int]:
    """A NetworkX graph; every edge has its number as attribute ``id``.

    Args:
        g: a graph with one type of nodes and edges.
        node_attrs: the names of features whose rows become attributes of the nodes; None: none.
        edge_attrs: the names of features whose rows become attributes of the edges; None: none.

    Returns:
        A MultiDiGraph whose nodes are the numbers from 0 up; attributes are tensors (...), without the rows.

    Raises:
        ArgumentError: the names are no list of names.
        GraphError: the graph has several types, or is a block.
        NameLookupError: there is no such feature.

    Source: DGL 1.1, ``dgl.to_networkx``.

    Example:
        >>> import vgraph
        >>> list(vgraph.to_networkx(vgraph.graph(([0, 0], [1, 1]))).edges(data=True))
        [(0, 1, {'id': 0}), (0, 1, {'id': 1})]
    """
    one_type(g, "to_networkx")
    made: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    made.add_nodes_from((i, row) for i, row in enumerate(g.ndata.rows(node_attrs)))
    src, dst = (end.tolist() for end in g.coo())
    rows = enumerate(g.edata.rows(edge_attrs))
    made.add_edges_from((src[i], dst[i], {"id": i, **row}) for i, row in rows)
    return made
