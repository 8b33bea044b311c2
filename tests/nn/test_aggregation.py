"""SAGEConv, GINConv and PNAConv against the same layers written vertex by vertex."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.nn.dense import assert_same, by_vertex, inputs, random_graph, randomized, shapes
from vgraph.errors import FeatureError, GraphError, NameLookupError
from vgraph.nn import GINConv, PNAConv, SAGEConv

SAGE = ("mean", "gcn", "pool", "lstm")
AGGREGATORS = ("mean", "sum", "max", "min", "std", "var", "moment3", "moment4", "moment5")
SCALERS = ("identity", "amplification", "attenuation")


def sage_by_hand(layer: Any, g: vgraph.Graph, ends: tuple[Tensor, Tensor], kind: str, w: Tensor | None) -> Tensor:
    sent = torch.relu(layer.fc_pool(ends[0])) if kind == "pool" else ends[0]

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        m = sent[src] if w is None else sent[src] * w[ids, None]
        if kind == "gcn":
            return layer.fc_neigh((m.sum(0) + ends[1][v]) / (len(src) + 1)) + layer.bias
        own = layer.fc_self(ends[1][v])
        if len(src) == 0:
            return own
        if kind == "lstm":
            return own + layer.fc_neigh(layer.lstm(m[None])[1][0][0, 0])
        return own + layer.fc_neigh(m.mean(0) if kind == "mean" else m.amax(0))

    return by_vertex(g, row)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5)], ids=["narrower", "wider"])
@pytest.mark.parametrize("kind", SAGE)
def test_sage(kind: str, sizes: tuple[int, int], weighted: bool) -> None:
    g = random_graph(loops=False)
    x, layer = inputs(9, sizes[0]), randomized(SAGEConv(*sizes, kind))
    w = torch.rand(g.num_edges(), dtype=torch.float64, requires_grad=True) if weighted else None
    given = [x, *layer.parameters(), *([] if w is None else [w])]
    assert_same(layer(g, x, edge_weight=w), sage_by_hand(layer, g, (x, x), kind, w), given)
    assert not list(g.ndata) and not list(g.edata)


@pytest.mark.parametrize("kind", SAGE)
def test_sage_with_a_feature_for_each_end(kind: str) -> None:
    g, width = random_graph(loops=False), 5 if kind == "gcn" else 2
    x, y, layer = inputs(9, 5), inputs(9, width), randomized(SAGEConv((5, width), 3, kind))
    assert_same(layer(g, (x, y)), sage_by_hand(layer, g, (x, y), kind, None), [x, y, *layer.parameters()])


@pytest.mark.parametrize("kind", SAGE)
def test_sage_in_single_precision(kind: str) -> None:
    """torch has kernels of its own for layers in float32 (a whole LSTM at once)."""
    g, layer = random_graph(loops=False), SAGEConv(5, 3, kind)
    x = inputs(9, 5).float().detach().requires_grad_()
    exact = copy.deepcopy(layer).double()
    found, wanted = layer(g, x), exact(g, x.double())
    torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-5)
    mine = torch.autograd.grad(found.square().sum(), list(layer.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(wanted.square().sum(), list(exact.parameters()), allow_unused=True)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other.float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", SAGE)
def test_sage_without_edges(kind: str) -> None:
    g = vgraph.graph(([], []), num_nodes=3)
    layer, x = randomized(SAGEConv(5, 3, kind)), inputs(3, 5)
    assert_same(layer(g, x), sage_by_hand(layer, g, (x, x), kind, None), [x])


def test_sage_options() -> None:
    g, x = random_graph(), torch.randn(9, 5)
    layer = SAGEConv(5, 3, "mean", feat_drop=0.5, norm=nn.functional.normalize, activation=torch.relu)
    torch.testing.assert_close(layer.eval()(g, x).norm(dim=1).square().round(), torch.ones(9))
    assert not torch.equal(layer.train()(g, x), layer(g, x))
    with pytest.raises(NameLookupError, match="there is no aggregator 'sum'"):
        SAGEConv(5, 3, "sum")
    with pytest.raises(FeatureError, match=r"senders are \(5,\) wide and receivers \(2,\)"):
        SAGEConv((5, 2), 3, "gcn")(g, (x, torch.randn(9, 2)))
    with pytest.raises(FeatureError, match="edge_weight has shape"):
        SAGEConv(5, 3, "mean")(g, x, edge_weight=torch.ones(4))


def test_parameters_of_sage_are_those_of_dgl() -> None:
    assert shapes(SAGEConv(5, 3, "gcn")) == {"bias": (3,), "fc_neigh.weight": (3, 5)}
    mean = {"fc_self.weight": (3, 5), "fc_self.bias": (3,), "fc_neigh.weight": (3, 5)}
    assert shapes(SAGEConv(5, 3, "mean")) == mean
    assert shapes(SAGEConv((5, 2), 3, "pool")) == mean | {
        "fc_self.weight": (3, 2), "fc_pool.weight": (5, 5), "fc_pool.bias": (5,),
    }  # fmt: skip
    assert "lstm.weight_ih_l0" in shapes(SAGEConv(5, 3, "lstm", bias=False))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("kind", ["sum", "max", "mean"])
def test_gin(kind: str, learn: bool, weighted: bool) -> None:
    g, x = random_graph(loops=False), inputs(9, 5)
    layer = randomized(GINConv(nn.Linear(5, 3), kind, init_eps=0.25, learn_eps=learn, activation=torch.tanh))
    w = torch.rand(g.num_edges(), dtype=torch.float64, requires_grad=True) if weighted else None

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        m = x[src] if w is None else x[src] * w[ids, None]
        found = {"sum": m.sum, "max": m.amax, "mean": m.mean}[kind](0) if len(src) else torch.zeros_like(x[v])
        return torch.tanh(layer.apply_func((1 + layer.eps) * x[v] + found))

    given = [x, *layer.parameters(), *([] if w is None else [w])]
    assert_same(layer(g, x, edge_weight=w), by_vertex(g, row), given)
    assert dict(layer.named_parameters()).keys() >= ({"eps"} if learn else set())
    assert shapes(layer)["eps"] == (1,)


def test_gin_refuses() -> None:
    with pytest.raises(NameLookupError, match="there is no aggregator 'min'") as info:
        GINConv(None, "min")
    assert info.value.cure == "one of sum, max, mean"


def pna_by_hand(tower: Any, g: vgraph.Graph, x: Tensor, e: Tensor | None, delta: float) -> Tensor:
    sizes = g.batch_num_nodes().repeat_interleave(g.batch_num_nodes())

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        found = x.new_zeros(len(AGGREGATORS) * x.shape[1])
        if len(src):
            parts = [x[src], x[v].expand(len(src), -1), *([] if e is None else [e[ids]])]
            m = tower.M(torch.cat(parts, 1))
            away = m - m.mean(0)
            raw = [(away**n).mean(0) for n in (3, 4, 5)]
            roots = [r.sign() * (r.abs() + 1e-30) ** (1 / n) for n, r in zip((3, 4, 5), raw, strict=True)]
            var = torch.relu((m * m).mean(0) - m.mean(0) ** 2)
            best = (m.amax(0), m.amin(0))
            found = torch.cat([m.mean(0), m.sum(0), *best, (var + 1e-30).sqrt(), var, *roots])
        log = math.log(max(len(src), 1) + 1)
        scaled = torch.cat([x[v], found, found * log / delta, found * delta / log])
        return tower.U(scaled) / sizes[v].sqrt()

    return tower.batchnorm(by_vertex(g, row))


@pytest.mark.parametrize("with_edges", [False, True])
def test_pna(with_edges: bool) -> None:
    g = vgraph.batch([random_graph(5, 20, loops=False), random_graph(4, 9)])
    x, e = inputs(9, 6), inputs(g.num_edges(), 2) if with_edges else None
    options: Any = {"num_towers": 2, "edge_feat_size": 2 if with_edges else 0}
    layer = randomized(PNAConv(6, 6, AGGREGATORS, SCALERS, 1.5, **options))
    parts = [pna_by_hand(t, g, x[:, at : at + 3], e, 1.5) for t, at in zip(layer.towers, (0, 3), strict=True)]
    wanted = layer.mixing_layer(torch.cat(parts, 1)) + x
    given = [x, *layer.parameters(), *([] if e is None else [e])]
    assert_same(layer(g, x, e), wanted, given, tolerance=1e-6)


def test_pna_without_edges() -> None:
    g, x = vgraph.graph(([], []), num_nodes=9), inputs(9, 6)
    layer = randomized(PNAConv(6, 4, AGGREGATORS, SCALERS, 1.5)).eval()
    [tower] = layer.towers
    rows = tower.batchnorm(tower.U(nn.functional.pad(x, (0, 6 * len(AGGREGATORS) * len(SCALERS)))) / 3)
    assert_same(layer(g, x), layer.mixing_layer(rows), [x, *tower.U.parameters()])


def test_pna_refuses() -> None:
    g, x = random_graph(), torch.randn(9, 4)
    with pytest.raises(NameLookupError, match="there is no aggregator 'median'"):
        PNAConv(4, 4, ["median"], ["identity"], 1.0)
    with pytest.raises(NameLookupError, match="there is no scaler 'log'"):
        PNAConv(4, 4, ["mean"], ["log"], 1.0)
    with pytest.raises(GraphError, match="in_size 4 is not divisible by num_towers 3"):
        PNAConv(4, 6, ["mean"], ["identity"], 1.0, num_towers=3)
    layer = PNAConv(4, 4, ["mean"], ["identity"], 1.0, edge_feat_size=2)
    with pytest.raises(FeatureError, match="edges of 2 features, none is given"):
        layer(g, x)
    names = {"M.weight", "M.bias", "U.weight", "U.bias"}
    assert {f"towers.0.{name}" for name in names} < set(shapes(layer))


@pytest.mark.parametrize(("rows", "columns"), [(12, 7), (40, 2), (7, 12)])
@pytest.mark.parametrize("wanted", [False, True])
def test_sage_sums_before_or_after_it_narrows(rows: int, columns: int, wanted: bool) -> None:
    """A block of many senders: what has no gradient may be summed up first, with the same result."""
    block = vgraph.create_block((torch.arange(200) % 90, torch.arange(200) % 5), num_src_nodes=90, num_dst_nodes=5)
    x, layer = inputs(90, rows).detach().requires_grad_(wanted), randomized(SAGEConv(rows, columns, "mean"))
    means = torch.zeros(5, rows, dtype=x.dtype).index_add(0, torch.arange(200) % 5, x[torch.arange(200) % 90]) / 40
    by_hand = layer.fc_self(x[:5]) + layer.fc_neigh(means)
    given = [*layer.parameters(), *([x] if wanted else [])]
    assert_same(layer(block, x), by_hand, given)
    with torch.no_grad():
        assert torch.allclose(layer(block, x), by_hand)
