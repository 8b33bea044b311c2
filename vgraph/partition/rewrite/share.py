"""Share: one worker's part of one op, and the builder that its local ops are added to.

Takes: an Op, its regions on one worker, the local operands. Gives: Share, Builder. Runs once per function.
Source: Tofu section 6 (the partitioned graph).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from vgraph.ir.program import Op, Target, Value, map_leaves
from vgraph.ir.sharding import Region, Strategy
from vgraph.ir.space import SHARED
from vgraph.ir.tdl.notation import Notation
from vgraph.partition.rewrite.regions import OpRegions


@dataclass(eq=False)
class Builder:
    """Collects the ops of one worker; ``new_id`` counts values."""

    new_id: Iterator[int]
    ops: list[Op] = field(default_factory=list[Op])

    def value(self, shape: Sequence[int], dtype: torch.dtype, line: str = "") -> Value:
        return Value(next(self.new_id), SHARED, dtype, tuple(shape), line)

    def emit(self, target: Target, args: Sequence[Any], result: Value, **kwargs: Any) -> Value:
        self.ops.append(Op(target, tuple(args), kwargs, (result,), result.line))
        return result


@dataclass(frozen=True, eq=False)
class Share:
    """One worker's share of an op: regions, local operands, and which term of each Partial it makes."""

    op: Op
    notation: Notation | None
    regions: OpRegions
    operands: tuple[Value, ...]
    strategies: tuple[Strategy, ...]
    digits: tuple[int, ...]
    builder: Builder

    @property
    def args(self) -> tuple[Any, ...]:
        """The op's arguments with the local operands in their places."""
        local = iter(self.operands)
        args, _ = _replaced(self.op, local)
        return args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        _, kwargs = _replaced(self.op, iter(self.operands))
        return kwargs

    def shape(self, result: int = 0) -> tuple[int, ...]:
        return local_shape(self.regions.outputs[result])

    def results(self) -> tuple[Value, ...]:
        return tuple(
            self.builder.value(local_shape(region), value.dtype, value.line)
            for value, region in zip(self.op.results, self.regions.outputs, strict=True)
        )

    def is_first_term(self, index: str) -> bool:
        """Whether this worker makes the first term of the reduction over an index."""
        return not any(d for s, d in zip(self.strategies, self.digits, strict=True) if s.index == index)

    def is_split(self, index: str) -> bool:
        return any(strategy.index == index for strategy in self.strategies)

    def plain(self, args: Sequence[Any] | None = None, target: Target | None = None) -> tuple[Value, ...]:
        """The op itself, on local operands, perhaps with other arguments."""
        results = self.results()
        op = self.op
        given = self.args if args is None else tuple(args)
        self.builder.ops.append(
            Op(target or op.target, given, self.kwargs, results, op.line, op.returns_sequence, op.is_rowwise)
        )
        return results


def _replaced(op: Op, local: Iterator[Value]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def swap(leaf: Any) -> Any:
        return next(local) if isinstance(leaf, Value) else leaf

    args = map_leaves(op.args, swap)
    return args, {key: map_leaves(value, swap) for key, value in op.kwargs.items()}


def local_shape(region: Region) -> tuple[int, ...]:
    return tuple(len(entries) for entries in region)
