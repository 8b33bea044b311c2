"""``dgl.transforms``: changes of graphs as objects that a data set applies.

Takes: graphs. Gives: graphs; tempo: once a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
