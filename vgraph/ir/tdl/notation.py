"""Notation: index notation of one operator; the words that the rules of tdl.py are written in.

Takes: nothing (plain values). Gives: Notation. Runs once per function.
Source: Tofu section 4 (tensor description language), short form "m k, k n -> m n".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vgraph.ir.program import Op

# One entry a dim: "a b" is the product of a (slow) and b; "1" has no index; "2*a+b-1" is an affine
# access (ir/tdl/affine.py), "a|a+4" several of them; "a?" is read or made in an order of its own.
Indices = tuple[str, ...]


@dataclass(frozen=True)
class Notation:
    """Indices of every tensor operand and result; how indices that no result has are combined.

    ``reduced``: index to sum, mean, max ...; "addend": a sum to which one operand is added once.
    ``whole``: indices along which an element of the result depends on more than its own position.
    ``located``: those among ``whole`` that may be split if ids are counted from the part's first entry;
    the reducer that joins what the parts give, "" where they follow one another.
    ``sizes``: of indices that stand alone in no dim.
    ``reads``: for a result that does not read every operand, the positions of those it reads.
    """

    inputs: tuple[Indices, ...]
    outputs: tuple[Indices, ...]
    reduced: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: frozenset[str] = frozenset()
    located: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    reads: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, "tuple[int, ...]"])

    def __str__(self) -> str:
        def side(all_dims: tuple[Indices, ...]) -> str:
            return ", ".join(" ".join(f"({d})" if " " in d else d for d in dims) for dims in all_dims)

        return f"{side(self.inputs)} -> {side(self.outputs)}"


Rule = Callable[[Op], "Notation | None"]
