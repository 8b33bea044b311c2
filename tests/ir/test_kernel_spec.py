"""Pieces of a kernel's rows have sums over all rows of their own, where these are not wider than the piece is worth."""

from __future__ import annotations

import torch

from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Value
from vgraph.ir.space import SHARED, VERTEX


def _rows_of_a_sum(*shapes: tuple[int, ...]) -> int:
    stores = [Value(n, SHARED, torch.float32, shape) for n, shape in enumerate(shapes)]
    rows = Value(9, VERTEX, torch.float32, (10**6,))
    return KernelSpec((), (), (*stores, rows), "dst", {}, {}).rows_of_a_sum


def test_wide_sums_are_worth_more_rows() -> None:
    assert _rows_of_a_sum((16, 16)) == _rows_of_a_sum((8,)) == _rows_of_a_sum()
    assert _rows_of_a_sum((64, 64), (64, 64), (128, 16)) > 2 * _rows_of_a_sum((16, 16))
    assert _rows_of_a_sum((64, 64), (64, 64)) == 2 * _rows_of_a_sum((64, 64))
