"""Local indexing: a worker's block of a table that ids point into, ids counted from its first entry.

Takes: a Share of embedding, gather, scatter or their gradients. Gives: local ops. Runs once per function.
Source: Tofu section 4.2 does not split what data points into; a masked look-up gives a term of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from vgraph.ir.program import Target, Value
from vgraph.partition.rewrite.regions import index_sizes
from vgraph.partition.rewrite.share import Share

aten = torch.ops.aten


class _Block:
    """The ids that lie in the worker's block of the table.

    Those that are none of the whole table stay what they are, which no block has: the operator refuses them.
    """

    def __init__(self, share: Share, index: str, ids: Value) -> None:
        assert share.notation is not None
        self.share, self.ids = share, ids
        self.low, self.high = share.regions.sets[index].bounds
        self.size, self.whole = self.high - self.low, index_sizes(share.op, share.notation)[index]
        assert share.regions.sets[index].is_interval

    def _emit(self, target: Target, *args: object, dtype: torch.dtype | None = None) -> Value:
        shape = list(self.ids.row_shape)
        result = self.share.builder.value(shape, dtype or self.ids.dtype, self.share.op.line)
        return self.share.builder.emit(target, args, result)

    def _within(self, low: int, high: int) -> Value:
        at_least = self._emit(aten.ge.Scalar, self.ids, low, dtype=torch.bool)
        below = self._emit(aten.lt.Scalar, self.ids, high, dtype=torch.bool)
        return self._emit(aten.logical_and.default, at_least, below, dtype=torch.bool)

    def mask(self) -> Value:
        return self._within(self.low, self.high)

    def _local(self) -> Value:
        return self._emit(aten.sub.Tensor, self.ids, self.low)

    def _of_table(self, local: Value) -> Value:
        return self._emit(aten.where.self, self._within(0, self.whole), local, self.ids)

    def clamped(self) -> Value:
        """Ids within the block; those of other blocks point somewhere and are masked."""
        return self._of_table(self._emit(aten.clamp.default, self._local(), 0, self.size - 1))

    def with_spare(self) -> Value:
        """Ids within the block; those of other blocks point to a spare entry behind it."""
        return self._of_table(self._emit(aten.where.ScalarOther, self.mask(), self._local(), self.size))


def _embedding(share: Share) -> tuple[Value, ...]:
    if not share.is_split("v"):
        return share.plain()
    weight, ids = share.operands
    block = _Block(share, "v", ids)
    (rows,), (result,) = share.results(), share.results()
    mask, builder = block.mask(), share.builder
    builder.emit(aten.embedding.default, (weight, block.clamped()), rows)
    wide = builder.value([*ids.row_shape, 1], torch.bool)
    builder.emit(aten.unsqueeze.default, (mask, -1), wide)
    return (builder.emit(aten.where.ScalarOther, (wide, rows, 0), result),)


def _embedding_backward(share: Share) -> tuple[Value, ...]:
    if not share.is_split("v"):
        return share.plain()
    gradient, ids = share.operands
    block = _Block(share, "v", ids)
    padding = share.op.args[3] - block.low
    (result,) = share.results()
    padding = padding if 0 <= padding < block.size and share.op.args[3] >= 0 else -1
    shape = share.shape()
    spare = share.builder.value((block.size + 1, shape[1]), result.dtype, share.op.line)
    args = (gradient, block.with_spare(), block.size + 1, padding, False)
    share.builder.emit(aten.embedding_dense_backward.default, args, spare)
    return (share.builder.emit(aten.slice.Tensor, (spare, 0, 0, block.size), result),)


def _indexed_dim(share: Share) -> tuple[int, str]:
    dim = share.op.args[1] % max(len(share.op.args[0].shape), 1)
    return dim, share.notation.inputs[0][dim] if share.notation is not None else "?"


def _adding(share: Share) -> tuple[Value, ...]:
    """Of terms that add to a table at ids only the first holds the table itself."""
    added = share.notation.reduced if share.notation is not None else {}
    if all(share.is_first_term(index) for index in added):
        return share.plain()
    table = share.operands[0]
    shape = list(table.row_shape)
    zeros = share.builder.emit(aten.zeros_like.default, (table,), share.builder.value(shape, table.dtype))
    return share.plain([zeros, *share.args[1:]])


def _gather(share: Share) -> tuple[Value, ...]:
    dim, index = _indexed_dim(share)
    if not share.is_split(index):
        return share.plain()
    table, ids = share.operands
    block = _Block(share, index, ids)
    (found,), (result,) = share.results(), share.results()
    mask = block.mask()
    share.builder.emit(aten.gather.default, (table, dim, block.clamped()), found)
    return (share.builder.emit(aten.where.ScalarOther, (mask, found, 0), result),)


def _scatter(share: Share) -> tuple[Value, ...]:
    dim, index = _indexed_dim(share)
    if not share.is_split(index):
        return share.plain()
    table, ids = share.operands[:2]
    block = _Block(share, index, ids)
    shape = list(share.shape())
    shape[dim] += 1
    pairs = [0] * (2 * (len(shape) - dim))
    pairs[-1] = 1
    padded, written = (share.builder.value(shape, table.dtype, share.op.line) for _ in range(2))
    (result,) = share.results()
    share.builder.emit(aten.constant_pad_nd.default, (table, pairs, 0), padded)
    given = (padded, dim, block.with_spare(), *share.args[3:])
    share.builder.emit(share.op.target, given, written, **share.kwargs)
    return (share.builder.emit(aten.slice.Tensor, (written, dim, 0, block.size), result),)


INDEXING: Mapping[str, Callable[[Share], tuple[Value, ...]]] = {
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    **dict.fromkeys(("index_put", "_index_put_impl", "index_add"), _adding),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
}
