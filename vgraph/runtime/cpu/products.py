"""Products: which matrix products are vgraph's and which torch's library's, as measured shape by shape.

Takes: the operands of a product. Gives: whether native code makes it. Asked at every product, measures once a shape.
The two add up in different orders, so that what is taken changes last places: one choice holds for a shape and all
processes of a machine, and ranks of a job measure nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vgraph import config
from vgraph.runtime.cpu.choices import Choice, Choices, Ways, of_machine
from vgraph.runtime.cpu.native import TALL, Native, is_tall, native_version

OWN, LIBRARY = "own", "library"
PRODUCTS = Choice(
    "products",
    (OWN, LIBRARY),
    default=lambda: OWN if config.own_products() else LIBRARY,
    how="on the operands of the first product of a shape, or some of their rows; last places differ",
)
FEW_OPERATIONS = 1 << 20  # of a product whose choice gains less than it costs
# Of one that is measured, for each thread: few enough to end before a busy system takes turns.
MOST_OPERATIONS = 1 << 26
_EXACT = 256  # sizes up to which each is a shape of its own; above, all with one power of two are
_MOST_KEPT = 4096  # shapes

_Key = tuple[torch.Size, int, torch.dtype, bool, int]


def choices_of_machine() -> Choices:
    """All that was decided here, with torch's number of threads."""
    return of_machine(native_version())


@dataclass(eq=False)
class ChosenProducts:
    """What ``Native.choose`` is; ``is_alone``: whether this process may measure, since no other has to choose alike."""

    is_alone: Callable[[], bool]
    choices: Callable[[], Choices] = choices_of_machine
    _taken: dict[_Key, bool] = field(default_factory=dict["_Key", bool])

    def __call__(self, native: Native, a: Tensor, b: Tensor, ids: Tensor | None) -> bool:
        """Whether ``a @ b`` is made by native code; with ``ids`` ``a @ b[ids]``."""
        operations = 2 * a.numel() * b.shape[1]
        if operations < FEW_OPERATIONS or torch.are_deterministic_algorithms_enabled():
            return PRODUCTS.default() == OWN
        key = (a.shape, b.shape[1], a.dtype, ids is not None, torch.get_num_threads())
        taken = self._taken.get(key)
        if taken is None:
            if len(self._taken) >= _MOST_KEPT:
                self._taken.clear()
            taken = self._taken[key] = self._decide(native, a, b, ids) == OWN
        return taken

    def _decide(self, native: Native, a: Tensor, b: Tensor, ids: Tensor | None) -> str:
        situation = _situation(a.dtype, (*a.shape, b.shape[1]), of_rows=ids is not None)
        ways = (lambda: _ways(native, a, b, ids)) if self.is_alone() else None
        return self.choices().decide(PRODUCTS, situation, ways)

    def told(self, dtype: torch.dtype, sizes: tuple[int, int, int], *, of_rows: bool) -> str:
        """What was decided about a product of rows, depth and columns; "": it takes what is fixed."""
        found = self.choices().known(PRODUCTS, _situation(dtype, sizes, of_rows=of_rows))
        return "" if found is None else str(found)


def _situation(dtype: torch.dtype, sizes: tuple[int, ...], *, of_rows: bool) -> str:
    m, k, n = (str(s) if s <= _EXACT else f"{1 << (s.bit_length() - 1)}+" for s in sizes)
    return f"{str(dtype).removeprefix('torch.')} {m} x {k} by {n}{', rows by ids' if of_rows else ''}"


def _ways(native: Native, a: Tensor, b: Tensor, ids: Tensor | None) -> Ways:
    m, k, n = _measured_sizes(a.shape[0], a.shape[1], b.shape[1])
    with torch.no_grad():
        left, right = a.detach()[:m, :k], b.detach()[:, :n]
        some, right = (None, right[:k]) if ids is None else (ids[:k], right)
        out = torch.empty((m, n), dtype=a.dtype, device="cpu")
    return {
        OWN: lambda: native.multiply(left, right, None, out, some),
        LIBRARY: lambda: torch.mm(left, right if some is None else right.index_select(0, some), out=out),
    }


def _measured_sizes(m: int, k: int, n: int) -> tuple[int, int, int]:
    """Those of a product of the same form that does not take long."""
    sizes, deep = [m, k, n], is_tall(m, n, k)
    while 2 * sizes[0] * sizes[1] * sizes[2] > MOST_OPERATIONS * torch.get_num_threads():
        longest = 1 if deep else max(range(3), key=lambda i: sizes[i])
        if sizes[longest] // 2 < (TALL if deep else 2):
            break
        sizes[longest] //= 2
    return sizes[0], sizes[1], sizes[2]
