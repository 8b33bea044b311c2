"""Minibatches as sets of edges and rows by original ids, however they were made and on how many ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

import vgraph

Edges = dict[Any, set[tuple[int, int, int]]]  # by (layer, edge type): (source, destination, edge)
Rows = dict[Any, dict[int, Tensor]]  # by (layer, side, type, feature): rows by id


def edges_of(made: Any, node: Callable[[str, Tensor], Tensor], edge: Callable[[Any, Tensor], Tensor]) -> Edges:
    """All edges of a minibatch; ``node`` and ``edge`` give original ids."""
    found: Edges = {}
    for layer, block in enumerate(_graphs(made)):
        for etype in block.canonical_etypes:
            src, dst = block.edges(etype=etype)
            near = node(etype[2], block.dst_frames[etype[2]]["_ID"])[dst]
            far = node(etype[0], block.src_frames[etype[0]]["_ID"])[src]
            ids = edge(etype, block.edge_frames[etype]["_ID"])
            found[layer, etype] = set(zip(far.tolist(), near.tolist(), ids.tolist(), strict=True))
    return found


def rows_of(made: Any, node: Callable[[str, Tensor], Tensor], edge: Callable[[Any, Tensor], Tensor]) -> Rows:
    """All features of a minibatch but ids, by original ids."""
    found: Rows = {}
    for layer, block in enumerate(_graphs(made)):
        sides: list[tuple[str, Mapping[Any, Any], Any]] = [
            ("src", block.src_frames, node),
            ("dst", block.dst_frames, node),
            ("edge", block.edge_frames, edge),
        ]
        for side, frames, names in sides:
            for kind, frame in frames.items():
                ids = names(kind, frame["_ID"]).tolist()
                for name in frame:
                    if name != "_ID":
                        found[layer, side, kind, name] = dict(zip(ids, frame[name].unbind(), strict=True))
    return found


def _graphs(made: Any) -> list[vgraph.Graph]:
    return made[2] if isinstance(made[2], list) else [made[2]]


def outputs_of(made: Any, node: Callable[[str, Tensor], Tensor]) -> list[tuple[str, int]]:
    """(type, original id) of what a minibatch computes."""
    by_type = made[1] if isinstance(made[1], Mapping) else {"_N": made[1]}
    return [(kind, one) for kind, ids in by_type.items() for one in node(kind, ids).tolist()]
