"""Feed: the features of one call of a vertex function.

Takes: keywords and a graph's frames. Gives: tensors by full name (``vertex:x``), checked. Runs at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph import config
from vgraph.api.vertex.padding import Padded
from vgraph.capture.session import Spec
from vgraph.compiler import leaf_ids as find_leaves
from vgraph.errors import DTypeError, FeatureError, NameLookupError
from vgraph.graphs.graph_data import GraphData
from vgraph.ir.space import EDGE, GRAPH, OF_LEAVES, VERTEX, Space, subset
from vgraph.ir.topology import Topology
from vgraph.ir.upload import send
from vgraph.native_part import empty

_MANY = 1 << 18  # numbers


@dataclass(frozen=True, eq=False)
class At:
    """A feature of some vertices only; see ``at``."""

    rows: Tensor
    ids: Tensor


Features = Mapping[str, Tensor | At]


def at(rows: Tensor, ids: Tensor) -> At:
    """A vertex feature given for some vertices only; all others see zeros.

    Operators on it run on the given rows; what they do to zero is computed once.

    Args:
        rows: (k, ...), one row for each of ``ids``.
        ids: (k,) distinct vertex ids. Ids on the CPU serve a graph on a GPU, too, and are checked without waiting.

    Returns:
        What a call of a ``vgraph.VertexFunction`` takes as a feature.

    Raises:
        FeatureError: the two lengths differ, or an id stands twice.
        DTypeError: the ids are not whole numbers, or one of the two is no tensor.

    Source: none (rows that are zero need no storage).

    Example:
        >>> import torch, vgraph
        >>> words = vgraph.at(torch.ones(2, 4), ids=torch.tensor([0, 2]))
    """
    _check("at", rows, ids)
    if rows.shape[:1] != ids.shape or ids.dim() != 1:
        raise FeatureError(
            f"at(rows, ids) has rows of shape {tuple(rows.shape)} for ids of shape {tuple(ids.shape)}",
            cure="give one row for every id",
        )
    return At(rows, ids.long())


def rows_at(rows: Tensor, ids: Tensor) -> Tensor:
    """Rows ``ids`` of results, as ``rows[ids]``: of the roots of many trees, say.

    The gradient, zero elsewhere, lies in memory that is used again step after step; fresh memory for all rows
    takes longer than to fill it. Differentiable to any order.

    Args:
        rows: (n, ...), such as what a vertex function pushed.
        ids: (k,) whole numbers, from 0 to n - 1. Of rows on a GPU ids on the CPU are checked without waiting.

    Returns:
        (k, ...) in the dtype of ``rows``.

    Raises:
        DTypeError: the ids are not whole numbers, or one of the two is no tensor.
        FeatureError: the ids have not one dim, are out of range, or lie on another GPU.

    Source: torch's indexing, ``rows[ids]``.

    Example:
        >>> import torch, vgraph
        >>> vgraph.rows_at(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0]))
        tensor([[3.],
                [1.]])
    """
    _check("rows_at", rows, ids)
    if ids.device not in (rows.device, torch.device("cpu")):
        fact = f"rows_at(rows, ids) has ids on {ids.device} for rows on {rows.device}"
        raise FeatureError(fact, cure="move one of them with .to(...)")
    if ids.dim() != 1 or not rows.dim():
        fact = f"rows_at(rows, ids) has ids of shape {tuple(ids.shape)} for rows of shape {tuple(rows.shape)}"
        raise FeatureError(fact, cure="give one list of ids: ids.flatten()")
    ids = ids.long()
    if torch.compiler.is_compiling():
        return rows[ids]
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < rows.shape[0]:
        fact = f"rows_at(rows, ids) has ids from {int(ids.min())} to {int(ids.max())} for {rows.shape[0]} rows"
        raise FeatureError(fact, cure="give ids from 0 to the number of rows - 1")
    return _Taken.apply(rows, send(ids, rows.device))


def _check(name: str, rows: object, ids: object) -> None:
    for words, given in (("rows", rows), ("ids", ids)):
        if not isinstance(given, Tensor):
            fact = f"the {words} of {name}(rows, ids) are a {type(given).__name__}"
            raise FeatureError(fact, cure="give a tensor: torch.as_tensor(...)")
        if given is ids and (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool):
            fact = f"the ids of {name}(rows, ids) are {given.dtype}"
            raise DTypeError(fact, cure="give whole numbers; for a mask, mask.nonzero().squeeze(1)")


class _Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.count = rows.shape[0]
        return rows.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Put.apply(grads[0], *ctx.saved_tensors, ctx.count), None


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, grads: Tensor, ids: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(ids)
        shape = (count, *grads.shape[1:])
        whole = empty(shape, grads.dtype) if grads.device.type == "cpu" else grads.new_empty(shape)
        return whole.zero_().index_add_(0, ids, grads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Taken.apply(grads[0], *ctx.saved_tensors), None, None


class Feed:
    """The features of one call: keywords first, then the graph's frames."""

    def __init__(self, graph: GraphData, topology: Topology, given: Features, *, is_typed: bool = False) -> None:
        self.graph, self.topology, self.given = graph, topology, given
        self.leaves_in_order = config.leaves_enabled() and not is_typed  # of several types, rows go by type first
        self.padded: Padded | None = None  # where calls of one form share recordings
        self.subsets: dict[str, tuple[Tensor, int]] = {}  # of leaves: their ids; else a row for each vertex
        self._columns: dict[str, Tensor] = {}
        for name, value in given.items():
            if isinstance(value, At):
                self._add_subset(name, value)

    def _add_subset(self, name: str, value: At) -> None:
        count, ids, device = self.topology.num_dst, value.ids, self.topology.device
        for words, tensor in (("rows", value.rows), ("ids", ids)):
            if tensor.device != device and not (tensor is ids and tensor.device.type == "cpu"):
                raise FeatureError(
                    f"the {words} of at(...) for {name!r} are on {tensor.device}, the graph on {device}",
                    cure="move one of them with .to(...)",
                )
        if self.leaves_in_order and torch.equal(ids, self._leaves_where(ids.device)):
            name, place = name + OF_LEAVES, leaf_ids(self.topology)
        else:
            place = send(self._places(name, ids, count), device)
        self.subsets[f"@{name}"] = (place, ids.shape[0] + 1)
        self._columns[f"subset:{name}"] = _with_zeros(value.rows)

    def _leaves_where(self, device: torch.device) -> Tensor:
        """The vertices without in-edges, on the CPU or where the graph is."""
        return torch.from_numpy(_leaves(self.topology)) if device.type == "cpu" else leaf_ids(self.topology)

    def _places(self, name: str, ids: Tensor, count: int) -> Tensor:
        """The row of every vertex among those given, or the one behind them."""
        inside = bool(((ids >= 0) & (ids < count)).all())
        if not inside or bool((torch.bincount(ids, minlength=1) > 1).any()):
            raise FeatureError(
                f"the ids of at(...) for {name!r} are not distinct vertices of a graph of {count}",
                cure="give every id once, from 0 to num_nodes - 1",
            )
        place = torch.full((count,), ids.shape[0], dtype=torch.int64, device=ids.device)
        place[ids] = torch.arange(ids.shape[0], device=ids.device)
        return place

    def place_of(self, name: str, vertex: int) -> int:
        """The row of a subset that belongs to a vertex."""
        place, count = self.subsets[name]
        if not name.endswith(OF_LEAVES):
            return int(place[vertex])
        at = int(torch.searchsorted(place, vertex))
        return at if at < count - 1 and int(place[at]) == vertex else count - 1

    def full_name(self, kind: str, name: str) -> str:
        """The name of an input; raises where there is no such feature."""
        for subset_name in subset_names(kind, name):
            if subset_name in self._columns:
                return subset_name
        if self.find(f"{kind}:{name}") is None:
            frame, words = _frame(self.graph, kind)
            raise NameLookupError(
                f"there is no {words} feature {name!r}",
                cure=f"pass {name}=... in the call, or set one of the graph's ({sorted(frame)} are there)",
            )
        return f"{kind}:{name}"

    def find(self, full: str) -> Tensor | None:
        known = self._columns.get(full)
        if known is not None:
            return known
        kind, _, name = full.partition(":")
        if kind == "subset":
            return None
        value = self.given.get(name)
        if value is None:
            value = _frame(self.graph, kind)[0].get(name)
        if not isinstance(value, Tensor):
            _check_kind(name, value)
            return None
        self._check(kind, name, value)
        self._columns[full] = value if self.padded is None else self.padded.rows(kind, value)
        return self._columns[full]

    def _check(self, kind: str, name: str, value: Tensor) -> None:
        topology = self.topology
        wanted = {
            "vertex": topology.num_dst,
            "edge": topology.num_edges,
            "graph": len(topology.graph_sizes or (1,)),
        }[kind]
        if value.dim() == 0 or value.shape[0] != wanted:
            raise FeatureError(
                f"the {kind} feature {name!r} has shape {tuple(value.shape)} for {wanted} rows",
                cure=f"give one row for every {kind}",
            )
        if value.device != topology.device:
            raise FeatureError(
                f"the {kind} feature {name!r} is on {value.device}, the graph on {topology.device}",
                cure="move one of them with .to(...)",
            )

    def spec(self, full: str) -> Spec:
        value = self.find(full)
        assert value is not None, full
        kind, _, name = full.partition(":")
        return Spec.of(_space(kind, name), value)


def subset_names(kind: str, name: str) -> tuple[str, ...]:
    """The names that a feature has where it is given for some vertices only."""
    return (f"subset:{name}", f"subset:{name}{OF_LEAVES}") if kind == "vertex" else ()


def _with_zeros(rows: Tensor) -> Tensor:
    """The rows and one of zeros behind them, differentiably; many of them in memory that is used again."""
    if rows.device.type == "cpu" and rows.numel() > _MANY and not torch.compiler.is_compiling():
        return _WithZeros.apply(rows)
    return torch.cat([rows, rows.new_zeros((1, *rows.shape[1:]))])


class _WithZeros(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        made = empty((rows.shape[0] + 1, *rows.shape[1:]), rows.dtype)
        made[:-1] = rows
        made[-1] = 0
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0][:-1]


def leaf_ids(topology: Topology) -> Tensor:
    """The vertices without in-edges, in order; kept."""
    return topology.keep("leaf ids", lambda: send(torch.from_numpy(_leaves(topology)), topology.device))


def _leaves(topology: Topology) -> NDArray[np.int64]:
    return topology.keep("leaves", lambda: find_leaves(topology))


def _check_kind(name: str, value: object) -> None:
    if value is not None and not isinstance(value, At):
        raise FeatureError(
            f"the feature {name!r} is a {type(value).__name__}",
            cure="give a tensor, one row for every vertex, edge or graph",
        )


def _space(kind: str, name: str) -> Space:
    return {"vertex": VERTEX, "edge": EDGE, "graph": GRAPH}.get(kind) or subset(name)


def _frame(graph: GraphData, kind: str) -> tuple[Mapping[str, Tensor], str]:
    return {
        "vertex": (graph.ndata, "vertex"),
        "edge": (graph.edata, "edge"),
        "graph": (graph.gdata, "graph"),
    }.get(kind, (graph.ndata, "vertex"))
