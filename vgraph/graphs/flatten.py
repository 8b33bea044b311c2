"""Several types of edges as one: what ``g["user", :, "item"]`` is where that means more than one type.

Takes: relations, types of edges. Gives: one topology and its frames. Runs once per topology.
Source: DGL 1.1, ``DGLGraph.__getitem__``; names of types are joined by "+".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from vgraph.graphs.data import Relations
from vgraph.graphs.frame import Frame
from vgraph.graphs.types import EdgeType
from vgraph.ir.topology import Topology

Key = TypeVar("Key", str, EdgeType)
ID, TYPE = "_ID", "_TYPE"  # features that say what a row was, and of which type


class Flat(NamedTuple):
    """The parts of a graph of one type of edges; ``dst`` is None where it is no block."""

    topologies: dict[EdgeType, Topology]
    src: dict[str, Frame]
    dst: dict[str, Frame] | None
    edges: dict[EdgeType, Frame]


def flattened(g: Relations, etypes: Sequence[EdgeType]) -> Flat:
    """Edges of several types, one type after the other, between all nodes of the types at their ends."""
    idtype = g.relation(etypes[0])[0].src.dtype
    sides = [sorted({etype[end] for etype in etypes}) for end in (0, 2)]
    starts = [_starts(frames, names) for frames, names in zip((g.src_frames, g.dst_frames), sides, strict=True)]
    topologies = [g.relation(etype)[0] for etype in etypes]
    ends: list[Tensor] = []
    for side, end in ((0, 0), (1, 2)):
        parts = [
            (t.dst if side else t.src) + starts[side][0][etype[end]]
            for etype, t in zip(etypes, topologies, strict=True)
        ]
        ends.append(torch.cat(parts).to(idtype))
    whole = Topology(ends[0], ends[1], starts[0][1], starts[1][1])
    key = ("+".join(sides[0]), "+".join(sorted(etype[1] for etype in etypes)), "+".join(sides[1]))
    src = {key[0]: _joined(g.src_frames, sides[0], g.ntypes, idtype)}
    dst = src if key[2] in src and not g.is_block else {key[2]: _joined(g.dst_frames, sides[1], g.ntypes, idtype)}
    edges = {key: _joined(g.edge_frames, etypes, g.canonical_etypes, idtype)}
    return Flat({key: whole}, src if g.is_block else {**src, **dst}, dst if g.is_block else None, edges)


def _starts(frames: Mapping[str, Frame], names: Sequence[str]) -> tuple[dict[str, int], int]:
    """Where the nodes of each type begin, and how many there are."""
    found: dict[str, int] = {}
    count = 0
    for name in names:
        found[name] = count
        count += frames[name].num_rows
    return found, count


def _joined(frames: Mapping[Key, Frame], keys: Sequence[Key], every: Sequence[Key], idtype: torch.dtype) -> Frame:
    """The features that all these types have alike."""
    parts = [frames[key] for key in keys]
    made = Frame(sum(part.num_rows for part in parts), parts[0].device, parts[0].kind)
    for name in parts[0]:
        columns = [part[name] for part in parts if name in part]
        alike = {(column.dtype, column.shape[1:]) for column in columns}
        if len(columns) == len(parts) and len(alike) == 1:
            made[name] = columns[0] if len(columns) == 1 else torch.cat(columns)
    made[ID] = torch.cat([torch.arange(part.num_rows, dtype=idtype, device=part.device) for part in parts])
    numbers = [
        torch.full_like(made[ID][: part.num_rows], every.index(key)) for key, part in zip(keys, parts, strict=True)
    ]
    made[TYPE] = torch.cat(numbers)
    return made
