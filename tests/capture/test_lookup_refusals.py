"""What cannot be looked up runs as it is written: derivatives of the user's own, rows that are kept, writes outside."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
from tests.capture.test_lookup import DAG, Cell, X, by_hand, sends, sent


class _Negated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return -grads[0]


class _Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return -grads[0]


@pytest.mark.parametrize("function", [_Negated, _Handed])
def test_autograd_functions_keep_their_derivative(function: Any) -> None:
    array = np.full(4, 2.0)

    def read(t: Tensor) -> Tensor:
        return function.apply(t * torch.from_numpy(array)) * 2

    leaf = X.clone().requires_grad_()
    for value in (1.0, 3.0):
        array[:] = value
        (wanted,) = torch.autograd.grad(sent(read, leaf).sum(), leaf)
        (got,) = torch.autograd.grad(sends(read, leaf).sum(), leaf)
        torch.testing.assert_close(got, wanted)


def test_rows_that_are_kept() -> None:
    array, kept, (src, dst) = np.ones(4), list[Tensor](), DAG.edges()

    def read(t: Tensor) -> Tensor:
        out = t * torch.from_numpy(array)
        kept.append(out)
        return out

    for value in (1.0, 2.0):
        array[:] = value
        torch.testing.assert_close(sends(read, X), X.new_zeros(5, 4).index_add(0, dst, X[src]) * value)
    torch.testing.assert_close(kept[-1], X[src] * 2.0)


def test_memory_of_its_own_is_written() -> None:
    array = np.ones(4)

    def read(t: Tensor) -> Tensor:
        weight = torch.from_numpy(array) * 2
        first = t * weight
        weight.add_(1)
        return first + t * weight

    for value in (1.0, 3.0):
        array[:] = value
        torch.testing.assert_close(sends(read, X), sent(read, X))


def test_what_is_not_its_own_is_not_written_by_a_lookup() -> None:
    array, outside = np.ones(4), torch.zeros(4, dtype=torch.float64)

    class Writes(vgraph.VertexFunction):
        def forward(self, v: Any) -> None:
            v.push(h=v.pull("x") * torch.from_numpy(array) + outside[:2].add_(1).sum())

    with pytest.raises(vgraph.VGraphError, match="not its own"):
        Writes()(DAG, x=X)
    assert not outside.any()


def test_an_error_leaves_the_next_call_alone() -> None:
    array, fails = np.ones(4), [False]

    def read(t: Tensor) -> Tensor:
        out = t * torch.from_numpy(array)
        if fails[0]:
            raise KeyError("asked for")
        return out.exp()

    cell = Cell(read)
    for value in (1.0, 2.0):
        array[:] = value
        fails[0] = True
        with pytest.raises(KeyError, match="asked for"):
            cell(DAG, x=X)
        fails[0] = False
        torch.testing.assert_close(cell(DAG, x=X)["h"], by_hand(cell, X, read))


def test_a_step_that_no_number_lets_be_played_is_tried_less_and_less_often() -> None:
    """What becomes of numbers that change is found out by steps that were played; here none was."""
    array, calls = np.ones(1), list[float]()

    def drawn(edges: Any) -> dict[str, Tensor]:
        calls.append(number := float(array[0]))
        return {"m": edges.src["x"].clone().geometric_(number) if number < 1 else edges.src["x"] * number}

    g = DAG.local_var()
    g.ndata["x"] = X
    g.apply_edges(drawn)  # from now on it is looked up
    calls.clear()
    for number in np.linspace(0.1, 0.9, 10):
        array[0] = number
        g.apply_edges(drawn)
    assert len(calls) < 2 * 10, "each call tries anew what all have failed at"
