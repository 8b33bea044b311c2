"""Local ops: one worker's share of an op, as ops on its own regions.

Takes: an Op, its regions on one worker, the local operands. Gives: local ops. Runs once per function.
Source: Tofu section 6 (the partitioned graph): sizes, offsets and paddings are those of the region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from vgraph.ir.moves import Random, RandomPart
from vgraph.ir.program import Value, op_name
from vgraph.ir.tdl.table import RESAMPLED
from vgraph.partition.rewrite.local_indexing import INDEXING
from vgraph.partition.rewrite.share import Share, local_shape

aten = torch.ops.aten


def emit_share(share: Share) -> tuple[Value, ...]:
    """Appends one worker's ops to its builder and gives its results."""
    if isinstance(share.op.target, Random):
        return _random(share, share.op.target)
    rule = _RULES.get(op_name(share.op.target)) or INDEXING.get(op_name(share.op.target))
    return rule(share) if rule is not None else share.plain()


def _random(share: Share, drawn: Random) -> tuple[Value, ...]:
    shape = share.op.results[0].row_shape
    part = RandomPart(drawn, shape, share.regions.outputs[0])
    return share.plain([list(share.shape()), *share.args[1:]], part)


# ---------------------------------------------------------------- sizes among the arguments
def _sized(position: int) -> Callable[[Share], tuple[Value, ...]]:
    """An argument is the shape of the result."""

    def rule(share: Share) -> tuple[Value, ...]:
        args = list(share.args)
        args[position] = list(share.shape())
        return share.plain(args)

    return rule


def _first_sized(share: Share) -> tuple[Value, ...]:
    """An argument is a shape of which the batch alone is the result's."""
    args = list(share.args)
    args[1] = [share.shape()[0], *args[1][1:]]
    return share.plain(args)


_LIKE = {
    "zeros_like": aten.zeros.default,
    "ones_like": aten.ones.default,
    "empty_like": aten.empty.memory_format,
    "full_like": aten.full.default,
    "fill": aten.full.default,
}


def _like(share: Share) -> tuple[Value, ...]:
    """Only the shape of the operand matters, so it is not read."""
    (result,) = share.results()
    device = share.op.kwargs.get("device") or torch.device("cpu")
    args = (list(share.shape()), *share.op.args[1:])
    return (share.builder.emit(_LIKE[op_name(share.op.target)], args, result, dtype=result.dtype, device=device),)


def _new(share: Share) -> tuple[Value, ...]:
    (result,) = share.results()
    target = getattr(aten, op_name(share.op.target).removeprefix("new_"))
    target = target.memory_format if target is aten.empty else target.default
    args = (list(share.shape()), *share.op.args[2:])
    return (share.builder.emit(target, args, result, dtype=result.dtype, device=torch.device("cpu")),)


def _repeat(share: Share) -> tuple[Value, ...]:
    (value,) = share.operands
    shape, lead = share.shape(), len(share.shape()) - len(value.shape)
    inner = (1,) * lead + value.row_shape
    return share.plain([value, [a // b for a, b in zip(shape, inner, strict=True)]])


# ---------------------------------------------------------------- parts, of which the region is what is read
def _slice(share: Share) -> tuple[Value, ...]:
    """The region that was fetched is the part itself; a step is left to be taken."""
    (value,) = share.operands
    dim = share.op.args[1] if len(share.op.args) > 1 else 0
    step = share.op.args[4] if len(share.op.args) > 4 else 1
    return share.plain([value, dim, 0, value.shape[dim], step])


def _select(share: Share) -> tuple[Value, ...]:
    return share.plain([share.operands[0], share.op.args[1], 0])


def _split_sizes(share: Share) -> tuple[Value, ...]:
    dim = share.op.args[2] if len(share.op.args) > 2 else 0
    sizes = [local_shape(region)[dim] for region in share.regions.outputs]
    return share.plain([share.operands[0], sizes, dim], aten.split_with_sizes.default)


def _padding(share: Share, dim: int, offset: int) -> tuple[int, int]:
    """Entries of the result before and after those that the operand gives, along one dim."""
    made, read = share.regions.outputs[0][dim], share.regions.inputs[0][dim].shifted(offset)
    where = made.positions(read)
    assert where.is_interval, "an operand that is scattered among the result"
    if not where.runs:
        return len(made), 0
    return where.runs[0][0], len(made) - where.runs[0][1]


def _pad(share: Share) -> tuple[Value, ...]:
    pairs, rank = share.op.args[1], len(share.shape())
    local: list[int] = []
    for number in range(len(pairs) // 2):
        dim = rank - 1 - number
        cut = share.regions.inputs[0][dim]
        has_cut = pairs[2 * number] < 0 or pairs[2 * number + 1] < 0
        whole = len(cut) == share.op.args[0].shape[dim]
        local += pairs[2 * number : 2 * number + 2] if has_cut and whole else _padding(share, dim, pairs[2 * number])
    return share.plain([share.operands[0], local, *share.op.args[2:]])


def _slice_backward(share: Share) -> tuple[Value, ...]:
    """The gradient at its place among zeros."""
    _, _, dim, start, _, step = share.op.args
    dim, size = dim % len(share.shape()), share.op.results[0].shape[dim]
    assert isinstance(size, int)
    start = min(max(start + size if start < 0 else start, 0), size)
    if step != 1:  # blocks of the result: the first entry that is read lies somewhere within this one
        made, read = share.regions.outputs[0][dim], share.regions.inputs[0][dim]
        first = start + step * read.bounds[0] - made.bounds[0] if read.runs else 0
        return share.plain([share.operands[0], list(share.shape()), dim, first, first + step * len(read), step])
    pairs = [0] * (2 * (len(share.shape()) - dim))
    pairs[-2:] = _padding(share, dim, start)
    (result,) = share.results()
    return (share.builder.emit(aten.constant_pad_nd.default, (share.operands[0], pairs, 0), result),)


# ---------------------------------------------------------------- reductions and contractions
def _mean(share: Share) -> tuple[Value, ...]:
    """A term of a mean is a sum over the number of all entries."""
    assert share.notation is not None
    gone = [name for name in share.notation.reduced if share.is_split(name)]
    if not gone:
        return share.plain()
    (value,) = share.operands
    dims, keep = _reduced_dims(share), len(share.shape()) == len(value.shape)
    (total,) = share.results()
    (result,) = share.results()
    count = math.prod(int(d) for i, d in enumerate(share.op.args[0].shape) if i in dims)
    share.builder.emit(aten.sum.dim_IntList, (value, dims, keep), total)
    return (share.builder.emit(aten.div.Scalar, (total, count), result),)


def _reduced_dims(share: Share) -> list[int]:
    assert share.notation is not None
    return [i for i, name in enumerate(share.notation.inputs[0]) if name in share.notation.reduced]


_WITHOUT_ADDEND = {"addmm": aten.mm.default, "baddbmm": aten.bmm.default, "addmv": aten.mv.default}


def _with_addend(share: Share) -> tuple[Value, ...]:
    """Only the first term holds the addend."""
    if share.is_first_term("k"):
        return share.plain()
    (result,) = share.results()
    alpha = share.op.kwargs.get("alpha", 1)
    target = _WITHOUT_ADDEND[op_name(share.op.target)]
    product = share.builder.emit(target, share.operands[1:], result)
    if alpha == 1:
        return (product,)
    (scaled,) = share.results()
    return (share.builder.emit(aten.mul.Scalar, (product, alpha), scaled),)


# ---------------------------------------------------------------- convolutions
def _convolution(share: Share) -> tuple[Value, ...]:
    """Blocks along space are padded only where the whole was; one term has the bias."""
    args = list(share.args)
    if args[2] is not None and not share.is_first_term("c"):
        args[2] = None
    if not args[6] and share.notation is not None:
        args[0], args[4] = _block_padding(share, args)
    args[8] = _groups(share, args[8])
    return share.plain(args)


def _groups(share: Share, whole: int) -> int:
    return len(share.regions.sets["g"]) if "g" in share.regions.sets else whole


def _block_padding(share: Share, args: Sequence[Any]) -> tuple[Value, list[int]]:
    """The operand with the zeros that the whole one has beside this block, and what is left to pad."""
    (_, _, _, stride, padding, dilation) = args[:6]
    x, kernel, rank = share.op.args[0], share.op.args[1], len(args[0].shape) - 2
    pairs, left = [0] * (2 * rank), list(padding)
    for s in range(rank):
        made, read = share.regions.outputs[0][2 + s], share.regions.inputs[0][2 + s]
        if len(made) == share.op.results[0].shape[2 + s]:
            continue
        low = made.bounds[0] * stride[s] - padding[s]
        high = (made.bounds[1] - 1) * stride[s] - padding[s] + dilation[s] * (kernel.shape[2 + s] - 1) + 1
        first, last = read.bounds
        at = 2 * (rank - 1 - s)
        pairs[at], pairs[at + 1], left[s] = max(first - low, 0), max(high - last, 0), 0
        assert x.shape[2 + s] >= last
    if not any(pairs):
        return args[0], left
    shape = [d + extra for d, extra in zip(args[0].shape, _extras(pairs, rank), strict=True)]
    padded = share.builder.value(shape, x.dtype, share.op.line)
    return share.builder.emit(aten.constant_pad_nd.default, (args[0], pairs, 0), padded), left


def _extras(pairs: Sequence[int], rank: int) -> list[int]:
    return [0, 0, *(pairs[2 * (rank - 1 - s)] + pairs[2 * (rank - 1 - s) + 1] for s in range(rank))]


def _convolution_backward(share: Share) -> tuple[Value, ...]:
    args = list(share.args)
    if args[3] is not None:
        args[3] = [len(share.regions.inputs[0][1])]
    args[9] = _groups(share, args[9])
    return share.plain(args)


_RULES: Mapping[str, Callable[[Share], tuple[Value, ...]]] = {
    **dict.fromkeys("view _unsafe_view reshape expand select_backward".split(), _sized(1)),
    **dict.fromkeys("diagonal_backward unfold_backward".split(), _sized(1)),
    "affine_grid_generator": _first_sized,
    **dict.fromkeys("new_zeros new_ones new_full new_empty".split(), _new),
    **dict.fromkeys([f"{name}_backward" for name in RESAMPLED.split()], _sized(2)),
    **dict.fromkeys("zeros ones full empty".split(), _sized(0)),
    **dict.fromkeys("split split_with_sizes unsafe_split unsafe_split_with_sizes chunk".split(), _split_sizes),
    **dict.fromkeys(_WITHOUT_ADDEND, _with_addend),
    **dict.fromkeys(_LIKE, _like),
    "repeat": _repeat,
    "slice": _slice,
    "select": _select,
    "constant_pad_nd": _pad,
    "slice_backward": _slice_backward,
    "mean": _mean,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
