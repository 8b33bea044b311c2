"""Encoders, attention among all vertices, and scores of triples against loops over pairs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from tests.nn.dense import assert_same, inputs, randomized
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.nn import (
    DegreeEncoder,
    EGTLayer,
    LapPosEncoder,
    PathEncoder,
    RadiusGraph,
    SegmentedKNNGraph,
    SetTransformerDecoder,
    SetTransformerEncoder,
    SpatialEncoder,
    SpatialEncoder3d,
    TransE,
    TransR,
)


def test_degrees() -> None:
    degrees = torch.tensor([[[0, 1], [9, 5]], [[3, 0], [1, 1]]])
    layer = randomized(DegreeEncoder(5, 4))
    of_in, of_out = (table.weight for table in (layer.encoder1, layer.encoder2))
    pairs = zip(*(end.flatten().tolist() for end in degrees), strict=True)
    rows = torch.stack([of_in[min(i, 5)] + of_out[min(o, 5)] for i, o in pairs]).view(2, 2, 4)
    torch.testing.assert_close(layer(degrees), rows)
    one = randomized(DegreeEncoder(5, 4, "out"))
    torch.testing.assert_close(one(degrees[0]), one.encoder.weight[degrees[0].clamp(max=5)])
    assert not bool(DegreeEncoder(5, 4).encoder1.weight[0].any())
    with pytest.raises(FeatureError, match=r"degrees have shape \(2, 2\)"):
        layer(degrees[0])
    with pytest.raises(NameLookupError, match="there is no direction 'up'"):
        DegreeEncoder(5, 4, "up")


def test_paths() -> None:
    layer, paths = randomized(PathEncoder(3, 4, 2)), inputs(2, 3, 3, 3, 4)
    dist = torch.tensor([-1, 0, 1, 2, 3, 9]).repeat(3).view(2, 3, 3)
    table = layer.embedding_table.weight.view(3, 2, 4)
    wanted = torch.stack([
        torch.stack([(paths[b, x, y] * table[:, h]).sum() / min(max(int(dist[b, x, y]), 1), 3) for h in range(2)])
        for b in range(2) for x in range(3) for y in range(3)
    ]).view(2, 3, 3, 2)  # fmt: skip
    assert_same(layer(dist, paths), wanted, [paths, *layer.parameters()])


def test_distances() -> None:
    layer = randomized(SpatialEncoder(3, 2))
    dist = torch.tensor([[[-1, 0], [3, 8]]])
    table = layer.embedding_table.weight
    torch.testing.assert_close(layer(dist), torch.stack([table[[0, 1]], table[[4, 4]]]).unsqueeze(0))
    assert not bool(SpatialEncoder(3).embedding_table.weight[0].any())


@pytest.mark.parametrize("typed", [True, False])
def test_positions(typed: bool) -> None:
    layer, x = randomized(SpatialEncoder3d(4, 2, max_node_type=3)), inputs(1, 3, 3)
    kinds = torch.tensor([[0, 2, 1]])
    bells = torch.distributions.Normal(layer.means, layer.stds.abs() + 0.01)
    rows: list[Tensor] = []
    for i in range(3):
        for j in range(3):
            ends = [int(kinds[0, i]) + 2, int(kinds[0, j]) + 6] if typed else [0, 0]
            gamma, beta = (sum(table.weight[end, 0] for end in ends) for table in (layer.gamma, layer.beta))
            apart = (x[0, i] - x[0, j]).norm() if i != j else x.new_zeros(())
            hidden = F.gelu(layer.linear_layer_1(bells.log_prob(gamma * apart + beta).exp()))
            rows.append(layer.linear_layer_2(hidden))
    wanted = torch.stack(rows).view(1, 3, 3, 2)
    tables = {layer.gamma.weight, layer.beta.weight}
    learned = layer.parameters() if typed else [p for p in layer.parameters() if p not in tables]  # row 0 is fixed
    assert_same(layer(x, kinds if typed else None), wanted, [x, *learned])


@pytest.mark.parametrize("depth", [1, 3])
def test_eigenvectors_as_sets(depth: int) -> None:
    layer = randomized(LapPosEncoder("DeepSet", depth, 3, 4, num_post_layer=2))
    values, vectors = torch.rand(5, 3, dtype=torch.float64), inputs(5, 3)
    values[1, 1:] = torch.nan
    rows: list[Tensor] = []
    for i in range(5):
        there = [j for j in range(3) if not bool(values[i, j].isnan())]
        each = [layer.pe_encoder(layer.linear(torch.stack([vectors[i, j], values[i, j]]))) for j in there]
        rows.append(layer.post_mlp(torch.stack(each).sum(0)))
    assert_same(layer(values, vectors), torch.stack(rows), [vectors, *layer.parameters()])
    with pytest.raises(NameLookupError, match="there is no model_type 'LSTM'"):
        LapPosEncoder("LSTM", 1, 3, 4)


def test_eigenvectors_by_attention() -> None:
    layer = LapPosEncoder("Transformer", 1, 3, 4, n_head=2, batch_norm=True).double().eval()
    values, vectors = torch.rand(5, 3, dtype=torch.float64), inputs(5, 3)
    values[:, 2] = torch.nan
    pairs = torch.stack([vectors, values.nan_to_num(0.0)], 2) * (1 + 1e-5) ** -0.5
    wanted = layer.pe_encoder(layer.linear(pairs[:, :2])).sum(1)
    torch.testing.assert_close(layer(values, vectors), wanted)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("updates", [True, False])
def test_egt(masked: bool, updates: bool) -> None:
    h, e = inputs(2, 3, 4), inputs(2, 3, 3, 6)
    layer = randomized(EGTLayer(4, 6, 2, num_virtual_nodes=1, edge_update=updates))
    mask = torch.randn(2, 3, 3, dtype=torch.float64) if masked else torch.zeros(2, 3, 3, dtype=torch.float64)
    pairs = layer.mha_ln_e(e)
    bias, gate = layer.edge_input(pairs), torch.sigmoid(layer.gate(pairs) + mask[..., None])
    q, k, v = layer.qkv_proj(layer.mha_ln_h(h)).view(2, 3, 3, 2, 2).unbind(2)  # of dims, of heads
    rows, scores = torch.zeros(2, 3, 2, 2, dtype=torch.float64), torch.zeros(2, 3, 3, 2, dtype=torch.float64)
    for b in range(2):
        for i in range(3):
            for head in range(2):
                s = (k[b, :, :, head] @ q[b, i, :, head]).clamp(-5, 5) + bias[b, i, :, head]
                share = torch.softmax(s + mask[b, i], 0) * gate[b, i, :, head]
                scale = torch.log1p(gate[b, i, :, head].sum()) if i else 1.0
                where = (torch.tensor(b), torch.tensor(i), torch.arange(2), torch.tensor(head))
                rows = rows.index_put(where, scale * (share @ v[b, :, :, head]))
                scores = scores.index_put((torch.tensor(b), torch.tensor(i), torch.arange(3), torch.tensor(head)), s)
    new = h + layer.node_output(rows.flatten(2))
    wanted = [new + layer.node_ffn(new)]
    if updates:
        made = e + layer.edge_output(scores)
        wanted.append(made + layer.edge_ffn(made))
    found: Any = layer(h, e, mask if masked else None)
    found = found if updates else (found,)
    flat = [torch.cat([part.flatten() for part in parts]) for parts in (found, wanted)]
    assert_same(flat[0], flat[1], [h, e, *layer.parameters()])
    with pytest.raises(GraphError, match="feat_size 5 is not divisible by num_heads 2"):
        EGTLayer(5, 6, 2, 0)


def attended(mha: Any, x: Tensor, mem: Tensor) -> Tensor:
    """One set at a time, by torch's own attention."""
    q, k, v = (proj(rows).view(len(rows), 2, 3).transpose(0, 1) for proj, rows in
               ((mha.proj_q, x), (mha.proj_k, mem), (mha.proj_v, mem)))  # fmt: skip
    found = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
    x = mha.norm_in(x + mha.proj_o(found))
    return mha.norm_inter(x + mha.ffn(x))


@pytest.mark.parametrize("kind", ["sab", "isab", "decoder"])
def test_set_transformers(kind: str) -> None:
    sizes = (3, 1, 5)
    g = vgraph.batch([vgraph.graph(([], []), num_nodes=size) for size in sizes])
    x, sets = (rows := inputs(9, 4)), rows.split(sizes)
    if kind == "decoder":
        layer = randomized(SetTransformerDecoder(4, 2, 3, 6, n_layers=1, k=2))
        seen = [attended(layer.pma.mha, layer.pma.seed_vectors, layer.pma.ffn(one)) for one in sets]
        wanted = torch.stack([attended(layer.layers[0].mha, one, one).flatten() for one in seen])
    elif kind == "sab":
        layer = randomized(SetTransformerEncoder(4, 2, 3, 6, 2))
        seen = [attended(layer.layers[0].mha, one, one) for one in sets]
        wanted = torch.cat([attended(layer.layers[1].mha, one, one) for one in seen])
    else:
        layer = randomized(SetTransformerEncoder(4, 2, 3, 6, 1, "isab", 2))
        block = layer.layers[0]
        seen = [attended(block.mha[0], block.inducing_points, one) for one in sets]
        wanted = torch.cat([attended(block.mha[1], one, few) for one, few in zip(sets, seen, strict=True)])
    assert_same(layer(g, x), wanted, [x, *layer.parameters()])
    with pytest.raises(FunctionError, match="isab without m"):
        SetTransformerEncoder(4, 2, 3, 6, 1, "isab")


def test_a_graph_without_vertices_among_sets() -> None:
    g = vgraph.batch([vgraph.graph(([], []), num_nodes=size) for size in (2, 0)])
    layer, x = randomized(SetTransformerDecoder(4, 2, 3, 6, n_layers=1, k=2)), inputs(2, 4)
    rows = layer(g, x)
    assert bool(rows.isfinite().all()) and rows.shape == (2, 8)
    (grad,) = torch.autograd.grad(rows.sum(), x)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("p", [1, 2])
def test_triples(p: int) -> None:
    head, tail, rels = inputs(4, 5), inputs(4, 5), torch.tensor([0, 2, 1, 2])
    e, r = randomized(TransE(3, 5, p)), randomized(TransR(3, 2, 5, p))

    def score(gap: Tensor) -> Tensor:
        return -(gap.abs().sum() if p == 1 else gap.square().sum().sqrt())

    triples = list(zip(head, tail, rels, strict=True))
    wanted = torch.stack([score(h + e.rel_emb.weight[i] - t) for h, t, i in triples])
    assert_same(e(head, tail, rels), wanted, [head, tail, *e.parameters()])
    matrix = r.rel_project.weight.view(3, 5, 2)
    wanted = torch.stack([score(h @ matrix[i] + r.rel_emb.weight[i] - t @ matrix[i]) for h, t, i in triples])
    assert_same(r(head, tail, rels), wanted, [head, tail, *r.parameters()])
    for layer in (e, r):
        before = layer.rel_emb.weight.clone()
        layer.reset_parameters()
        assert not torch.equal(before, layer.rel_emb.weight)


def test_graphs_of_points() -> None:
    x = torch.tensor([[0.0], [1.0], [2.5], [2.6]])
    g, apart = RadiusGraph(1.2)(x, get_distances=True)
    assert sorted(zip(*(end.tolist() for end in g.edges()), strict=True)) == [(0, 1), (1, 0), (2, 3), (3, 2)]
    torch.testing.assert_close(apart.flatten().sort().values, torch.tensor([0.1, 0.1, 1.0, 1.0]))
    near = SegmentedKNNGraph(1)(x, [2, 2], exclude_self=True)
    assert near.in_edges(torch.tensor([1]))[0].tolist() == [0] and near.in_edges(torch.tensor([2]))[0].tolist() == [3]
    assert math.isclose(float(apart.max()), 1.0) and isinstance(RadiusGraph(1.0), nn.Module)
