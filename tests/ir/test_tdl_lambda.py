"""Operators described as lambdas have the notation, and so the strategies, of those of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.errors import DescriptionError
from vgraph.ir.program import Op, Value
from vgraph.ir.space import SHARED
from vgraph.partition.search.strategies import strategies
from vgraph.tdl import Max, Sum, opaque


def test_a_convolution_is_that_of_the_table() -> None:
    @vgraph.tdl
    def conv1d_by_hand(data: Any, filters: Any) -> Callable[..., Any]:
        return lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])

    assert str(conv1d_by_hand) == "b ci x+dx, ci co dx -> b co x"
    notation = conv1d_by_hand.notation()
    assert notation.reduced == {"ci": "sum", "dx": "sum"}
    values = [Value(i, SHARED, torch.float32, s) for i, s in enumerate([(4, 6, 10), (6, 8, 3), (4, 8, 8)])]
    op = Op(torch.ops.aten.mm.default, tuple(values[:2]), {}, (values[2],))
    found = {s.index: str(s) for s in strategies_with(op, conv1d_by_hand.rule)}
    assert found["b"] == "b: S0 R -> S0"
    assert found["co"] == "co: R S1 -> S1"
    assert found["ci"] == "ci: S1 S0 -> Psum"
    assert found["x"] == "x: S2 R -> S2"  # 10 entries divide, and the halo is beside


def strategies_with(op: Op, rule: Any) -> list[Any]:
    from vgraph.partition.rewrite import regions

    regions._kept[op] = rule(op)
    return strategies(op, 2)


@pytest.mark.parametrize(
    ("function", "text", "whole"),
    [
        (lambda a, b: lambda i, j: a[i, j] + b[j], "i j, j -> i j", set()),
        (lambda a: lambda i: a[2 * i + 1], "2*i+1 -> i", set()),
        (lambda a: lambda i: a[i] - a[i + 1], "i+0|i+1 -> i", set()),
        (lambda a: lambda i, j: a[j, i], "j i -> i j", set()),
        (lambda a: lambda i, j: a[i, j] - Max(lambda k: a[i, k]), "i ? -> i j", {"j", "k"}),
        (lambda a: lambda b, i, j: opaque()(a[b, :, :])[i, j], "b ? ? -> b i j", {"i", "j"}),
        (lambda a: lambda i: torch.exp(a[i]) * 2, "i -> i", set()),
        (lambda a: lambda i: a[i, 3], "i 0+3 -> i", set()),
        (lambda a: lambda i: Max(lambda k: a[2 * i + k], k=3), "2*i+k -> i", set()),
    ],
)
def test_short_forms(function: Any, text: str, whole: set[str]) -> None:
    from vgraph.ir.tdl.lambdas import describe_function

    found = describe_function(function)
    assert str(found) == text
    assert found.notation().whole == whole


def test_what_is_not_affine_is_refused() -> None:
    with pytest.raises(DescriptionError, match="is no function of data"):
        vgraph.tdl(lambda a, ids: lambda i: a[i + ids[i]])
    with pytest.raises(DescriptionError, match="not affine"):
        vgraph.tdl(lambda a: lambda i, j: a[i * j])
    with pytest.raises(DescriptionError, match="is no affine index"):
        vgraph.tdl(lambda a, ids: lambda i: a[ids[i]])
    with pytest.raises(DescriptionError, match="reads none"):
        vgraph.tdl(lambda a: lambda i: 3)
    with pytest.raises(DescriptionError, match="returns int"):
        vgraph.tdl(lambda a: 3)

    def mm(a: Any, b: Any) -> Any:
        return lambda i, j: Sum(lambda k: a[i, k] * b[k, j])

    with pytest.raises(DescriptionError, match="mm is described already"):
        vgraph.tdl(mm)


def test_an_operator_of_the_users_own_is_divided() -> None:
    """A window sum: forward split along the window's dim reads a halo; both passes equal one process."""

    @torch.library.custom_op("vgraph_tests::window_sum", mutates_args=())
    def window_sum(x: Tensor) -> Tensor:
        return x.unfold(1, 3, 1).sum(-1)

    @torch.library.custom_op("vgraph_tests::window_sum_back", mutates_args=())
    def window_sum_back(g: Tensor) -> Tensor:
        return nn.functional.pad(g, (2, 2)).unfold(1, 3, 1).sum(-1)

    window_sum.register_fake(lambda x: x.new_empty((x.shape[0], x.shape[1] - 2)))
    window_sum_back.register_fake(lambda g: g.new_empty((g.shape[0], g.shape[1] + 2)))
    window_sum.register_autograd(lambda ctx, g: window_sum_back(g))

    @vgraph.tdl(op=torch.ops.vgraph_tests.window_sum.default)
    def described(x: Any) -> Any:
        return lambda b, i: Sum(lambda k: x[b, i + k], k=3)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(10, 10)

        def forward(self, x: Tensor) -> Tensor:
            return window_sum(self.linear(x)).square().mean()

    model, x = Model().double(), torch.randn(4, 10, dtype=torch.float64)
    plan = vgraph.parallelize(model, (x,), 2)
    found = plan.run_in_process(x)
    model(x).backward()
    torch.testing.assert_close(list(found.grads), [p.grad for p in model.parameters()])
