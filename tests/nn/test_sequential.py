"""Sequential: who gets the graph, and what follows a layer row by row is part of its loop."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook

import vgraph
from tests.fusion.fuzz import compile_fast
from vgraph.errors import FunctionError
from vgraph.fusion.cpu import build
from vgraph.nn import EdgeGATConv, GATConv, GATv2Conv, GINConv, GraphConv, SAGEConv, Sequential
from vgraph.nn.sequential import is_by_row

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GraphConv": lambda: GraphConv(6, 4, activation=torch.tanh),
    "SAGEConv narrower": lambda: SAGEConv(6, 4, "mean"),
    "SAGEConv gcn": lambda: SAGEConv(6, 4, "gcn", norm=F.normalize),
    "SAGEConv pool": lambda: SAGEConv(6, 4, "pool"),
    "SAGEConv lstm": lambda: SAGEConv(6, 4, "lstm", activation=torch.tanh),
    "GATConv": lambda: GATConv(6, 4, 2, residual=True),
    "GATv2Conv": lambda: GATv2Conv(6, 4, 2),
    "GINConv": lambda: GINConv(None, "mean"),
    "GINConv of a network": lambda: GINConv(nn.Linear(6, 4), activation=torch.tanh),
}
ENDS: dict[str, Callable[[], list[nn.Module]]] = {
    "activations": lambda: [nn.LeakyReLU(), nn.Sequential(nn.Sigmoid(), nn.Identity()), nn.Softplus()],
    "norm": lambda: [nn.LayerNorm(4), nn.ELU(), nn.Dropout(0.0), nn.RMSNorm(4)],
    "linear": lambda: [nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2)],
}
needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture
def graph() -> vgraph.Graph:
    ends = torch.randint(9, (2, 30))
    return vgraph.add_self_loop(vgraph.graph((ends[0], ends[1]), num_nodes=9))


def one_by_one(net: Sequential, graph: vgraph.Graph, rows: Any) -> Any:
    """What each module gives, called by hand."""
    for module in net:
        rows = module(rows) if type(module).__module__.startswith("torch.") else module(graph, rows)
    return rows


# ---------------------------------------------------------------- ends of loops
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("name", LAYERS)
def test_what_follows_a_layer_gives_the_same_within_its_loop(name: str, ends: str, graph: vgraph.Graph) -> None:
    net = Sequential(LAYERS[name](), *(ENDS[ends]() if name != "GINConv" else [nn.ReLU(), nn.Dropout(0.0)])).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    found, wanted, inputs = net(graph, x), one_by_one(net, graph, x), [x, *net.parameters()]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(rows.square().sum(), inputs, allow_unused=True) for rows in (found, wanted)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


def test_an_edge_layer_takes_what_follows_it(graph: vgraph.Graph) -> None:
    layer, edges = EdgeGATConv(6, 5, 4, 2), torch.randn(graph.num_edges(), 5)
    net, x = Sequential(layer, nn.ReLU()), torch.randn(9, 6)
    torch.testing.assert_close(net(graph, x, edges), torch.relu(layer(graph, x, edges)))


@needs_compiler
def test_relu_and_dropout_run_in_the_loop_and_in_its_backward(
    graph: vgraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    net = Sequential(GraphConv(6, 4), nn.ReLU(), nn.Dropout(0.5), GraphConv(4, 3))
    with compile_fast():
        first, last = vgraph.explain(net, graph, torch.randn(9, 6, requires_grad=True)).functions
    forward, backward = first.programs
    sums = forward.steps[-1]
    assert sums.kernel is not None
    assert {"relu", "random_bernoulli[0]"} <= set(sums.operators) and "segment_sum[dst]" in sums.operators
    assert {name for step in backward.steps if step.kernel is None for name in step.operators} == {"sum", "mm"}
    last_ones = {name for program in last.programs for step in program.steps for name in step.operators}
    assert last_ones.isdisjoint({"relu", "threshold_backward", "random_bernoulli[0]"})


@needs_compiler
def test_no_relu_or_dropout_of_torch_runs(graph: vgraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.delenv("VGRAPH_CAPTURE", raising=False)  # where all is recorded again, they run
    net, x = Sequential(GraphConv(6, 4), nn.ReLU(), nn.Dropout(0.5), GraphConv(4, 3)), torch.randn(9, 6)
    with compile_fast():
        net(graph, x).sum().backward()  # which records
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        net(graph, x).sum().backward()
    names = {event.key for event in profile.key_averages()}
    assert not [name for name in names if "relu" in name or "dropout" in name or "bernoulli" in name]
    assert "aten::threshold_backward" not in names and "aten::mm" in names


def test_dropout_draws_anew_at_every_call_and_not_in_evaluation(graph: vgraph.Graph) -> None:
    net = Sequential(GraphConv(6, 50), nn.Sigmoid(), nn.Dropout(0.5))
    x = torch.randn(9, 6)
    first, second = net(graph, x), net(graph, x)
    assert 0.3 < (first == 0).float().mean() < 0.7 and not torch.equal(first, second)
    whole = torch.sigmoid(net[0](graph, x))
    torch.testing.assert_close(first, torch.where(first == 0, 0.0, 2 * whole))
    (grad,) = torch.autograd.grad(first.sum(), net[0].bias)
    torch.testing.assert_close(grad, torch.where(first == 0, 0.0, 2 * whole * (1 - whole)).sum(0))
    torch.testing.assert_close(net.eval()(graph, x), whole)
    assert (net.train()(graph, x) == 0).any()


def test_autocast_rounds_alike(graph: vgraph.Graph) -> None:
    for layer in (GraphConv(6, 4), GATConv(6, 4, 1)):
        net, x = Sequential(layer, nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh()), torch.randn(9, 6)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(net(graph, x), one_by_one(net, graph, x))


def test_a_graph_without_edges(graph: vgraph.Graph) -> None:
    g, x = vgraph.graph(([], []), num_nodes=3), torch.randn(3, 6)
    net = Sequential(GraphConv(6, 4, allow_zero_in_degree=True), nn.Sigmoid(), nn.Linear(4, 2))
    torch.testing.assert_close(net(g, x), one_by_one(net, g, x))


# ---------------------------------------------------------------- what stays as it stands
def test_a_forward_hook_sees_the_rows_of_every_call(graph: vgraph.Graph) -> None:
    net, x, seen = Sequential(GraphConv(6, 4), nn.ReLU(), nn.Sigmoid()), torch.randn(9, 6), list[Tensor]()
    found = net(graph, x)
    for module in (net[1], net[0]):  # one that follows, and the layer itself
        hook = module.register_forward_hook(lambda _, args, out: seen.append(out))
        for _ in range(2):
            torch.testing.assert_close(net(graph, x), found)
        hook.remove()
    wanted = net[0](graph, x)
    torch.testing.assert_close(seen, [torch.relu(wanted)] * 2 + [wanted] * 2)


def test_hooks_of_the_backward_and_of_all_modules_run(graph: vgraph.Graph) -> None:
    net, x, seen = Sequential(GraphConv(6, 4), nn.ReLU()), torch.randn(9, 6), list[str]()
    net[1].register_full_backward_hook(lambda module, *_: seen.append(type(module).__name__))
    net(graph, x).sum().backward()
    assert seen == ["ReLU"]
    hook = register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    Sequential(GraphConv(6, 4), nn.Tanh())(graph, x)
    hook.remove()
    assert seen == ["ReLU", "GraphConv", "Tanh", "Sequential"]


def test_what_mixes_rows_or_writes_in_place_is_called_as_it_stands(graph: vgraph.Graph) -> None:
    x, norm = torch.randn(9, 6), nn.BatchNorm1d(4)
    net = Sequential(GraphConv(6, 4), nn.ReLU(inplace=True), norm, nn.LayerNorm((9, 4)), GraphConv(4, 3))
    other = copy.deepcopy(net)
    found, wanted = net(graph, x), one_by_one(other, graph, x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(norm.running_mean, other[2].running_mean)
    assert norm.num_batches_tracked == 1
    grads = [torch.autograd.grad(f.square().sum(), list(m.parameters())) for f, m in ((found, net), (wanted, other))]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    "module", [nn.ReLU(inplace=True), nn.BatchNorm1d(4), nn.LayerNorm((9, 4)), nn.Softmax(0), nn.Flatten(0)]
)
def test_not_by_row(module: nn.Module) -> None:
    assert not is_by_row(module) and not is_by_row(nn.Sequential(nn.ReLU(), module))


def test_a_subclass_with_a_forward_of_its_own_ends_as_it_says(graph: vgraph.Graph) -> None:
    class Doubled(GraphConv):
        def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:  # pyright: ignore
            return super().forward(graph, feat) * 2 - 1

    net, x = Sequential(Doubled(6, 4), nn.ReLU()), torch.randn(9, 6)
    torch.testing.assert_close(net(graph, x), torch.relu(net[0](graph, x)))


def test_parametrized_modules_are_called_as_they_stand(graph: vgraph.Graph) -> None:
    net, x = Sequential(GraphConv(6, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), torch.randn(9, 6)
    torch.testing.assert_close(net(graph, x), net[1](net[0](graph, x)))


def test_names_copies_and_repr_are_those_of_torch(graph: vgraph.Graph) -> None:
    modules = [GraphConv(6, 4), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(4), GraphConv(4, 3)]
    net, x = Sequential(*modules).eval(), torch.randn(9, 6)
    found, shown = net(graph, x), repr(net)
    assert list(net.state_dict()) == list(nn.Sequential(*modules).state_dict())
    assert shown == repr(nn.Sequential(*modules))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(other(graph, x), found)
        file.seek(0)
        other.load_state_dict(torch.load(file))
        assert repr(other) == shown


# ---------------------------------------------------------------- who gets the graph
class OfRows(nn.Module):
    def forward(self, anything: Tensor) -> Tensor:
        return anything * 2


class OfAnyRows(nn.Module):
    def forward(self, x: Any, scale: float = 3.0) -> Any:
        return x * scale


class OfAnnotatedRows(nn.Module):
    def forward(self, anything: Tensor, scale: float = 3.0) -> Tensor:
        return anything * scale


class NeedsGraph(nn.Module):
    def forward(self, anything: Any, rows: Tensor) -> Tensor:
        return rows + anything.num_nodes()


class NamesGraph(nn.Module):
    def forward(self, g: Any, rows: Tensor, scale: float = 1.0) -> Tensor:
        return rows * scale + g.num_nodes()


class AnnotatesGraph(nn.Module):
    def forward(self, anything: vgraph.Graph, rows: Tensor | None = None) -> Tensor:
        assert rows is not None
        return rows + anything.num_nodes()


class Unclear(nn.Module):
    def forward(self, anything: Any, more: Any = None) -> Any:
        return anything


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.inner(*args, **named)


@pytest.mark.parametrize(
    ("module", "adds", "scales"),
    [
        (OfRows(), 0, 2),
        (OfAnyRows(), 0, 3),
        (OfAnnotatedRows(), 0, 3),
        (NeedsGraph(), 9, 1),
        (NamesGraph(), 9, 1),
        (AnnotatesGraph(), 9, 1),
        (Wrapper(NeedsGraph()), 9, 1),
        (Wrapper(OfRows()), 0, 2),
        (Sequential(NeedsGraph(), nn.Identity()), 9, 1),
        (nn.Sequential(nn.Identity(), OfRows()), 0, 2),
        (nn.Identity(), 0, 1),
    ],
)
def test_who_gets_the_graph(module: nn.Module, adds: int, scales: int, graph: vgraph.Graph) -> None:
    x = torch.randn(9, 4)
    torch.testing.assert_close(Sequential(nn.Identity(), module)(graph, x), x * scales + adds)
    net = Sequential(GraphConv(4, 4), nn.ReLU(), module, nn.Tanh())
    torch.testing.assert_close(net(graph, x), torch.tanh(torch.relu(net[0](graph, x)) * scales + adds))


@pytest.mark.parametrize("module", [Unclear(), Wrapper(Unclear()), nn.Module()])
def test_who_does_not_tell_is_refused(module: nn.Module, graph: vgraph.Graph) -> None:
    with pytest.raises(FunctionError, match=r"cannot tell whether .*gets the graph") as raised:
        Sequential(nn.ReLU(), module)(graph, torch.randn(9, 4))
    assert "take (graph, x, ...) or (x, ...)" in str(raised.value)


def test_torch_s_sequential_around_layers_is_refused(graph: vgraph.Graph) -> None:
    inner = nn.Sequential(nn.ReLU(), GraphConv(4, 4))
    with pytest.raises(FunctionError, match="does not give GraphConv the graph") as raised:
        Sequential(GraphConv(4, 4), inner)(graph, torch.randn(9, 4))
    assert "vgraph.nn.Sequential" in str(raised.value)


def test_too_many_features_are_refused(graph: vgraph.Graph) -> None:
    class Pair(nn.Module):
        def forward(self, g: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x, x, x

    with pytest.raises(FunctionError, match="OfRows, which 3 features reach"):
        Sequential(Pair(), OfRows())(graph, torch.randn(9, 4))


def test_each_layer_on_a_graph_of_its_own_of_a_list(graph: vgraph.Graph) -> None:
    other = vgraph.add_self_loop(vgraph.graph(([0, 1], [1, 2]), num_nodes=9))
    net = Sequential(nn.Dropout(0.0), GraphConv(6, 4), nn.ReLU(), GraphConv(4, 3), nn.Tanh())
    x = torch.randn(9, 6)
    hidden = torch.relu(net[1](graph, x))
    torch.testing.assert_close(net([graph, other], x), torch.tanh(net[3](other, hidden)))
    torch.testing.assert_close(net([graph], x), hidden)  # as DGL's, which ends with the list


def test_several_features_and_tuples_of_results(graph: vgraph.Graph) -> None:
    class Both(nn.Module):
        def forward(self, graph: vgraph.Graph, x: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            return x + graph.num_nodes(), e + graph.num_edges()

    class OfPairs(nn.Module):
        def forward(self, x: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
            return 2 * x, 3 * e

    x, e = torch.randn(9, 2), torch.randn(graph.num_edges(), 2)
    found = Sequential(Both(), OfPairs(), Both())(graph, x, e)
    count = graph.num_edges()
    torch.testing.assert_close(found, (2 * (x + 9) + 9, 3 * (e + count) + count))


def test_then_ends_the_last_layer_or_what_stands_behind(graph: vgraph.Graph) -> None:
    x = torch.randn(9, 6)
    for net in (Sequential(GraphConv(6, 4), nn.ReLU()), Sequential(GraphConv(6, 4), nn.BatchNorm1d(4)).eval()):
        torch.testing.assert_close(net(graph, x, then=torch.tanh), torch.tanh(net(graph, x)))
    net = Sequential(nn.ReLU(), GraphConv(6, 4))
    torch.testing.assert_close(net([], x, then=torch.tanh), torch.tanh(torch.relu(x)))
    nested = Sequential(Sequential(GraphConv(6, 4), nn.ReLU()), nn.Tanh(), GraphConv(4, 3))
    first, _ = vgraph.explain(nested, graph, x).functions
    assert "tanh" in first.programs[0].steps[-1].operators
    torch.testing.assert_close(nested(graph, x), nested[2](graph, torch.tanh(nested[0](graph, x))))


# ---------------------------------------------------------------- torch.compile
@pytest.fixture
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_dynamo")
def test_torch_compile_gives_the_same(graph: vgraph.Graph) -> None:
    net = Sequential(GraphConv(6, 4), nn.ReLU(), nn.LayerNorm(4), GATConv(4, 4, 2), nn.Flatten(1), nn.Linear(8, 3))
    x = torch.randn(9, 6, requires_grad=True)
    found, wanted = torch.compile(net, fullgraph=True, backend="aot_eager")(graph, x), net(graph, x)
    torch.testing.assert_close(found, wanted)
    grads = [torch.autograd.grad(rows.square().sum(), [x, *net.parameters()]) for rows in (found, wanted)]
    torch.testing.assert_close(*grads)


@pytest.mark.usefixtures("_fresh_dynamo")
def test_compiled_layers_within(graph: vgraph.Graph) -> None:
    layer, x = GraphConv(6, 4), torch.randn(9, 6)
    wanted = torch.relu(layer(graph, x))
    net = Sequential(torch.compile(layer, backend="aot_eager"), nn.ReLU())
    torch.testing.assert_close(net(graph, x), wanted)
    layer.compile(backend="aot_eager")
    torch.testing.assert_close(Sequential(layer, nn.ReLU())(graph, x), wanted)
