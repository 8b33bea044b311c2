"""From NetworkX and SciPy to graphs.

Takes: graphs and matrices of theirs. Gives: graphs. Runs once per sample.
Source: DGL section 3. The other way: ``vgraph/graphs/to_networkx.py`` and ``Graph.adj_external``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vgraph.api.build.construct import graph
from vgraph.api.graph import Graph
from vgraph.arguments import NAME, WORDS, checked
from vgraph.errors import FeatureError, GraphError, NameLookupError
from vgraph.late import late

if TYPE_CHECKING:
    import networkx as nx
    from scipy import sparse
else:
    nx = late("networkx")
    sparse = late("scipy.sparse")

Attributes = Mapping[str, Any]
NxEdge = tuple[Hashable, Hashable, Attributes]


@checked(node_attrs=WORDS.or_none(), edge_attrs=WORDS.or_none(), edge_id_attr_name=NAME.or_none())
def from_networkx(
    nx_graph: Any,
    node_attrs: Sequence[str] | None = None,
    edge_attrs: Sequence[str] | None = None,
    edge_id_attr_name: str | None = None,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """A graph from one of NetworkX; an undirected edge becomes one in each direction.

    Nodes are numbered in ascending order of their names (where names cannot be compared, as
    NetworkX lists them), edges as NetworkX lists them.

    Args:
        nx_graph: any graph of NetworkX.
        node_attrs: names of attributes that become ``ndata``: numbers, arrays or tensors of one shape; None: none.
        edge_attrs: names of attributes that become ``edata``; None: none.
        edge_id_attr_name: the attribute that numbers the edges 0, 1, 2 ...; directed graphs only. None: they are
            numbered as NetworkX lists them.
        idtype: ``torch.int64`` or ``torch.int32``; None: int64.
        device: where ids and features go; None: the CPU.

    Returns:
        A Graph with one type of nodes and edges.

    Raises:
        NameLookupError: a node or edge lacks an attribute.
        FeatureError: an attribute's values cannot be stacked.
        GraphError: it is no graph of NetworkX, the edge ids are not 0, 1, 2 ..., or the graph is undirected and has
            them.

    Source: DGL 1.1, ``dgl.from_networkx``.

    Example:
        >>> import networkx, vgraph
        >>> vgraph.from_networkx(networkx.path_graph(3)).edges()
        (tensor([0, 1, 1, 2]), tensor([1, 0, 2, 1]))
    """
    refuse_others(nx_graph)
    if edge_id_attr_name is not None and not nx_graph.is_directed():
        fact = "an undirected edge becomes two, which cannot share an id"
        cure = "pass a directed graph, or no edge_id_attr_name"
        raise GraphError(fact, cure=cure)
    directed = nx_graph if nx_graph.is_directed() else nx_graph.to_directed()
    names = _sorted_names(list(directed.nodes))
    number = {name: i for i, name in enumerate(names)}
    edges = sorted_edges(list(directed.edges(data=True)), edge_id_attr_name)
    ends = ([number[edge[0]] for edge in edges], [number[edge[1]] for edge in edges])
    g = graph(ends, num_nodes=len(names), idtype=idtype, device=device)
    for attr in node_attrs or ():
        rows = [(f"node {name!r}", directed.nodes[name]) for name in names]
        g.ndata[attr] = stack_attribute(attr, rows).to(g.device)
    for attr in edge_attrs or ():
        rows = [(f"edge {edge[:2]!r}", edge[2]) for edge in edges]
        g.edata[attr] = stack_attribute(attr, rows).to(g.device)
    return g


def _sorted_names(names: list[Any]) -> list[Any]:
    try:
        return sorted(names)
    except TypeError:
        return names


def refuse_others(nx_graph: object) -> None:
    """GraphError: it is no graph of NetworkX."""
    if not isinstance(nx_graph, nx.Graph):
        fact = f"a {type(nx_graph).__name__} is no graph of NetworkX"
        raise GraphError(fact, cure="pass a networkx.DiGraph")


def sorted_edges(edges: list[NxEdge], attr: str | None) -> list[NxEdge]:
    """Edges (u, v, attributes) in the order that an attribute numbers them; GraphError: it does not."""
    if attr is None:
        return edges
    given = [_attribute(edge[2], attr, f"edge {edge[:2]!r}") for edge in edges]
    ids = [value.item() if getattr(value, "size", 0) == 1 else value for value in given]  # also arrays of one
    if sorted(ids) != list(range(len(edges))):
        fact = f"edge attribute {attr!r} does not number the edges 0 to {len(edges) - 1}"
        raise GraphError(fact, cure="give every edge another id")
    return [edges[i] for i in np.argsort(ids)]


def _attribute(attributes: Attributes, attr: str, whose: str) -> Any:
    if attr in attributes:
        return attributes[attr]
    fact = f"{whose} has no attribute {attr!r}"
    raise NameLookupError(fact, cure="give it to all of them")


def stack_attribute(attr: str, rows: list[tuple[str, Attributes]]) -> Tensor:
    """One attribute of (whose, attributes) as a tensor; NameLookupError, FeatureError: it cannot be."""
    values = [(whose, _attribute(attributes, attr, whose)) for whose, attributes in rows]
    if all(isinstance(value, (bool, int, float)) for _, value in values):
        return torch.tensor([value for _, value in values], device="cpu")
    tensors: list[Tensor] = []
    for whose, value in values:
        try:
            tensors.append(value if isinstance(value, Tensor) else torch.tensor(value, device="cpu"))
        except (TypeError, ValueError, RuntimeError) as error:
            fact = f"attribute {attr!r} of {whose} is {value!r}, which is no number or array"
            raise FeatureError(fact, cure="turn it into numbers") from error
        if tensors[-1].shape != tensors[0].shape:
            shapes = tuple(tensors[-1].shape), tuple(tensors[0].shape)
            fact = f"attribute {attr!r} of {whose} has shape {shapes[0]}; the first has {shapes[1]}"
            raise FeatureError(fact, cure="give all the same shape")
    return torch.stack(tensors)


@checked(eweight_name=NAME.or_none())
def from_scipy(
    sp_mat: Any,
    eweight_name: str | None = None,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """A graph with an edge row -> column for every stored entry of a square sparse matrix.

    Args:
        sp_mat: any of ``scipy.sparse``'s; entries stored twice are two edges.
        eweight_name: the name in ``edata`` for the entries' values, (edges,) in their dtype; None: they are left out.
        idtype: ``torch.int64`` or ``torch.int32``; None: int64.
        device: where ids and features go; None: the CPU.

    Returns:
        A Graph with one type of nodes and edges.

    Raises:
        GraphError: it is no sparse matrix, or not square.

    Source: DGL 1.1, ``dgl.from_scipy``.

    Example:
        >>> import scipy.sparse, vgraph
        >>> g = vgraph.from_scipy(scipy.sparse.csr_matrix([[0, 5], [0, 0]]), eweight_name="w")
        >>> g.edges(), g.edata["w"]
        ((tensor([0]), tensor([1])), tensor([5]))
    """
    if not sparse.issparse(sp_mat) or sp_mat.ndim != 2 or sp_mat.shape[0] != sp_mat.shape[1]:
        shape = getattr(sp_mat, "shape", None)
        fact = f"a {type(sp_mat).__name__} of shape {shape} is no square sparse matrix"
        raise GraphError(fact, cure="pass one of scipy.sparse, n by n")
    entries = sp_mat.tocoo()
    ends, idtype = (entries.row, entries.col), torch.int64 if idtype is None else idtype
    g = graph(ends, num_nodes=sp_mat.shape[0], idtype=idtype, device=device)
    if eweight_name is not None:
        g.edata[eweight_name] = torch.tensor(entries.data, device="cpu").to(g.device)
    return g
