"""``dgl.transforms.functional`` and its like: measures of graphs and features of other precision.

Takes: graphs. Gives: tensors, numbers, graphs. Runs once per graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from scipy.sparse import csgraph
from torch import Tensor

import vgraph
import vgraph.function as fn
from vgraph import sparse
from vgraph.errors import GraphError
from vgraph.graphs.transform import one_type


def _cast(g: vgraph.Graph, dtype: torch.dtype) -> vgraph.Graph:
    made = g.local_var()
    for t in g.ntypes:
        made.nodes[t].data.update({n: x.to(dtype) for n, x in g.nodes[t].data.items() if x.is_floating_point()})
    for etype in g.canonical_etypes:
        made.edges[etype].data.update({n: x.to(dtype) for n, x in g.edges[etype].data.items() if x.is_floating_point()})
    return made


def to_float(g: vgraph.Graph) -> vgraph.Graph:
    """The graph with features of 32 bits where they are no whole numbers."""
    return _cast(g, torch.float32)


def to_double(g: vgraph.Graph) -> vgraph.Graph:
    """As ``to_float``, of 64 bits."""
    return _cast(g, torch.float64)


def to_half(g: vgraph.Graph) -> vgraph.Graph:
    """As ``to_float``, of 16 bits."""
    return _cast(g, torch.float16)


def to_bfloat16(g: vgraph.Graph) -> vgraph.Graph:
    """As ``to_float``, of torch's bfloat16."""
    return _cast(g, torch.bfloat16)


def _alike(graph: vgraph.Graph, y: Tensor) -> Tensor:
    """1 for each edge whose ends have one label."""
    src, dst = (end.long() for end in graph.edges())
    return (y[src] == y[dst]).float()


def edge_homophily(graph: vgraph.Graph, y: Tensor) -> float:
    """The share of edges whose ends have one label (nodes,)."""
    return float(_alike(graph, y).mean())


def node_homophily(graph: vgraph.Graph, y: Tensor) -> float:
    """The share of in-edges from nodes of the same label, averaged over nodes."""
    graph = graph.local_var()  # which other threads do not see
    graph.edata["alike"] = _alike(graph, y)
    graph.update_all(fn.copy_e("alike", "m"), fn.mean("m", "share"))
    return float(graph.ndata["share"].mean())


def linkx_homophily(graph: vgraph.Graph, y: Tensor) -> float:
    """How much more often labels meet than their shares of nodes say, averaged over labels (Lim et al. 2021)."""
    alike, dst = _alike(graph, y), graph.edges()[1].long()
    total = 0.0
    for k in range(count := int(y.max()) + 1):
        ends = y[dst] == k
        total += max(0.0, float(alike[ends].sum() / ends.sum() - (y == k).float().mean()))
    return total / (count - 1)


def shortest_dist(g: vgraph.Graph, root: int | None = None, return_paths: bool = False) -> Any:
    """Steps from ``root`` (None: from each node) to every node, -1 where there is no way; and the edges of the ways.

    Ways are (roots, nodes, longest) edge ids, filled up with -1.
    """
    matrix = g.adj_external(scipy_fmt="csr")
    # of several shortest ways SciPy's algorithms find different ones: these are the two that DGL calls
    search = csgraph.shortest_path if root is None else csgraph.dijkstra
    found = search(matrix, indices=root, return_predecessors=True, unweighted=True)
    apart, before = (np.atleast_2d(rows) for rows in found)
    apart = np.where(np.isinf(apart), -1, apart).astype(np.int64)
    steps = torch.from_numpy(apart if root is None else apart[0]).to(g.device)
    if not return_paths:
        return steps
    ways = np.full((*apart.shape, max(int(apart.max()), 0)), -1, np.int64)
    for i, j in zip(*np.nonzero(apart > 0), strict=True):
        end = j
        for place in reversed(range(apart[i, j])):
            ways[i, j, place] = int(g.edge_ids(int(before[i, end]), int(end)))
            end = before[i, end]
    return steps, torch.from_numpy(ways if root is None else ways[0]).to(g.device)


def svd_pe(g: vgraph.Graph, k: int, padding: bool = False, random_flip: bool = True) -> Tensor:
    """The ``k`` largest singular vectors of both sides of the adjacency, scaled, (nodes, 2k) float32.

    Raises:
        GraphError: there are fewer than ``k`` nodes, and no padding; several types; a block.
    """
    one_type(g, "svd_pe")
    count = g.num_nodes()
    if count < k and not padding:
        raise GraphError(f"{k} vectors of {count} nodes", cure="ask for fewer, or pass padding=True")
    left, sizes, right = scipy.linalg.svd(g.adj_external(scipy_fmt="coo").toarray())
    most = min(count, k)
    rows = np.concatenate([left[:, :most], right.T[:, :most]], 1) * np.tile(np.sqrt(sizes[:most]), 2)
    if random_flip:
        rows = rows * (2 * (np.random.rand(count) > 0.5) - 1)[:, None]
    found = torch.from_numpy(rows).float()
    return torch.nn.functional.pad(found, (0, 2 * (k - most))).to(g.device)


def double_radius_node_labeling(g: vgraph.Graph, src: int, dst: int) -> Tensor:
    """A number for each node by its distances from two others, each taken without the other (Zhang and Chen 2018)."""
    matrix = g.adj_external(scipy_fmt="csr")
    sides: list[NDArray[np.float64]] = []
    for end, other in ((src, dst), (dst, src)):
        kept = np.delete(np.arange(g.num_nodes()), other)
        place = int(np.searchsorted(kept, end))
        apart = csgraph.shortest_path(matrix[kept][:, kept], directed=False, unweighted=True, indices=place)
        sides.append(np.insert(apart, other, 0))
    whole = sides[0] + sides[1]
    with np.errstate(invalid="ignore"):
        labels = 1 + np.minimum(*sides) + whole // 2 * (whole // 2 + whole % 2 - 1)
    labels[[src, dst]] = 1
    return torch.from_numpy(np.nan_to_num(labels, nan=0, posinf=0).astype(np.int64))


def _matrix(g: vgraph.Graph, name: str) -> sparse.SparseMatrix:
    ends = torch.stack(g.edges()).long()
    return sparse.spmatrix(ends, g.edata[name], (g.num_src_nodes(), g.num_dst_nodes())).coalesce()


def _as_graph(matrix: sparse.SparseMatrix, name: str, kind: tuple[str, str, str], idtype: torch.dtype) -> vgraph.Graph:
    (rows, columns), entries = matrix.shape, matrix.coalesce()
    made = vgraph.heterograph({kind: (entries.row, entries.col)}, {kind[0]: rows, kind[2]: columns}, idtype)
    made.edata[name] = entries.val
    return made


def _sorted_by_tag(g: vgraph.Graph, end: Tensor, tag: Tensor, count: int) -> tuple[vgraph.Graph, Tensor]:
    """Edges in order of an end and of their tags, and where in each node's edges those of each tag begin."""
    num_tags = int(tag.max()) + 1 if len(tag) else 0
    keys = end.long() * num_tags + tag.long()
    etype = g.canonical_etypes[0]
    made = vgraph.edge_subgraph(g, {etype: keys.argsort(stable=True)}, relabel_nodes=False, store_ids=False)
    counts = torch.bincount(keys, minlength=count * num_tags).reshape(count, num_tags)
    return made, torch.nn.functional.pad(counts.cumsum(1), (1, 0)).to(g.idtype)


def sort_csr_by_tag(
    g: vgraph.Graph, tag: Tensor, tag_offset_name: str = "_TAG_OFFSET", tag_type: str = "node"
) -> vgraph.Graph:
    """The graph with the out-edges of each node in order of tags; edges are numbered in that order.

    Args:
        g: a graph of one type of edges.
        tag: whole numbers from 0 up, one a node where edges end or one an edge.
        tag_offset_name: the feature of sources that says where in their out-edges those of each tag begin, (sources,
            tags + 1).
        tag_type: "node" or "edge".
    """
    src, dst = g.edges()
    tags = tag[dst.long()] if tag_type == "node" else tag
    made, made_offsets = _sorted_by_tag(g, src, tags, g.num_src_nodes())
    made.srcdata[tag_offset_name] = made_offsets
    return made


def sort_csc_by_tag(
    g: vgraph.Graph, tag: Tensor, tag_offset_name: str = "_TAG_OFFSET", tag_type: str = "node"
) -> vgraph.Graph:
    """As ``sort_csr_by_tag``: the in-edges of each node, by tags of nodes where edges begin."""
    src, dst = g.edges()
    tags = tag[src.long()] if tag_type == "node" else tag
    made, made_offsets = _sorted_by_tag(g, dst, tags, g.num_dst_nodes())
    made.dstdata[tag_offset_name] = made_offsets
    return made


def adj_product_graph(A: vgraph.Graph, B: vgraph.Graph, weight_name: str, etype: str = "_E") -> vgraph.Graph:
    """The product of two adjacency matrices of weights as a graph; gradients reach the weights."""
    kind = (A.canonical_etypes[0][0], etype, B.canonical_etypes[0][2])
    return _as_graph(_matrix(A, weight_name) @ _matrix(B, weight_name), weight_name, kind, A.idtype)


def adj_sum_graph(graphs: Sequence[vgraph.Graph], weight_name: str) -> vgraph.Graph:
    """The sum of adjacency matrices of weights as a graph; gradients reach the weights.

    Raises:
        GraphError: there is no graph.
    """
    if not graphs:
        raise GraphError("no graphs to sum", cure="give at least one")
    whole, *others = (_matrix(g, weight_name) for g in graphs)
    for other in others:
        whole = whole + other
    return _as_graph(whole, weight_name, graphs[0].canonical_etypes[0], graphs[0].idtype)
