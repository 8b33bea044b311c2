"""``dgl.transforms``: graphs changed by chance, and graphs of other types made from one.

Takes: graphs. Gives: graphs. Runs once per sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import vgraph
from vgraph.compat.functional import svd_pe
from vgraph.compat.transforms import BaseTransform, with_relations


class FeatMask(BaseTransform):
    """Columns of the named features of the graph itself set to zero, each with probability ``p``; in new tensors."""

    def __init__(
        self,
        p: float = 0.5,
        node_feat_names: Sequence[str] | None = None,
        edge_feat_names: Sequence[str] | None = None,
    ) -> None:
        self.p, self.names = p, (node_feat_names or (), edge_feat_names or ())

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        if self.p == 0:
            return g
        frames = [g.nodes[t].data for t in g.ntypes], [g.edges[t].data for t in g.canonical_etypes]
        for side, names in zip(frames, self.names, strict=True):
            for frame in side:
                for name in (name for name in names if name in frame):
                    dropped = torch.rand(frame[name].shape[-1], device=g.device) < self.p
                    frame[name] = frame[name].masked_fill(dropped, 0)
        return g


class NodeShuffle(BaseTransform):
    """The features of nodes dealt out anew among the nodes of their type."""

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        for t in g.ntypes:
            order = torch.randperm(g.num_nodes(t), device=g.device)
            g.nodes[t].data.update({name: rows[order] for name, rows in g.nodes[t].data.items()})
        return g


class AddEdge(BaseTransform):
    """More edges with random ends: ``ratio`` of those there are, for every type."""

    def __init__(self, ratio: float = 0.2) -> None:
        self.ratio = ratio

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g = g.local_var()
        for etype in g.canonical_etypes:
            count = int(g.num_edges(etype) * self.ratio)
            src, dst = (torch.randint(0, g.num_nodes(t), (count,), device=g.device) for t in (etype[0], etype[2]))
            g.add_edges(src, dst, etype=etype)
        return g


class AddMetaPaths(BaseTransform):
    """A type of edges for every path of types: who is reached along it. Others stay if asked."""

    def __init__(
        self, metapaths: Mapping[str, Sequence[str | tuple[str, str, str]]], keep_orig_edges: bool = True
    ) -> None:
        self.metapaths, self.keep_orig_edges = metapaths, keep_orig_edges

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        more = {
            (path[0][0], name, path[-1][-1]): vgraph.metapath_reachable_graph(g, path).edges()
            for name, path in self.metapaths.items()
        }
        return with_relations(g, more, keep=self.keep_orig_edges)


class ToLevi(BaseTransform):
    """Edges as nodes of a type ``edge`` between nodes of a type ``node``; features come along."""

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        (src, dst), ids = g.edges(), g.edges(form="eid")
        ends = {("node", "n2e", "edge"): (src, ids), ("edge", "e2n", "node"): (ids, dst)}
        made = vgraph.heterograph(ends, {"node": g.num_nodes(), "edge": g.num_edges()}, g.idtype)
        made.nodes["node"].data.update(g.ndata)
        made.nodes["edge"].data.update(g.edata)
        return made


class SVDPE(BaseTransform):
    """``svd_pe`` as the node feature ``feat_name`` of the graph itself."""

    def __init__(self, k: int, feat_name: str = "svd_pe", padding: bool = False, random_flip: bool = True) -> None:
        self.k, self.feat_name, self.options = k, feat_name, (padding, random_flip)

    def __call__(self, g: vgraph.Graph) -> vgraph.Graph:
        g.ndata[self.feat_name] = svd_pe(g, self.k, *self.options)
        return g
