"""Ops: message passing and segment reductions as functions of arrays.

Takes: a graph and one row a node or an edge: torch tensors, NumPy or CuPy arrays. Gives: rows of the same
kind (torch tensors where both are given). Runs at every call. Source: DGL section 4 (SpMM and SDDMM); arrays come
and go by DLPack, uncopied.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vgraph.function as fn
from vgraph.api.graph import Graph
from vgraph.api.messages.every_type import softmax_of_types
from vgraph.api.messages.grouped_matmul import gather_mm as _gather_mm
from vgraph.api.messages.grouped_matmul import segment_mm as _segment_mm
from vgraph.api.messages.propagate import evaluate_edges, propagate
from vgraph.api.messages.segments import reduce_segments, segments_of_lengths, softmax_segments
from vgraph.api.messages.typed_sum import typed_sum as _typed_sum
from vgraph.errors import DTypeError, FeatureError, FunctionError

_TARGETS = {"u": "src", "v": "dst", "e": "edge", "src": "src", "dst": "dst", "edge": "edge"}
_OPERATORS = ("add", "sub", "mul", "div", "dot")
_REDUCERS = ("sum", "max", "min", "mean")
Array = Any  # a torch tensor, or an array of NumPy or CuPy


def _as_tensor(value: object) -> Any:
    """An array that speaks DLPack as a tensor over the same memory; anything else as it is."""
    if isinstance(value, (Tensor, Graph)) or not hasattr(value, "__dlpack__"):
        return value
    if not isinstance(value, np.ndarray):
        return torch.from_dlpack(value)
    array: Any = value
    if not (array.flags.writeable and array.dtype.isnative and all(stride >= 0 for stride in array.strides)):
        array = array.astype(array.dtype.newbyteorder("="))  # torch has no words for these: a copy
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        fact = f"torch has no numbers like those of an array of {value.dtype}"
        raise DTypeError(fact, cure="turn them into float64, float32 or int64") from error


def _like(result: Tensor, origin: Any) -> Any:
    """A tensor as an array of the library that ``origin`` comes from; itself where that reads no tensors."""
    if isinstance(origin, np.ndarray):
        return result.numpy()
    named = sys.modules.get(type(origin).__module__.partition(".")[0])
    library: Any = origin.__array_namespace__() if hasattr(origin, "__array_namespace__") else named
    return library.from_dlpack(result) if hasattr(library, "from_dlpack") else result


def of_arrays(function: Callable[..., Tensor]) -> Callable[..., Array]:
    """Makes a function of torch tensors one of NumPy and CuPy arrays as well.

    A tensor beside arrays may have a gradient, which no array has: then the result is a tensor.

    Args:
        function: a function that takes tensors and gives one.

    Returns:
        The function; its result is of the kind that was given.

    Source: the DLPack protocol of the array API standard.

    Example:
        >>> import numpy, torch, vgraph
        >>> vgraph.ops.of_arrays(torch.neg)(numpy.ones(2))
        array([-1., -1.])
    """

    @wraps(function)
    def on_arrays(*args: Any, **kwargs: Any) -> Array:
        given = [value for value in (*args, *kwargs.values()) if hasattr(value, "__dlpack__")]
        origin = None if any(isinstance(value, Tensor) for value in given) else next(iter(given), None)
        result = function(*map(_as_tensor, args), **{key: _as_tensor(value) for key, value in kwargs.items()})
        return result if origin is None else _like(result, origin)

    return on_arrays


def _frames(g: Graph, *sides: tuple[str, str, Tensor | None]) -> dict[str, dict[str, Tensor]]:
    """Rows by where they lie, checked; DTypeError, FeatureError: they are no tensor of one row each."""
    counts = {"src": g.topology.num_own_sources, "dst": g.topology.num_dst, "edge": g.topology.num_edges}
    frames: dict[str, dict[str, Tensor]] = {"src": {}, "dst": {}, "edge": {}}
    for target, name, rows in sides:
        if rows is not None:
            if target not in _TARGETS:
                raise FunctionError(f"there is no target {target!r}", cure='pass "u", "v" or "e"')
            frames[_TARGETS[target]][name] = _checked(name, rows, _TARGETS[target], counts[_TARGETS[target]])
    return frames


def _checked(name: str, rows: object, side: str, count: int) -> Tensor:
    if not isinstance(rows, Tensor):
        cure = "give a torch tensor, or an array of NumPy or CuPy"
        raise DTypeError(f"{name} is a {type(rows).__name__}", cure=cure)
    if rows.dim() == 0 or rows.shape[0] != count:
        what = {"src": "sources", "dst": "destinations", "edge": "edges"}[side]
        raise FeatureError(
            f"{name} has shape {tuple(rows.shape)}, and there are {count} {what}",
            cure="give one row each",
        )
    return rows


def _graph(g: object) -> Graph:
    if isinstance(g, Graph):
        return g
    raise FunctionError(f"g is a {type(g).__name__}", cure="pass the graph first, then rows")


def _message(op: str, left: str, right: str) -> Any:
    if op in ("copy_lhs", "copy_rhs"):
        side, name = (left, "lhs") if op == "copy_lhs" else (right, "rhs")
        copies = {"src": fn.copy_u, "dst": _copy_v, "edge": fn.copy_e}
        return copies[_TARGETS[side]](name, "m")
    if op not in _OPERATORS:
        cure = f"one of copy_lhs, copy_rhs, {', '.join(_OPERATORS)}"
        raise FunctionError(f"there is no operator {op!r}", cure=cure)
    letters = {"src": "u", "dst": "v", "edge": "e"}
    name = f"{letters.get(left, left)}_{op}_{letters.get(right, right)}"
    if not hasattr(fn, name):
        raise FunctionError(f"there is no message {name!r}", cure="name two different targets")
    return getattr(fn, name)("lhs", "rhs", "m")


def _copy_v(v: str, out: str) -> Any:
    return lambda edges: {out: edges.dst[v]}


@of_arrays
def gspmm(g: Graph, op: str, reduce_op: str, lhs_data: Array, rhs_data: Array) -> Array:
    """Messages ``op(source's lhs, edge's rhs)`` reduced at every destination.

    Args:
        g: a graph with one type of edges, or a block.
        op: "add", "sub", "mul", "div", "dot", "copy_lhs" or "copy_rhs".
        reduce_op: "sum", "max", "min" or "mean".
        lhs_data: (sources, ...), or None where ``op`` needs none.
        rhs_data: (edges, ...), or None where ``op`` needs none.

    Returns:
        (destinations, ...), 0 without in-edges; for "dot" the last dim, if any, is 1. Of the kind that was given.

    Raises:
        FunctionError: there is no such ``op`` or ``reduce_op``, rows that it needs are None, or ``g`` is no graph.
        FeatureError: there is not one row each.
        DTypeError: rows are no tensor or array of numbers.

    Source: Wang et al. 2019 (DGL), section 4 (generalised SpMM); DGL 1.1, ``dgl.ops.gspmm``.

    Example:
        >>> import numpy, vgraph
        >>> g = vgraph.graph(([0, 1], [2, 2]))
        >>> vgraph.ops.gspmm(g, "mul", "sum", numpy.array([1.0, 2.0, 3.0]), numpy.array([10.0, 100.0]))
        array([  0.,   0., 210.])
    """
    if reduce_op not in _REDUCERS:
        raise FunctionError(f"there is no reducer {reduce_op!r}", cure=f"one of {', '.join(_REDUCERS)}")
    message, reduce = _message(op, "u", "e"), getattr(fn, reduce_op)("m", "x")
    needed = {"copy_lhs": (lhs_data,), "copy_rhs": (rhs_data,)}.get(op, (lhs_data, rhs_data))
    if any(rows is None for rows in needed):
        raise FunctionError(f"rows that {op!r} needs are None", cure="give lhs_data or rhs_data")
    frames = _frames(_graph(g), ("u", "lhs", lhs_data), ("e", "rhs", rhs_data))
    return propagate(g.topology, frames, message, reduce)["x"]


@of_arrays
def gsddmm(g: Graph, op: str, lhs_data: Array, rhs_data: Array, lhs_target: str = "u", rhs_target: str = "v") -> Array:
    """Combines two rows for every edge, each of its source "u", its destination "v" or the edge "e".

    Args:
        g: a graph with one type of edges, or a block.
        op: "add", "sub", "mul", "div", "dot", "copy_lhs" or "copy_rhs".
        lhs_data: (rows, ...) of ``lhs_target``, or None where ``op`` needs none.
        rhs_data: (rows, ...) of ``rhs_target``, or None where ``op`` needs none.
        lhs_target: "u", "v" or "e".
        rhs_target: "u", "v" or "e".

    Returns:
        (edges, ...); for "dot" the last dim, if any, is 1. Of the kind that was given.

    Raises:
        FunctionError: there is no such ``op`` or target, both targets are one, or ``g`` is no graph.
        FeatureError: there is not one row each.
        DTypeError: rows are no tensor or array of numbers.

    Source: Wang et al. 2019 (DGL), section 4 (generalised SDDMM); DGL 1.1, ``dgl.ops.gsddmm``.

    Example:
        >>> import numpy, vgraph
        >>> h = numpy.array([1.0, 2.0, 3.0])
        >>> vgraph.ops.gsddmm(vgraph.graph(([0, 1], [2, 2])), "sub", h, h)
        array([-2., -1.])
    """
    frames = _frames(_graph(g), (lhs_target, "lhs", lhs_data), (rhs_target, "rhs", rhs_data))
    return evaluate_edges(g.topology, frames, _message(op, lhs_target, rhs_target))["m"]


@of_arrays
def edge_softmax(graph: Graph, logits: Array, eids: Any = "__ALL__", norm_by: str = "dst") -> Array:
    """The softmax of numbers of edges over the edges that end in one node.

    Args:
        graph: a graph with one type of edges, or a block.
        logits: (edges, ...), one row an edge, or one for each of ``eids``; tensors by edge type: edges of all
            these types that end in one node share a softmax.
        eids: ids (k,) of the edges that ``logits`` has rows for; "__ALL__": all of them.
        norm_by: "dst"; "src": over the edges that begin in one node.

    Returns:
        As ``logits``: every column sums to 1 over the edges of a node.

    Raises:
        FeatureError: there is not one row an edge.
        FunctionError: an unknown ``norm_by``, or ``graph`` is no graph.

    Source: DGL 1.1, ``dgl.ops.edge_softmax``.

    Example:
        >>> import torch, vgraph
        >>> vgraph.ops.edge_softmax(vgraph.graph(([0, 1, 0], [2, 2, 1])), torch.zeros(3))
        tensor([0.5000, 0.5000, 1.0000])
    """
    if norm_by not in ("dst", "src"):
        raise FunctionError(f"norm_by is {norm_by!r}", cure='pass "dst" or "src"')
    graph = _graph(graph)
    if isinstance(logits, Mapping):
        return softmax_of_types(graph, logits, by_source=norm_by == "src")
    part = graph if isinstance(eids, str) else graph.edge_subgraph(eids, relabel_nodes=False)
    return softmax_segments(part.topology if norm_by == "dst" else part.topology.reversed, logits)


@of_arrays
def segment_reduce(seglen: Array, value: Array, reducer: str = "sum") -> Array:
    """Reduces the rows of every segment, which lie segment by segment.

    Args:
        seglen: (segments,), the number of rows of every segment.
        value: (rows, ...).
        reducer: "sum", "mean", "max" or "min".

    Returns:
        (segments, ...), 0 for a segment without rows.

    Raises:
        FeatureError: the lengths do not sum to the rows.
        FunctionError: an unknown reducer.

    Source: DGL 1.1, ``dgl.ops.segment_reduce``.

    Example:
        >>> import numpy, vgraph
        >>> vgraph.ops.segment_reduce(numpy.array([2, 0, 1]), numpy.array([1.0, 2.0, 5.0]))
        array([3., 0., 5.])
    """
    return reduce_segments(segments_of_lengths(seglen), value, reducer)


@of_arrays
def segment_softmax(seglen: Array, value: Array) -> Array:
    """The softmax of the rows of every segment, which lie segment by segment.

    Args:
        seglen: (segments,), the number of rows of every segment.
        value: (rows, ...).

    Returns:
        (rows, ...): every column of a segment's rows sums to 1.

    Raises:
        FeatureError: the lengths do not sum to the rows.

    Source: DGL 1.1, ``dgl.ops.segment.segment_softmax``.

    Example:
        >>> import torch, vgraph
        >>> vgraph.ops.segment_softmax(torch.tensor([2, 1]), torch.zeros(3))
        tensor([0.5000, 0.5000, 1.0000])
    """
    return softmax_segments(segments_of_lengths(seglen), value)


segment_mm = of_arrays(_segment_mm)
gather_mm = of_arrays(_gather_mm)
typed_sum = of_arrays(_typed_sum)


# ---------------------------------------------------------------- one function an operator and a reducer
_SPMM_MANUAL = """{first}

It is ``gspmm`` with the operator {op!r} and the reducer {reducer!r}.

Args:
    g: a graph with one type of edges, or a block.
{args}

Returns:
    (destinations, ...), 0 without in-edges; of the kind that was given.

Raises:
    FunctionError: ``g`` is no graph.
    FeatureError: there is not one row each.
    DTypeError: rows are no tensor or array of numbers.

Source: DGL 1.1, ``dgl.ops.{name}``.

Example:
    >>> import torch, vgraph
    >>> g = vgraph.graph(([0, 1], [2, 2]))
    >>> x, y = torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([[2.0], [4.0]])
    >>> round(vgraph.ops.{name}({call})[2].item(), 4)
    {shown}
"""
_SDDMM_MANUAL = """{first}

It is ``gsddmm`` with the operator {op!r}.

Args:
    g: a graph with one type of edges, or a block.
{args}

Returns:
    (edges, ...){width}; of the kind that was given.

Raises:
    FunctionError: ``g`` is no graph.
    FeatureError: there is not one row each.
    DTypeError: rows are no tensor or array of numbers.

Source: DGL 1.1, ``dgl.ops.{name}``.

Example:
    >>> import torch, vgraph
    >>> g = vgraph.graph(([0], [1]))
    >>> h, w = torch.tensor([[6.0], [2.0]]), torch.tensor([[3.0]])
    >>> round(vgraph.ops.{name}({call}).item(), 4)
    {shown}
"""
_NUMBERS: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "dot": operator.mul,  # of rows of one number
    "copy_lhs": lambda x, y: x,
    "copy_rhs": lambda x, y: y,
}
_REDUCED: dict[str, tuple[str, Callable[[float, float], float]]] = {
    "sum": ("The sum", operator.add),
    "max": ("The largest", max),
    "min": ("The smallest", min),
    "mean": ("The mean", lambda x, y: (x + y) / 2),
}


def _spmm_manual(name: str, op: str, reducer: str) -> str:
    rows = {"x": "    x: (sources, ...).", "y": "    y: (edges, ...)."}
    word, reduce = _REDUCED[reducer]
    if op.startswith("copy"):
        what = "sources' rows" if op == "copy_lhs" else "edges' rows"
        args, call = rows["x" if op == "copy_lhs" else "y"].replace("y:", "x:"), "x" if op == "copy_lhs" else "y"
    else:
        what = f"{fn.RESULTS[op].removeprefix('the ')}s of sources' and edges' rows"
        args, call = "\n".join(rows.values()), "x, y"
    number = reduce(_NUMBERS[op](1.0, 2.0), _NUMBERS[op](3.0, 4.0))
    first = f"{word} of the {what} over the in-edges of every node."
    return _SPMM_MANUAL.format(
        first=first, op=op, reducer=reducer, args=args, name=name, call=f"g, {call}", shown=round(number, 4)
    )


def _sddmm_manual(name: str, op: str, targets: str) -> str:
    features, shapes = {"u": "h", "v": "h", "e": "w"}, {"u": "sources", "v": "destinations", "e": "edges"}
    args = "\n".join(f"    {x}: ({shapes[t]}, ...)." for x, t in zip("xy", targets, strict=False))
    number = _NUMBERS[op](*(fn.EXAMPLE[t] for t in (targets[0], targets[-1])))
    words = [fn.WORDS[t] for t in targets]
    first = (
        f"The row of its {words[0]} for every edge."
        if len(words) == 1
        else f"{fn.RESULTS[op].capitalize()} of the {words[0]}'s row and the {words[1]}'s for every edge."
    )
    return _SDDMM_MANUAL.format(
        first=first,
        op=op,
        args=args,
        width=", of which the last dim, if any, is 1" if op == "dot" else "",
        name=name,
        call=", ".join(["g", *(features[t] for t in targets)]),
        shown=round(number, 4),
    )


def _spmm_of(name: str, left: bool, op: str, reducer: str) -> Callable[..., Array]:
    def of_one(g: Graph, x: Array) -> Array:
        return gspmm(g, op, reducer, *((x, None) if left else (None, x)))

    def of_two(g: Graph, x: Array, y: Array) -> Array:
        return gspmm(g, op, reducer, x, y)

    made = of_one if op in ("copy_lhs", "copy_rhs") else of_two
    made.__name__ = made.__qualname__ = name
    made.__doc__ = _spmm_manual(name, op, reducer)
    return made


def _sddmm_of(name: str, op: str, targets: str) -> Callable[..., Array]:
    def of_one(g: Graph, x: Array) -> Array:
        return gsddmm(g, op, x, None, targets, targets)

    def of_two(g: Graph, x: Array, y: Array) -> Array:
        return gsddmm(g, op, x, y, *targets)

    made = of_one if len(targets) == 1 else of_two
    made.__name__ = made.__qualname__ = name
    made.__doc__ = _sddmm_manual(name, op, targets)
    return made


def _make_all() -> dict[str, Callable[..., Array]]:
    made: dict[str, Callable[..., Array]] = {}
    for reducer in _REDUCERS:
        made[f"copy_u_{reducer}"] = _spmm_of(f"copy_u_{reducer}", True, "copy_lhs", reducer)
        made[f"copy_e_{reducer}"] = _spmm_of(f"copy_e_{reducer}", False, "copy_rhs", reducer)
        for op in _OPERATORS[:-1]:
            made[f"u_{op}_e_{reducer}"] = _spmm_of(f"u_{op}_e_{reducer}", True, op, reducer)
    for target in "uve":
        made[f"copy_{target}"] = _sddmm_of(f"copy_{target}", "copy_lhs", target)
        for other in "uve".replace(target, ""):
            for op in _OPERATORS:
                made[f"{target}_{op}_{other}"] = _sddmm_of(f"{target}_{op}_{other}", op, target + other)
    return made


globals().update(_make_all())


def __getattr__(name: str) -> Any:  # the names above, for type checkers; others there are none
    raise AttributeError(f"module 'vgraph.ops' has no attribute {name!r}")


__all__ = [
    "edge_softmax",
    "gather_mm",
    "gsddmm",
    "gspmm",
    "segment_mm",
    "segment_reduce",
    "segment_softmax",
    "typed_sum",
]
