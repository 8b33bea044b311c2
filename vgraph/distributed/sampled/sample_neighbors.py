"""Neighbours of any nodes, whoever has their lists: for samplers of users' own.

Takes: a DistGraph, new ids. Gives: a graph of all nodes with the edges drawn. All ranks call at the same time.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from vgraph.api.graph import Graph
from vgraph.arguments import WHOLE, checked
from vgraph.distributed.dist_graph import DistGraph
from vgraph.distributed.sampled.drawing import draw_hops
from vgraph.distributed.sampled.layout import layout_of
from vgraph.distributed.whole import Whole
from vgraph.errors import GraphError
from vgraph.graphs.draw.neighbors import Hop, edges_by_type
from vgraph.graphs.draw.random_numbers import mix
from vgraph.graphs.ids_by_type import nodes_by_type
from vgraph.runtime.distributed.peers import Peers

_peers: WeakKeyDictionary[Whole, tuple[Peers, list[int]]] = WeakKeyDictionary()


@checked(seed=WHOLE)
def sample_neighbors(
    g: DistGraph,
    nodes: Any,
    fanout: Any,
    edge_dir: str = "in",
    prob: str | None = None,
    replace: bool = False,
    *,
    seed: int = 0,
) -> Graph:
    """A graph of all nodes with up to ``fanout`` in-edges of each of ``nodes``; all ranks call, also with no nodes.

    Args:
        g: the distributed graph.
        nodes: (k,) new ids of any nodes, by type where there are several; those of other ranks are asked for there.
        fanout: how many edges of each type, or by edge type, the same on all ranks; -1: all.
        edge_dir: "in": parts hold the edges that end in their nodes.
        prob: the name of the stored feature, one number from 0 up an edge, that edges are drawn in proportion to;
            None: all alike.
        replace: whether an edge may be drawn more than once.
        seed: what is drawn follows from this, from how many calls there were before, and from original ids.

    Returns:
        A graph in memory, of new ids; its edges' feature ``"_ID"`` holds new ids of edges.

    Raises:
        ArgumentError: ``seed`` is no whole number.
        GraphError: ids or fanouts that cannot be; ``edge_dir`` is not "in".
        DTypeError: ids are not whole numbers.
        NameLookupError: there is no such type, or no such feature was stored.
        FeatureError: ``prob`` names a feature that is not one number from 0 up an edge.
        WorkerError: a rank is lost, or out of step.

    Source: DGL 1.1, ``dgl.distributed.sample_neighbors``.

    Example:
        >>> import tempfile, vgraph, vgraph.distributed as vd
        >>> folder = tempfile.mkdtemp()
        >>> _ = vd.partition_graph(vgraph.graph(([0, 1, 2, 3], [3, 3, 3, 0])), folder, num_parts=1)
        >>> g = vd.DistGraph(folder)
        >>> vd.sample_neighbors(g, g.new_ids([3]), 2).num_edges()
        2
    """
    if edge_dir != "in":
        fact = f"edge_dir is {edge_dir!r}, and parts are served by in-edges"
        raise GraphError(fact, cure="partition the reverse of the graph, and sample in-edges there")
    layout, whole = layout_of(g), g.whole
    if whole not in _peers:
        _peers[whole] = (Peers(layout.ranks, layout.machines), [0])
    peers, calls = _peers[whole]
    calls[0] += 1
    outline = layout.served.outline()
    hop = Hop(nodes_by_type(outline, nodes), fanout, prob, replace, key=mix(mix(seed) + calls[0]))
    drawn = draw_hops(layout.served, peers, outline, [hop], (0, calls[0]))[0]
    topologies, edges = edges_by_type(outline, drawn, copies=False)
    return Graph.of_types(topologies, dict(outline.src_frames), None, edges)
