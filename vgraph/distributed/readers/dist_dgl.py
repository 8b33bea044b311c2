"""DistDGL: partitions that ``dgl.distributed.partition_graph`` wrote, joined to one graph; halos are dropped.

Takes: the JSON file of the partitions. Gives: a ``RawGraph`` with the ids that DistDGL gave. Runs once per graph.
Source: DGL 1.1, ``dgl/distributed/partition.py`` for what the files hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgraph.api.build.dgl_files import read_dgl_tensors
from vgraph.api.build.files import load_graphs
from vgraph.distributed.partition.raw_graph import EdgeSegment, RawEdges, RawGraph
from vgraph.distributed.readers.chunked import joined
from vgraph.errors import DataError
from vgraph.files import damage_told
from vgraph.graphs.data import NODE, UNTYPED, EdgeType

CURE = "write the partitions with dgl.distributed.partition_graph"


def read_dist_dgl(path: Path, content: Mapping[str, Any], folder: Path) -> RawGraph:
    """One part at a time is in memory, besides the ends of all edges."""
    with damage_told(path, CURE, fact="it describes no partitions"):
        num_parts = content["num_parts"]
        if type(num_parts) is not int or not 1 <= num_parts <= len(content):
            raise ValueError(f"num_parts is {str(num_parts)[:40]}")
        nodes = _Ranges(content["node_map"], content.get("ntypes", {NODE: 0}), num_parts)
        edges = _Ranges(content["edge_map"], content.get("etypes", {":".join(UNTYPED): 0}), num_parts)
        etypes = {name: _edge_type(name, nodes) for name in edges.ranges}
        parts = [_Part(path.parent, content[f"part-{p}"], p, nodes, edges, etypes) for p in range(num_parts)]
        folder.mkdir(parents=True, exist_ok=True)
        return RawGraph(
            nodes.counts,
            {etypes[name]: RawEdges([part.segment(name) for part in parts]) for name in etypes},
            {ntype: _features(parts, f"{ntype}/", "nodes", folder) for ntype in nodes.ranges},
            {etypes[name]: _features(parts, f"{name}/", "edges", folder) for name in etypes},
        )


def _edge_type(name: str, nodes: _Ranges) -> EdgeType:
    words = UNTYPED if name == UNTYPED[1] else tuple(name.split(":"))
    if len(words) != 3 or words[0] not in nodes.ranges or words[2] not in nodes.ranges:
        raise ValueError(f"{name[:80]!r} is no edge type SOURCE:NAME:DESTINATION")
    return words


class _Ranges:
    """Which ids each part has of each type, among those of all types; and each type's own numbers for them."""

    def __init__(self, found: Any, order: Mapping[str, int], num_parts: int) -> None:
        named = found if isinstance(found, Mapping) else {next(iter(order)): found}
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        self.numbers: dict[str, int] = {}
        for name, ranges in named.items():
            pairs = [(first, last) for first, last in ranges]
            flat = [n for pair in pairs for n in pair]
            if len(pairs) != num_parts or not all(type(n) is int and 0 <= n < 2**62 for n in flat):
                raise ValueError(f"ranges of {name!r} are {str(ranges)[:80]}")
            if flat != sorted(flat):
                raise ValueError(f"ranges of {name!r} do not ascend")
            self.ranges[name], self.numbers[name] = pairs, order[name]
        self.counts = {name: sum(last - first for first, last in pairs) for name, pairs in self.ranges.items()}

    def own_numbers(self, name: str, ids: Tensor) -> Tensor:
        """Numbers from 0 within a type; ValueError: an id is of another type, or of none."""
        bounds = torch.tensor([n for pair in self.ranges[name] for n in pair], dtype=torch.int64)
        before, done = list[int](), 0
        for first, last in self.ranges[name]:
            before.append(done - first)
            done += last - first
        place = torch.searchsorted(bounds, ids.long(), right=True) - 1
        if ids.numel() and (int(place.min()) < 0 or bool((place % 2 == 1).any())):
            raise ValueError(f"an id is none of {name!r}")
        return ids + torch.tensor(before, dtype=torch.int64)[place // 2]


class _Part:
    """Edges and features of one part, without what it knows of others."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, str],
        number: int,
        nodes: _Ranges,
        edges: _Ranges,
        etypes: Mapping[str, EdgeType],
    ) -> None:
        self.path = folder / files["part_graph"]
        self.features = {
            "nodes": read_dgl_tensors(folder / files["node_feats"]),
            "edges": read_dgl_tensors(folder / files["edge_feats"]),
        }
        self.number, self.ends = number, dict[str, tuple[Tensor, Tensor]]()
        (g, *_), _ = load_graphs(self.path, [0])
        src, dst = g.all_edges(order="eid")
        kinds = g.edata.get("_TYPE", torch.zeros_like(src))
        columns = (g.ndata.get("_ID"), g.edata.get("_ID"), g.edata.get("inner_edge"), kinds)
        if any(column is None or column.ndim != 1 for column in columns):
            fact = "its nodes and edges do not say which ones they are of the whole graph"
            raise DataError(fact, line=str(self.path), cure=CURE)
        ids, edge_ids, is_own = g.ndata["_ID"].long(), g.edata["_ID"].long(), g.edata["inner_edge"] == 1
        for name, etype in etypes.items():
            mine = (is_own & (kinds == edges.numbers[name])).nonzero().squeeze(1)
            mine = mine.index_select(0, torch.argsort(edge_ids.index_select(0, mine), stable=True))
            self._check_whole(edge_ids.index_select(0, mine), edges.ranges[name][number], name)
            self.ends[name] = (
                nodes.own_numbers(etype[0], ids.index_select(0, src.long().index_select(0, mine))),
                nodes.own_numbers(etype[2], ids.index_select(0, dst.long().index_select(0, mine))),
            )
        self.rows = {f"{t}/": r[number][1] - r[number][0] for t, r in (*nodes.ranges.items(), *edges.ranges.items())}

    def _check_whole(self, ids: Tensor, own: tuple[int, int], name: str) -> None:
        if len(ids) != own[1] - own[0] or not torch.equal(ids, torch.arange(own[0], own[0] + len(ids))):
            fact = f"it does not hold the edges {own[0]} to {own[1] - 1} of {name!r}"
            raise DataError(fact, line=str(self.path), cure="copy all of the partitions again")

    def segment(self, name: str) -> EdgeSegment:
        return EdgeSegment(*self.ends[name], self.path)


def _features(parts: list[_Part], prefix: str, kind: str, folder: Path) -> dict[str, Tensor]:
    """Features of one type, rows of all parts one after the other."""
    names = [name for name in parts[0].features[kind] if name.startswith(prefix)]
    found: dict[str, Tensor] = {}
    for name in names:
        columns = [part.features[kind][name] for part in parts]
        for part, column in zip(parts, columns, strict=True):
            if not column.ndim or len(column) != part.rows[prefix]:
                raise ValueError(f"part {part.number} has {tuple(column.shape)} of {name!r}")
        made = folder / f"{kind}-{len(list(folder.iterdir()))}"
        found[name.removeprefix(prefix)] = joined(columns, lambda made=made: made)
    return found
