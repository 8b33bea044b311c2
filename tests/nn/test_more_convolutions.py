"""Convolutions with rows of edges, with first rows kept, or over dense matrices, against dense formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
from tests.nn.dense import adjacency, assert_same, by_vertex, inputs, random_graph, randomized, shapes
from vgraph.errors import FeatureError, GraphError, NameLookupError
from vgraph.nn import (
    AtomicConv,
    ChebConv,
    DenseChebConv,
    DenseGraphConv,
    DenseSAGEConv,
    DGNConv,
    EdgeGATConv,
    EdgeWeightNorm,
    EGNNConv,
    GatedGCNConv,
    GCN2Conv,
    GraphConv,
    PNAConv,
    SAGEConv,
)


@pytest.mark.parametrize("norm", ["both", "right", "none"])
@pytest.mark.parametrize("out", [3, 7])
def test_dense_graph_conv_is_the_sparse_one(norm: str, out: int) -> None:
    g, x = random_graph(), inputs(9, 5)
    layer, sparse = randomized(DenseGraphConv(5, out, norm, activation=torch.tanh)), GraphConv(5, out, norm)
    sparse.double().load_state_dict(layer.state_dict())
    assert_same(layer(adjacency(g), x), torch.tanh(sparse(g, x)), [x])
    assert shapes(DenseGraphConv(5, 2, bias=False)) == {"weight": (5, 2)}
    with pytest.raises(NameLookupError, match="there is no norm 'left'"):
        DenseGraphConv(5, 2, "left")


def test_dense_sage_is_the_sparse_one() -> None:
    g, x, y = random_graph(), inputs(9, 5), inputs(9, 5)
    layer = randomized(DenseSAGEConv(5, 3, norm=torch.sigmoid, activation=torch.tanh))
    sparse = SAGEConv(5, 3, "gcn").double()
    sparse.load_state_dict({"fc_neigh.weight": layer.fc.weight, "bias": layer.fc.bias})
    a = adjacency(g)
    assert_same(layer(a, x), torch.sigmoid(torch.tanh(sparse(g, x))), [x])
    mean = (a @ x + y) / (a.sum(1, keepdim=True) + 1)
    assert_same(layer(a, (x, y)), torch.sigmoid(torch.tanh(layer.fc(mean))), [x, y, *layer.parameters()])
    with pytest.raises(FeatureError, match=r"senders have rows of \(5,\), receivers of \(4,\)"):
        layer(a, (x, inputs(9, 4)))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_dense_cheb_is_the_sparse_one(k: int) -> None:
    g, x = vgraph.to_bidirected(random_graph(loops=False)), inputs(9, 5)
    layer, sparse = randomized(DenseChebConv(5, 3, k)), ChebConv(5, 3, k, activation=None).double()
    with torch.no_grad():
        sparse.linear.weight.copy_(layer.W.transpose(1, 2).permute(1, 0, 2).flatten(1))
        sparse.linear.bias.copy_(layer.bias)
    a = adjacency(g)
    assert_same(layer(a, x, 1.5), sparse(g, x, [1.5]), [x])
    root = a.sum(1).clamp(min=1).rsqrt()
    most = torch.linalg.eigvalsh(torch.eye(9, dtype=a.dtype) - root[:, None] * a * root).max()
    assert_same(layer(a, x), sparse(g, x, most.view(1)), [x])


@pytest.mark.parametrize("projects", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_gcn2(projects: bool, weighted: bool) -> None:
    g, x, first = random_graph(), inputs(9, 5), inputs(9, 5)
    layer = randomized(GCN2Conv(5, 2, 0.3, 0.5, project_initial_features=projects, activation=torch.tanh))
    w = torch.rand(g.num_edges(), dtype=torch.float64) + 0.5 if weighted else None
    a = adjacency(g, None if w is None else EdgeWeightNorm("both")(g, w))
    root = a.sum(1).rsqrt()
    a = a if weighted else root[:, None] * a * root
    step, start, beta = 0.7 * (a @ x), 0.3 * first, math.log(0.5 / 2 + 1)
    mapped = step @ layer.weight1 + start @ (layer.weight1 if projects else layer.weight2)
    wanted = torch.tanh((1 - beta) * (step + start) + beta * mapped + layer.bias)
    assert_same(layer(g, x, first, w), wanted, [x, first, *layer.parameters()])
    assert "alpha=0.3" in repr(layer)
    with pytest.raises(GraphError, match="have no in-edge"):
        layer(vgraph.graph(([0], [1])), x[:2], first[:2])


def edge_gat_by_hand(layer: EdgeGATConv, g: vgraph.Graph, ends: tuple[Tensor, Tensor], e: Tensor) -> Tensor:
    maps = (layer.fc, layer.fc) if hasattr(layer, "fc") else (layer.fc_src, layer.fc_dst)
    s, r = (fc(x).view(9, 3, 4) for fc, x in zip(maps, ends, strict=True))
    made = layer.fc_edge(e).view(-1, 3, 4)

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        score = (s[src] * layer.attn_l + made[ids] * layer.attn_edge).sum(-1) + (r[v] * layer.attn_r[0]).sum(-1)
        share = torch.softmax(F.leaky_relu(score, 0.1), 0)
        return (share[..., None] * (s[src] + made[ids])).sum(0)

    return (
        by_vertex(g, row) + layer.bias.view(3, 4) + (0 if layer.res_fc is None else layer.res_fc(ends[1]).view(9, 3, 4))
    )


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("widths", [5, (5, 2)], ids=str)
def test_edge_gat(widths: Any, residual: bool) -> None:
    g, x, e = random_graph(), inputs(9, 5), inputs(39, 6)
    y = inputs(9, 2) if isinstance(widths, tuple) else x
    layer = randomized(EdgeGATConv(widths, 6, 4, 3, negative_slope=0.1, residual=residual))
    feat, given = ((x, y), [x, y]) if isinstance(widths, tuple) else (x, [x])
    wanted = edge_gat_by_hand(layer, g, (x, y), e)
    assert_same(layer(g, feat, e), wanted, [*given, e, *layer.parameters()])
    rows, attention = layer(g, feat, e, get_attention=True)
    assert_same(rows, layer(g, feat, e), [*given, e, *layer.parameters()])
    sums = torch.zeros(9, 3, 1, dtype=torch.float64).index_add(0, g.edges()[1], attention)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert not list(g.ndata) and not list(g.edata)


def test_edge_gat_of_one_width_takes_a_pair() -> None:
    g, x, y, e = random_graph(), inputs(9, 5), inputs(9, 5), inputs(39, 6)
    layer = randomized(EdgeGATConv(5, 6, 4, 3, negative_slope=0.1))
    assert_same(layer(g, (x, y), e), edge_gat_by_hand(layer, g, (x, y), e), [x, y, e, *layer.parameters()])


def batch_normalised(norm: Any, rows: Tensor) -> Tensor:
    centred = rows - rows.mean(0)
    return centred * (centred.square().mean(0) + norm.eps).rsqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("residual", [True, False])
def test_gated_gcn(residual: bool) -> None:
    g, x, e = random_graph(loops=False), inputs(9, 4), inputs(30, 4)
    layer = randomized(GatedGCNConv(4, 4, 4, batch_norm=not residual, residual=residual, activation=torch.tanh))
    src, dst = g.edges()
    made = layer.D(x)[src] + layer.E(x)[dst] + layer.C(e)
    gate, sent = torch.sigmoid(made), layer.B(x)
    rows = layer.A(x) + by_vertex(g, lambda v, ids, src: (sent[src] * gate[ids]).sum(0) / (gate[ids].sum(0) + 1e-6))
    if not residual:
        rows, made = batch_normalised(layer.bn_node, rows), batch_normalised(layer.bn_edge, made)
    wanted = [torch.tanh(t) + (own if residual else 0) for t, own in ((rows, x), (made, e))]
    assert_same(torch.cat(layer(g, x, e)), torch.cat(wanted), [x, e, *layer.parameters()])
    empty = vgraph.graph(([], []), num_nodes=3)
    layer = GatedGCNConv(4, 2, 4, batch_norm=False, activation=None).double()
    h, none = layer(empty, x[:3], torch.randn(0, 2, dtype=torch.float64))
    torch.testing.assert_close(h, layer.A(x[:3]))
    assert none.shape == (0, 4)


@pytest.mark.parametrize("kinds", [None, [6.0, 8.0]], ids=str)
def test_atomic(kinds: list[float] | None) -> None:
    g, d = random_graph(loops=False), inputs(30, 1)
    x = torch.tensor([6.0, 8.0, 1.0], dtype=torch.float64).repeat(3).unsqueeze(1)
    used = None if kinds is None else torch.tensor(kinds, dtype=torch.float64)
    cutoffs, means, scaling = (torch.rand(3, dtype=torch.float64) + 0.5 for _ in range(3))
    layer = AtomicConv(cutoffs, means, scaling, used)
    bells = torch.exp(-scaling * (d - means) ** 2) * (torch.cos(math.pi * d / cutoffs) + 1) / 2 * (d <= cutoffs)
    sent = x if used is None else torch.stack([x[:, 0] == kind for kind in used], 1).double()
    wanted = by_vertex(g, lambda v, ids, src: torch.einsum("et,ek->tk", sent[src], bells[ids]).flatten())
    found = layer(g, x, d)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(wanted)
    torch.testing.assert_close(*(torch.autograd.grad((r * weights).sum(), d)[0] for r in (found, wanted)))
    assert set(shapes(layer)) - {"features_to_use"} == {f"radial_pooling.{name}" for name in (
        "interaction_cutoffs", "rbf_kernel_means", "rbf_kernel_scaling")}  # fmt: skip
    assert layer(vgraph.graph(([], []), num_nodes=9), x, d[:0]).shape == wanted.shape


@pytest.mark.parametrize("edge_size", [0, 2])
def test_directions(edge_size: int) -> None:
    g, x, eig = random_graph(), inputs(9, 4), inputs(9, 3)
    e = inputs(39, 2) if edge_size else None
    layer = randomized(DGNConv(4, 3, ["dir2-av", "dir1-dx", "max"], ["identity"], 1.5, edge_feat_size=edge_size))
    (tower,), (src, dst) = layer.towers, g.edges()
    m = tower.M(torch.cat([x[src], x[dst], *([] if e is None else [e])], 1))

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        slope = eig[src] - eig[v]
        shares = slope / (slope.abs().sum(0) + 1e-30)
        average = (m[ids] * shares[:, 1:2].abs()).sum(0)
        change = ((m[ids] - x[v]) * shares[:, :1]).sum(0).abs()
        return torch.cat([average, change, m[ids].amax(0)])

    rows = tower.U(torch.cat([x, by_vertex(g, row)], 1)) / 3  # the root of 9 vertices
    wanted = layer.mixing_layer(batch_normalised(tower.batchnorm, rows))
    assert_same(layer(g, x, e, eig_vec=eig), wanted, [x, eig, *layer.parameters()], tolerance=1e-8)
    with pytest.raises(FeatureError, match="directions without eigenvectors"):
        layer(g, x, e)
    with pytest.raises(NameLookupError, match="there is no aggregator 'dir1-av'"):
        PNAConv(4, 3, ["dir1-av"], ["identity"], 1.5)


def test_no_columns_are_no_feature_of_edges() -> None:
    g, x, none = random_graph(), torch.randn(9, 4), torch.empty(39, 0)
    pna = PNAConv(4, 4, ["sum"], ["identity"], 1.5)
    torch.testing.assert_close(pna(g, x, none), pna(g, x))
    egnn, places = EGNNConv(4, 4, 4), torch.randn(9, 3)
    torch.testing.assert_close(egnn(g, x, places, none), egnn(g, x, places))
