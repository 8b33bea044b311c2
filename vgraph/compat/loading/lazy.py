"""Features that a sampler leaves to its loader.

Takes: a graph that a sampler gives, names. Gives: placeholders in it. Runs at every step.
Source: DGL 1.1, ``dgl.LazyFeature``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import vgraph
from vgraph.errors import NameLookupError
from vgraph.graphs.frame import Frame
from vgraph.graphs.lazy_columns import LazyFeature
from vgraph.graphs.types import EdgeType

__all__ = [
    "LazyFeature",
    "set_dst_lazy_features",
    "set_edge_lazy_features",
    "set_node_lazy_features",
    "set_src_lazy_features",
]

NamesOfNodes = Sequence[str] | Mapping[str, Sequence[str]]
NamesOfEdges = Sequence[str] | Mapping[str, Sequence[str]] | Mapping[EdgeType, Sequence[str]]


def set_node_lazy_features(g: vgraph.Graph, feature_names: NamesOfNodes) -> None:
    """Leaves features (by type) of all nodes to the loader."""
    _promise_of_nodes(g.src_frames, feature_names)


def set_src_lazy_features(g: vgraph.Graph, feature_names: NamesOfNodes) -> None:
    """Leaves features (by type) of nodes where edges begin to the loader."""
    _promise_of_nodes(g.src_frames, feature_names)


def set_dst_lazy_features(g: vgraph.Graph, feature_names: NamesOfNodes) -> None:
    """Leaves features (by type) of nodes where edges end to the loader."""
    _promise_of_nodes(g.dst_frames, feature_names)


def set_edge_lazy_features(g: vgraph.Graph, feature_names: NamesOfEdges) -> None:
    """Leaves features (by type) of edges to the loader."""
    if not isinstance(feature_names, Mapping):
        _promise(g.edge_frames[g.to_canonical_etype(None)], feature_names)
        return
    for etype, names in feature_names.items():
        _promise(g.edge_frames[g.to_canonical_etype(etype)], names)


def _promise_of_nodes(frames: Mapping[str, Frame], names: NamesOfNodes) -> None:
    by_type = names if isinstance(names, Mapping) else dict.fromkeys(list(frames)[:1], names)
    for ntype, own in by_type.items():
        if ntype not in frames:
            raise NameLookupError(f"there is no node type {ntype!r}; there is: {list(frames)}", cure="name one of them")
        _promise(frames[ntype], own)


def _promise(frame: Frame, names: Sequence[str]) -> None:
    for name in names:
        frame[name] = LazyFeature(name)
