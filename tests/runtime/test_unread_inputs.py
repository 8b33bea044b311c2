"""Inputs that no derivative reads may be written to between forward and backward, as in torch."""

import pytest
import torch

import vgraph
import vgraph.function as fn


def _graph() -> vgraph.Graph:
    return vgraph.graph(([0, 1, 0], [1, 2, 2]))


def _graph_of(count: int) -> vgraph.Graph:
    ids = torch.arange(count)
    return vgraph.graph((ids, ids.roll(1)))


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_residual_in_place(create_graph: bool) -> None:
    x = torch.ones(3, 2, requires_grad=True)
    h, g = x * 2, _graph()
    g.ndata["h"] = h
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
    h += g.ndata["o"]
    (grad,) = torch.autograd.grad(h.sum(), x, create_graph=create_graph)
    assert grad.tolist() == [[6.0, 6.0], [4.0, 4.0], [2.0, 2.0]]


def test_what_a_derivative_reads_is_watched() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    h, g = x * 2, _graph()
    g.ndata["h"], g.edata["w"] = h, torch.ones(3, 1, requires_grad=True)
    g.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o"))
    h += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        g.ndata["o"].sum().backward()


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_sum_does_not_hold_what_it_adds(create_graph: bool) -> None:
    """Large rows that no derivative reads are free to go when the forward has returned."""
    x, g = torch.randn(2000, 32, requires_grad=True), _graph_of(2000)
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    g.ndata["h"] = x * 2
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        g.update_all(fn.copy_u("h", "m"), fn.mean("m", "o"))
    assert saved and sum(tensor.untyped_storage().nbytes() for tensor in saved) < 2000 * 32
    out, _ = g.ndata.pop("o"), g.ndata.pop("h")
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=create_graph)
    assert torch.equal(grad, torch.full_like(grad, 2.0))


def test_second_derivatives_of_a_sum() -> None:
    x = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).requires_grad_()
    g = _graph()

    def total(rows: torch.Tensor) -> torch.Tensor:
        g.ndata["h"] = rows
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
        return g.ndata["o"]

    assert torch.autograd.gradcheck(total, x)
    assert torch.autograd.gradgradcheck(total, x)
    assert torch.autograd.gradgradcheck(lambda rows: total(rows * rows), x)
