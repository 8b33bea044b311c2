"""Order and reach: nodes numbered anew, and edges for walks of several steps.

Takes: a Graph. Gives: a Graph. Runs once per sample.
Source: Cuthill and McKee 1969 (by SciPy); DGL section 3 (metapaths).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vgraph.arguments import COUNT, EACH, MAPPING, NAME, checked
from vgraph.errors import FunctionError, GraphError
from vgraph.graphs.frame import resolve_ids
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import AnyGraph, GraphData
from vgraph.graphs.mutation import ID
from vgraph.graphs.subgraph import take
from vgraph.graphs.transform import one_type, rejoin
from vgraph.graphs.types import EdgeType, EType, Ids
from vgraph.ir.topology import Topology
from vgraph.late import late

if TYPE_CHECKING:
    from scipy.sparse import csgraph
else:
    csgraph = late("scipy.sparse.csgraph")


@checked(g=GRAPH, node_permute_algo=NAME.or_none(), edge_permute_algo=NAME, permute_config=MAPPING.or_none())
def reorder_graph(
    g: AnyGraph,
    node_permute_algo: str | None = None,
    edge_permute_algo: str = "src",
    store_ids: bool = True,
    permute_config: Mapping[str, Ids] | None = None,
) -> AnyGraph:
    """The graph with nodes and edges numbered anew; ``"_ID"`` (the permutation) holds the ids of before.

    Args:
        g: a graph with one type of nodes and edges.
        node_permute_algo: "degree" (most in-edges first), "rcmk" (reverse Cuthill-McKee), "custom"
            (``permute_config["nodes_perm"]``), or None: nodes stay.
        edge_permute_algo: "src" or "dst" (by the new number of that end), or "custom"
            (``permute_config["edges_perm"]``).
        store_ids: set the features ``"_ID"`` to the permutations.
        permute_config: permutations of one's own: ids (nodes,) and (edges,), the old number of every new one.

    Returns:
        A graph of the same class; features move with their nodes and edges.

    Raises:
        ArgumentError: an algorithm is no word, or ``permute_config`` no dict.
        FunctionError: an unknown algorithm, or a permutation that is missing.
        GraphError: a permutation does not name every id once, or there are several types of nodes or edges.

    Source: Cuthill and McKee 1969 ("rcmk", by SciPy); DGL 1.1, ``dgl.reorder_graph``.

    Example:
        >>> import vgraph
        >>> vgraph.reorder_graph(vgraph.graph(([0, 1], [2, 2])), "degree").ndata["_ID"].tolist()
        [2, 0, 1]
    """
    t = g.relation(one_type(g, "reorder_graph"))[0]
    config = permute_config or {}
    nodes = _node_order(g, t, node_permute_algo, config)
    places = torch.empty_like(nodes).scatter_(0, nodes, torch.arange(nodes.shape[0], device=g.device))
    ends = {"src": t.src, "dst": t.dst}
    if edge_permute_algo in ends:
        edges = places.index_select(0, ends[edge_permute_algo].long()).argsort(stable=True)
    else:
        edges = _custom(edge_permute_algo, "edges_perm", config, t.num_edges, g)
    made = take(g, {g.ntypes[0]: nodes}, {g.canonical_etypes[0]: edges}, store_ids=False)
    if store_ids:
        made.ndata[ID], made.edata[ID] = nodes.to(g.idtype), edges.to(g.idtype)
    return made


def _node_order(g: GraphData, t: Topology, algorithm: str | None, config: Mapping[str, Ids]) -> Tensor:
    if algorithm is None:
        return torch.arange(t.num_dst, device=g.device)
    if algorithm == "degree":
        return torch.argsort(t.in_degrees, descending=True, stable=True)
    if algorithm == "rcmk":
        matrix = g.adj_external(scipy_fmt="csr")
        if not t.num_dst:  # of which SciPy finds no order
            return torch.arange(0, device=g.device)
        order = csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=False)
        return torch.from_numpy(order.copy()).to(g.device, torch.int64)  # it is a view with a negative stride
    return _custom(algorithm, "nodes_perm", config, t.num_dst, g)


def _custom(algorithm: str, name: str, config: Mapping[str, Ids], count: int, g: GraphData) -> Tensor:
    if algorithm != "custom" or name not in config:
        known = '"degree", "rcmk" or "custom"' if name == "nodes_perm" else '"src", "dst" or "custom"'
        fact = f"there is no order {algorithm!r}" if algorithm != "custom" else f"permute_config has no {name!r}"
        raise FunctionError(fact, cure=f"pass {known}; the last needs permute_config={{{name!r}: ids}}")
    order = resolve_ids(config[name], count, g.device)
    if order.shape[0] != count or torch.unique(order).shape[0] != count:
        raise GraphError(f"{name} does not name each of {count} ids once", cure="give a permutation")
    return order


# ---------------------------------------------------------------- walks of given length
@checked(g=GRAPH, k=COUNT)
def khop_adj(g: GraphData, k: int) -> Tensor:
    """How many walks of k edges lead from every node (rows) to every node, (nodes, nodes).

    Args:
        g: a graph with one type of nodes and edges.
        k: how many edges a walk has, from 0 up.

    Returns:
        float32 (nodes, nodes), dense; edges between the same nodes make walks of their own.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: there are several types of nodes or edges.

    Source: DGL 1.1, ``dgl.khop_adj``.

    Example:
        >>> import vgraph
        >>> vgraph.khop_adj(vgraph.graph(([0, 1], [1, 2])), 2)[0].tolist()
        [0.0, 0.0, 1.0]
    """
    one_type(g, "khop_adj")
    power = g.adj_external(scipy_fmt="csr").astype(np.float32) ** k
    return torch.from_numpy(power.toarray()).to(g.device)


@checked(g=GRAPH, k=COUNT)
def khop_graph(g: AnyGraph, k: int, copy_ndata: bool = True) -> AnyGraph:
    """The graph with an edge for every walk of k edges.

    Args:
        g: a graph with one type of nodes and edges.
        k: how many edges a walk has, from 0 up; one without edges leads from each node to itself.
        copy_ndata: take the features of nodes along.

    Returns:
        A graph of the same class without features of edges; several walks between two nodes make several edges.

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: there are several types of nodes or edges.

    Source: DGL 1.1, ``dgl.khop_graph``.

    Example:
        >>> import vgraph
        >>> vgraph.khop_graph(vgraph.graph(([0, 1], [1, 2])), 2).edges()
        (tensor([0]), tensor([2]))
    """
    key = one_type(g, "khop_graph")
    if k:
        joined = _walks(g, [key] * k, multi=True)
    else:
        ids = torch.arange(g.num_nodes(), dtype=g.idtype, device=g.device)
        joined = Topology(ids, ids, len(ids), len(ids), g.relation(key)[0].graph_sizes)
    return rejoin(g, {key: joined}, copy_ndata=copy_ndata)


@checked(g=GRAPH, metapath=EACH)
def metapath_reachable_graph(g: AnyGraph, metapath: Sequence[EType]) -> AnyGraph:
    """The graph with an edge u -> v where v is reached from u along edges of these types, one after the other.

    Args:
        g: a graph.
        metapath: edge types, names or triples, one after the other.

    Returns:
        A graph of the same class with one edge a pair of nodes, the types at the two ends of the path, and one type
        of edges, "_E". Features of nodes come along.

    Raises:
        GraphError: a type does not begin where the one before ends, or the path has no type.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.metapath_reachable_graph``.

    Example:
        >>> import vgraph
        >>> g = vgraph.heterograph({("a", "to", "b"): ([0], [1]), ("b", "of", "c"): ([1], [2])})
        >>> vgraph.metapath_reachable_graph(g, ["to", "of"]).edges()
        (tensor([0]), tensor([2]))
    """
    path = [g.to_canonical_etype(etype) for etype in metapath]
    joined = _walks(g, path, multi=False)
    ends = (path[0][0], path[-1][2])
    frames = {t: g.src_frames[t].copy() for t in sorted(set(ends))}
    return type(g).of_types({(ends[0], "_E", ends[1]): joined}, frames)


def _walks(g: GraphData, path: Sequence[EdgeType], *, multi: bool) -> Topology:
    for before, after in itertools.pairwise(path):
        if before[2] != after[0]:
            fact = f"edges of type {before} end in {before[2]!r}, those of {after} begin in {after[0]!r}"
            raise GraphError(fact, cure="name types that follow one another")
    if not path:
        raise GraphError("a path needs an edge", cure="name one type or more")
    product = g.adj_external(scipy_fmt="csr", etype=path[0]).astype(np.int64)
    for etype in path[1:]:
        product = product @ g.adj_external(scipy_fmt="csr", etype=etype).astype(np.int64)
    product.sort_indices()
    found = product.tocoo()
    times = found.data if multi else np.ones_like(found.data)
    src, dst = (torch.from_numpy(np.repeat(end, times).astype(np.int64)).to(g.device) for end in (found.row, found.col))
    sizes = g.relation(path[-1])[0].graph_sizes
    num_src, num_dst = product.shape
    return Topology(src.to(g.idtype), dst.to(g.idtype), num_src, num_dst, sizes if path[0][0] == path[-1][2] else None)
