"""Reductions over the slots of a vertex, as maps and Moves whose derivatives are maps and Moves.

Takes: edge rows. Gives: vertex rows. Runs while a function is traced, or run uncaptured.
Empty segments give sum, mean, max, min 0, prod 1, logsumexp -inf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from vgraph.errors import DTypeError
from vgraph.ir.moves import Gather, Move, SegmentReduce
from vgraph.ir.reductions import REDUCTIONS, ReduceInfo, reduce_info


class Context(Protocol):
    """Where Moves run: recorded on examples, or at once on one vertex."""

    def run_move(self, move: Move, rows: Tensor) -> Any:
        """The moved rows; two tensors for max and min."""
        ...

    def in_degree(self) -> Tensor:
        """(vertices,) int64."""
        ...

    def slots(self) -> Tensor:
        """The position of every edge among its vertex's in-edges, (edges,) int64."""
        ...


class _Saved(Protocol):
    """What a reduction keeps from its forward for its backward."""

    context: Context
    move: Move
    slot: Tensor
    row: ReduceInfo
    correction: float
    from_zeros: bool

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    def save_for_backward(self, *tensors: Tensor) -> None: ...
    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


class _LinearMove(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _Saved, rows: Tensor, context: Context, move: Move) -> Tensor:
        ctx.context, ctx.move = context, move
        return context.run_move(move, rows)

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor) -> object:
        return move_rows(ctx.context, ctx.move.transpose(), grads[0]), None, None


def move_rows(context: Context, move: Move, rows: Tensor) -> Tensor:
    """A differentiable linear Move; rows that only stand for some know how they are moved."""
    moved: Callable[[Context, Move], Tensor] | None = getattr(rows, "moved", None)
    return moved(context, move) if moved is not None else _LinearMove.apply(rows, context, move)


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    """One number a row, shaped to broadcast over the rows of ``like``."""
    for _ in range(like.dim() - 1):
        numbers = numbers.unsqueeze(-1)
    return numbers


def _sum(context: Context, x: Tensor) -> Tensor:
    return _fold(reduce_info("sum"), context, x)


def _spread(context: Context, x: Tensor) -> Tensor:
    return move_rows(context, Gather("dst"), x)


def _mean(context: Context, x: Tensor) -> Tensor:
    count = context.in_degree().clamp(min=1)
    if x.is_floating_point() or x.is_complex():  # a number of slots may be more than int8 or bool holds
        count = count.to(x.dtype)
    return _sum(context, x) / _column(count, x)


class _Extremum(torch.autograd.Function):
    """What picks an edge (max, min): the gradient goes to that edge, the first of equal ones."""

    @staticmethod
    def forward(ctx: _Saved, x: Tensor, context: Context, kind: str) -> tuple[Tensor, Tensor]:
        best, slot = context.run_move(SegmentReduce("dst", kind), x)
        ctx.context, ctx.slot = context, slot
        ctx.mark_non_differentiable(slot)
        return best, slot

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor) -> object:
        spread, slot = _spread(ctx.context, grads[0]), _spread(ctx.context, ctx.slot)
        mine = _column(ctx.context.slots(), spread) == slot
        return torch.where(mine, spread, torch.zeros_like(spread)), None, None


def _pick(row: ReduceInfo, context: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    return _Extremum.apply(x, context, row.name)


def _place(kind: str, context: Context, x: Tensor) -> Tensor:
    """The slot of the extremum, the first of equal ones."""
    return context.run_move(SegmentReduce("dst", kind), x.detach())[1]


class _SharedExtremum(torch.autograd.Function):
    """amax or amin; the gradient is split evenly among equal edges, and the zeros of a result that begins with them."""

    @staticmethod
    def forward(ctx: _Saved, x: Tensor, context: Context, kind: str, from_zeros: bool) -> Tensor:
        best, _ = context.run_move(SegmentReduce("dst", kind), x)
        ctx.context, ctx.from_zeros = context, from_zeros
        ctx.save_for_backward(x, best)
        return best

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor) -> object:
        x, best = ctx.saved_tensors
        mine = (x == _spread(ctx.context, best)).to(x.dtype)
        count = _sum(ctx.context, mine)  # 0 beside a NaN, which torch gives on to all
        if ctx.from_zeros:
            count = count + (best == 0).to(count.dtype)
        is_empty = _column(ctx.context.in_degree() == 0, count)
        share = grads[0] / torch.where(is_empty, torch.ones_like(count), count)
        return mine * _spread(ctx.context, share), None, None, None


def _shared_extremum(kind: str, context: Context, x: Tensor) -> Tensor:
    return _SharedExtremum.apply(x, context, kind, False)


def scattered_extremum(kind: str, context: Context, x: Tensor) -> Tensor:
    """As ``torch.scatter_reduce`` onto zeros, which share the gradient of a zero also without ``include_self``."""
    return _SharedExtremum.apply(x, context, kind, True)


class _OverSlots:
    """The edges of vertices, for the derivatives of the table."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def spread(self, rows: Tensor) -> Tensor:
        return _spread(self.context, rows)

    def reduce(self, name: str, elements: Tensor) -> Tensor:
        return _fold(reduce_info(name), self.context, elements)


class _Fold(torch.autograd.Function):
    """A reduction of the table that folds; the gradient is as its row says."""

    @staticmethod
    def forward(ctx: _Saved, x: Tensor, context: Context, row: ReduceInfo) -> Tensor:
        out = context.run_move(SegmentReduce("dst", row.name), x)
        ctx.context, ctx.row = context, row
        ctx.save_for_backward(x, *((out,) if row.derivative.reads_result else ()))
        return out

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor) -> object:
        x, *given = ctx.saved_tensors
        rule, over = ctx.row.derivative, _OverSlots(ctx.context)
        if rule.over_slots is not None:
            return rule.over_slots(over, x, grads[0]), None, None
        given = [over.spread(rows) for rows in given]
        sums = [over.spread(over.reduce(other.name, other.of(x, *given))) for other in rule.sums]
        return rule.at(x, *given, over.spread(grads[0]), *sums), None, None


def _fold(row: ReduceInfo, context: Context, x: Tensor) -> Tensor:
    """Whole numbers and truth values add up to int64, as torch's do."""
    if row.widens and not (x.is_floating_point() or x.is_complex()):
        x = x.to(torch.int64)
    if row.is_linear:
        return move_rows(context, SegmentReduce("dst", row.name), x)
    return _Fold.apply(x, context, row)


def _peak(context: Context, x: Tensor) -> Tensor:
    """Each slot's segment maximum, without gradient."""
    best, _ = context.run_move(SegmentReduce("dst", "max"), x.detach())
    return context.run_move(Gather("dst"), best)


class _Softmax(torch.autograd.Function):
    """Weights by the maximum and the logarithm of the sum: a derivative computes them again from these.

    They stay apart: near a maximum of -1e9 (a mask) there is no room for a logarithm beside it.
    """

    @staticmethod
    def forward(ctx: _Saved, x: Tensor, context: Context) -> Tensor:
        best, _ = context.run_move(SegmentReduce("dst", "max"), x)
        scaled = torch.exp(x - context.run_move(Gather("dst"), best))
        total = context.run_move(SegmentReduce("dst", "sum"), scaled).clamp(min=1)  # 0 where there are no slots
        below = x - context.run_move(Gather("dst"), best)
        weights = torch.exp(below - context.run_move(Gather("dst"), torch.log(total)))
        ctx.context = context
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor) -> object:
        (weights,) = ctx.saved_tensors
        parts = weights * grads[0]
        return parts - weights * _spread(ctx.context, _sum(ctx.context, parts)), None


def _softmax(context: Context, x: Tensor) -> Tensor:
    """Numbers of 16 bits are weighed in 32, as torch does."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    weights: Tensor = _Softmax.apply(wide, context)
    return weights.to(x.dtype)


def _log_softmax(context: Context, x: Tensor) -> Tensor:
    shifted = x - _peak(context, x)
    return shifted - _spread(context, torch.log(_sum(context, torch.exp(shifted))))


def _logsumexp(context: Context, x: Tensor) -> Tensor:
    best, _ = context.run_move(SegmentReduce("dst", "max"), x.detach())
    best = torch.where(torch.isinf(best), torch.zeros_like(best), best)
    scaled = torch.exp(x - context.run_move(Gather("dst"), best))
    total = _sum(context, scaled)
    is_empty = _column(context.in_degree() == 0, total)  # no derivative of any order; nothing but -inf has torch's
    found = torch.log(torch.where(is_empty, torch.ones_like(total), total)) + best
    return torch.where(is_empty, torch.full_like(found, -torch.inf), found)


class _VarMean(torch.autograd.Function):
    """The gradient as torch writes it: through the mean the variance gets nothing, as deviations add up to 0."""

    @staticmethod
    def forward(ctx: _Saved, x: Tensor, context: Context, correction: float) -> tuple[Tensor, Tensor]:
        mean = _mean(context, x)
        away = x - _spread(context, mean)
        ctx.context, ctx.correction = context, correction
        ctx.save_for_backward(x, mean)
        ctx.set_materialize_grads(False)
        return _sum(context, away * away) / _freedom(context, x, correction).clamp(min=0), mean

    @staticmethod
    def backward(ctx: _Saved, *grads: Tensor | None) -> object:
        x, mean = ctx.saved_tensors
        context, (of_var, of_mean) = ctx.context, grads
        parts: list[Tensor] = []
        if of_var is not None:
            share = of_var * (2 / _freedom(context, x, ctx.correction))
            parts.append(_spread(context, share) * (x - _spread(context, mean)))
        if of_mean is not None:
            parts.append(_spread(context, of_mean / _freedom(context, x, 0)))
        return sum(parts[1:], parts[0]) if parts else None, None, None


def _freedom(context: Context, x: Tensor, correction: float) -> Tensor:
    """The number of slots less the correction, and 1 where there are no slots."""
    degree = context.in_degree()
    count = degree.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    if correction == 0:
        count = count.clamp(min=1)
    elif correction == 1:
        count = (count - 1).abs()
    else:
        count = torch.where(degree == 0, 1, count - correction)
    return _column(count.to(x.dtype) if x.is_floating_point() else count, x)


def _var(context: Context, x: Tensor, correction: float = 1) -> Tensor:
    return _VarMean.apply(x, context, correction)[0]


def _std(context: Context, x: Tensor, correction: float = 1) -> Tensor:
    variance = _var(context, x, correction)
    is_zero = variance == 0  # there the root has no derivative; like torch we say 0
    root = torch.sqrt(torch.where(is_zero, torch.ones_like(variance), variance))
    return torch.where(is_zero, torch.zeros_like(root), root)


def of_row(row: ReduceInfo) -> Callable[..., Any]:
    """A row of the table as a reduction over slots: of a Context and the rows of edges."""
    return partial(_pick if row.picks else _fold, row)


def _beyond_float16(reduce: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Of float16 what is made on the way has 32 bits, as in torch: sums and counts may be larger than its 65,504.

    bfloat16 has the range of float32, and stays narrow.
    """

    def of_any(context: Context, x: Tensor, **options: float) -> Tensor:
        if x.dtype != torch.float16:
            return reduce(context, x, **options)
        return reduce(context, x.float(), **options).to(x.dtype)

    return of_any


REDUCERS: dict[str, Callable[..., Any]] = {
    **{name: of_row(row) for name, row in REDUCTIONS.items()},
    "mean": _beyond_float16(_mean),
    "argmax": partial(_place, "max"),
    "argmin": partial(_place, "min"),
    "amax": partial(_shared_extremum, "max"),
    "amin": partial(_shared_extremum, "min"),
    "softmax": _softmax,
    "log_softmax": _beyond_float16(_log_softmax),
    "logsumexp": _beyond_float16(_logsumexp),
    "var": _beyond_float16(_var),
    "std": _beyond_float16(_std),
}
_WIDE_UNDER_AUTOCAST = {"cpu": ("prod",), "cuda": ("prod", "sum", "softmax", "log_softmax")}  # of 16 bits, in torch
STEPWISE = frozenset({"mean", "amax", "amin", "logsumexp"}) | {n for n, row in REDUCTIONS.items() if row.many_dims}
KEEPS_SLOTS = frozenset({"softmax", "log_softmax"})
PLACES = frozenset({"argmax", "argmin"})  # of a mailbox's slots alone


def reduce_slots(name: str, context: Context, rows: Tensor, **options: float) -> Any:
    """What the reduction of that name gives; under autocast in the dtype of torch's own operator."""
    kind = rows.device.type
    is_short = rows.dtype in (torch.bfloat16, torch.float16)
    if is_short and torch.is_autocast_enabled(kind) and name in _WIDE_UNDER_AUTOCAST.get(kind, ()):
        rows = rows.float()
    return REDUCERS[name](context, rows, **options)


def takes_complex(name: str, *, in_mailbox: bool) -> bool:
    """Whether complex numbers reduce; of a mailbox torch's own operators may do it. DTypeError: nothing does."""
    if name == "mean" or (name in REDUCTIONS and REDUCTIONS[name].takes_complex):
        return True
    if not in_mailbox or name not in ("var", "std", "logsumexp"):
        fact = f"{name} over slots of complex numbers, which have no order"
        raise DTypeError(fact, cure="reduce .abs(), .real or .imag")
    return False


def reducer_names() -> dict[Callable[..., object], str]:
    """Torch functions and methods to the name of what they reduce with."""
    owners = (torch, Tensor, torch.nn.functional)
    return {getattr(owner, name): name for name in REDUCERS for owner in owners if hasattr(owner, name)}
