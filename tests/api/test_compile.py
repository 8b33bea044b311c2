"""torch.compile: one graph, equal to eager, compiled anew only where it must be."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import vgraph
import vgraph.function as fn
import vgraph.nn as layers

F64 = torch.float64


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch.compiler.reset()
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(before)
    torch.compiler.reset()


def a_graph(num_nodes: int = 10, num_edges: int = 30, lonely: int = 2) -> vgraph.Graph:
    ends = torch.randint(num_nodes, (num_edges,)), torch.randint(num_nodes - lonely, (num_edges,))
    return vgraph.graph(ends, num_nodes=num_nodes)


class Counter:
    """A backend that runs the graph as it is, and counts."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, module: Any, _: Any) -> Any:
        self.graphs.append(module)
        return module


def steps(call: Callable[..., Tensor], module: nn.Module, graph: Any, *rows: Tensor) -> list[Tensor]:
    """Output and gradients of features and parameters, from the same random numbers."""
    torch.manual_seed(1)
    given = [row.clone().requires_grad_() for row in rows]
    out = call(graph, *given)
    wrt = [*given, *module.parameters()]
    grads = torch.autograd.grad(out.cos().sum(), wrt, allow_unused=True)
    return [out, *(torch.zeros_like(w) if g is None else g for g, w in zip(grads, wrt, strict=True))]


def assert_same(compiled: Any, module: nn.Module, graph: Any, *rows: Tensor) -> None:
    expected, found = (steps(call, module, graph, *rows) for call in (module, compiled))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


class Attention(nn.Module):
    """Lambdas that close over modules, numbers and a tensor of the graph itself."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.scale = nn.Linear(4, 5), 2.5

    def forward(self, g: vgraph.Graph, x: Tensor, w: Tensor) -> Tensor:
        g.ndata["h"], g.edata["w"] = x * 2, w
        shift = x.sum(-1).mean()
        g.update_all(
            lambda edges: {
                "m": torch.sigmoid(self.key(edges.src["h"]) + shift) * edges.data["w"] * self.scale,
                "s": (edges.src["h"] * edges.dst["h"]).sum(-1, keepdim=True),
            },
            lambda nodes: {
                "o": (torch.softmax(nodes.mailbox["s"], 1) * nodes.mailbox["m"]).sum(1) + nodes.data["h"][:, :1]
            },
        )
        g.update_all(fn.u_mul_e("o", "w", "m"), fn.max("m", "z"))
        g.apply_edges(lambda edges: {"d": edges.src["z"] - edges.dst["o"]})
        return g.ndata["z"] + g.edata["d"].mean()


def test_update_all_is_one_graph_and_equals_eager() -> None:
    module, graph = Attention(), a_graph()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert_same(compiled, module, graph, torch.randn(10, 4), torch.randn(30, 1))


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="Inductor needs a compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own making
def test_inductor_equals_eager() -> None:
    module, graph = Attention(), a_graph()
    assert_same(torch.compile(module, fullgraph=True), module, graph, torch.randn(10, 4), torch.randn(30, 1))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "GraphConv": lambda: layers.GraphConv(4, 5),
    "GATConv": lambda: layers.GATConv(4, 5, 2, attn_drop=0.5),
    "GATv2Conv": lambda: layers.GATv2Conv(4, 5, 2),
    "SAGEConv": lambda: layers.SAGEConv(4, 5, "pool"),
    "GINConv": lambda: layers.GINConv(nn.Linear(4, 5)),
    "PNAConv": lambda: layers.PNAConv(4, 5, ["mean", "max"], ["identity"], 2.5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_do_not_break_the_graph(name: str) -> None:
    module, graph = LAYERS[name](), vgraph.add_self_loop(a_graph())
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    compiled(vgraph.add_self_loop(a_graph()), torch.randn(10, 4))  # nothing is kept of this graph yet
    assert_same(compiled, module, graph, torch.randn(10, 4))


READOUTS: dict[str, Callable[[vgraph.Graph], Tensor]] = {
    "a sum": lambda g: vgraph.sum_nodes(g, "h"),
    "a mean of edges": lambda g: vgraph.mean_edges(g, "e"),
    "a softmax": lambda g: vgraph.softmax_nodes(g, "h"),
}


@pytest.mark.parametrize("name", READOUTS)
def test_readouts_of_no_numbers_run_outside_the_graph(name: str) -> None:
    """No operator gives rows of no width."""
    g = vgraph.batch([vgraph.graph(([0, 1], [1, 2])), vgraph.graph(([0], [1]))])
    g.ndata["h"], g.edata["e"] = torch.ones(5, 0), torch.ones(3, 0)
    found = torch.compile(READOUTS[name], backend="eager")(g)
    assert torch.equal(found, READOUTS[name](g))


def test_a_batch_of_graphs_of_a_batch() -> None:
    g = vgraph.batch([vgraph.graph(([0, 1], [1, 2])), vgraph.graph(([0], [1]))])
    g.ndata["h"] = torch.randn(5, 2)

    def turned(g: vgraph.Graph) -> Tensor:
        turned = vgraph.batch(vgraph.unbatch(g)[::-1])
        turned.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
        return turned.ndata["o"]

    torch.testing.assert_close(torch.compile(turned, backend="eager")(g), turned(g))


class Counts(nn.Module):
    """Its message function writes into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        def message(edges: vgraph.EdgeBatch) -> dict[str, Tensor]:
            self.calls.add_(1)
            return {"m": edges.src["h"] * 2}

        g.ndata["h"] = x
        g.update_all(message, fn.sum("m", "s"))
        return g.ndata["s"]


def test_what_a_function_writes_is_written_once_a_call() -> None:
    module = Counts()
    compiled, plain = torch.compile(module, backend="eager"), Counts()
    for number in (1, 2, 3):
        graph, x = a_graph(), torch.randn(10, 4)
        torch.testing.assert_close(compiled(graph, x), plain(graph, x))
        assert (module.calls, plain.calls) == (number, number)


def test_a_compiled_layer_still_checks_in_degrees() -> None:
    compiled = torch.compile(layers.GraphConv(4, 5), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="no in-edge"):
        compiled(a_graph(), torch.randn(10, 4))


class TreeLSTM(vgraph.VertexFunction):
    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.W, self.U, self.Uf = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, v: vgraph.Vertex) -> None:
        child, x = v.gather(), v.pull("x")
        i, o, u = (self.W(x) + self.U(child["h"].sum())).chunk(3, -1)
        c = torch.sigmoid(i) * torch.tanh(u) + (torch.sigmoid(self.Uf(child["h"])) * child["c"]).sum()
        h = torch.sigmoid(o) * torch.tanh(c)
        v.scatter(h=h, c=c)
        v.push(h=h)


class Slots(vgraph.VertexFunction):
    """Children by number, and reductions without a dim."""

    def forward(self, v: vgraph.Vertex) -> None:
        child = v.gather()["h"]
        first, second = v.gather(0)["h"], v.gather(1, default=0.5)["h"]
        h = torch.tanh(first - second + v.pull("x")) + child.max() * (child.softmax() * child).sum()
        v.scatter(h=h + v.in_degree.unsqueeze(-1))
        v.push(h=h)


class Readout(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.out = cell, nn.Linear(4, 2)

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        return self.out(self.cell(g, x=x * 2)["h"])


def trees(count: int) -> vgraph.Graph:
    return vgraph.batch([vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4])) for _ in range(count)])


@pytest.mark.parametrize(
    "cell", [lambda: TreeLSTM(4), lambda: TreeLSTM(4, direction="reverse"), Slots], ids=["tree", "reverse", "slots"]
)
def test_vertex_functions_are_one_graph_for_any_batch(cell: Callable[[], nn.Module]) -> None:
    module, backend = Readout(cell()), Counter()
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    for count in (3, 4, 6, 5):
        assert_same(compiled, module, trees(count), torch.randn(5 * count, 4))
    assert len(backend.graphs) <= 2  # numbers of rows become symbols when they change


@pytest.mark.parametrize(
    ("layer", "graph"),
    [
        (lambda: layers.GATConv(4, 2, 1), lambda: vgraph.add_self_loop(a_graph())),
        (lambda: Readout(Slots()), lambda: trees(2)),
    ],
    ids=["messages", "vertices"],
)
def test_a_checkpoint_counts_what_a_call_saves_and_not_what_compiling_it_does(layer: Any, graph: Any) -> None:
    module, g = layer(), graph()
    compiled = torch.compile(module, backend="eager")
    assert_same(
        lambda *given: checkpoint(compiled, *given, use_reentrant=False), module, g, torch.randn(g.num_nodes(), 4)
    )


def test_gather_of_a_missing_child_is_refused_by_the_operator() -> None:
    class Second(vgraph.VertexFunction):
        def forward(self, v: vgraph.Vertex) -> None:
            v.scatter(h=v.pull("x") + v.gather(1)["h"])
            v.push(h=v.pull("x"))

    compiled = torch.compile(Second(), backend="eager", fullgraph=True)
    compiled(trees(1), x=torch.randn(5, 4))
    with pytest.raises(vgraph.errors.VGraphError, match="child"):
        compiled(vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 4])), x=torch.randn(5, 4))


def test_it_compiles_anew_only_where_it_must() -> None:
    module, backend = Attention(), Counter()
    compiled = torch.compile(module, backend=backend, fullgraph=True)

    def run(num_nodes: int, num_edges: int) -> int:
        graph = a_graph(num_nodes, num_edges)
        assert_same(compiled, module, graph, torch.randn(num_nodes, 4), torch.randn(num_edges, 1))
        return len(backend.graphs)

    first = run(10, 30)
    assert run(10, 30) == first  # another graph of the same sizes
    run(10, 41)
    symbolic = run(15, 55)
    assert run(17, 77) == run(12, 20) == symbolic
    module.scale = 3.5
    changed = run(17, 77)
    assert changed > symbolic
    module.scale = 4.5
    assert run(17, 77) == changed  # it moves: an input by now


def test_sizes_that_are_symbols_from_the_start() -> None:
    """Those of a row are constants all the same, also once they are known to have one value."""
    module = Attention()
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    for num_nodes, num_edges in ((10, 30), (7, 12)):
        graph = a_graph(num_nodes, num_edges)
        assert_same(compiled, module, graph, torch.randn(num_nodes, 4), torch.randn(num_edges, 1))


def test_a_number_that_must_be_constant_stays_one() -> None:
    class Power(nn.Module):
        dim = -1

        def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
            g.ndata["h"] = x
            g.update_all(lambda edges: {"m": edges.src["h"].sum(self.dim)}, fn.sum("m", "o"))
            return g.ndata["o"]

    module, graph = Power(), a_graph()
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    for module.dim in (-1, 1, 2, -2):
        assert_same(compiled, module, graph, torch.randn(10, 3, 3))


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_ids_have_the_dtype_of_the_graph(idtype: torch.dtype) -> None:
    """A number that overflows in 32 bits is another one in 64."""

    def function(graph: vgraph.Graph) -> tuple[Tensor, Tensor, Tensor]:
        graph.update_all(
            lambda edges: {"m": edges.edges()[0] * 2_000_000_000},
            lambda nodes: {"sum": nodes.mailbox["m"].sum(1), "id": nodes.nodes() * 2_000_000_000},
        )
        graph.apply_edges(lambda edges: {"end": edges.edges()[1] * 2_000_000_000})
        return graph.ndata["sum"], graph.ndata["id"], graph.edata["end"]

    graph = vgraph.graph((torch.tensor([2, 3, 1], dtype=idtype), torch.tensor([0, 1, 2], dtype=idtype)), num_nodes=4)
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    for found, expected in zip(compiled(graph), function(graph), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_graph_may_be_gone_before_the_backward() -> None:
    module = Attention()
    compiled, graph = torch.compile(module, backend="aot_eager", fullgraph=True), a_graph()
    x, w = torch.randn(10, 4, requires_grad=True), torch.randn(30, 1)
    (expected,) = torch.autograd.grad(module(graph, x, w).sum(), x)
    out = compiled(graph, x, w)
    del graph
    gc.collect()
    (found,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(found, expected)


def test_what_cannot_be_an_operator_leaves_the_graph() -> None:
    class Looks(nn.Module):
        def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
            g.ndata["h"] = x + 1
            g.update_all(
                lambda edges: {"m": edges.src["h"] * (2 if edges.src["h"].sum().item() > 0 else 1)}, fn.sum("m", "o")
            )
            return g.ndata["o"] * 2

    module, graph, x = Looks(), a_graph(), torch.randn(10, 4)
    assert torch.equal(torch.compile(module, backend="eager")(graph, x), module(graph, x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="makes no operator of"):
        torch.compile(module, backend="eager", fullgraph=True)(graph, x)


class OneRowAGraph(nn.Module):
    """GIN and every kind of readout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = vgraph.nn.GINConv(nn.Linear(3, 4), "sum")
        self.pools = nn.ModuleList([vgraph.nn.AvgPooling(), vgraph.nn.GlobalAttentionPooling(nn.Linear(4, 1))])

    def forward(self, g: vgraph.Graph, x: Tensor) -> Tensor:
        h = torch.relu(self.conv(g, x))
        with g.local_scope():
            g.ndata["h"] = h - vgraph.broadcast_nodes(g, self.pools[0](g, h))
            g.apply_edges(fn.u_sub_v("h", "h", "d"))
            g.ndata["s"] = vgraph.softmax_nodes(g, "h")
            return vgraph.max_nodes(g, "h") + vgraph.sum_nodes(g, "s") + vgraph.mean_edges(g, "d") + self.pools[1](g, h)


def test_a_batch_is_made_within_a_compiled_function() -> None:
    """Its ids are joined outside of the graph, also when they are joined a second time."""

    def function(graphs: list[vgraph.Graph], x: Tensor) -> Tensor:
        g = vgraph.batch(graphs)
        g.ndata["h"] = x
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
        return g.ndata["o"]

    graphs, x = [a_graph(), a_graph(7, 12)], torch.randn(17, 3)
    compiled = torch.compile(function, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(graphs, x), function(graphs, x))


def test_readouts_are_in_the_graph() -> None:
    model = OneRowAGraph()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    pair = vgraph.graph(([0, 1], [1, 0]))
    for other in (vgraph.graph(([0, 1, 2], [1, 2, 2])), vgraph.graph(([0, 2, 2, 1], [1, 0, 1, 3]))):
        g = vgraph.batch([pair, other])
        x = torch.randn(g.num_nodes(), 3, requires_grad=True)
        found, wanted = compiled(g, x), model(g, x)
        torch.testing.assert_close(found, wanted)
        inputs = [x, *model.parameters()]
        grads = (torch.autograd.grad(out.square().sum(), inputs) for out in (found, wanted))
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_the_largest_rows_leave_the_graph() -> None:
    g, pool = vgraph.batch([vgraph.graph(([0], [1])), vgraph.graph(([0, 1], [1, 2]))]), vgraph.nn.SortPooling(2)
    x = torch.randn(5, 3)
    assert torch.equal(torch.compile(pool, backend="eager")(g, x), pool(g, x))


LSTM = nn.LSTM(4, 3, batch_first=True, dtype=torch.float64)


def breaks(rows: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return rows * 2


class BreaksInItself(vgraph.VertexFunction):
    def forward(self, v: vgraph.Vertex) -> None:
        h = torch.tanh(v.gather()["h"].sum() + breaks(v.pull("h")))
        v.scatter(h=h)
        v.push(h=h)


CHAIN = vgraph.graph(([0, 1, 2], [1, 2, 3]))


def of_vertices(graph: vgraph.Graph, x: Tensor) -> Tensor:
    return BreaksInItself()(CHAIN, h=x[:4])["h"]


def of_edges(graph: vgraph.Graph, x: Tensor) -> Tensor:
    graph.ndata["h"] = x
    graph.apply_edges(lambda edges: {"m": breaks(edges.src["h"])})
    return graph.edata["m"]


def of_messages(graph: vgraph.Graph, x: Tensor) -> Tensor:
    graph.ndata["h"] = x
    graph.update_all(lambda edges: {"m": breaks(edges.src["h"])}, lambda v: {"o": breaks(v.mailbox["m"].max(1)[0])})
    return graph.ndata["o"]


def of_mailboxes(graph: vgraph.Graph, x: Tensor) -> Tensor:
    graph.ndata["h"] = x
    graph.update_all(fn.copy_u("h", "m"), lambda v: {"o": LSTM(v.mailbox["m"])[1][0][0]})
    return graph.ndata["o"]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's own, of what lies between two pieces
@pytest.mark.parametrize("call", [of_vertices, of_edges, of_messages, of_mailboxes])
def test_a_graph_that_breaks_in_a_users_function(call: Any) -> None:
    """Its pieces never meet rows that stand for nothing: the call runs outside the graph, once and as a whole."""
    graph, x = a_graph(), torch.randn(10, 4, dtype=torch.float64)
    expected = call(graph, x)
    assert torch.equal(torch.compile(call, backend="eager")(graph, x), expected)


def test_a_wrong_function_raises_what_it_raises_uncompiled() -> None:
    graph, x = a_graph(), torch.randn(10, 4)

    def call(rows: Tensor) -> Tensor:
        graph.ndata["h"] = rows
        graph.update_all(lambda edges: {"m": edges.src["nothing"]}, fn.sum("m", "o"))
        return graph.ndata["o"]

    with pytest.raises(vgraph.errors.NameLookupError, match="nothing"):
        torch.compile(call, backend="eager")(x)
