"""On a GPU, where there is one: the same Programs beside the CPU's, bitwise equal in two runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.cuda.test_shim import LAYERS, graph
from tests.runtime.engine_models import GRAPHS, MODELS, features
from vgraph.runtime.cuda import driver as cuda

pytestmark = pytest.mark.skipif(cuda.missing() is not None, reason=str(cuda.missing()))


def results(layer: nn.Module, rows: Tensor, device: str) -> list[Tensor]:
    """Outputs, gradients, gradients of gradients."""
    layer, rows = layer.to(device), rows.to(device).requires_grad_()
    leaves = [rows, *layer.parameters()]
    output = layer(graph().to(device), rows)
    first = torch.autograd.grad(output.tanh().sum(), leaves, create_graph=True)
    again = torch.autograd.grad(first[0].square().sum(), leaves, allow_unused=True)
    return [output, *first, *(g for g in again if g is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layer, rows = LAYERS[name](5).to(dtype), torch.randn(40, 5, dtype=dtype)
    wanted = results(layer, rows, "cpu")
    found, again = (results(layer, rows, "cuda") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


@pytest.mark.parametrize("name", MODELS)
def test_vertex_functions(name: str) -> None:
    model = MODELS[name]().double()
    for make in GRAPHS.values():
        g = make()
        x = features(g)
        wanted = model.to("cpu")(g, x=x)
        found = model.to("cuda")(g.to("cuda"), x=x.to("cuda"))
        for key, rows in wanted.items():
            torch.testing.assert_close(found[key].cpu(), rows, rtol=1e-10, atol=1e-12)


def test_reductions() -> None:
    x = torch.randn(6, 50, 7, device="cuda")
    torch.testing.assert_close(vgraph.reduce(x, (0, 2)), x.sum((0, 2)))
