"""``vgraph.linear`` against torch's own: values, gradients of two orders, and where it steps aside."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import vgraph
import vgraph.function as fn
from vgraph.native_part import load_native
from vgraph.runtime.cpu.native import Native


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """A list that grows with each product of vgraph's, whatever the processor."""
    native = load_native()
    if native is None:
        pytest.skip("no compiler")
    found, multiply, before = list[int](), Native.multiply, native.multiplies

    def noted(self: Native, *given: Tensor | None) -> Tensor:
        found.append(1)
        return multiply(self, *given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Native, "multiply", noted)
    object.__setattr__(native, "multiplies", True)
    yield found
    object.__setattr__(native, "multiplies", before)


def of_two_orders(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
    return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), inputs)]


@pytest.mark.parametrize("shape", [(300, 40), (7, 30, 40), (3, 40), (0, 40), (40,)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_equals_torchs(counted: list[int], shape: tuple[int, ...], has_bias: bool) -> None:
    rows, weight, bias = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in (shape, (24, 40), (24,)))
    given = (rows, weight, bias) if has_bias else (rows, weight)
    found, wanted = vgraph.linear(*given), functional.linear(*given)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(of_two_orders(found, list(given)), of_two_orders(wanted, list(given)))
    assert bool(counted) == (rows.numel() > 1000)


@pytest.mark.parametrize("place", [0, 1])
def test_what_memory_holds_negated(counted: list[int], place: int) -> None:
    """The imaginary part of a conjugate is a view of numbers with the other sign."""
    given = [torch.randn(300, 40), torch.randn(24, 40)]
    torch.testing.assert_close(vgraph.linear(*given), functional.linear(*given))
    assert len(counted) == 1
    given[place] = torch.complex(given[place], given[place]).conj().imag
    assert given[place].is_neg()
    torch.testing.assert_close(vgraph.linear(*given), functional.linear(*given))


def test_steps_aside(counted: list[int]) -> None:
    rows, weight = torch.randn(300, 40), torch.randn(24, 40)
    wanted = functional.linear(rows, weight)
    torch.testing.assert_close(torch.func.vmap(lambda row: vgraph.linear(row, weight))(rows), wanted)
    assert torch.func.grad(lambda w: vgraph.linear(rows, w).sum())(weight).shape == weight.shape
    assert torch.equal(torch.compile(vgraph.linear, fullgraph=True, backend="eager")(rows, weight), wanted)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert vgraph.linear(rows, weight).dtype == torch.bfloat16
    assert vgraph.linear(rows.bfloat16(), weight.bfloat16()).dtype == torch.bfloat16
    assert not counted


@pytest.mark.parametrize(
    ("weight", "bias", "fact"),
    [
        (torch.ones(40, 24), None, "cannot be multiplied"),
        (torch.ones(24, 40).double(), None, "same dtype"),
        (torch.ones(24, 40), torch.ones(3), "must match the existing size"),
    ],
)
def test_what_does_not_fit_torch_says(counted: list[int], weight: Tensor, bias: Tensor | None, fact: str) -> None:
    with pytest.raises(RuntimeError, match=fact):
        vgraph.linear(torch.ones(300, 40), weight, bias)


def test_within_a_message_it_is_recorded(counted: list[int]) -> None:
    """Also where no rows are in it: a product of parameters is made anew at each call."""
    g = vgraph.graph((torch.randint(50, (300,)), torch.randint(50, (300,))), num_nodes=50)
    g.ndata["h"] = torch.randn(50, 40)
    given = torch.randn(24, 40)

    def run(by: Tensor) -> Tensor:
        g.update_all(lambda e: {"m": vgraph.linear(e.src["h"], vgraph.linear(given, by))}, fn.sum("m", "o"))
        return g.ndata["o"]

    by = torch.randn(40, 40)
    torch.testing.assert_close(run(2 * by), 2 * run(by))


def test_several_gradients_at_once(counted: list[int]) -> None:
    rows, weight = torch.randn(5, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    many = torch.eye(10).view(10, 5, 2)
    found = torch.autograd.grad(vgraph.linear(rows, weight), (rows, weight), many, is_grads_batched=True)
    out = vgraph.linear(rows, weight)
    wanted = zip(*(torch.autograd.grad(out, (rows, weight), one, retain_graph=True) for one in many), strict=True)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, torch.stack(other))


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
def test_several_gradients_of_a_reduction_at_once(op: str) -> None:
    x = torch.rand(50, 64, requires_grad=True)
    found = torch.autograd.grad(vgraph.reduce(x, 0, op), x, torch.eye(64), is_grads_batched=True)[0]
    torch.testing.assert_close(found.sum(0), torch.autograd.grad(vgraph.reduce(x, 0, op).sum(), x)[0])
