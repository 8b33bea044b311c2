"""``dgl.transforms``: changes of graphs as objects that a data set applies.

Takes: graphs. Gives: graphs; tempo: once a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import vgraph


class BaseTransform:
    """Something that is called with a graph and gives a graph."""

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        raise NotImplementedError


class Compose(BaseTransform):
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[vgraph.Graph], vgraph.Graph]]) -> None:
        self.transforms = transforms

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for transform in self.transforms:
            g = transform(g)
        return g


class _Function(BaseTransform):
    function: Callable[..., Any]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return type(self).function(g, **self.options)


class AddSelfLoop(_Function):
    """``add_self_loop``, on a graph without self-loops before."""

    def __init__(self, allow_duplicate: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.allow_duplicate = allow_duplicate

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.add_self_loop(g if self.allow_duplicate else vgraph.remove_self_loop(g), **self.options)


class RemoveSelfLoop(_Function):
    """``remove_self_loop``."""

    function = staticmethod(vgraph.remove_self_loop)


class AddReverse(_Function):
    """``add_reverse_edges``."""

    function = staticmethod(vgraph.add_reverse_edges)


class ToSimple(_Function):
    """``to_simple``."""

    function = staticmethod(vgraph.to_simple)


class LineGraph(_Function):
    """``line_graph``."""

    function = staticmethod(vgraph.line_graph)


class KHopGraph(BaseTransform):
    """``khop_graph``."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.khop_graph(g, self.k)


class RowFeatNormalizer(BaseTransform):
    """Rows of the named features divided by their sums."""

    def __init__(
        self, subtract_min: bool = False, node_feat_names: Sequence[str] | None = None,
        edge_feat_names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.subtract_min, self.names = subtract_min, (node_feat_names or (), edge_feat_names or ())

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        for frame, names in zip((g.ndata, g.edata), self.names, strict=True):
            for name in names:
                rows = frame[name] - frame[name].min() if self.subtract_min else frame[name]
                total = rows.sum(-1, keepdim=True)
                frame[name] = rows / torch.where(total == 0, 1.0, total)
        return g


class GCNNorm(BaseTransform):
    """The factor of every edge in a graph convolution, as the feature ``eweight_name``."""

    def __init__(self, eweight_name: str = "w") -> None:
        self.name = eweight_name

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        src, dst = (end.long() for end in g.edges())
        weight = g.edata[self.name] if self.name in g.edata else torch.ones(g.num_edges())
        degree = torch.zeros(g.num_nodes()).index_add(0, dst, weight)
        scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
        g.edata[self.name] = scale[src] * weight * scale[dst]
        return g


class DropNode(BaseTransform):
    """Removes each node with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.remove_nodes(g, (torch.rand(g.num_nodes()) < self.p).nonzero().squeeze(1))


class DropEdge(BaseTransform):
    """Removes each edge with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.remove_edges(g, (torch.rand(g.num_edges()) < self.p).nonzero().squeeze(1))


class LapPE(BaseTransform):
    """``lap_pe`` as the node feature ``feat_name``."""

    def __init__(self, k: int, feat_name: str = "PE", eigval_name: str | None = None, padding: bool = False) -> None:
        self.k, self.names, self.padding = k, (feat_name, eigval_name), padding

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        rows, values = vgraph.lap_pe(g, self.k, self.padding, return_eigval=True)
        g.ndata[self.names[0]] = rows
        if self.names[1] is not None:
            g.ndata[self.names[1]] = values.expand(g.num_nodes(), -1)
        return g


class RandomWalkPE(BaseTransform):
    """``random_walk_pe`` as the node feature ``feat_name``."""

    def __init__(self, k: int, feat_name: str = "PE", eweight_name: str | None = None) -> None:
        self.k, self.feat_name, self.eweight_name = k, feat_name, eweight_name

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        g.ndata[self.feat_name] = vgraph.random_walk_pe(g, self.k, self.eweight_name)
        return g


laplacian_pe, LaplacianPE = vgraph.lap_pe, LapPE  # their older names
