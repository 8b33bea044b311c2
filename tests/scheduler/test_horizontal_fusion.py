"""Products of the same rows become one product, where their biases are as wide as their matrices."""

from __future__ import annotations

import pytest
import torch

from vgraph.ir.program import Op, Rows, Value, op_name
from vgraph.ir.schedule import Phase
from vgraph.ir.space import SHARED, VERTEX
from vgraph.scheduler.horizontal_fusion import join_products

_aten = torch.ops.aten


def _shared(number: int, *shape: int) -> Value:
    return Value(number, SHARED, torch.float32, shape)


def _rows(number: int) -> Value:
    return Value(number, VERTEX, torch.float32, (Rows(VERTEX), 4))


@pytest.mark.parametrize(("width", "num_products"), [(4, 1), (1, 2)])
def test_biases(width: int, num_products: int) -> None:
    """A single number that is added to all columns has no place beside another product's bias."""
    one = Op(_aten.addmm.default, (_shared(1, width), _rows(0), _shared(2, 4, 4)), {}, (_rows(5),))
    other = Op(_aten.addmm.default, (_shared(3, 4), _rows(0), _shared(4, 4, 4)), {}, (_rows(6),))
    both = Op(_aten.mul.Tensor, (_rows(5), _rows(6)), {}, (_rows(7),))
    phases = join_products([Phase((one, other, both), is_loop=True)], [7])
    assert [op_name(op.target) for op in phases[-1].ops].count("addmm") == num_products
