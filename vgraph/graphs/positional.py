"""Encodings: numbers that tell where a node lies in its graph, and factors by degree.

Takes: a graph with one type. Gives: one row a node or an edge. Runs once per graph.
Source: Dwivedi et al. 2023 (Laplacian vectors), Dwivedi et al. 2022 (random walks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.arguments import COUNT, POSITIVE, checked
from vgraph.errors import FeatureError, GraphError
from vgraph.graphs.batching import unbatch
from vgraph.graphs.frame import Frame
from vgraph.graphs.given import GRAPH
from vgraph.graphs.graph_data import GraphData
from vgraph.graphs.transform import one_type
from vgraph.graphs.types import EType
from vgraph.late import late

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = late("scipy.sparse")

_FULL = 8  # times the numbers that are not zero: all numbers of a matrix that is better an array


@checked(g=GRAPH)
def norm_by_dst(g: GraphData, etype: EType = None) -> Tensor:
    """1 over the in-degree of the node where an edge ends, (edges,) float32.

    Args:
        g: a graph.
        etype: the type of edges: a name, a triple (type of sources, name, type of destinations), or None where there
            is one.

    Returns:
        float32 (edges,).

    Raises:
        GraphError: there are several types of edges, and none is named.
        NameLookupError: there is no such type.

    Source: DGL 1.1, ``dgl.norm_by_dst``.

    Example:
        >>> import vgraph
        >>> vgraph.norm_by_dst(vgraph.graph(([0, 1, 1], [1, 1, 2])))
        tensor([0.5000, 0.5000, 1.0000])
    """
    topology = g.relation(etype)[0]
    return topology.in_degrees.index_select(0, topology.dst.long()).float().reciprocal()


@checked(g=GRAPH)
def laplacian_lambda_max(g: GraphData) -> list[float]:
    """The largest eigenvalue of the normalised Laplacian of every graph of a batch.

    The Laplacian of each graph is dense, as in ``lap_pe``.

    Args:
        g: a batch with one type of nodes and edges, on the CPU.

    Returns:
        One number a graph; 0 of a graph without nodes.

    Raises:
        GraphError: there are several types, the graph is a block, or an edge joins two graphs.

    Source: DGL 1.1, ``dgl.laplacian_lambda_max``.

    Example:
        >>> import vgraph
        >>> square = vgraph.to_bidirected(vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 0])))
        >>> [round(value, 4) for value in vgraph.laplacian_lambda_max(square)]
        [2.0]
    """
    return [float(np.real(np.linalg.eigvals(_laplacian(part))).max(initial=0.0)) for part in unbatch(g)]


@checked(g=GRAPH, k=COUNT)
def lap_pe(g: GraphData, k: int, padding: bool = False, return_eigval: bool = False) -> Any:
    """The ``k`` eigenvectors of the normalised Laplacian with the smallest eigenvalues but the first.

    Signs are drawn by torch's generator. The Laplacian is dense: about 50 bytes for each pair of nodes, and a time that
    grows with the cube of their number, which makes some 10,000 nodes many.

    Args:
        g: a graph with one type of nodes and edges, on the CPU.
        k: how many.
        padding: fill up with zeros (eigenvalues with nan) where there are not enough nodes.
        return_eigval: also give the eigenvalues.

    Returns:
        float32 (nodes, k); with ``return_eigval`` a pair of it and of float32 (k,).

    Raises:
        ArgumentError: ``k`` is no whole number from 0 up.
        GraphError: there are not more than ``k`` nodes, and no padding; several types; a block.

    Source: Dwivedi et al. 2023; DGL 1.1, ``dgl.lap_pe``.

    Example:
        >>> import vgraph
        >>> vgraph.lap_pe(vgraph.to_bidirected(vgraph.graph(([0, 1, 2], [1, 2, 3]))), 2).shape
        torch.Size([4, 2])
    """
    count = g.num_nodes()
    if count <= k and not padding:
        raise GraphError(f"{k} vectors of {count} nodes", cure="ask for fewer, or pass padding=True")
    values, vectors = (np.real(found) for found in np.linalg.eig(_laplacian(g)))
    order = np.argsort(values, kind="stable")[1 : k + 1]
    signs = torch.randint(0, 2, (len(order),), device="cpu").mul_(2).sub_(1)
    found = torch.zeros(count, k, device="cpu")
    found[:, : len(order)] = torch.from_numpy(vectors[:, order]).float() * signs
    sizes = torch.full((k,), torch.nan, device="cpu")
    sizes[: len(order)] = torch.from_numpy(values[order]).float()
    return (found, sizes) if return_eigval else found


@checked(g=GRAPH, k=POSITIVE)
def random_walk_pe(g: GraphData, k: int, eweight_name: str | None = None) -> Tensor:
    """How likely a walk of 1, 2, ... ``k`` steps from a node ends there.

    Args:
        g: a graph with one type of nodes and edges, on the CPU.
        k: how many steps, from 1 up.
        eweight_name: the edge feature, (edges,), that steps are taken in proportion to; None: all edges alike.

    Returns:
        float32 (nodes, k); zeros for a node without out-edges.

    Raises:
        ArgumentError: ``k`` is no whole number from 1 up.
        FeatureError: it is not one number an edge.
        GraphError: the graph has several types, or is a block.
        NameLookupError: there is no such feature.

    Source: Dwivedi et al. 2022; DGL 1.1, ``dgl.random_walk_pe``.

    Example:
        >>> import vgraph
        >>> vgraph.random_walk_pe(vgraph.graph(([0, 1, 1], [1, 1, 0])), 2)
        tensor([[0.0000, 0.5000],
                [0.5000, 0.7500]])
    """
    weight = np.ones(g.num_edges()) if eweight_name is None else _weights(g.edata, eweight_name)
    steps: sparse.csr_array = _adjacency(g, weight).tocsr()
    steps.data /= np.repeat(steps.sum(1) + 1e-30, np.diff(steps.indptr))
    num_entries = g.num_nodes() ** 2
    step = power = _stored(steps, num_entries)
    found = [power.diagonal()]
    for _ in range(k - 1):
        power = _stored(power @ step, num_entries)
        found.append(power.diagonal())
    return torch.from_numpy(np.stack(found, 1)).float()


def _stored(matrix: sparse.csr_array | NDArray[np.float64], num_entries: int) -> sparse.csr_array | NDArray[np.float64]:
    """The same as an array where so much of it is not zero that products of arrays are faster.

    Walks stay within the graphs of a batch and, if they are short, near to where they began: most of a large matrix
    is zero, and an array of it takes memory and time that grow with the square and the cube of the nodes.
    """
    if isinstance(matrix, np.ndarray) or matrix.nnz * _FULL <= num_entries:
        return matrix
    return matrix.toarray()


def _weights(frame: Frame, name: str) -> NDArray[np.float64]:
    rows = frame[name]
    if rows[:1].numel() > 1:
        fact = f"{name!r} has shape {tuple(rows.shape)}"
        raise FeatureError(fact, cure="give one number an edge")
    return rows.reshape(-1).double().numpy(force=True)


def _adjacency(g: GraphData, weight: NDArray[np.float64]) -> sparse.coo_array:
    one_type(g, "an encoding of nodes")
    src, dst = (end.numpy() for end in g.edges())
    count = g.num_nodes()
    return sparse.coo_array((weight, (src, dst)), (count, count))


def _laplacian(g: GraphData) -> NDArray[np.float64]:
    """I less the adjacency, scaled by the roots of the in-degrees at both ends."""
    scale = g.topology.in_degrees.clamp(min=1).double().numpy() ** -0.5  # rounded as it should be, unlike rsqrt
    adjacent = _adjacency(g, np.ones(g.num_edges())).toarray()
    return np.eye(g.num_nodes()) - scale[:, None] * adjacent * scale
