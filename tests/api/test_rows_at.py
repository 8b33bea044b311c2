"""rows_at: as an index, differentiable to any order, in memory that is used again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vgraph
from vgraph.errors import DTypeError, FeatureError


def test_it_is_an_index_with_all_derivatives() -> None:
    rows, ids = torch.randn(5, 3, dtype=torch.float64, requires_grad=True), torch.tensor([4, 0, 4])
    assert torch.equal(vgraph.rows_at(rows, ids), rows[ids])
    assert torch.autograd.gradcheck(lambda x: vgraph.rows_at(x, ids), (rows,))
    assert torch.autograd.gradgradcheck(lambda x: vgraph.rows_at(x, ids).sin(), (rows,))
    assert vgraph.rows_at(rows, ids[:0]).shape == (0, 3)


def test_large_gradients_are_zero_elsewhere() -> None:
    rows = torch.randn(3000, 100, requires_grad=True)
    for ids in (torch.tensor([7, 2999]), torch.tensor([0])):  # the second finds what the first left
        (grad,) = torch.autograd.grad(vgraph.rows_at(rows, ids).sum(), rows)
        wanted = torch.zeros(3000, 100).index_fill(0, ids, 1)
        assert torch.equal(grad, wanted)


@pytest.mark.parametrize("take", [vgraph.at, vgraph.rows_at])
def test_what_is_no_tensor_is_refused(take: Any) -> None:
    rows = torch.ones(2, 3)
    with pytest.raises(FeatureError, match=r"the ids of (rows_)?at\(rows, ids\) are a list.*[\s\S]*as_tensor"):
        take(rows, [0, 1])
    with pytest.raises(FeatureError, match=r"the rows of (rows_)?at\(rows, ids\) are a list"):
        take([1.0, 2.0], torch.tensor([0, 1]))
    with pytest.raises(FeatureError, match="shape"):
        take(rows, torch.tensor([[0, 1]]))


def test_bad_ids_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"the ids of rows_at\(rows, ids\) are torch.bool"):
        vgraph.rows_at(torch.ones(2, 1), torch.tensor([True, False]))
    for ids in ([0, 2], [-1]):
        with pytest.raises(FeatureError, match="for 2 rows"):
            vgraph.rows_at(torch.ones(2, 1), torch.tensor(ids))
