"""Share: one worker's part of one op, and the builder that its local ops are added to.

Takes: an Op, its regions on one worker, the local operands. Gives: Share, Builder. Runs once per function.
Source: Tofu section 6 (the partitioned graph).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from vgraph.ir.program import Op, Target, Value
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

    def emit(self, target: Target, args: Sequence[object], result: Value, **kwargs: object) -> Value:
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

    @cached_property
    def _local(self) -> Op:
        """The op on the local operands."""
        local = iter(self.operands)
        return self.op.mapped(lambda leaf: next(local) if isinstance(leaf, Value) else leaf)

    @property
    def args(self) -> tuple[Any, ...]:
        """The op's arguments with the local operands in their places."""
        return self._local.args

    @property
    def kwargs(self) -> Mapping[str, object]:
        return self._local.kwargs

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

    def plain(self, args: Sequence[object] | None = None, target: Target | None = None) -> tuple[Value, ...]:
        """The op itself, on local operands, perhaps with other arguments."""
        results = self.results()
        op = self.op
        given = self.args if args is None else tuple(args)
        self.builder.ops.append(
            Op(target or op.target, given, self.kwargs, results, op.line, op.returns_sequence, op.is_rowwise)
        )
        return results


def local_shape(region: Region) -> tuple[int, ...]:
    return tuple(len(entries) for entries in region)
