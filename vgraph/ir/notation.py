"""Notation: index notation of one operator; the words that the rules of tdl.py are written in.

Takes: nothing (plain values). Gives: Notation; tempo: once a function.
Source: Tofu section 4 (tensor description language), short form "m k, k n -> m n".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vgraph.ir.program import Op

Indices = tuple[str, ...]  # one entry a dim; "a b": dim is the product of a (slow) and b; "1": no index


@dataclass(frozen=True)
class Notation:
    """Indices of every tensor operand and result; how indices that no result has are combined.

    ``reduced``: index to sum, mean, max ...; "addend": a sum to which one operand is added once.
    ``whole``: indices along which an element of the result depends on more than its own position.
    """

    inputs: tuple[Indices, ...]
    outputs: tuple[Indices, ...]
    reduced: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: frozenset[str] = frozenset()

    def __str__(self) -> str:
        def side(all_dims: tuple[Indices, ...]) -> str:
            return ", ".join(" ".join(f"({d})" if " " in d else d for d in dims) for dims in all_dims)

        return f"{side(self.inputs)} -> {side(self.outputs)}"


Rule = Callable[[Op], "Notation | None"]


def op_name(target: Any) -> str:
    """``mm`` for ``aten.mm.default``; the printed form for a Move."""
    packet = getattr(target, "overloadpacket", None)
    return packet.__name__ if packet is not None else str(target)
