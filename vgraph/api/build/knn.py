"""Graphs of points: edges from each point's nearest ones, or from all within a radius.

Takes: places of points. Gives: graphs. Runs once per set of points.
Source: Wang et al. 2019 (dynamic graph CNN), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.api.build.construct import graph
from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, FROM_ZERO, POSITIVE, Bound, checked
from vgraph.errors import DTypeError, FeatureError, FunctionError, GraphError
from vgraph.graphs.batching import batch
from vgraph.graphs.given import TENSOR

_MOST_DISTANCES = 1 << 24  # at a time
_COMPUTE_MODE = "donot_use_mm_for_euclid_dist"
_WAYS = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", _COMPUTE_MODE)
_MODES = Bound("one of " + ", ".join(_WAYS), lambda given: isinstance(given, str) and given in _WAYS)


@checked(x=TENSOR, k=POSITIVE)
def knn_graph(
    x: Tensor, k: int, algorithm: str = "bruteforce-blas", dist: str = "euclidean", exclude_self: bool = False
) -> Graph:
    """Edges to each point from the ``k`` nearest to it, itself among them, nearest first.

    Args:
        x: (points, dims); or (sets, points, dims), which gives a batch of graphs.
        k: how many in-edges every point has.
        algorithm: ignored, as distances are exact.
        dist: "euclidean" or "cosine".
        exclude_self: do not count a point as its own neighbour.

    Returns:
        A Graph of ``points`` nodes without features; of several sets, a batch.

    Raises:
        ArgumentError: ``k`` is no whole number from 1 up.
        FeatureError: ``x`` has another number of dims.
        GraphError: there are not ``k`` points.
        FunctionError: another ``dist``.
        DTypeError: ``x`` is complex.

    Source: Wang et al. 2019 (dynamic graph CNN), section 3; DGL 1.1, ``dgl.knn_graph``.

    Example:
        >>> import torch, vgraph
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> [end.tolist() for end in vgraph.knn_graph(x, 1, exclude_self=True).edges()]
        [[1, 0, 1], [0, 1, 2]]
    """
    if x.ndim not in (2, 3):
        raise FeatureError(f"x is {tuple(x.shape)}", cure="give (points, dims) or (sets, points, dims)")
    if x.ndim == 3:
        return batch([knn_graph(rows, k, algorithm, dist, exclude_self) for rows in x])
    return _nearest(_measured(x, dist), k, exclude_self)


@checked(x=TENSOR, k=POSITIVE, segs=COUNT.each())
def segmented_knn_graph(
    x: Tensor,
    k: int,
    segs: Sequence[int],
    algorithm: str = "bruteforce-blas",
    dist: str = "euclidean",
    exclude_self: bool = False,
) -> Graph:
    """``knn_graph`` of several sets of points that lie one after the other, as one graph.

    Args:
        x: (points, dims).
        k: how many in-edges every point has, all from its own set.
        segs: the number of points of every set.
        algorithm: ignored, as distances are exact.
        dist: "euclidean" or "cosine".
        exclude_self: do not count a point as its own neighbour.

    Returns:
        A Graph of ``points`` nodes without features, which is no batch.

    Raises:
        ArgumentError: ``k`` is no whole number from 1 up.
        GraphError: the numbers do not sum to the points, or a set has fewer than ``k``.
        FunctionError: another ``dist``.
        DTypeError: ``x`` is complex.

    Source: DGL 1.1, ``dgl.segmented_knn_graph``.

    Example:
        >>> import torch, vgraph
        >>> g = vgraph.segmented_knn_graph(torch.arange(5.0).unsqueeze(1), 2, [2, 3])
        >>> g.in_degrees().tolist(), g.batch_size
        ([2, 2, 2, 2, 2], 1)
    """
    sizes = [int(size) for size in segs]
    if x.ndim != 2 or sum(sizes) != x.shape[0]:
        fact = f"x is {tuple(x.shape)}, and there are sets of {sum(sizes)} points in all"
        raise GraphError(fact, cure="give (points, dims) and the points of every set")
    parts = [_nearest(_measured(rows, dist), k, exclude_self) for rows in x.split(sizes)]
    whole = batch(parts)
    return graph(whole.edges(), num_nodes=x.shape[0])


@checked(x=TENSOR, r=FROM_ZERO, p=FROM_ZERO, compute_mode=_MODES)
def radius_graph(
    x: Tensor,
    r: float,
    p: float = 2,
    self_loop: bool = False,
    compute_mode: str = _COMPUTE_MODE,
    get_distances: bool = False,
) -> Any:
    """Edges between all points no farther apart than ``r``, in both directions.

    Args:
        x: (points, dims).
        r: the radius, in units of ``x``.
        p: which norm measures distances, as in ``torch.cdist``.
        self_loop: join points with themselves.
        compute_mode: as in ``torch.cdist``.
        get_distances: give the distances, too.

    Returns:
        A Graph of ``points`` nodes without features; with ``get_distances`` a pair of it and of distances (edges, 1),
        differentiable in ``x``.

    Raises:
        ArgumentError: ``r`` or ``p`` is below 0.
        FeatureError: ``x`` has another number of dims.
        DTypeError: ``x`` is complex.

    Source: DGL 1.1, ``dgl.radius_graph``.

    Example:
        >>> import torch, vgraph
        >>> [end.tolist() for end in vgraph.radius_graph(torch.tensor([[0.0], [1.0], [3.0]]), 1.5).edges()]
        [[0, 1], [1, 0]]
    """
    if x.ndim != 2:
        raise FeatureError(f"x is {tuple(x.shape)}", cure="give (points, dims)")
    ends: list[Tensor] = []
    points = _as_measurable(x)
    lengths = [points.new_empty(0)]
    for low, rows in _chunks(points):
        apart = torch.cdist(rows, points, float(p), compute_mode)
        near = (apart <= r).nonzero()
        near = near if self_loop else near[near[:, 0] + low != near[:, 1]]
        lengths.append(apart[near[:, 0], near[:, 1]])
        ends.append(near + torch.tensor([low, 0], device=x.device))
    src, dst = torch.cat(ends).unbind(1) if ends else torch.empty((2, 0), dtype=torch.int64, device="cpu")
    made = graph((src.contiguous(), dst.contiguous()), num_nodes=x.shape[0])
    if not get_distances:
        return made
    return made, torch.cat(lengths).to(x.dtype if x.is_floating_point() else torch.get_default_dtype()).unsqueeze(1)


def _as_measurable(x: Tensor) -> Tensor:
    """Points in numbers that ``torch.cdist`` takes: it knows neither whole numbers nor those of 16 bits."""
    if x.is_complex():
        raise DTypeError(f"x is {x.dtype}", cure="pass torch.view_as_real(x).flatten(-2), or what else is near")
    if not x.is_floating_point():
        return x.double()
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _measured(x: Tensor, dist: str) -> Tensor:
    if dist not in ("euclidean", "cosine"):
        raise FunctionError(f"there is no distance {dist!r}", cure='pass "euclidean" or "cosine"')
    x = _as_measurable(x)
    return torch.nn.functional.normalize(x, dim=-1) if dist == "cosine" else x


def _nearest(x: Tensor, k: int, exclude_self: bool) -> Graph:
    count = x.shape[0]
    if not 0 < k <= count - bool(exclude_self):
        fact = f"{k} nearest of {count} points" + (" without the point itself" if exclude_self else "")
        raise GraphError(fact, cure="ask for at least 1 and no more than there are")
    found: list[Tensor] = []
    for low, rows in _chunks(x.detach()):
        apart = torch.cdist(rows, x.detach(), compute_mode=_COMPUTE_MODE)
        if exclude_self:
            apart.diagonal(low).fill_(torch.inf)
        found.append(apart.topk(k, largest=False).indices)
    src = torch.cat(found).flatten()
    return graph((src, torch.arange(count, device=x.device).repeat_interleave(k)), num_nodes=count)


def _chunks(x: Tensor) -> list[tuple[int, Tensor]]:
    """Some points at a time, and the number of the first."""
    step = max(1, _MOST_DISTANCES // max(1, x.shape[0]))
    return [(low, x[low : low + step]) for low in range(0, x.shape[0], step)]
