"""The other convolutions against the same layers written one vertex at a time or with dense matrices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from tests.nn.dense import adjacency, assert_same, by_vertex, inputs, random_graph, randomized, shapes
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.nn import (
    AGNNConv,
    APPNPConv,
    CFConv,
    ChebConv,
    DotGatConv,
    EdgeConv,
    EdgeWeightNorm,
    EGATConv,
    EGNNConv,
    GATConv,
    GatedGraphConv,
    GATv2Conv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    NNConv,
    SGConv,
    TAGConv,
    edge_softmax,
)


def normalised(g: vgraph.Graph, weight: Tensor | None = None, *, by_out: bool = False) -> Tensor:
    """With weights: by sums of weights at either end; without: by degrees, senders' in-degrees unless by_out."""
    a = adjacency(g, weight)
    right = a.sum(1).clamp(min=1 if weight is None else 0)
    left = a.sum(0).clamp(min=1 if weight is None else 0) if by_out or weight is not None else right
    return a * right.rsqrt()[:, None] * left.rsqrt()


def weights(g: vgraph.Graph) -> Tensor:
    return (torch.rand(g.num_edges(), dtype=torch.float64) + 0.5).requires_grad_()


# ------------------------------------------------------------------ polynomials of the adjacency
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("given", [False, True])
def test_cheb(k: int, given: bool) -> None:
    g = vgraph.batch([random_graph(5, 12), random_graph(4, 9)])
    x, layer = inputs(9, 5), randomized(ChebConv(5, 3, k))
    limits = torch.tensor([1.5, 2.5], dtype=torch.float64) if given else None
    each = (
        torch.full((9, 1), 2.0).double() if limits is None else limits.repeat_interleave(torch.tensor([5, 4]))[:, None]
    )
    eye = torch.eye(9, dtype=torch.float64)
    scaled = 2 / each * (eye - normalised(g)) - eye
    powers = [eye, scaled]
    for _ in range(2, k):
        powers.append(2 * scaled @ powers[-1] - powers[-2])
    wanted = torch.relu(layer.linear(torch.cat([p @ x for p in powers[:k]], 1)))
    assert_same(layer(g, x, limits), wanted, [x, *layer.parameters()])
    if limits is not None:
        torch.testing.assert_close(layer(g, x, [1.5, 2.5]), wanted)
        with pytest.raises(FeatureError, match="lambda_max has 3 numbers for 2 graphs"):
            layer(g, x, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["sg", "tag", "appnp"])
def test_steps(name: str, weighted: bool) -> None:
    g, x = random_graph(), inputs(9, 5)
    w = weights(g) if weighted else None
    a = normalised(g, w, by_out=name == "appnp")
    if name == "sg":
        layer: Any = randomized(SGConv(5, 3, k=2, norm=torch.tanh))
        wanted = layer.fc(torch.tanh(a @ a @ x))
    elif name == "tag":
        layer = randomized(TAGConv(5, 3, k=2, activation=torch.tanh))
        wanted = torch.tanh(layer.lin(torch.cat([x, a @ x, a @ a @ x], 1)))
    else:
        layer, wanted = APPNPConv(3, 0.2), x
        for _ in range(3):
            wanted = 0.8 * a @ wanted + 0.2 * x
    given = [x, *layer.parameters(), *([] if w is None else [w])]
    assert_same(layer(g, x, edge_weight=w), wanted, given)


def test_sg_keeps_its_steps() -> None:
    g, x = random_graph(), torch.randn(9, 5)
    layer = SGConv(5, 3, cached=True)
    assert torch.equal(layer(g, x), layer(g, torch.zeros(9, 5)))
    with pytest.raises(GraphError, match="have no in-edge"):
        SGConv(5, 3)(random_graph(loops=False), x)
    assert shapes(layer) == {"fc.weight": (3, 5), "fc.bias": (3,)} and set(shapes(TAGConv(5, 3))) == {
        "lin.weight",
        "lin.bias",
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_appnp_drops_edges(weighted: bool) -> None:
    g, x = random_graph(), torch.randn(9, 5)
    layer, w = APPNPConv(2, 0.1, edge_drop=0.5), torch.ones(g.num_edges()) if weighted else None
    assert not torch.equal(layer(g, x, w), layer(g, x, w))
    torch.testing.assert_close(layer.eval()(g, x, w), APPNPConv(2, 0.1)(g, x, w))


@pytest.mark.parametrize("norm", ["both", "right", "none"])
def test_edge_weight_norm(norm: str) -> None:
    g = random_graph()
    w, (src, dst) = weights(g), g.edges()
    a = adjacency(g, w) + 0
    into, out = a.sum(1)[dst] + 0.1, a.sum(0)[src] + 0.1
    wanted = {"both": w / (into * out).sqrt(), "right": w / into, "none": w * 1}[norm]
    assert_same(EdgeWeightNorm(norm, 0.1)(g, w), wanted, [w])


def test_edge_weight_norm_refuses() -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    with pytest.raises(FunctionError, match="there is no norm 'left'"):
        EdgeWeightNorm("left")
    with pytest.raises(FeatureError, match=r"edge_weight has shape \(2, 1\)"):
        EdgeWeightNorm()(g, torch.ones(2, 1))
    with pytest.raises(FeatureError, match=r"edge 1 weighs -1.0") as info:
        EdgeWeightNorm()(g, torch.tensor([1.0, -1.0]))
    assert 'norm="right"' in info.value.cure


# ------------------------------------------------------------------ attention
def test_agnn() -> None:
    g, x, layer = random_graph(), inputs(9, 5), randomized(AGNNConv(0.5))

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        return torch.softmax(layer.beta * F.cosine_similarity(x[src], x[v], -1), 0) @ x[src]

    assert_same(layer(g, x), by_vertex(g, row), [x, *layer.parameters()])
    y = inputs(9, 5)
    assert layer(g, (x, y)).shape == (9, 5) and not list(AGNNConv(learn_beta=False).parameters())
    with pytest.raises(GraphError, match="have no in-edge"):
        layer(random_graph(loops=False), x)


@pytest.mark.parametrize("weighted", [False, True])
def test_egat(weighted: bool) -> None:
    g, x = random_graph(), inputs(9, 5)
    e, layer = inputs(g.num_edges(), 2), randomized(EGATConv(5, 2, 4, 6, 3))
    w, (src, dst) = weights(g) if weighted else None, g.edges()
    made = F.leaky_relu(layer.fc_ni(x)[src] + layer.fc_nj(x)[dst] + layer.fc_fij(e) + layer.bias).view(-1, 3, 6)
    scores, sent = (made * layer.attn).sum(-1), layer.fc_node_src(x).view(9, 3, 4)

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        a = torch.softmax(scores[ids], 0)
        return ((a if w is None else a * w[ids, None])[..., None] * sent[src]).sum(0)

    wanted = torch.cat([by_vertex(g, row).flatten(), made.flatten()])
    rows, edges, attention = layer(g, x, e, edge_weight=w, get_attention=True)
    given = [x, e, *layer.parameters(), *([] if w is None else [w])]
    torch.testing.assert_close(torch.cat([rows.flatten(), edges.flatten()]), wanted)
    rows, edges = layer(g, x, e, edge_weight=w)
    assert_same(torch.cat([rows.flatten(), edges.flatten()]), wanted, given)
    assert attention.shape == (g.num_edges(), 3, 1)
    with pytest.raises(GraphError, match="have no in-edge") as info:
        layer(vgraph.graph(([0], [1])), x[:2], e[:1])
    assert "allow_zero_in_degree" not in info.value.cure  # which the layer has not


# ------------------------------------------------------------------ networks of edges
def test_gine() -> None:
    g, x = random_graph(loops=False), inputs(9, 5)
    e, layer = inputs(g.num_edges(), 5), randomized(GINEConv(nn.Linear(5, 3), 0.5, learn_eps=True))
    sums = by_vertex(g, lambda v, ids, src: torch.relu(x[src] + e[ids]).sum(0))
    assert_same(layer(g, x, e), layer.apply_func((1 + layer.eps) * x + sums), [x, e, *layer.parameters()])
    assert "eps" in shapes(GINEConv())


def reduced(kind: str, m: Tensor) -> Tensor:
    if len(m) == 0:
        return m.sum(0)
    return {"sum": m.sum, "mean": m.mean, "max": m.amax}[kind](0)


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
def test_nn(kind: str) -> None:
    g, x = random_graph(loops=False), inputs(9, 5)
    e, layer = inputs(g.num_edges(), 2), randomized(NNConv(5, 3, nn.Linear(2, 15), kind, residual=True))
    made = layer.edge_func(e).view(-1, 5, 3)
    sums = by_vertex(g, lambda v, ids, src: reduced(kind, x[src][..., None] * made[ids]).sum(0))
    assert_same(layer(g, x, e), sums + layer.res_fc(x) + layer.bias, [x, e, *layer.parameters()])


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
def test_gmm(kind: str) -> None:
    g, x = random_graph(), inputs(9, 5)
    p, layer = inputs(g.num_edges(), 2), randomized(GMMConv(5, 3, 2, 4, kind, residual=True))
    gauss = torch.exp(-0.5 * ((p[:, None] - layer.mu) ** 2 * layer.inv_sigma**2).sum(-1))
    sent = layer.fc(x).view(9, 4, 3)
    sums = by_vertex(g, lambda v, ids, src: reduced(kind, sent[src] * gauss[ids][..., None]).sum(0))
    assert_same(layer(g, x, p), sums + layer.res_fc(x) + layer.bias, [x, p, *layer.parameters()])


def test_cf() -> None:
    g, x = random_graph(loops=False), inputs(9, 5)
    e, layer = inputs(g.num_edges(), 2), randomized(CFConv(5, 2, 6, 3))
    made, sent = layer.project_edge(e), layer.project_node(x)
    sums = by_vertex(g, lambda v, ids, src: (sent[src] * made[ids]).sum(0))
    wanted = F.softplus(layer.project_out[0](sums)) - math.log(2)
    assert_same(layer(g, x, e), wanted, [x, e, *layer.parameters()])
    torch.testing.assert_close(layer(g, (x, x), e), wanted)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_edge_conv(batch_norm: bool) -> None:
    g, x, layer = random_graph(), inputs(9, 5), randomized(EdgeConv(5, 3, batch_norm))
    src, dst = g.edges()
    m = layer.theta(x[dst] - x[src]) + layer.phi(x)[dst]
    m = layer.bn(m) if batch_norm else m
    assert_same(layer(g, x), by_vertex(g, lambda v, ids, src: m[ids].amax(0)), [x, *layer.parameters()])


@pytest.mark.parametrize("edge_size", [0, 2])
def test_egnn(edge_size: int) -> None:
    g, h, x = random_graph(loops=False), inputs(9, 5), inputs(9, 3)
    e, layer = inputs(g.num_edges(), 2) if edge_size else None, randomized(EGNNConv(5, 6, 4, edge_size))
    src, dst = g.edges()
    away = x[src] - x[dst]
    square = away.square().sum(1, keepdim=True)
    parts = [h[src], h[dst], square, *([] if e is None else [e])]
    m = layer.edge_mlp(torch.cat(parts, 1))
    moved = layer.coord_mlp(m) * away / (square.sqrt() + 1e-30)
    sums = by_vertex(g, lambda v, ids, src: m[ids].sum(0))
    means = by_vertex(g, lambda v, ids, src: moved[ids].mean(0) if len(ids) else moved[ids].sum(0))
    wanted = torch.cat([layer.node_mlp(torch.cat([h, sums], 1)), x + means], 1)
    given = [h, *layer.parameters(), *([] if e is None else [e])]
    assert_same(torch.cat(layer(g, h, x, e), 1), wanted, given)
    with pytest.raises(FeatureError, match=f"edges of {edge_size} features"):
        layer(g, h, x, None if edge_size else torch.ones(g.num_edges(), 2))


def test_egnn_has_a_gradient_where_ends_are_at_one_place() -> None:
    """The root of no distance has no derivative: a self-loop's, or that of two points at one place."""
    ends, h = ([0, 1, 2, 3], [1, 0, 3, 2]), inputs(4, 5)
    layer, found = randomized(EGNNConv(5, 6, 4)), list[Tensor]()
    x = torch.tensor([[0.0, 1, 2], [1, 1, 1], [2, 0, 1], [2, 0, 1]], dtype=torch.float64, requires_grad=True)
    for g in (vgraph.graph(ends), vgraph.add_self_loop(vgraph.graph(ends))):
        rows, places = layer(g, h, x)
        found += torch.autograd.grad(rows.sum() + places.square().sum(), x)
    assert all(bool(grad.isfinite().all()) for grad in found)


def test_egnn_turns_with_its_input() -> None:
    g, h, x = random_graph(loops=False), inputs(9, 5), inputs(9, 3)
    layer = randomized(EGNNConv(5, 6, 4))
    turn, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    (a, b), (c, d) = layer(g, h, x), layer(g, h, x @ turn + 1)
    torch.testing.assert_close(a, c)
    torch.testing.assert_close(b @ turn + 1, d)


@pytest.mark.parametrize("edge_size", [0, 2])
def test_egnn_without_edges(edge_size: int) -> None:
    g, h, x = vgraph.graph(([], []), num_nodes=9), inputs(9, 5), inputs(9, 3)
    layer = randomized(EGNNConv(5, 6, 4, edge_size))
    rows, positions = layer(g, h, x, inputs(0, 2) if edge_size else None)
    assert_same(rows, layer.node_mlp(F.pad(h, (0, 6))), [h, *layer.node_mlp.parameters()])
    assert torch.equal(positions, x)


@pytest.mark.parametrize("types", [1, 3])
def test_gated_graph(types: int) -> None:
    g, x = random_graph(loops=False), inputs(9, 5)
    layer, kind = randomized(GatedGraphConv(5, 6, 2, types)), torch.randint(types, (g.num_edges(),))
    state = F.pad(x, (0, 1))
    for _ in range(2):
        now = state

        def told(v: int, ids: Tensor, src: Tensor, now: Tensor = now) -> Tensor:
            rows = [layer.linears[int(kind[i])](now[s]) for i, s in zip(ids, src, strict=True)]
            return torch.stack(rows).sum(0) if rows else now.new_zeros(6)

        state = layer.gru(by_vertex(g, told), state)
    assert_same(layer(g, x, kind if types > 1 else None), state, [x, *layer.parameters()])


def test_refusals() -> None:
    g, x = random_graph(), torch.randn(9, 5)
    layer = GatedGraphConv(5, 6, 1, 3)
    with pytest.raises(GraphError, match="in_feats 5 exceeds out_feats 4"):
        GatedGraphConv(5, 4, 1, 1)
    with pytest.raises(FeatureError, match="etypes has none"):
        layer(g, x)
    with pytest.raises(FeatureError, match="types run from 0 to 3 where there are 3"):
        layer(g, x, torch.arange(g.num_edges()) % 4)
    with pytest.raises(NameLookupError, match="there is no aggregator 'min'"):
        NNConv(5, 3, nn.Linear(2, 15), "min")
    with pytest.raises(NameLookupError, match="there is no aggregator 'min'"):
        GMMConv(5, 3, 2, 4, "min")
    with pytest.raises(FeatureError, match=r"edge_func gives \(39, 14\) for matrices of 5 x 3"):
        NNConv(5, 3, nn.Linear(2, 14))(g, x, torch.randn(g.num_edges(), 2))


def test_nothing_is_sent_where_there_is_no_edge() -> None:
    g, x, e = vgraph.graph(([], []), num_nodes=3), torch.randn(3, 4), torch.randn(0, 2)
    allowed: Any = {"allow_zero_in_degree": True}
    layers: list[tuple[Any, tuple[Tensor, ...]]] = [
        (GraphConv(4, 4, bias=False, **allowed), ()), (GATConv(4, 4, 1, bias=False, **allowed), ()),
        (GATv2Conv(4, 4, 1, **allowed), ()), (DotGatConv(4, 4, 1, **allowed), ()),
        (SGConv(4, 4, bias=False, **allowed), ()),
        (AGNNConv(**allowed), ()), (GMMConv(4, 4, 2, 3, bias=False, **allowed), (e,)), (EdgeConv(4, 4, **allowed), ()),
        (NNConv(4, 4, nn.Linear(2, 16), bias=False), (e,)), (NNConv(4, 4, nn.Linear(2, 16), "max", bias=False), (e,)),
    ]  # fmt: skip
    for layer, more in layers:
        found = layer(g, x, *more)
        assert found.shape[0] == 3 and not bool(found.any()), type(layer).__name__
    torch.testing.assert_close(GINConv()(g, x), x)
    torch.testing.assert_close(GINEConv()(g, x, torch.randn(0, 4)), x)
    assert edge_softmax(g, torch.randn(0, 2)).shape == (0, 2)
