"""Layers beside DGL's, where DGL is installed: the same arguments, state_dict, rows and gradients.

DGL must be able to run in the environment of the tests (1.1.3 imports under any torch), with
DGLBACKEND=pytorch; everywhere else these tests are skipped.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.nn as ours
from tests.nn.dense import assert_same, random_graph


class Case(NamedTuple):
    layer: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = MappingProxyType({})
    widths: tuple[int, ...] = (5,)  # two: a feature for either end
    edge_feats: Mapping[str, int] = MappingProxyType({})  # keywords of a call to widths, as in drawn()
    dtype: torch.dtype = torch.float64


AGGREGATORS = ["mean", "sum", "max", "min", "std", "var", "moment3"]
CASES = [
    Case("GraphConv", (5, 3)),
    Case("GraphConv", (5, 3), {"norm": "right"}, edge_feats={"edge_weight": 0}),
    Case("GATConv", (5, 4, 3)),
    Case("GATConv", (5, 4, 3), {"residual": True, "negative_slope": 0.1}, edge_feats={"edge_weight": 0}),
    Case("GATConv", (12, 4, 3), {"residual": True, "activation": torch.tanh}, (12,)),
    Case("GATConv", ((5, 2), 4, 3), {"residual": True, "bias": False}, (5, 2)),
    Case("GATv2Conv", (5, 4, 3)),
    Case("GATv2Conv", (5, 4, 3), {"share_weights": True, "residual": True, "bias": False}),
    Case("GATv2Conv", ((5, 2), 4, 3), {}, (5, 2)),
    Case("DotGatConv", (5, 4, 3)),
    *(Case("SAGEConv", (5, 3, kind)) for kind in ("mean", "gcn", "pool", "lstm")),
    Case("SAGEConv", (3, 5, "mean"), {"bias": False}, (3,), {"edge_weight": 1}),
    Case("SAGEConv", ((5, 2), 3, "pool"), {}, (5, 2)),
    Case("GINConv", (None, "max"), {"init_eps": 0.5, "learn_eps": True}, edge_feats={"edge_weight": 1}),
    Case("GINConv", (None,), {"activation": torch.tanh}),
    Case("PNAConv", (6, 6, AGGREGATORS, ["identity", "amplification", "attenuation"], 1.5), {}, (6,)),
    Case("GINEConv", (None,), {"init_eps": 0.5}, edge_feats={"edge_feat": 5}),
    Case("ChebConv", (5, 3, 4)),
    Case("ChebConv", (5, 3, 3), {"activation": None}, edge_feats={"lambda_max": -1}),
    Case("SGConv", (5, 3), {"k": 2}),
    Case("SGConv", (5, 3), {"k": 2, "norm": torch.tanh}, edge_feats={"edge_weight": 0}),
    Case("TAGConv", (5, 3), {"activation": torch.tanh}),
    Case("TAGConv", (5, 3), {"k": 3}, edge_feats={"edge_weight": 0}),
    Case("APPNPConv", (3, 0.2), dtype=torch.float32),  # theirs makes ones of that dtype
    Case("APPNPConv", (3, 0.2), edge_feats={"edge_weight": 0}),
    Case("AGNNConv", (), {"init_beta": 0.5}),
    Case("NNConv", (5, 3, nn.Linear(2, 15).double()), {"residual": True}, edge_feats={"efeat": 2}),
    Case("NNConv", (5, 5, nn.Linear(2, 25).double(), "max"), {"residual": True}, edge_feats={"efeat": 2}),
    Case("CFConv", (5, 2, 6, 3), edge_feats={"edge_feats": 2}),
    Case("GMMConv", (5, 3, 2, 4), {"residual": True}, edge_feats={"pseudo": 2}),
    Case("GMMConv", (5, 3, 2, 4, "max"), edge_feats={"pseudo": 2}),
    Case("EdgeConv", (5, 3)),
    Case("EdgeConv", (5, 3), {"batch_norm": True}),
    Case("EGATConv", (5, 2, 4, 6, 3), edge_feats={"efeats": 2}),
    Case("EGNNConv", (5, 6, 3), {"edge_feat_size": 2}, edge_feats={"edge_feat": 2, "coord_feat": -2}),
    Case("GatedGraphConv", (5, 6, 2, 1)),
    Case("RelGraphConv", (5, 3, 4), {"activation": torch.tanh}, edge_feats={"etypes": -3, "norm": 1}),
    Case("RelGraphConv", (5, 3, 4, "basis", 2), {"self_loop": False}, edge_feats={"etypes": -3}),
    Case("RelGraphConv", (6, 4, 4, "bdd", 2), {"layer_norm": True}, (6,), {"etypes": -3}),
    Case("HGTConv", (5, 4, 2, 4, 4), {"dropout": 0.0, "use_norm": True}, edge_feats={"ntype": -4, "etype": -3}),
    Case("HGTConv", (8, 4, 2, 4, 4), {"dropout": 0.0}, (8,), {"ntype": -4, "etype": -3}),
    Case("PNAConv", (6, 4, ["mean", "std"], ["attenuation"], 1.5),
         {"num_towers": 2, "edge_feat_size": 2, "dropout": 0.0}, (6,), {"edge_feat": 2}),
    Case("EdgeGATConv", (5, 2, 4, 3), {"activation": torch.tanh}, edge_feats={"edge_feat": 2}),
    Case("EdgeGATConv", ((5, 4), 2, 4, 3), {"residual": False, "bias": False}, (5, 4), {"edge_feat": 2}),
    Case("TWIRLSConv", (5, 3, 8, 4), {"num_mlp_after": 2, "norm": "layer", "lam": 0.5}, dtype=torch.float32),
    Case("TWIRLSConv", (5, 3, 8, 4, 2, 0), {"attention": True, "T": 9.0, "precond": False}, dtype=torch.float32),
    Case("GCN2Conv", (5, 2), {"alpha": 0.3, "lambda_": 0.5}, edge_feats={"feat_0": -5}),
    Case("DGNConv", (6, 4, ["dir1-av", "dir2-dx", "sum", "std"], ["identity", "attenuation"], 1.5),
         {"num_towers": 2, "edge_feat_size": 2}, (6,), {"edge_feat": 2, "eig_vec": -2}),
    Case("AtomicConv", (torch.ones(3) * 1.2, torch.rand(3), torch.rand(3) + 1), edge_feats={"distances": 1}),
    Case("GCN2Conv", (5, 3), {"project_initial_features": False}, edge_feats={"feat_0": -5, "edge_weight": 0}),
]  # fmt: skip


pytestmark = pytest.mark.filterwarnings("ignore:lambda_max is not provided")


@pytest.fixture(scope="session")
def dgl() -> Any:
    if importlib.util.find_spec("dgl") is None:
        pytest.skip("DGL is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("dgl")


def other_graph(dgl: Any, g: vgraph.Graph) -> Any:
    return dgl.graph(g.edges(), num_nodes=g.num_nodes())


def drawn(g: vgraph.Graph, width: int) -> Tensor:
    """Numbers for edges; -1: for graphs, -2: positions; -3, -4: types of edges and of vertices, -5: rows of 5."""
    if width == -5:
        return torch.rand(g.num_nodes(), 5, dtype=torch.float64)
    if width < -2:
        return torch.arange(g.num_edges() if width == -3 else g.num_nodes()) % 4
    shape = {0: (g.num_edges(),), -1: (1,), -2: (g.num_nodes(), 3)}.get(width, (g.num_edges(), width))
    return torch.rand(shape, dtype=torch.float64) + 0.5


def rows_of(result: Any) -> Tensor:
    """All rows of vertices and edges that a layer gives, side by side."""
    return torch.cat([rows.flatten() for rows in result]) if isinstance(result, tuple) else result


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}-{CASES.index(case)}")
def test_state_dict_rows_and_gradients(dgl: Any, case: Case) -> None:
    g = random_graph()
    mine: nn.Module = getattr(ours, case.layer)(*case.arguments, **case.options).to(case.dtype)
    theirs: nn.Module = getattr(dgl.nn, case.layer)(*case.arguments, **case.options).to(case.dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    missing = mine.load_state_dict(theirs.state_dict(), strict=True)
    assert not missing.missing_keys and not missing.unexpected_keys
    feats = tuple(torch.randn(9, width, dtype=case.dtype, requires_grad=True) for width in case.widths)
    feat: Any = feats if len(feats) > 1 else feats[0]
    on_edges = {name: drawn(g, width) for name, width in case.edge_feats.items()}
    found = rows_of(mine(g, feat, **on_edges))
    wanted = rows_of(theirs(other_graph(dgl, g), feat, **on_edges))
    tolerance = 1e-6 if case.dtype == torch.float64 else 1e-5
    assert_same(found, wanted, feats, tolerance=tolerance)
    cotangent = torch.randn_like(wanted)
    rows_of(mine(g, feat, **on_edges)).backward(cotangent)
    rows_of(theirs(other_graph(dgl, g), feat, **on_edges)).backward(cotangent)
    grads = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter.grad, grads[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}-{CASES.index(case)}")
def test_the_same_seed_gives_the_same_start(dgl: Any, case: Case) -> None:
    """Parameters in the same order, too, by which optimizers keep what they know of them."""
    torch.manual_seed(7)
    mine: nn.Module = getattr(ours, case.layer)(*case.arguments, **case.options)
    torch.manual_seed(7)
    theirs: nn.Module = getattr(dgl.nn, case.layer)(*case.arguments, **case.options)
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", sorted({case.layer for case in CASES}))
def test_arguments(dgl: Any, name: str) -> None:
    """Every argument of theirs has its name, place and default here."""
    for call in ("__init__", "forward"):
        theirs = inspect.signature(getattr(getattr(dgl.nn, name), call)).parameters
        mine = inspect.signature(getattr(getattr(ours, name), call)).parameters
        wanted = [(p.name, p.default) for p in theirs.values()]
        assert [(p.name, p.default) for p in mine.values()][: len(wanted)] == wanted


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "DotGatConv"])
def test_attention(dgl: Any, name: str) -> None:
    g, x = random_graph(), torch.randn(9, 5)
    mine, theirs = getattr(ours, name)(5, 4, 3), getattr(dgl.nn, name)(5, 4, 3)
    mine.load_state_dict(theirs.state_dict())
    found, wanted = mine(g, x, get_attention=True), theirs(other_graph(dgl, g), x, get_attention=True)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_edge_softmax(dgl: Any, norm_by: str) -> None:
    g = random_graph()
    logits = torch.randn(g.num_edges(), 2, 1)
    wanted = dgl.nn.functional.edge_softmax(other_graph(dgl, g), logits, norm_by=norm_by)
    torch.testing.assert_close(ours.edge_softmax(g, logits, norm_by=norm_by), wanted)


POOLINGS: dict[str, tuple[Any, ...]] = {
    "SumPooling": (), "AvgPooling": (), "MaxPooling": (), "SortPooling": (3,), "WeightAndSum": (5,),
    "Set2Set": (5, 3, 2),
    "GlobalAttentionPooling": (nn.Linear(5, 1), nn.Linear(5, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling(dgl: Any, name: str) -> None:
    graphs = [random_graph(count, 2 * count) for count in (5, 1, 9)]
    x = torch.randn(15, 5, requires_grad=True)
    mine, theirs = (getattr(library, name)(*POOLINGS[name]) for library in (ours, dgl.nn))
    mine.load_state_dict(theirs.state_dict())
    batch = dgl.batch([other_graph(dgl, g) for g in graphs])
    assert_same(mine(vgraph.batch(graphs), x), theirs(batch, x), [x], tolerance=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul"])
def test_graphormer(dgl: Any, kind: str, norm_first: bool) -> None:
    options: Any = {"attn_bias_type": kind, "norm_first": norm_first, "dropout": 0.0, "attn_dropout": 0.0}
    mine, theirs = (library.GraphormerLayer(8, 16, 2, **options) for library in (ours, dgl.nn))
    mine.load_state_dict(theirs.state_dict())
    x, bias = torch.randn(3, 5, 8, requires_grad=True), torch.randn(3, 5, 5, 2)
    mask = torch.rand(3, 5, 5) < 0.3
    mask[:, :, 0] = False
    assert_same(mine(x, bias, mask), theirs(x, bias, mask), [x], tolerance=1e-5)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "min", "stack"])
def test_hetero(dgl: Any, aggregate: str) -> None:
    edges = {("a", "r", "b"): ([0, 1, 1], [0, 0, 1]), ("b", "s", "b"): ([0, 1], [1, 0]), ("b", "t", "a"): ([1], [2])}
    ends = {etype: tuple(map(torch.tensor, pair)) for etype, pair in edges.items()}
    counts, kinds = {"a": 3, "b": 2}, {"r": ("GraphConv",), "s": ("SAGEConv", "pool"), "t": ("SAGEConv", "mean")}

    def make(nn: Any) -> Any:
        mods = {key: getattr(nn, name)(4, 3, *more) for key, (name, *more) in kinds.items()}
        return nn.HeteroGraphConv(mods, aggregate)

    mine, theirs = make(ours), make(dgl.nn)
    mine.load_state_dict(theirs.state_dict())
    feats = {name: torch.randn(count, 4) for name, count in counts.items()}
    found = mine(vgraph.heterograph(ends, num_nodes_dict=counts), feats)
    wanted = theirs(dgl.heterograph(ends, num_nodes_dict=counts), feats)
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name])


TRANSFORMERS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "LapPosEncoder-1": (("Transformer", 2, 3, 8, 2, True, 2), lambda: (torch.rand(5, 3), torch.rand(5, 3))),
    "LapPosEncoder-2": (("DeepSet", 3, 3, 8, 1, False, 1), lambda: (with_gaps(), torch.rand(5, 3))),
    "LapPosEncoder-3": (("DeepSet", 1, 3, 8, 1, False, 3), lambda: (with_gaps(), torch.rand(5, 3))),
    "DegreeEncoder-1": ((5, 4), lambda: (torch.randint(9, (2, 3, 4)),)),
    "DegreeEncoder-2": ((5, 4, "in"), lambda: (torch.randint(9, (3, 4)),)),
    "PathEncoder": ((3, 4, 2), lambda: (torch.randint(-1, 5, (2, 5, 5)), torch.rand(2, 5, 5, 3, 4))),
    "SpatialEncoder": ((3, 2), lambda: (torch.randint(-1, 6, (2, 5, 5)),)),
    "SpatialEncoder3d-1": ((4, 2, 6), lambda: (torch.rand(2, 5, 3), torch.randint(6, (2, 5)))),
    "SpatialEncoder3d-2": ((4, 2, 6), lambda: (torch.rand(2, 5, 3),)),
    "EGTLayer-1": ((8, 4, 2, 1), lambda: (torch.rand(2, 5, 8), torch.rand(2, 5, 5, 4), -9.0 * torch.rand(2, 5, 5))),
    "EGTLayer-2": ((8, 4, 2, 0, 0, 0, nn.ReLU(), False), lambda: (torch.rand(2, 5, 8), torch.rand(2, 5, 5, 4))),
    "TransE": ((4, 5, 2), lambda: (torch.rand(6, 5), torch.rand(6, 5), torch.arange(6) % 4)),
    "TransR": ((4, 3, 5), lambda: (torch.rand(6, 5), torch.rand(6, 5), torch.arange(6) % 4)),
}


def with_gaps() -> Tensor:
    """Eigenvalues, some of which are not there."""
    return torch.rand(5, 3).index_put((torch.tensor([1, 1, 4]), torch.tensor([1, 2, 2])), torch.tensor(torch.nan))


@pytest.mark.parametrize("key", TRANSFORMERS)
def test_transformers_and_translations(dgl: Any, key: str) -> None:
    (arguments, draw), name, made = TRANSFORMERS[key], key.partition("-")[0], []
    for library in (ours, dgl.nn):
        torch.manual_seed(7)
        made.append(getattr(library, name)(*arguments).eval())
    mine, theirs = made
    assert list(theirs.state_dict()) == list(mine.state_dict())
    for entry, tensor in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[entry], tensor), entry
    given = draw()
    found, wanted = rows_of(mine(*given)), rows_of(theirs(*given))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    if "LapPos" in key and mine.model_type == "DeepSet":
        return  # theirs changes what a relu gave in place, and has no gradients
    grads = [of_parameters(layer, rows) for layer, rows in ((mine, found), (theirs, wanted))]
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def of_parameters(layer: nn.Module, rows: Tensor) -> tuple[Tensor | None, ...]:
    weights = torch.linspace(-1, 1, rows.numel()).view(rows.shape)
    return torch.autograd.grad((rows * weights).sum(), list(layer.parameters()), allow_unused=True)


SETS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "sab": ("SetTransformerEncoder", (5, 2, 3, 6, 2)),
    "isab": ("SetTransformerEncoder", (5, 2, 3, 6, 2, "isab", 3)),
    "decoder": ("SetTransformerDecoder", (5, 2, 3, 6, 2, 3)),
}


@pytest.mark.parametrize("key", SETS)
def test_set_transformers(dgl: Any, key: str) -> None:
    graphs = [random_graph(count, 2 * count) for count in (5, 1, 9)]
    (name, arguments), x, made = SETS[key], torch.randn(15, 5, requires_grad=True), []
    for library in (ours, dgl.nn):
        torch.manual_seed(7)
        made.append(getattr(library, name)(*arguments))
    mine, theirs = made
    assert list(theirs.state_dict()) == list(mine.state_dict())
    for entry, tensor in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[entry], tensor), entry
    batch = dgl.batch([other_graph(dgl, g) for g in graphs])
    assert_same(mine(vgraph.batch(graphs), x), theirs(batch, x), [x], tolerance=1e-4)


DENSE: dict[str, tuple[Any, ...]] = {
    "DenseGraphConv": (5, 3, "right", True, torch.tanh),
    "DenseSAGEConv": (5, 3, 0.0, True, torch.tanh, torch.sigmoid),
    "DenseChebConv": (5, 3, 3),
}


@pytest.mark.parametrize("name", DENSE)
def test_over_dense_matrices(dgl: Any, name: str) -> None:
    made: list[Any] = []
    for library in (ours, dgl.nn):
        torch.manual_seed(7)
        made.append(getattr(library, name)(*DENSE[name]))
    mine, theirs = made
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[key], tensor), key
    adj, x = torch.randint(0, 2, (9, 9)).float(), torch.randn(9, 5, requires_grad=True)
    more = (2.0,) if name == "DenseChebConv" else ()
    assert_same(mine(adj, x, *more), theirs(adj, x, *more), [x], tolerance=1e-5)


@pytest.mark.parametrize("what", ["node", "graph"])
def test_explained(dgl: Any, what: str) -> None:
    g, x, kind = random_graph(), torch.randn(9, 5), nn.Linear(5, 3)

    def model(graph: Any, feat: Tensor, eweight: Tensor | None = None) -> Tensor:
        (src, dst), size = graph.edges(), (graph.num_nodes(), graph.num_nodes())
        weight = torch.ones(len(src)) if eweight is None else eweight
        rows = torch.zeros(size).index_put((dst, src), weight, True) @ kind(feat)
        return rows.sum(0, keepdim=True) if what == "graph" else rows

    found: list[Any] = []
    for library, graph in ((ours, g), (dgl.nn, other_graph(dgl, g))):
        module = nn.Module()
        module.forward = model
        explainer = library.GNNExplainer(module, 1, num_epochs=4, log=False)
        torch.manual_seed(5)
        masks = explainer.explain_graph(graph, x) if what == "graph" else explainer.explain_node(2, graph, x)
        found.append([masks[-2], masks[-1]])
    torch.testing.assert_close(*found)
