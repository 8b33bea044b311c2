"""What programs of PyG's do with accelerated models: kinds of edges, types, mini-batches, ranks, explainers, modes."""

from __future__ import annotations

import copy
import gc
import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import vgraph
from tests.distributed.launch import on_ranks
from vgraph.capture.capture import watch_runs
from vgraph.capture.errors import CaptureError
from vgraph.ir.topology import Topology

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's import uses what torch has deprecated
    pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.explain import Explainer, GNNExplainer
    from torch_geometric.loader import DataLoader

N, E, F = 30, 100, 8
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "SAGEConv": lambda: pyg.SAGEConv(F, F),
    "GCNConv": lambda: pyg.GCNConv(F, F),
    "GATConv": lambda: pyg.GATConv(F, F, heads=2),
    "GINConv": lambda: pyg.GINConv(nn.Linear(F, F)),
}


class Net(nn.Module):
    """Two layers, as most programs have them."""

    def __init__(self, kind: str = "SAGEConv") -> None:
        super().__init__()
        self.first, self.last = LAYERS[kind](), pyg.SAGEConv(-1, 3) if kind == "GATConv" else pyg.SAGEConv(F, 3)

    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


def edges(count: int = E) -> Tensor:
    return torch.randint(0, N, (2, count))


def pair(kind: str) -> tuple[nn.Module, nn.Module]:
    """A layer and an accelerated copy, in double precision."""
    layer = LAYERS[kind]().double()
    return layer, vgraph.accelerate(copy.deepcopy(layer))


def with_gradients(model: nn.Module, *given: Any) -> list[Tensor]:
    """What a model gives for rows, then the derivatives by these and by the parameters."""
    x = given[0].clone().requires_grad_()
    out = model(x, *given[1:])
    return [out, *torch.autograd.grad(out.square().sum(), [x, *model.parameters()])]


def ran_as_pyg_does(kind: str, adjacency: Any) -> list[object]:
    """What ran accelerated, each function's Bound or the error, after its numbers were compared with PyG's."""
    layer, fast = pair(kind)
    x = torch.randn(N, F, dtype=torch.float64)
    wanted = with_gradients(layer, x, adjacency)
    with watch_runs() as runs:
        found = with_gradients(fast, x, adjacency)
    torch.testing.assert_close(found, wanted)
    return [what for _, what, _ in runs]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("order", [None, "row", "col"])
@pytest.mark.parametrize("change", ["as it is", "transposed", "undirected"])
def test_edge_index(kind: str, order: str | None, change: str) -> None:
    ids = edges()
    if change == "undirected":
        ids = torch.cat([ids, ids.flip(0)], 1).unique(dim=1).contiguous()
    adjacency = EdgeIndex(ids, sparse_size=(N, N), is_undirected=change == "undirected")
    if order is not None:
        adjacency = adjacency.sort_by(order).values
    if change == "transposed":
        adjacency = adjacency.flip(0)
    ran = ran_as_pyg_does(kind, adjacency)
    assert ran and not any(isinstance(what, CaptureError) for what in ran)
    layer, _ = pair(kind)
    x = torch.randn(N, F, dtype=torch.float64)
    torch.testing.assert_close(layer(x, adjacency), layer(x, adjacency.as_tensor()))


@pytest.mark.parametrize("writes", ["to it", "to its ids"])
def test_a_write_to_an_edge_index_is_seen(writes: str) -> None:
    """The EdgeIndex counts the one kind of write, the tensor within it the other."""
    layer, fast = pair("SAGEConv")
    adjacency, x = EdgeIndex(edges(), sparse_size=(N, N)), torch.randn(N, F, dtype=torch.float64)
    torch.testing.assert_close(fast(x, adjacency), layer(x, adjacency))
    for node in (3, 5):
        written = adjacency if writes == "to it" else adjacency.as_tensor()
        written[0, :8] = node
        torch.testing.assert_close(fast(x, adjacency), layer(x, adjacency.as_tensor().clone()))


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:Converting sparse")
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_matrices(kind: str, layout: str) -> None:
    """Rows are destinations. Attention by a kernel, all else by PyG's product of matrices, or PyG's own error."""
    weights = torch.zeros(N, N, dtype=torch.float64)
    weights[tuple(edges())] = 1.0
    adjacency = getattr(weights, layout)()
    layer, fast = pair(kind)
    try:
        layer(torch.randn(N, F, dtype=torch.float64), adjacency)
    except (NotImplementedError, ValueError) as refusal:  # of CSC, by gcn_norm and in products
        with pytest.raises(type(refusal), match=re.escape(str(refusal))):
            fast(torch.randn(N, F, dtype=torch.float64), adjacency)
    else:
        ran = ran_as_pyg_does(kind, adjacency)
        assert [isinstance(what, CaptureError) for what in ran] == [kind != "GATConv"]


OF_TEXT = """
class OfText(MessagePassing):
    def forward(self, x, adjacency):
        return self.propagate(adjacency, x=x, edge_weight=None, edge_type=None)

    def message(self, x_j, edge_weight, edge_type):
        weighted = x_j * edge_weight.view(-1, 1)
        return weighted if edge_type is None else weighted * edge_type.view(-1, 1)
"""


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("module", [{}, {"__name__": "__main__"}])
def test_a_layer_of_text(module: dict[str, Any]) -> None:
    """PyG has no source of it: its general way gives a matrix's entries under each of their names."""
    exec(OF_TEXT, names := {**module, "MessagePassing": pyg.MessagePassing})
    layer = names["OfText"]()
    x, adjacency = torch.randn(N, F), (torch.rand(N, N) * (torch.rand(N, N) > 0.8)).to_sparse_csr()
    wanted = layer(x, adjacency)
    torch.testing.assert_close(vgraph.accelerate(layer)(x, adjacency), wanted)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_matrix_that_is_not_coalesced() -> None:
    exec(OF_TEXT, names := {"MessagePassing": pyg.MessagePassing})
    layer, x = names["OfText"](), torch.randn(N, F)
    ids, weights = torch.tensor([[0, 1, 4], [2, 0, 1]]), torch.rand(3)
    wanted = layer(x, torch.sparse_coo_tensor(ids, weights, (N, N)))  # and calls it coalesced from then on
    found = vgraph.accelerate(layer)(x, torch.sparse_coo_tensor(ids, weights, (N, N)))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_a_model_of_one_type_becomes_one_of_many(aggregation: str) -> None:
    """torch_geometric.nn.to_hetero copies each layer once a relation: copies of accelerated ones are accelerated."""
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(N, F), torch.randn(N, F)
    for kind in (("a", "to", "b"), ("b", "to", "a"), ("b", "by", "b")):
        data[kind].edge_index = edges()
    torch.manual_seed(0)
    wanted = pyg.to_hetero(Net(), data.metadata(), aggregation)
    torch.manual_seed(0)
    model = pyg.to_hetero(vgraph.accelerate(Net()), data.metadata(), aggregation)
    model.load_state_dict(wanted.state_dict())
    with watch_runs() as runs:
        found = model(data.x_dict, data.edge_index_dict)
    assert len(runs) == 6 and not any(isinstance(what, CaptureError) for _, what, _ in runs)
    torch.testing.assert_close(found, wanted(data.x_dict, data.edge_index_dict))


def test_mini_batches_are_let_go() -> None:
    """200 batches of a DataLoader: no topology of theirs is kept once they are gone, nor what was derived of them."""
    graphs = [Data(x=torch.randn(6, F), edge_index=torch.randint(0, 6, (2, 12))) for _ in range(400)]
    model = vgraph.accelerate(Net("GCNConv"))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    held: list[int] = []
    for count, batch in enumerate(DataLoader(graphs, batch_size=2, shuffle=True)):
        optimizer.zero_grad()
        pyg.global_add_pool(model(batch.x, batch.edge_index), batch.batch).square().mean().backward()
        optimizer.step()
        if count % 20 == 19:
            gc.collect()
            held.append(sum(type(one) is Topology for one in gc.get_objects()))
    assert len(held) == 10
    assert held[-1] == held[0]


def test_ranks_have_the_gradients_of_one_process() -> None:
    assert "gradients agree" in on_ranks("tests.compat.pyg_ranks", 2)


def test_an_explainer_and_the_model_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    """Masks on edges are learned as without acceleration; the model is captured again when the explainer is done."""
    model, x, ids = Net("GCNConv"), torch.randn(N, F), edges()
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}

    def explained(one: nn.Module) -> Any:
        torch.manual_seed(0)
        explainer = Explainer(
            one, GNNExplainer(epochs=5), "model", config, node_mask_type="attributes", edge_mask_type="object"
        )
        return explainer(x, ids, index=3)

    wanted = explained(model)
    fast = vgraph.accelerate(copy.deepcopy(model))
    with caplog.at_level(logging.INFO, "vgraph"):
        found = explained(fast)
    torch.testing.assert_close(found.edge_mask, wanted.edge_mask)
    torch.testing.assert_close(found.node_mask, wanted.node_mask)
    with watch_runs() as runs:
        torch.testing.assert_close(fast(x, ids), model(x, ids))
    assert runs and not any(isinstance(what, CaptureError) for _, what, _ in runs)


@pytest.mark.parametrize("kind", ["SAGEConv", "GCNConv", "GINConv"])
def test_second_derivatives_of_a_model(kind: str) -> None:
    model = vgraph.accelerate(Net(kind).double())
    x, ids = torch.randn(6, F, dtype=torch.float64, requires_grad=True), torch.randint(0, 6, (2, 12))
    assert torch.autograd.gradgradcheck(lambda rows: model(rows, ids).tanh(), x)


@pytest.mark.parametrize("kind", ["SAGEConv", "GCNConv", "GATConv"])
def test_autocast_trains(kind: str) -> None:
    """Derivatives have the parameters' dtype, and are as near to those in full precision as PyG's own are."""
    layer, x, ids = LAYERS[kind](), torch.randn(N, F), edges()
    exact = with_gradients(layer, x, ids)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = with_gradients(layer, x, ids)
        ours = with_gradients(vgraph.accelerate(layer), x, ids)
    for one, other, wanted in zip(ours[1:], theirs[1:], exact[1:], strict=True):
        assert one.dtype == torch.float32
        assert (one - wanted).norm() <= 1.5 * (other - wanted).norm() + 0.01 * wanted.norm()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo asks for it where a layer breaks the graph
def test_torch_compile_of_a_model_trains() -> None:
    model, x, ids = Net(), torch.randn(N, F), edges()
    wanted = with_gradients(model, x, ids)
    compiled = torch.compile(vgraph.accelerate(model), backend="eager")
    with watch_runs() as runs:
        torch.testing.assert_close(with_gradients(compiled, x, ids), wanted)
    assert len(runs) == 2 and not any(isinstance(what, CaptureError) for _, what, _ in runs)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("where", ["model", "layer", "in place", pytest.param("forward", marks=pytest.mark.thorough)])
def test_torch_compile_leaves_a_layer_as_it_is(where: str) -> None:
    """What it derives is found again, and attention is a part of its messages, as where nothing is compiled."""
    layer, fast = pair("GATConv")
    model = nn.Sequential(fast) if where == "model" else fast
    if where == "model":
        model.forward = lambda rows, ids: fast(rows, ids) * 1
    if where in ("model", "layer"):
        model = torch.compile(model, backend="eager")
    if where == "in place":
        fast.compile(backend="eager")
    if where == "forward":
        fast.forward = torch.compile(fast.forward, backend="eager")
    ids, made = edges(), list[object]()
    for _ in range(2):
        x = torch.randn(N, F, dtype=torch.float64)
        with watch_runs() as runs:
            torch.testing.assert_close(with_gradients(model, x, ids), with_gradients(layer, x, ids))
        made += [what for _, what, _ in runs]
    assert len(made) == (2 if where in ("model", "layer") else 4)  # compiled attention is a function of its own
    assert not any(isinstance(what, CaptureError) for what in made)


def test_torch_compile_of_many_kinds_of_layers(caplog: pytest.LogCaptureFixture) -> None:
    """Dynamo compiles one code for at most eight classes, and says so where there are more."""
    kinds = [type(f"Layer{i}", (pyg.SimpleConv,), {}) for i in range(10)]
    layers, x, ids = [vgraph.accelerate(kind("mean")) for kind in kinds], torch.randn(N, F), edges()

    def model(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x, ids) + x
        return x

    limits = logging.getLogger("torch._dynamo.convert_frame")
    limits.addHandler(caplog.handler)
    try:
        with watch_runs() as runs:
            torch.testing.assert_close(torch.compile(model, backend="eager")(x), model(x))
    finally:
        limits.removeHandler(caplog.handler)
    assert len(runs) == 2 * len(layers) and not any(isinstance(what, CaptureError) for _, what, _ in runs)
    assert "recompile_limit" not in caplog.text


class _CalledOtherwise(pyg.SimpleConv):
    def __call__(self, *given: Tensor) -> Tensor:
        return 2 * super().__call__(*given)


def test_a_class_keeps_the_way_in_which_it_is_called() -> None:
    kind = type("Below", (_CalledOtherwise,), {})
    x, ids = torch.randn(N, F), edges()
    torch.testing.assert_close(vgraph.accelerate(kind("sum"))(x, ids), 2 * pyg.SimpleConv("sum")(x, ids))


def test_torch_compile_in_one_graph_says_why_not() -> None:
    compiled = torch.compile(vgraph.accelerate(Net()), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="as layers of PyG"):
        compiled(torch.randn(N, F), edges())


def test_strict_export_has_pygs_own_layers() -> None:
    (layer, fast), given = pair("SAGEConv"), (torch.randn(N, F).double(), edges())
    program = torch.export.export(fast, given, strict=True)
    torch.testing.assert_close(program.module()(*given), layer(*given))


def test_inference_mode_of_a_model() -> None:
    model, x, ids = Net("GATConv"), torch.randn(N, F), edges()
    wanted = model(x, ids).detach()
    vgraph.accelerate(model)
    with torch.inference_mode():
        torch.testing.assert_close(model(torch.randn(N, F) * 0 + x, ids.clone()), wanted)
    (gradient,) = torch.autograd.grad(model(x, ids).sum(), model.last.lin_l.bias)
    torch.testing.assert_close(gradient, torch.full((3,), float(N)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch scripts its own formulas for forward derivatives
def test_transforms_and_recorders_see_what_pyg_does(kind: str) -> None:
    layer, fast = pair(kind)
    x, ids = torch.randn(2, N, F, dtype=torch.float64), edges()

    def ours(rows: Tensor) -> Tensor:
        return fast(rows, ids)

    def theirs(rows: Tensor) -> Tensor:
        return layer(rows, ids)

    for _ in range(2):  # before and after it has run accelerated
        torch.testing.assert_close(torch.vmap(ours)(x), torch.vmap(theirs)(x))
        found, wanted = (torch.func.jvp(one, (x[0],), (x[1],)) for one in (ours, theirs))
        torch.testing.assert_close(found, wanted)
        recorded = make_fx(ours)(x[0])
        torch.testing.assert_close(recorded(x[1]), layer(x[1], ids))
        torch.testing.assert_close(fast(x[0], ids), layer(x[0], ids))
