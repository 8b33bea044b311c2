"""Graphs of near points as layers: SegmentedKNNGraph, RadiusGraph, with DGL's names.

Takes: points. Gives: a graph. Runs at every call.
Source: none (``vgraph.segmented_knn_graph`` and ``vgraph.radius_graph``).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

import vgraph
from vgraph.arguments import FROM_ZERO, POSITIVE, checked


class SegmentedKNNGraph(nn.Module):
    """``vgraph.segmented_knn_graph`` as a layer.

    Args:
        k: how many in-edges every point has.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        GraphError: a set has fewer than ``k`` points.
        FunctionError: ``dist`` is neither "euclidean" nor "cosine".

    Source: DGL 1.1, ``dgl.nn.SegmentedKNNGraph``.

    Example:
        >>> import torch
        >>> from vgraph.nn import SegmentedKNNGraph
        >>> SegmentedKNNGraph(2)(torch.rand(7, 3), [3, 4]).num_edges()
        14
    """

    @checked(k=POSITIVE)
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    @checked()
    def forward(
        self,
        x: Tensor,
        segs: Sequence[int],
        algorithm: str = "bruteforce-blas",
        dist: str = "euclidean",
        exclude_self: bool = False,
    ) -> vgraph.Graph:
        """The graph of the nearest points of the same set.

        Args:
            x: (points, dims), set by set.
            segs: the number of points of every set.
            algorithm: ignored, as distances are exact.
            dist: "euclidean" or "cosine".
            exclude_self: do not count a point as its own neighbour.

        Returns:
            A Graph of all points, without features.

        Raises:
            GraphError: a set has fewer than ``k`` points.
            FunctionError: another ``dist``.
        """
        return vgraph.segmented_knn_graph(x, self.k, segs, algorithm, dist, exclude_self)


class RadiusGraph(nn.Module):
    """``vgraph.radius_graph`` as a layer.

    Args:
        r: the radius, in units of the points.
        p: which norm measures distances, as in ``torch.cdist``.
        self_loop: join points with themselves.
        compute_mode: as in ``torch.cdist``.

    Raises:
        ArgumentError: a number is outside of what it counts or weighs.
        FeatureError: the points have another number of dims.

    Source: DGL 1.1, ``dgl.nn.RadiusGraph``.

    Example:
        >>> import torch
        >>> from vgraph.nn import RadiusGraph
        >>> RadiusGraph(1.5)(torch.tensor([[0.0], [1.0], [2.0]])).num_edges()
        4
    """

    @checked(r=FROM_ZERO, p=FROM_ZERO)
    def __init__(
        self, r: float, p: float = 2, self_loop: bool = False, compute_mode: str = "donot_use_mm_for_euclid_dist"
    ) -> None:
        super().__init__()
        self.r, self.p, self.self_loop, self.compute_mode = r, p, self_loop, compute_mode

    @checked()
    def forward(self, x: Tensor, get_distances: bool = False) -> vgraph.Graph | tuple[vgraph.Graph, Tensor]:
        """The graph of the points that are near each other.

        Args:
            x: (points, dims).
            get_distances: give the distances, too.

        Returns:
            A Graph of the points, without features; with ``get_distances`` a pair of that and (edges, 1).

        Raises:
            FeatureError: the points have another number of dims.
        """
        return vgraph.radius_graph(x, self.r, self.p, self.self_loop, self.compute_mode, get_distances)
