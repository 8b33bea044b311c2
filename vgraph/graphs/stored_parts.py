"""Stored parts of a graph: what a pickle names, compared before it becomes one.

Takes: edges, counts and features by type, as ``GraphData.__reduce__`` gives them. Gives: nothing, or a GraphError.
Runs once per graph that comes out of a pickle. Kernels trust a Topology and a Frame, and ``torch.load`` with
``weights_only=True`` lets a file of others name any of their parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import torch
from torch import Tensor

from vgraph.errors import GraphError

_KINDS = ("source", "node", "edge", "graph")


def check_parts(is_block: object, topologies: object, frames: object, sizes: object) -> None:
    """GraphError: a part is no such part, or does not fit another."""
    if not isinstance(is_block, bool) or not isinstance(topologies, list) or not topologies:
        _refuse("it has no edges by type")
    counts: tuple[dict[object, int], dict[object, int], dict[object, int]] = ({}, {}, {})
    for part in topologies:
        etype, num_src, num_dst, num_edges = _checked_edges(part)
        given = ((etype[0], num_src), (etype[2], num_dst), (etype, num_edges))
        for known, (name, count) in zip(counts if is_block else (counts[1], *counts[1:]), given, strict=True):
            if known.setdefault(name, count) != count:
                _refuse(f"there are {known[name]} and {count} rows of {name!r}")
    num_graphs = _checked_sizes(sizes, counts[1])
    if not isinstance(frames, list) or len(frames) != len(_KINDS):
        _refuse("its features are not by kind")
    of_graphs: dict[object, int] = {"": num_graphs}
    wanted = (counts[0] if is_block else counts[1], counts[1], counts[2], of_graphs)
    for kind, group, known in zip(_KINDS, frames, wanted, strict=True):
        _check_features(kind, group, known)


def _checked_edges(part: object) -> tuple[tuple[str, str, str], int, int, int]:
    if not isinstance(part, tuple) or len(part) != 6:
        _refuse(f"a {type(part).__name__} stands where edges should")
    etype, src, dst, num_src, num_dst, graph_sizes = part
    if not (isinstance(etype, tuple) and len(etype) == 3 and all(isinstance(name, str) for name in etype)):
        _refuse(f"{etype!r} is no edge type")
    for ends, count in ((src, num_src), (dst, num_dst)):
        _check_ids(ends, count, etype[1])
    if src.shape != dst.shape or src.dtype != dst.dtype or src.device != dst.device:
        _refuse(f"the ends of {etype[1]!r} do not fit each other")
    if graph_sizes is not None:
        _check_sum(graph_sizes, num_dst, etype[2])
    return (etype[0], etype[1], etype[2]), num_src, num_dst, src.shape[0]


def _check_ids(ids: object, count: object, what: str) -> None:
    is_list = isinstance(ids, Tensor) and ids.layout == torch.strided and ids.ndim == 1
    if not is_list or not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
        _refuse(f"the ends of {what!r} are no list of int64 or int32")
    if type(count) is not int or count < 0:
        _refuse(f"{what!r} joins {count!r} nodes")
    if ids.numel() and ids.device.type != "meta":
        low, high = (int(bound) for bound in torch.aminmax(ids))
        if low < 0 or high >= count:
            _refuse(f"an end of {what!r} is {low if low < 0 else high} where there are {count} nodes")


def _checked_sizes(sizes: object, counts: Mapping[object, int]) -> int:
    """How many graphs there are."""
    if sizes is None:
        return 1
    if not isinstance(sizes, dict) or sizes.keys() != counts.keys():
        _refuse("the sizes of its graphs are not by type")
    for name, count in counts.items():
        _check_sum(sizes[name], count, name)
    numbers = {len(given) for given in sizes.values()}
    if len(numbers) != 1:
        _refuse("its types have different numbers of graphs")
    return numbers.pop()


def _check_sum(sizes: object, count: int, name: object) -> None:
    if not isinstance(sizes, tuple) or any(type(size) is not int or size < 0 for size in sizes) or sum(sizes) != count:
        _refuse(f"the graphs of the batch do not have the {count} nodes of type {name!r}")


def _check_features(kind: str, group: object, counts: Mapping[object, int]) -> None:
    """As many rows of every type as edges say, or any number of a type of nodes that no edge names."""
    if not isinstance(group, list):
        _refuse(f"the features of {kind}s are not by type")
    named: set[object] = set()
    for name, count, columns in group:
        if type(count) is not int or count < 0 or counts.get(name, count) != count or not isinstance(columns, dict):
            _refuse(f"there are {count!r} rows of {name!r} where edges join {counts.get(name)}")
        named.add(name)
        for key, column in columns.items():
            is_column = isinstance(key, str) and isinstance(column, Tensor) and column.ndim > 0
            if not is_column or column.shape[0] != count:
                _refuse(f"the {kind} feature {key!r} does not have {count} rows")
    if not named >= counts.keys():
        _refuse(f"there are no rows of {sorted(map(str, counts.keys() - named))}")


def _refuse(fact: str) -> NoReturn:
    cure = "the file is damaged, or was made to do harm: get it again from whom you trust"
    raise GraphError(f"a graph in a pickle does not fit together: {fact}", cure=cure)
