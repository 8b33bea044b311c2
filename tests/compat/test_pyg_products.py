"""Linear layers within layers of PyG's that are accelerated: vgraph's products, where there is much to multiply."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.compat.pyg_cases import F, N, edges, pyg
from vgraph.capture.capture import watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.compat.pyg import own_products as products


def test_large_products_are_made_here_within_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def count(*given: Tensor) -> Tensor:
        made.append(given)
        return nn.functional.linear(*given)

    layer, x, ids = pyg.SAGEConv(F, F).double(), torch.randn(N, F).double().requires_grad_(), edges()
    wanted = layer(x, ids)
    (wanted_gradient,) = torch.autograd.grad(wanted.square().sum(), x)
    vgraph.accelerate(layer)
    monkeypatch.setattr(products, "linear", count)
    torch.testing.assert_close(layer(x, ids), wanted)
    assert not made  # so few numbers
    monkeypatch.setattr(products, "_MUCH", 1)
    out = layer(x, ids)
    assert len(made) == 2
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x)[0], wanted_gradient)
    layer.lin_l(x)
    assert len(made) == 2  # it is the program that calls it


def test_linear_layers_of_torchs_are_such_products_outside_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """``GINConv`` applies them to rows of nodes; ``EdgeConv`` to messages, which are recorded as they are written."""
    made: list[object] = []
    monkeypatch.setattr(products, "linear", lambda *given: made.append(given) or nn.functional.linear(*given))
    monkeypatch.setattr(products, "_MUCH", 1)
    mlp = nn.Sequential(nn.Linear(F, F), nn.ReLU(), nn.Linear(F, F)).double()
    x, ids = torch.randn(N, F).double().requires_grad_(), edges()
    for layer, count in ((pyg.GINConv(mlp), 2), (pyg.EdgeConv(nn.Linear(2 * F, F).double()), 0)):
        wanted = layer(x, ids)
        (wanted_gradient,) = torch.autograd.grad(wanted.square().sum(), x)
        made.clear()
        with watch_runs() as runs:
            out = vgraph.accelerate(layer)(x, ids)
        assert len(made) == count
        assert runs and not any(isinstance(what, CaptureError) for _, what, _ in runs)
        torch.testing.assert_close(out, wanted)
        torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x)[0], wanted_gradient)
    mlp(x)
    assert len(made) == 0  # the last was EdgeConv, and this is the program's own call


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")
def test_a_traced_layer_multiplies_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace has no place for functions in Python; sizes are tensors there."""
    monkeypatch.setattr(products, "_MUCH", 1)
    x, ids = torch.randn(300, 64), torch.randint(300, (2, 2000))
    for layer in (pyg.SAGEConv(64, 64), pyg.GINConv(nn.Sequential(nn.Linear(64, 64), nn.ReLU()))):
        traced = torch.jit.trace(vgraph.accelerate(layer), (x, ids), check_trace=False)
        assert not [node for node in traced.inlined_graph.nodes() if "Python" in node.kind()]
        torch.testing.assert_close(traced(x, ids), layer(x, ids))
