"""Row products: a row of numbers times a matrix that stays in the nearest cache, as a kernel's text names it.

Takes: what the emitter knows of it. Gives: the call that multiplies one row. Runs once per function.
A target that multiplies some rows at a time prints its own call.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgraph.ir.program import Value


@dataclass(frozen=True)
class RowProduct:
    """``given``: where the row's first number lies, the others ``step`` apart; ``kind``: its type in C.

    ``sizes``: of a vector, the row and the result, as arguments of a template.
    """

    result: Value
    given: str
    kind: str
    step: int
    sizes: str
    weight: str
    bias: str

    @property
    def is_loaded(self) -> bool:
        """Whether the row lies in memory, and is not computed just before."""
        return not self.given.startswith("t")

    def of_one_row(self, size: str = "", lane: str = "") -> str:
        """The call that makes the result of one row; ``size``, ``lane``: of who shares it."""
        places = f"t{self.result.id}, {self.given}, {self.step}, {self.weight}, {self.bias}"
        return f"vg_multiply<{self.sizes}{size}>({places}{lane});"
