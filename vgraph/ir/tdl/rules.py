"""Rules of the TDL table: pointwise operators, reductions, indexing and layers.

Takes: an Op with its shapes. Gives: its Notation, or None where it has none. Runs once per function.
Source: Tofu section 4 (tensor description language).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch

from vgraph.ir.program import Dim, Op, Value
from vgraph.ir.tdl.notation import Indices, Notation, Rule


# ---------------------------------------------------------------- families
def fresh(rank: int, prefix: str = "d") -> Indices:
    """``rank`` indices: d0, d1 ..."""
    return tuple(f"{prefix}{i}" for i in range(rank))


def aligned(shape: Sequence[Dim], out: Indices) -> Indices:
    """Broadcasting: dims align from the right; a size of 1 has no index."""
    tail = out[len(out) - len(shape) :]
    return tuple("1" if size == 1 else name for size, name in zip(shape, tail, strict=True))


def pointwise(op: Op) -> Notation:
    """Every element depends on the same element of each operand, sizes of 1 broadcast."""
    out = fresh(max(len(result.shape) for result in op.results))
    inputs = tuple(aligned(value.shape, out) for value in op.operands())
    return Notation(inputs, tuple(out[len(out) - len(r.shape) :] for r in op.results))


def loss(op: Op) -> Notation | None:
    """mse_loss and its kind: pointwise without a reduction, a sum over everything, or a mean."""
    position = 3 if op.name.endswith("_backward") else 2
    reduction = op.args[position] if len(op.args) > position else op.kwargs.get("reduction", 1)
    if reduction == 0 or (position == 3 and reduction == 2):
        return pointwise(op)
    if position == 3:  # divided by the number of all elements
        return None
    names = fresh(max(len(v.shape) for v in op.operands()))
    inputs = tuple(aligned(v.shape, names) for v in op.operands())
    return Notation(inputs, ((),), dict.fromkeys(names, "sum" if reduction == 2 else "mean"))


def factory(op: Op) -> Notation:
    """Results that do not depend on what the operands hold."""
    inputs = tuple(("1",) * len(value.shape) for value in op.operands())
    return Notation(inputs, tuple(fresh(len(r.shape)) for r in op.results))


def dims_of(op: Op, position: int, rank: int, default: int | None = None) -> tuple[int, ...]:
    """The dims that an argument names; all of them where it names none."""
    given = op.args[position] if len(op.args) > position else op.kwargs.get("dim", default)
    if given is None or given == [] or isinstance(given, bool):
        return tuple(range(rank))
    dims: Sequence[int] = [given] if isinstance(given, int) else given
    return tuple(dim % max(rank, 1) for dim in dims)


def reduction(kind: str, dim_position: int = 1) -> Rule:
    """A reduction of ``kind`` over the dims that an argument names."""

    def rule(op: Op) -> Notation | None:
        if len(list(op.operands())) != 1:  # max(a, b)
            return None
        rank, kept = len(op.args[0].shape), len(op.results[0].shape)
        names, dims = fresh(rank), dims_of(op, dim_position, rank)
        if kept == rank:
            out = tuple("1" if i in dims else n for i, n in enumerate(names))
        else:
            out = tuple(n for i, n in enumerate(names) if i not in dims)
        joined = kind if len(op.results) == 1 else "whole"  # positions of maxima cannot be joined
        gone = {names[i]: joined for i in dims}
        return Notation((names,), (out,) * len(op.results), gone)

    return rule


def along(*dim_positions: int, default: int | None = None) -> Rule:
    """Same rank in and out; every dim named by an argument is needed whole."""

    def rule(op: Op) -> Notation | None:
        rank = len(op.results[0].shape)
        names = fresh(rank)
        dims = {d for p in dim_positions for d in dims_of(op, p, rank, default)}
        parts = tuple(f"{n}?" if i in dims else n for i, n in enumerate(names))
        inputs = tuple(_partly(v, names, parts, op.results[0]) for v in op.operands())
        outputs = tuple(_partly(r, names, parts, op.results[0]) for r in op.results)
        return Notation(inputs, outputs, whole=frozenset(names[d] for d in dims))

    return rule


def _partly(value: Value, names: Indices, parts: Indices, like: Value) -> Indices:
    """The indices of a value; along a dim whose size is not that of the result only a part."""
    return tuple(
        "1" if size == 1 and other != 1 else name if size == other else part
        for size, other, name, part in zip(value.shape, like.shape, names, parts, strict=True)
    )


def table(text: str, kind: str = "sum") -> Rule:
    """A fixed notation; an operand of lower rank broadcasts (the bias of addmm)."""
    left, right = text.split("->")
    wanted = [tuple(part.split()) for part in left.split(",")]
    out = tuple(right.split())
    gone = {name: kind for dims in wanted for name in dims if name not in out}

    def rule(op: Op) -> Notation | None:
        operands = list(op.operands())
        if len(operands) != len(wanted):
            return None
        inputs = tuple(aligned(value.shape, dims) for value, dims in zip(operands, wanted, strict=True))
        return Notation(inputs, (out,), gone)

    return rule


# ---------------------------------------------------------------- indexing
def embedding(op: Op) -> Notation:
    """Rows of a table, by ids."""
    ids: Value = op.args[1]
    rows = fresh(len(ids.shape))
    return Notation((("v", "f"), rows), ((*rows, "f"),), whole=frozenset({"v"}), located={"v": "sum"})


def embedding_backward(op: Op) -> Notation | None:
    """Sums of gradients at the ids of a table's rows."""
    ids: Value = op.args[1]
    if len(op.args) > 4 and op.args[4]:  # divides by how often an id occurs among all
        return None
    rows = fresh(len(ids.shape))
    whole, located = frozenset({"v"}), {"v": ""}
    return Notation(((*rows, "f"), rows), (("v", "f"),), dict.fromkeys(rows, "sum"), whole, located)


def index_select(op: Op) -> Notation:
    """Entries of one dim, by ids."""
    names = list(fresh(len(op.args[0].shape)))
    dim = op.args[1] % len(names)
    out = [*names[:dim], "n", *names[dim + 1 :]]
    return Notation((tuple(names), ("n",)), (tuple(out),), whole=frozenset({names[dim]}))


def index_add(op: Op) -> Notation:
    """Adds entries to one dim, by ids."""
    names = list(fresh(len(op.args[0].shape)))
    dim = op.args[1] % len(names)
    source = (*names[:dim], "n", *names[dim + 1 :])
    whole = frozenset({names[dim]})
    return Notation((tuple(names), ("n",), source), (tuple(names),), {"n": "addend"}, whole)


def _indexed(op: Op) -> tuple[Indices, tuple[Indices, ...], Indices, frozenset[str]] | None:
    """Of x[:, i, j]: indices of x, of each tensor of ids and of the result, and the dims that are indexed."""
    at = [(dim, ids) for dim, ids in enumerate(op.args[1]) if ids is not None]
    if not at or any(ids.dtype == torch.bool for _, ids in at):
        return None
    names, places = fresh(len(op.args[0].shape)), [dim for dim, _ in at]
    found = fresh(max(len(ids.shape) for _, ids in at), "n")
    first = places[0] if places == list(range(places[0], places[-1] + 1)) else 0  # apart, what is found comes first
    rest = [name for dim, name in enumerate(names) if dim not in places]
    out = (*rest[:first], *found, *rest[first:])
    return names, tuple(aligned(ids.shape, found) for _, ids in at), out, frozenset(names[dim] for dim in places)


def index(op: Op) -> Notation | None:
    """x[:, ids]: some dims are indexed."""
    known = _indexed(op)
    if known is None:
        return None
    names, ids, out, dims = known
    return Notation((names, *ids), (out,), whole=dims)


def index_put(op: Op) -> Notation | None:
    """Writes at ids of some dims; unless they are added up, which write is last matters."""
    known, added = _indexed(op), cast(Value, op.args[2])
    accumulates = len(op.args) > 3 and bool(op.args[3])
    if known is None:
        return None
    names, ids, out, dims = known
    kind = "addend" if accumulates else "last"
    written = sorted({name for one in ids for name in one if name != "1"})
    return Notation((names, *ids, aligned(added.shape, out)), (names,), dict.fromkeys(written, kind), dims)


def gather(op: Op) -> Notation:
    """gather, scatter: positions agree in every dim but one, of which a worker's block gives a term of what is read.

    Truth values are no terms of a sum.
    """
    rank = len(op.args[0].shape)
    names = fresh(rank)
    dim = op.args[1] % max(rank, 1)
    other = tuple(f"{n}?" if i == dim else n for i, n in enumerate(names))
    is_gather = op.name == "gather"
    inputs = (names, *(other for _ in list(op.operands())[1:]))
    located = {names[dim]: "sum" if is_gather else ""}
    if is_gather and op.results[0].dtype == torch.bool:
        located = {}
    return Notation(inputs, (other if is_gather else names,), whole=frozenset({names[dim]}), located=located)


def scatter_reduce(op: Op) -> Notation:
    """As scatter, but that positions are counted over the whole."""
    return replace(gather(op), located={})


def index_reduce(op: Op) -> Notation:
    """Combines entries of one dim, by ids, with those that are there."""
    rank = len(op.args[0].shape)
    names = fresh(rank)
    dim = op.args[1] % max(rank, 1)
    source = tuple("n?" if i == dim else name for i, name in enumerate(names))
    return Notation((names, ("n?",), source), (names,), whole=frozenset({names[dim]}))


def bucketize(op: Op) -> Notation | None:
    """The place of each entry among bounds, which are needed whole."""
    if len(list(op.operands())) != 2:
        return None
    names = fresh(len(op.args[0].shape))
    return Notation((names, ("v?",)), (names,))
