"""Operators that a recorded step takes in another way: results by ``out=``, writes through a mask, constants.

Takes: an overload and its arguments. Gives: the call that computes the same, or its result. Runs once per model.
Source: none (torch's own conventions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.capture.record.aliases import Ref
from vgraph.capture.record.tracer import Record
from vgraph.ir.program import map_leaves, op_name

aten = torch.ops.aten
_PUTS = ("index_put", "index_put_", "_index_put_impl_")


def without_out(func: Any) -> Callable[..., Any] | None:
    """The overload of the same operator that returns what this one writes to ``out=``; None if it writes nowhere."""
    outs = [a for a in func._schema.arguments if a.is_out]
    if not outs:
        return None
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]
    packet = getattr(aten, op_name(func))
    for name in packet.overloads():
        other = getattr(packet, name)
        if [(a.name, str(a.type)) for a in other._schema.arguments] == wanted and not other._schema.is_mutable:
            return _Returning(other, [a.name for a in outs])
    return None


class _Returning:
    """Calls a functional overload and copies its results to where the caller wants them."""

    def __init__(self, func: Any, outs: list[str]) -> None:
        self.func, self.outs = func, outs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self.func(*args, **{key: value for key, value in kwargs.items() if key not in self.outs})
        results = found if isinstance(found, (tuple, list)) else (found,)
        for name, result in zip(self.outs, results, strict=True):
            if kwargs[name].shape != result.shape:
                kwargs[name].resize_(result.shape)
            kwargs[name].copy_(result)
        return kwargs[self.outs[0]] if len(self.outs) == 1 else tuple(kwargs[name] for name in self.outs)


def masked_write(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """``x[mask] = number`` as a choice between the two, element by element; None where it is something else."""
    if op_name(func) not in _PUTS or len(args) < 3:
        return None
    indices, number = args[1], args[2]
    (mask, *rest) = indices or [None]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    is_mask = isinstance(mask, Tensor) and mask.dtype == torch.bool and not any(i is not None for i in rest)
    return _put_where if is_mask and number.numel() == 1 and not accumulates else None


def _put_where(x: Tensor, indices: Any, number: Tensor, *_: Any, **__: Any) -> Tensor:
    mask = indices[0]
    return torch.where(mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim())), number.reshape(()), x)


class Constants:
    """Values that follow from no input: what the records before them say is done again, on real tensors."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.made = {ref.index: record for record in records for ref in record.results}
        self.known: dict[int, Any] = {}

    def evaluate(self, tree: Any) -> Any:
        """The nest with a tensor for each Ref; None where one depends on an input."""
        try:
            return map_leaves(tree, self._leaf)
        except KeyError:
            return None

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref) and leaf.index not in self.known:
            self._run(self.made[leaf.index])
        return self.known[leaf.index] if isinstance(leaf, Ref) else leaf

    def _run(self, record: Record) -> None:
        args = map_leaves(record.args, self._leaf)
        kwargs = {key: map_leaves(value, self._leaf) for key, value in record.kwargs.items()}
        if not hasattr(record.target, "_schema"):
            raise KeyError("no torch operator")  # random numbers are drawn anew in every step
        found = record.target(*args, **kwargs)
        results = found if record.returns_sequence else [found]
        self.known.update((ref.index, tensor) for ref, tensor in zip(record.results, results, strict=True))
