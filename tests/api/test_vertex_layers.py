"""Layers of torch in vertex functions: as batches, with the numbers of one vertex after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import vgraph
from tests.runtime.engine_models import chain

WIDTH, STEPS = 4, 5


def _weighed(layer: nn.Module) -> nn.Module:
    """Parameters that make a difference."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def _with_statistics(layer: nn.BatchNorm1d) -> nn.Module:
    """In evaluation, with statistics of its own."""
    assert layer.running_mean is not None and layer.running_var is not None
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2.0)
    return layer.eval()


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], Tensor]]] = {
    "batch norm, eval": (lambda: _with_statistics(nn.BatchNorm1d(WIDTH)), lambda layer, h: layer(h)),
    "batch norm of matrices, eval": (
        lambda: _with_statistics(nn.BatchNorm1d(2, affine=False)),
        lambda layer, h: layer(h.unflatten(-1, (2, 2))).flatten(1),
    ),
    "group norm": (lambda: nn.GroupNorm(2, WIDTH), lambda layer, h: layer(h)),
    "group norm of matrices": (lambda: nn.GroupNorm(2, 2), lambda layer, h: layer(h.unflatten(-1, (2, 2))).flatten(1)),
    "group norm, no parameters": (lambda: nn.GroupNorm(1, WIDTH, affine=False), lambda layer, h: layer(h)),
    "instance norm": (
        lambda: nn.InstanceNorm1d(2, affine=True),
        lambda layer, h: layer(h.unflatten(-1, (2, 2))).flatten(1),
    ),
    "one hot": (
        lambda: nn.Linear(3, WIDTH),
        lambda layer, h: layer(functional.one_hot(h.abs().long().clamp(max=2)[:, 0], 3).to(h.dtype)) + h,
    ),
    "bilinear": (lambda: nn.Bilinear(WIDTH, WIDTH, WIDTH), lambda layer, h: layer(h, h * 2)),
    "cross product": (
        nn.Identity,
        lambda layer, h: torch.cat(
            [torch.linalg.cross(layer(h[:, :3]), h[:, -3:]) + h[:, :3].cross(h[:, -3:], 1), h], 1
        )[:, :WIDTH],
    ),
    "convolution": (lambda: nn.Conv1d(1, 1, 3, padding=1), lambda layer, h: layer(h.unsqueeze(1)).squeeze(1)),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), lambda layer, h: layer(h)),
    "rms norm": (lambda: nn.RMSNorm(WIDTH), lambda layer, h: layer(h)),
    "prelu": (lambda: nn.PReLU(WIDTH), lambda layer, h: layer(h)),
    "attention of one row": (
        lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        lambda layer, h: layer(h[:, None], h[:, None], h[:, None])[0][:, 0],
    ),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)), lambda layer, h: layer(h)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)), lambda layer, h: layer(h)),
    "spectral norm, eval": (
        lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)).eval(),
        lambda layer, h: layer(h),
    ),
}


class Layered(vgraph.VertexFunction):
    def __init__(self, layer: nn.Module, use: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.use = layer, use

    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(self.use(self.layer, v.pull("x") + v.gather()["h"].sum()))
        v.scatter(h=h)
        v.push(h=h)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_run_as_batches(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, use = LAYERS[name]
    layer = _weighed(make()).double()
    x = torch.randn(STEPS, WIDTH, dtype=torch.float64, requires_grad=True)
    rows, before = list[Tensor](), x.new_zeros(1, WIDTH)
    for row in x.split(1):
        before = torch.tanh(use(layer, row + before))
        rows.append(before)
    wanted = torch.cat(rows)
    with caplog.at_level("INFO", logger="vgraph"):
        found = Layered(layer, use)(chain(STEPS), x=x)["h"]
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        wrt = (x, *layer.parameters())
        given = [
            torch.autograd.grad((rows * wanted.detach()).sum(), wrt, allow_unused=True) for rows in (found, wanted)
        ]
    for one, two in zip(*given, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
    assert "one vertex at a time" not in caplog.text


def test_a_number_that_is_no_class_is_refused() -> None:
    class Classes(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.push(h=functional.one_hot(v.pull("kind"), 3))

    model, g = Classes(), chain(2)
    assert model(g, kind=torch.tensor([2, 0]))["h"].tolist() == [[0, 0, 1], [1, 0, 0]]
    for kind in (3, -1):
        with pytest.raises(IndexError):
            model(g, kind=torch.tensor([0, kind]))


def test_an_undescribed_sum_falls_back(caplog: pytest.LogCaptureFixture) -> None:
    """The derivative of torch's group norm gives gradients of rows, and of parameters summed over all of them."""

    class Normed(vgraph.VertexFunction):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(WIDTH, dtype=torch.float64))

        def forward(self, v: vgraph.Vertex) -> None:
            h = torch.group_norm(v.pull("x") + v.gather()["h"].sum(), 2, self.weight)
            v.scatter(h=h)
            v.push(h=h)

    model, x = Normed(), torch.randn(2, WIDTH, dtype=torch.float64, requires_grad=True)
    first = functional.group_norm(x[:1], 2, model.weight)
    wanted = torch.cat([first, functional.group_norm(x[1:] + first, 2, model.weight)])
    with caplog.at_level("INFO", logger="vgraph"):
        found = model(chain(2), x=x)["h"]
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    for one, two in zip(*(torch.autograd.grad((t * t).sum(), (x, model.weight)) for t in (found, wanted)), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
    assert "native_group_norm_backward adds up over rows is not described" in caplog.text
