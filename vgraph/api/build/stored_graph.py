"""Parts of a graph as a file names them, checked before they become a graph.

Takes: edges, counts and features by type. Gives: a Graph, or a DataError. Runs once per graph of a file.
Kernels trust a Topology and a Frame. So every id, every number of rows and every size of a batch is compared here
with the others, and nothing is built before all fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from vgraph.api.graph import Graph
from vgraph.arguments import COUNT, is_iterable
from vgraph.errors import FunctionError
from vgraph.files import most_vertices
from vgraph.graphs.frame import Frame, describe
from vgraph.graphs.types import EdgeType
from vgraph.ir.topology import Topology

CPU = torch.device("cpu")
Columns = Mapping[str, Tensor]
Side = Mapping[Any, tuple[object, object]]  # type of nodes: their number and features


class Misfit(ValueError):
    """What does not fit what; the reader of the file says of which file."""


def refuse(fact: str) -> NoReturn:
    raise Misfit(fact)


@dataclass
class StoredGraph:
    """What a file says of one graph; ``dst`` is None but of a block, ``sizes`` but of a batch.

    ``edges``: type, sources, destinations, their numbers of nodes, and features of the edges. ``src`` and ``dst``:
    the number of nodes and their features by type. ``sizes``: the nodes of every graph of the batch, by type.
    """

    edges: Sequence[Sequence[object]]
    src: Side
    dst: Side | None = None
    gdata: object = field(default_factory=dict[str, Tensor])
    sizes: Mapping[str, Sequence[int]] | None = None

    def build(self, num_bytes: int) -> Graph:
        """The graph; Misfit: a part is no such part, or does not fit another. ``num_bytes``: of the whole file."""
        sides = [self._counts(self.src, num_bytes), self._counts(self.src if self.dst is None else self.dst, num_bytes)]
        sizes = None if self.sizes is None else _checked_sizes(self.sizes, sides[1])
        num_graphs = 1 if sizes is None else len(next(iter(sizes.values())))
        topologies: dict[EdgeType, Topology] = {}
        for key, src, dst, num_src, num_dst, _ in self.edges:
            etype = _edge_type(key, sides)
            if etype in topologies:
                refuse(f"the edge type {etype} is there twice")
            counts = sides[0][etype[0]], sides[1][etype[2]]
            if (num_src, num_dst) != counts:
                refuse(f"{etype[1]!r} joins {num_src} and {num_dst} nodes where there are others")
            ends = checked_ids(src, counts[0], etype[1]), checked_ids(dst, counts[1], etype[1])
            if ends[0].shape != ends[1].shape:
                refuse(f"the edges {etype[1]!r} have {len(ends[0])} sources and {len(ends[1])} destinations")
            topologies[etype] = Topology(*ends, *counts, None if sizes is None else sizes[etype[2]])
        if not topologies or len({end.dtype for t in topologies.values() for end in (t.src, t.dst)}) > 1:
            refuse("the ids of its edges are of several dtypes, or there is no type of edges")
        is_typed = len(topologies) > 1
        edges = {
            key: _frame(t.num_edges, "edge", part[5], key[1] if is_typed else "")
            for part, (key, t) in zip(self.edges, topologies.items(), strict=True)
        }
        src, dst = _frames(self.src, sides[0]), None if self.dst is None else _frames(self.dst, sides[1])
        return Graph.of_types(topologies, src, dst, edges, _frame(num_graphs, "graph", self.gdata, ""), sizes)

    def _counts(self, side: Side, num_bytes: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, (count, _) in side.items():
            if not isinstance(name, str) or not isinstance(count, int) or isinstance(count, bool) or count < 0:
                refuse(f"there are {count!r} nodes of type {name!r}")
            if count > most_vertices(num_bytes):
                refuse(f"{num_bytes} bytes name {count} nodes of type {name!r}")
            found[name] = count
        return found


def _checked_sizes(given: Mapping[str, Sequence[int]], counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Of every type as many sizes, which sum to the nodes of the type."""
    found = {name: tuple(sizes) for name, sizes in given.items()}
    for name, count in counts.items():
        sizes = found.get(name, ())
        if not sizes or any(type(size) is not int or size < 0 for size in sizes) or sum(sizes) != count:
            refuse(f"the graphs of the batch do not have the {count} nodes of type {name!r}")
    if found.keys() != counts.keys() or len({len(sizes) for sizes in found.values()}) > 1:
        refuse("its types have different numbers of graphs")
    return found


def chosen_graphs(ids: object, count: int) -> Sequence[int]:
    """Which of ``count`` graphs to read; FunctionError: there is no such graph."""
    if ids is None:
        return range(count)
    cure = f"pass a list of numbers from 0 to {count - 1}"
    if not is_iterable(ids):
        raise FunctionError(f"{ids!r} is no list of numbers of graphs", cure=cure)
    chosen = list(cast("Iterable[int]", ids))
    for number in chosen:
        if not COUNT.accepts(number) or number >= count:
            raise FunctionError(f"there is no graph {number!r} in a file of {count}", cure=cure)
    return [int(number) for number in chosen]


def _edge_type(key: object, sides: Sequence[Mapping[str, int]]) -> EdgeType:
    if not (isinstance(key, (list, tuple)) and len(key) == 3 and all(isinstance(name, str) for name in key)):
        refuse(f"{key!r} is no edge type")
    if key[0] not in sides[0] or key[2] not in sides[1]:
        refuse(f"the edge type {tuple(key)} joins nodes that there are not")
    return key[0], key[1], key[2]


def checked_ids(ids: object, count: int, what: str) -> Tensor:
    """Ids below ``count`` as a Topology takes them: contiguous, (k,), int64 or int32."""
    if (
        not isinstance(ids, Tensor)
        or ids.layout != torch.strided
        or ids.dtype not in (torch.int64, torch.int32)
        or ids.ndim != 1
    ):
        refuse(f"the ends of {what!r} are no list of int64 or int32")
    if ids.numel():
        low, high = (int(bound) for bound in torch.aminmax(ids))
        if low < 0 or high >= count:
            refuse(f"an end of the edges {what!r} is {low if low < 0 else high} where there are {count} nodes")
    return ids.contiguous()


def _frames(side: Side, counts: Mapping[str, int]) -> dict[str, Frame]:
    is_typed = len(side) > 1
    return {name: _frame(count, "node", side[name][1], name if is_typed else "") for name, count in counts.items()}


def _frame(count: int, kind: str, columns: object, type_name: str) -> Frame:
    found = checked_columns(columns)
    for name, column in found.items():
        if not column.ndim or column.shape[0] != count:
            refuse(f"the {kind} feature {name!r} is {describe(column)} for {count} rows")
        if column.layout == torch.strided and column.nbytes > column.untyped_storage().nbytes():
            refuse(f"the {kind} feature {name!r} has more rows than are stored")
    return Frame(count, CPU, kind, found, type_name)


def checked_columns(columns: object) -> dict[str, Tensor]:
    """The same; Misfit: they are no tensors by name."""
    if not isinstance(columns, dict):
        refuse(f"a {type(columns).__name__} stands where tensors by name should")
    for name, column in columns.items():
        if not isinstance(name, str) or not isinstance(column, Tensor):
            refuse(f"a {type(column).__name__} called {name!r} stands where a named tensor should")
    return columns
