"""Graphs of the nearest points as DGL makes them: batches, of as many neighbours as there are.

Takes: places of points. Gives: graphs. Runs once per set of points. Source: DGL 1.1, ``dgl.knn_graph``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

import vgraph
from vgraph import nn
from vgraph.compat.names import dgl_warning
from vgraph.errors import GraphError


def knn_graph(
    x: Tensor, k: int, algorithm: str = "bruteforce-blas", dist: str = "euclidean", exclude_self: bool = False
) -> vgraph.Graph:
    """``vgraph.knn_graph``; a warning tells where there are fewer than ``k`` neighbours, and all of them are taken."""
    if x.ndim != 3:
        return segmented_knn_graph(x, k, [len(x)], algorithm, dist, exclude_self)
    return segmented_knn_graph(x.flatten(0, 1), k, [x.shape[1]] * x.shape[0], algorithm, dist, exclude_self)


def segmented_knn_graph(
    x: Tensor,
    k: int,
    segs: Sequence[int],
    algorithm: str = "bruteforce-blas",
    dist: str = "euclidean",
    exclude_self: bool = False,
) -> vgraph.Graph:
    """``vgraph.segmented_knn_graph`` as a batch; the smallest set says how many neighbours there can be.

    Raises:
        GraphError: the sizes of the sets do not sum to the points.
    """
    sizes = [int(size) for size in segs]
    if sum(sizes) != len(x):
        raise GraphError(f"sets of {sum(sizes)} points, and {len(x)} points", cure="give the size of every set")
    most = min(sizes, default=0) - exclude_self
    if k > most:
        dgl_warning(f"{k} nearest of {most}: all are taken")
    return vgraph.batch(
        [vgraph.knn_graph(rows, min(k, most), algorithm, dist, exclude_self) for rows in x.split(sizes)]
    )


def pairwise_squared_distance(x: Tensor) -> Tensor:
    """The squared distance of each two points, (..., points, points) of (..., points, width)."""
    squares = (x * x).sum(-1, keepdim=True)
    return squares + squares.transpose(-1, -2) - 2 * x @ x.transpose(-1, -2)


class KNNGraph(nn.KNNGraph):
    """``knn_graph`` as a layer."""

    def forward(
        self, x: Tensor, algorithm: str = "bruteforce-blas", dist: str = "euclidean", exclude_self: bool = False
    ) -> vgraph.Graph:
        """The graph of the nearest points."""
        return knn_graph(x, self.k, algorithm, dist, exclude_self)


class SegmentedKNNGraph(nn.SegmentedKNNGraph):
    """``segmented_knn_graph`` as a layer."""

    def forward(
        self,
        x: Tensor,
        segs: Sequence[int],
        algorithm: str = "bruteforce-blas",
        dist: str = "euclidean",
        exclude_self: bool = False,
    ) -> vgraph.Graph:
        """The graph of the nearest points of each set."""
        return segmented_knn_graph(x, self.k, segs, algorithm, dist, exclude_self)
