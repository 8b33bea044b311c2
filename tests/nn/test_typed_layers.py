"""Layers with types of vertices and edges against loops over the types; Graphormer against torch's attention."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.nn.dense import assert_same, by_vertex, inputs, random_graph, randomized, shapes
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.nn import (
    BiasedMHA,
    GraphConv,
    GraphormerLayer,
    HeteroEmbedding,
    HeteroGraphConv,
    HeteroLinear,
    HGTConv,
    RelGraphConv,
    SAGEConv,
    TypedLinear,
)

REGULARIZERS: list[tuple[Any, ...]] = [(), ("basis", 2), ("bdd", 2)]


def matrix(layer: Any, kind: int) -> Tensor:
    if layer.regularizer == "basis":
        return torch.einsum("b,bio->io", layer.coeff[kind], layer.W)
    if layer.regularizer == "bdd":
        return torch.block_diag(*layer.W[kind].view(-1, layer.submat_in, layer.submat_out))
    return layer.W[kind]


def typed(layer: Any, x: Tensor, kinds: Tensor) -> Tensor:
    return torch.stack([row @ matrix(layer, int(kind)) for row, kind in zip(x, kinds, strict=True)])


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=str)
def test_typed_linear(regularizer: tuple[Any, ...]) -> None:
    x, layer = inputs(7, 6), randomized(TypedLinear(6, 4, 3, *regularizer))
    kinds = torch.tensor([0, 2, 2, 0, 2, 0, 0])
    assert_same(layer(x, kinds), typed(layer, x, kinds), [x, *layer.parameters()])
    kinds = kinds.sort().values
    assert_same(layer(x, kinds, sorted_by_type=True), typed(layer, x, kinds), [x, *layer.parameters()])
    assert "num_types=3" in repr(layer)


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=str)
def test_rel_graph_conv(regularizer: tuple[Any, ...]) -> None:
    g, x = random_graph(loops=False), inputs(9, 6)
    layer = randomized(RelGraphConv(6, 4, 3, *regularizer, activation=torch.tanh))
    kinds, norm = torch.randint(3, (g.num_edges(),)), inputs(g.num_edges(), 1)

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        sent = typed(layer.linear_r, x[src], kinds[ids]) * norm[ids] if len(ids) else x.new_zeros(1, 4)
        return torch.tanh(sent.sum(0) + layer.h_bias + x[v] @ layer.loop_weight)

    given = [x, norm, *layer.parameters()]
    assert_same(layer(g, x, kinds, norm), by_vertex(g, row), given)
    normed = RelGraphConv(6, 4, 3, layer_norm=True, bias=False, self_loop=False)
    assert bool(normed(g, x.float(), kinds).mean(1).abs().max() < 1e-5)
    assert set(shapes(RelGraphConv(6, 4, 3, "basis", 2))) == {"linear_r.W", "linear_r.coeff", "h_bias", "loop_weight"}
    with pytest.raises(FeatureError, match="types are from 0 to 3 where there are 3"):
        layer(g, x, torch.arange(g.num_edges()) % 4)


@pytest.mark.parametrize("in_size", [5, 6])
def test_hgt(in_size: int) -> None:
    g, x = random_graph(), inputs(9, in_size)
    layer = randomized(HGTConv(in_size, 3, 2, 2, 3, dropout=0.0))
    vertices, edges = torch.arange(9) % 2, torch.randint(3, (g.num_edges(),))
    k, q, v = (typed(getattr(layer, f"linear_{n}"), x, vertices).view(9, 2, 3) for n in "kqv")

    def row(at: int, ids: Tensor, src: Tensor) -> Tensor:
        heads = []
        for i in range(2):
            key = typed(layer.relation_att[i], k[src, i], edges[ids])
            scores = (key * q[at, i]).sum(-1) * layer.relation_pri[i][edges[ids]] / 3**0.5
            heads.append(torch.softmax(scores, 0) @ typed(layer.relation_msg[i], v[src, i], edges[ids]))
        return torch.cat(heads)

    rows = typed(layer.linear_a, by_vertex(g, row), vertices)
    share = torch.sigmoid(layer.skip[vertices])[:, None]
    own = x if in_size == 6 else x @ layer.residual_w
    assert_same(layer(g, x, vertices, edges), rows * share + own * (1 - share), [x, *layer.parameters()])
    normed = HGTConv(in_size, 3, 2, 2, 3, use_norm=True)
    assert bool(normed(g, x.float(), vertices, edges).mean(1).abs().max() < 1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_types_of_any_whole_numbers(dtype: torch.dtype) -> None:
    """Bytes were a mask to torch where a layer looked up what belongs to a type."""
    g, x = random_graph(), inputs(9, 5)
    layer = randomized(HGTConv(5, 3, 2, 2, 3, dropout=0.0))
    vertices, edges = torch.arange(9) % 2, torch.arange(g.num_edges()) % 3
    torch.testing.assert_close(layer(g, x, vertices.to(dtype), edges.to(dtype)), layer(g, x, vertices, edges))


def two_types() -> vgraph.Graph:
    edges: Any = {
        ("a", "r", "b"): ([0, 1, 1], [0, 0, 1]),
        ("b", "s", "b"): ([0, 1], [1, 0]),
        ("b", "t", "a"): ([1], [2]),
    }
    return vgraph.heterograph(edges, num_nodes_dict={"a": 3, "b": 2})


AGGREGATES: dict[str, Any] = {
    "sum": lambda a, b: a + b, "mean": lambda a, b: (a + b) / 2, "max": torch.maximum, "min": torch.minimum,
    "stack": lambda a, b: torch.stack([a, b], 1),
}  # fmt: skip


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_hetero_graph_conv(aggregate: str) -> None:
    g, x = two_types(), {"a": torch.randn(3, 4), "b": torch.randn(2, 4)}
    r, s, t = GraphConv(4, 3), SAGEConv(4, 3, "mean"), SAGEConv(4, 3, "pool")
    layer = HeteroGraphConv({"r": r, ("b", "s", "b"): s, "t": t}, aggregate)
    found = layer(g, x)
    parts = r(g["r"], (x["a"], x["b"])), s(g["s"], (x["b"], x["b"]))
    torch.testing.assert_close(found["b"], AGGREGATES[aggregate](*parts))
    to_a = t(g["t"], (x["b"], x["a"]))
    torch.testing.assert_close(found["a"], to_a.unsqueeze(1) if aggregate == "stack" else to_a)
    torch.testing.assert_close(copy.deepcopy(layer)(g, x)["b"], found["b"])


def test_hetero_graph_conv_options() -> None:
    g, x = two_types(), {"a": torch.randn(3, 4), "b": torch.randn(2, 4)}
    layer = HeteroGraphConv({"r": GraphConv(4, 3), "s": GraphConv(4, 3)}, aggregate=lambda rows, kind: rows[0])
    with pytest.raises(NameLookupError, match=r"no layer for edges of type \('b', 't', 'a'\)"):
        layer(g, x)
    assert list(layer(g, ({"a": x["a"]}, {"b": x["b"]}))) == ["b"]
    w = torch.ones(3)
    kwargs = {"r": {"edge_weight": w}}
    torch.testing.assert_close(layer(g, ({"a": x["a"]}, x), mod_kwargs=kwargs)["b"], layer(g, ({"a": x["a"]}, x))["b"])
    with pytest.raises(NameLookupError, match="there is no aggregate 'prod'"):
        HeteroGraphConv({}, "prod")


def test_hetero_rows() -> None:
    linear, table = HeteroLinear({"a": 5, "b": 3}, 2), HeteroEmbedding({"a": 4, "b": 6}, 2)
    x = torch.randn(7, 3)
    torch.testing.assert_close(linear({"b": x})["b"], linear.linears["b"](x))
    ids = torch.tensor([3, 0])
    assert torch.equal(table({"a": ids})["a"], table.weight["a"][ids])
    table.reset_parameters()
    assert table.weight["b"].shape == (6, 2)


def test_biased_attention() -> None:
    x, bias, mask = torch.randn(3, 5, 8), torch.randn(3, 5, 5, 2), torch.rand(3, 5, 5) < 0.3
    mask[:, :, 0] = False
    layer = BiasedMHA(8, 2, attn_drop=0.0)
    q, k, v = (p(x).unflatten(-1, (2, 4)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    added = bias.permute(0, 3, 1, 2).masked_fill(mask[:, None], -torch.inf)
    wanted = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
    torch.testing.assert_close(layer(x, bias, mask), layer.out_proj(wanted.transpose(1, 2).flatten(2)))
    times = BiasedMHA(8, 2, attn_bias_type="mul", attn_drop=0.0)
    torch.testing.assert_close(times(x, torch.ones(3, 5, 5, 2)), times(x))
    for first in (False, True):
        graphormer = GraphormerLayer(8, 16, 2, norm_first=first, dropout=0.0, attn_dropout=0.0)
        assert graphormer(x, bias, mask).shape == x.shape


def test_refusals() -> None:
    with pytest.raises(FunctionError, match="there is no regularizer 'l2'"):
        TypedLinear(6, 4, 3, "l2")
    with pytest.raises(FunctionError, match="basis without num_bases"):
        TypedLinear(6, 4, 3, "basis")
    with pytest.raises(GraphError, match="6 and 4 are not both divisible into 3 blocks"):
        TypedLinear(6, 4, 3, "bdd", 3)
    with pytest.raises(GraphError, match="feat_size 8 is not divisible by num_heads 3"):
        BiasedMHA(8, 3)
    with pytest.raises(NameLookupError, match="there is no type of bias 'sub'"):
        BiasedMHA(8, 2, attn_bias_type="sub")
