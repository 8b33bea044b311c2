"""Operators that a recorded step takes in another way: results by ``out=``, writes through a mask, constants.

Takes: an overload and its arguments. Gives: the call that computes the same, or its result. Runs once per model.
Source: none (torch's own conventions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.op_tables import Kwargs, Overload, pure_overloads, schema_of
from vgraph.capture.record.tracer import Record
from vgraph.ir.program import Noun, map_leaves, op_name

T = TypeVar("T")
_PUTS = ("index_put", "index_put_", "_index_put_impl_")


def without_out(func: Overload) -> Callable[..., object] | None:
    """The overload of the same operator that returns what this one writes to ``out=``; None if it writes nowhere."""
    arguments = schema_of(func).arguments
    outs = [a.name for a in arguments if a.is_out]
    taken = [a for a in arguments if not a.is_out]
    for other in pure_overloads(op_name(func), taken) if outs else ():
        if [a.name for a in schema_of(other).arguments] == [a.name for a in taken]:
            return partial(_run_into, other, outs)
    return None


def _run_into(func: Overload, outs: Sequence[str], *args: Any, **kwargs: Any) -> object:
    """Calls a functional overload and copies its results to where the caller wants them."""
    found = func(*args, **{key: value for key, value in kwargs.items() if key not in outs})
    wanted = [kwargs[name] for name in outs]
    for out, result in zip(wanted, found if isinstance(found, (tuple, list)) else (found,), strict=True):
        if out.shape != result.shape:
            out.resize_(result.shape)
        out.copy_(result)
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


def masked_write(func: Overload, args: tuple[Any, ...], kwargs: Kwargs) -> Callable[..., Tensor] | None:
    """``x[mask] = number`` as a choice between the two, element by element; None where it is something else."""
    if op_name(func) not in _PUTS or len(args) < 3:
        return None
    indices, number = args[1], args[2]
    (mask, *rest) = indices or [None]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    is_mask = isinstance(mask, Tensor) and mask.dtype == torch.bool and not any(i is not None for i in rest)
    return _put_where if is_mask and number.numel() == 1 and not accumulates else None


def _put_where(x: Tensor, indices: Sequence[Tensor], number: Tensor, *_: object) -> Tensor:
    mask = indices[0]
    return torch.where(mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim())), number.reshape(()), x)


class Constants:
    """Values that follow from no input: what the records before them say is done again, on real tensors."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.made = {ref.index: record for record in records for ref in record.results}
        self.known: dict[int, Tensor] = {}

    def evaluate(self, tree: T) -> T | None:
        """The nest with a tensor for each Ref; None where one depends on an input."""
        try:
            return map_leaves(tree, self._leaf)
        except KeyError:
            return None

    def _leaf(self, leaf: object) -> object:
        if not isinstance(leaf, Ref):
            return leaf
        if leaf.index not in self.known:
            self._run(self.made[leaf.index])
        return self.known[leaf.index]

    def _run(self, record: Record) -> None:
        args, named = map_leaves((record.args, tuple(record.kwargs.values())), self._leaf)
        if isinstance(record.target, Noun):
            raise KeyError("no torch operator")  # random numbers are drawn anew in every step
        found = record.target(*args, **dict(zip(record.kwargs, named, strict=True)))
        results = found if record.returns_sequence else [found]
        self.known.update((ref.index, tensor) for ref, tensor in zip(record.results, results, strict=True))
