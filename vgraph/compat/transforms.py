"""``dgl.transforms``: changes of graphs as objects that a data set applies.

Takes: graphs. Gives: graphs; those that only set features give the graph they were given. Runs once per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

import vgraph

Ends = tuple[Tensor, Tensor]


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


class AddSelfLoop(BaseTransform):
    """``add_self_loop`` for every type of edges that can have some, without self-loops before.

    ``new_etypes``: also a type of edges ``self`` for every type of nodes.
    """

    def __init__(
        self,
        allow_duplicate: bool = False,
        new_etypes: bool = False,
        edge_feat_names: Sequence[str] | None = None,
        fill_data: float | Tensor | str = 1.0,
    ) -> None:
        self.allow_duplicate, self.new_etypes = allow_duplicate, new_etypes
        self.edge_feat_names, self.fill_data = edge_feat_names, fill_data

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for etype in _looping(g):
            plain = g if self.allow_duplicate else vgraph.remove_self_loop(g, etype=etype)
            g = vgraph.add_self_loop(plain, self.edge_feat_names, self.fill_data, etype)
        return with_relations(g, {(t, "self", t): (g.nodes(t), g.nodes(t)) for t in g.ntypes}) if self.new_etypes else g


class RemoveSelfLoop(BaseTransform):
    """``remove_self_loop`` for every type of edges that can have some."""

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for etype in _looping(g):
            g = vgraph.remove_self_loop(g, etype=etype)
        return g


class AddReverse(BaseTransform):
    """Edges the other way: in the same type where it joins one type of nodes, else as a type ``rev_name``.

    ``copy_edata``: reverse edges have their edges' features, else zeros or none. ``sym_new_etype``: types that join one
    type of nodes get a type of reverse edges, too.
    """

    def __init__(self, copy_edata: bool = False, sym_new_etype: bool = False) -> None:
        self.copy_edata, self.sym_new_etype = copy_edata, sym_new_etype

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        apart = [t for t in g.canonical_etypes if t[0] != t[2] or self.sym_new_etype]
        turned = {(d, f"rev_{name}", s): g.edges(etype=(s, name, d))[::-1] for s, name, d in apart}
        features = {(d, f"rev_{name}", s): dict(g.edges[s, name, d].data) for s, name, d in apart}
        made = g.local_var()
        for etype in (t for t in g.canonical_etypes if t not in apart):
            data = dict(g.edges[etype].data)
            src, dst = g.edges(etype=etype)
            made.add_edges(dst, src, data if self.copy_edata else None, etype=etype)
        made = with_relations(made, turned) if apart else made
        for etype, columns in features.items() if self.copy_edata else ():
            made.edges[etype].data.update(columns)
        return made


class ToSimple(BaseTransform):
    """``to_simple``, with the features of edges."""

    def __init__(self, return_counts: str | None = "count", aggregator: str = "arbitrary") -> None:
        self.return_counts, self.aggregator = return_counts, aggregator

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.to_simple(g, self.return_counts, copy_edata=True, aggregator=self.aggregator)


class LineGraph(BaseTransform):
    """``line_graph``, with the features of edges as features of nodes."""

    def __init__(self, backtracking: bool = True) -> None:
        self.backtracking = backtracking

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.line_graph(g, self.backtracking, shared=True)


def _looping(g: vgraph.Graph) -> list[tuple[str, str, str]]:
    """Types of edges that begin and end in one type of nodes."""
    return [etype for etype in g.canonical_etypes if etype[0] == etype[2]]


def with_relations(g: vgraph.Graph, more: Mapping[tuple[str, str, str], Ends], *, keep: bool = True) -> vgraph.Graph:
    """The graph with more types of edges, or with these alone; features stay."""
    kept = g.canonical_etypes if keep else []
    every = {**{t: g.edges(etype=t) for t in kept}, **more}
    made = vgraph.heterograph(every, {t: g.num_nodes(t) for t in g.ntypes}, g.idtype)
    for t in g.ntypes:
        made.nodes[t].data.update(g.nodes[t].data)
    for etype in kept:
        made.edges[etype].data.update(g.edges[etype].data)
    return made


class KHopGraph(BaseTransform):
    """``khop_graph``."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        return vgraph.khop_graph(g, self.k)


class RowFeatNormalizer(BaseTransform):
    """Rows of the named features divided by their sums, where these are above 1; the graph itself is changed."""

    def __init__(
        self,
        subtract_min: bool = False,
        node_feat_names: Sequence[str] | None = None,
        edge_feat_names: Sequence[str] | None = None,
    ) -> None:
        self.subtract_min, self.names = subtract_min, (node_feat_names or (), edge_feat_names or ())

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        frames = [g.nodes[t].data for t in g.ntypes], [g.edges[t].data for t in g.canonical_etypes]
        for frame, names in ((frame, names) for side, names in zip(frames, self.names, strict=True) for frame in side):
            for name in (name for name in names if name in frame):
                rows = frame[name] - frame[name].min() if self.subtract_min else frame[name]
                frame[name] = rows / rows.sum(-1, keepdim=True).clamp(min=1.0)
        return g


class GCNNorm(BaseTransform):
    """The factor of every edge in a graph convolution, as the feature ``eweight_name``; of types that join one type.

    The graph itself is changed. Weights may have any number of dims; a negative sum of them makes its factors NaN.
    """

    def __init__(self, eweight_name: str = "w") -> None:
        self.name = eweight_name

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for etype in _looping(g):
            src, dst = (end.long() for end in g.edges(etype=etype))
            frame, count = g.edges[etype].data, g.num_nodes(etype[0])
            weight = frame[self.name] if self.name in frame else torch.ones(len(src), device=g.device)
            degree = weight.new_zeros(count, *weight.shape[1:]).index_add(0, dst, weight)
            scale = torch.where(degree == 0, 0.0, degree.rsqrt())
            frame[self.name] = scale[src] * weight * scale[dst]
        return g


class DropNode(BaseTransform):
    """Removes each node, of every type, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for t in g.ntypes:
            g = vgraph.remove_nodes(g, (torch.rand(g.num_nodes(t), device=g.device) < self.p).nonzero().squeeze(1), t)
        return g


class DropEdge(BaseTransform):
    """Removes each edge, of every type, with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        for t in g.canonical_etypes:
            g = vgraph.remove_edges(g, (torch.rand(g.num_edges(t), device=g.device) < self.p).nonzero().squeeze(1), t)
        return g


class LapPE(BaseTransform):
    """``lap_pe`` as the node feature ``feat_name`` of the graph itself."""

    def __init__(self, k: int, feat_name: str = "PE", eigval_name: str | None = None, padding: bool = False) -> None:
        self.k, self.names, self.padding = k, (feat_name, eigval_name), padding

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        rows, values = vgraph.lap_pe(g, self.k, self.padding, return_eigval=True)
        g.ndata[self.names[0]] = rows
        if self.names[1] is not None:
            g.ndata[self.names[1]] = values.expand(g.num_nodes(), -1)
        return g


class RandomWalkPE(BaseTransform):
    """``random_walk_pe`` as the node feature ``feat_name`` of the graph itself."""

    def __init__(self, k: int, feat_name: str = "PE", eweight_name: str | None = None) -> None:
        self.k, self.feat_name, self.eweight_name = k, feat_name, eweight_name

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g.ndata[self.feat_name] = vgraph.random_walk_pe(g, self.k, self.eweight_name)
        return g


laplacian_pe, LaplacianPE = vgraph.lap_pe, LapPE  # their older names
