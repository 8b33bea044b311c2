"""Operators of the library on graphs without edges, forward and backward: as torch gives them for no rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph

LAYERS = {
    "a batch norm": lambda: nn.BatchNorm1d(8).eval(),
    "a batch norm of images": lambda: nn.Sequential(nn.Unflatten(1, (2, 2, 2)), nn.BatchNorm2d(2)).eval(),
    "a batch norm without parameters": lambda: nn.BatchNorm1d(8, affine=False).eval(),
    "a convolution": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 2)),
    "a transposed convolution": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.ConvTranspose1d(2, 3, 2)),
}


def derivatives(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """First ones and second ones; zeros where there is none."""
    first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(grad.square().sum() for grad in first), inputs, materialize_grads=True)
    return [*first, *second]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("edges", [[], [0, 1, 0]])
def test_derivatives_over_edges(name: str, edges: list[int]) -> None:
    layer: Any = LAYERS[name]().double()
    g = vgraph.graph((torch.tensor(edges, dtype=torch.int64), [2] * len(edges)), num_nodes=3)
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    g.ndata["x"] = x
    g.apply_edges(lambda each: {"y": layer(each.src["x"])})
    inputs = [x, *layer.parameters()]
    found, wanted = g.edata["y"], layer(x[edges])
    torch.testing.assert_close([found, *derivatives(found, inputs)], [wanted, *derivatives(wanted, inputs)])
