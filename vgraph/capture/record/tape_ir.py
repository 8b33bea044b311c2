"""Tape: what two recordings of a function have in common, before it is cut into Programs.

Takes: Ops over Values. Gives: a list of them that passes rewrite. Runs once per function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from vgraph.ir.program import Op, Value
from vgraph.ir.space import Space


@dataclass(eq=False)
class Tape:
    """Everything that was recorded, in order: later cut into Programs.

    ``inputs``: name to Value; ``lifted``: tensors that the function reached, with their Values.
    """

    ops: list[Op]
    inputs: dict[str, Value]
    lifted: list[tuple[Tensor, Value]]
    values: dict[int, Value]  # Ref.index to Value
    sizes: tuple[Mapping[Space, int], Mapping[Space, int]]
    next_id: int
    constants: set[int] = field(default_factory=set[int])  # positions in lifted: made inside the function

    def new_value(self, like: Value, **changes: object) -> Value:
        self.next_id += 1
        return replace(like, id=self.next_id, **changes)
