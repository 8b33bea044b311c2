"""Features that a sampler left to its loader: placeholders are replaced by rows.

Takes: a minibatch, the graph that it was drawn from. Gives: the minibatch. Runs at every step, ahead of it.
Source: DGL 1.1, ``dgl.LazyFeature``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.errors import FeatureError, NameLookupError
from vgraph.graphs.frame import Frame
from vgraph.graphs.lazy_columns import LazyFeature, gathered
from vgraph.graphs.mutation import ID

Made = TypeVar("Made")


def with_promised(made: Made, whole: Graph, attached: Mapping[str, Tensor]) -> Made:
    """A minibatch whose graphs have the features that they were promised, and other placeholders rows of ``attached``.

    Raises:
        NameLookupError: there is no such feature.
        FeatureError: a placeholder has no ids, and neither has its graph.
    """
    if isinstance(made, Graph):
        _fill_graph(made, whole)
    elif isinstance(made, LazyFeature):
        return _attached_rows(made, attached)
    elif isinstance(made, dict):
        found = {key: with_promised(one, whole, attached) for key, one in made.items()}
        return made if all(found[key] is one for key, one in made.items()) else type(made)(found)
    elif isinstance(made, (list, tuple)):
        parts = [with_promised(one, whole, attached) for one in made]
        if any(part is not one for part, one in zip(parts, made, strict=True)):
            return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def _fill_graph(part: Graph, whole: Graph) -> None:
    for frames in (part.src_frames, part.dst_frames):
        for ntype, frame in frames.items():
            for name, feature in frame.promised().items():
                frame[name] = _rows(whole.node_frame(ntype), frame, name, feature)
    for etype, frame in part.edge_frames.items():
        for name, feature in frame.promised().items():
            frame[name] = _rows(whole.edge_frames[whole.to_canonical_etype(etype)], frame, name, feature)


def _rows(whole: Frame, part: Frame, name: str, feature: LazyFeature) -> Tensor:
    ids = part.get(ID) if feature.id_ is None else feature.id_
    if ids is None:
        fact = f"the LazyFeature {name!r} has no ids, and its graph no feature {ID!r}"
        raise FeatureError(fact, cure="pass LazyFeature(name, ids), or set the ids")
    return gathered(whole[feature.name or name], ids)


def _attached_rows(feature: LazyFeature, attached: Mapping[str, Tensor]) -> Tensor:
    data = attached.get(feature.name or "")
    if data is None or feature.id_ is None:
        what = "no ids" if feature.id_ is None else f"{feature.name!r}, which the loader does not have"
        fact = f"a LazyFeature beside the graphs of a minibatch means rows of {what}"
        raise NameLookupError(fact, cure="pass LazyFeature(name, ids), and call attach_data(name, data) of the loader")
    return gathered(data, feature.id_)
