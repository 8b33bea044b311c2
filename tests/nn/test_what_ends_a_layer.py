"""What stands behind a layer's sums (own rows, bias, activation, norm) is part of the loop that sums."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vgraph
from tests.fusion.fuzz import compile_fast
from vgraph.fusion.cpu import build
from vgraph.nn import GATConv, GATv2Conv, GINConv, GraphConv, SAGEConv

Ending = Callable[[Tensor], Tensor]
LAYERS: dict[str, Callable[[Ending | None], nn.Module]] = {
    "GraphConv": lambda end: GraphConv(6, 4, activation=end),
    "SAGEConv narrower": lambda end: SAGEConv(6, 4, "mean", activation=end),
    "SAGEConv wider": lambda end: SAGEConv(6, 8, "gcn", activation=end),
    "SAGEConv pool": lambda end: SAGEConv(6, 4, "pool", activation=end),
    "GATConv": lambda end: GATConv(6, 3, 2, residual=True, activation=end),
    "GATv2Conv": lambda end: GATv2Conv(6, 3, 2, activation=end),
    "GINConv": lambda end: GINConv(None, "mean", activation=end),
}


def many(x: Tensor) -> Tensor:
    """Each activation of torch that kernels compute by itself, one behind the other."""
    x = F.hardswish(F.mish(F.softsign(F.celu(F.selu(x), 0.7))))
    return F.elu(F.threshold(F.softshrink(F.hardshrink(F.hardsigmoid(x), 0.01), 0.02), 0.1, 0.2))


TRAINED: dict[str, Ending] = {"GATConv": F.elu, "GraphConv": many}


@pytest.fixture
def graph() -> vgraph.Graph:
    ends = torch.randint(9, (2, 30))
    return vgraph.add_self_loop(vgraph.graph((ends[0], ends[1]), num_nodes=9))


@pytest.mark.parametrize("name", LAYERS)
def test_an_activation_of_the_layer_is_one_behind_it(name: str, graph: vgraph.Graph) -> None:
    x = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    layer = LAYERS[name](torch.tanh).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    plain = copy.deepcopy(layer)
    vars(plain)["_activation" if name == "GraphConv" else "activation"] = None
    found, wanted, inputs = layer(graph, x), torch.tanh(plain(graph, x)), [x, *layer.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    others = [x, *plain.parameters()]
    grads = [torch.autograd.grad(rows.square().sum(), given) for rows, given in ((found, inputs), (wanted, others))]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", ["SAGEConv narrower", "GATConv", "GATv2Conv", "GINConv"])
def test_an_activation_is_in_the_last_loop(name: str, graph: vgraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    with torch.no_grad(), compile_fast():
        (function,) = vgraph.explain(LAYERS[name](torch.tanh), graph, torch.randn(9, 6)).functions
    (*_, last) = function.programs[0].steps
    assert last.kernel is not None and "tanh" in last.operators, str(function)
    assert [stored.what for stored in last.stored] == ["output"]


@pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", TRAINED)
def test_activations_and_their_derivatives_are_in_kernels(
    name: str, graph: vgraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    layer, inputs = LAYERS[name](TRAINED[name]), torch.randn(9, 6, requires_grad=True)
    with compile_fast():
        (function,) = [
            function
            for function in vgraph.explain(layer, graph, inputs).functions
            if any("segment" in operator for step in function.programs[0].steps for operator in step.operators)
        ]
    forward, backward = function.programs
    assert forward.steps[-1].kernel is not None and "elu" in forward.steps[-1].operators, str(function)
    assert any("elu_backward" in step.operators for step in backward.steps if step.kernel is not None), str(function)
    by_torch = {name for step in (*forward.steps, *backward.steps) if step.kernel is None for name in step.operators}
    assert by_torch <= {"sum", "mm"}, str(function)


def test_what_mixes_rows_or_keeps_a_state_runs_behind(graph: vgraph.Graph) -> None:
    x, norm = torch.randn(9, 6), nn.BatchNorm1d(4)
    layer = SAGEConv(6, 4, "mean", norm=norm, activation=F.relu)
    plain, other = copy.deepcopy(layer), copy.deepcopy(norm)
    plain.norm = None
    torch.testing.assert_close(layer(graph, x), other(plain(graph, x)))
    torch.testing.assert_close(norm.running_mean, other.running_mean)
    assert norm.num_batches_tracked == 1
