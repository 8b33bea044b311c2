"""Graph attention against the same layers written vertex by vertex: rows, attention, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vgraph
from tests.nn.dense import assert_same, by_vertex, inputs, random_graph, randomized, shapes
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.nn import DotGatConv, EdgeConv, GATConv, GATv2Conv, GraphConv, edge_softmax

HEADS, WIDTH = 3, 4
LAYERS: dict[str, type[Any]] = {"gat": GATConv, "gatv2": GATv2Conv, "dot": DotGatConv}
Scores = Callable[[Tensor, Tensor], Tensor]  # by sources (slots, heads, width), receiver (heads, width)


def mapped(layer: Any, ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    maps = (layer.fc, layer.fc) if hasattr(layer, "fc") else (layer.fc_src, layer.fc_dst)
    sent, received = (fc(x).unflatten(-1, (HEADS, WIDTH)) for fc, x in zip(maps, ends, strict=True))
    return sent, received


def scores_of(layer: Any) -> Scores:
    if isinstance(layer, GATConv):
        return lambda s, r: F.leaky_relu((s * layer.attn_l).sum(-1) + (r * layer.attn_r).sum(-1), 0.2)
    if isinstance(layer, GATv2Conv):
        return lambda s, r: (F.leaky_relu(s + r, 0.2) * layer.attn).sum(-1)
    return lambda s, r: (s * r).sum(-1) / WIDTH**0.5


def by_hand(layer: Any, g: vgraph.Graph, ends: tuple[Tensor, Tensor], weight: Tensor | None = None) -> Tensor:
    sent, received = mapped(layer, ends)
    score = scores_of(layer)

    def row(v: int, ids: Tensor, src: Tensor) -> Tensor:
        a = torch.softmax(score(sent[src], received[v]), 0)
        a = a if weight is None else a * weight[ids, None]
        return (a[..., None] * sent[src]).sum(0)

    rows = by_vertex(g, row)
    if isinstance(layer, GATConv) and layer.bias is not None:
        rows = rows + layer.bias.view(HEADS, WIDTH)
    return rows


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_equals_vertex_by_vertex(name: str, loops: bool) -> None:
    g, x = random_graph(loops=loops), inputs(9, 5)
    layer = randomized(LAYERS[name](5, WIDTH, HEADS, allow_zero_in_degree=True))
    assert_same(layer(g, x), by_hand(layer, g, (x, x)), [x, *layer.parameters()])


@pytest.mark.parametrize("name", LAYERS)
def test_a_feature_for_each_end(name: str) -> None:
    g, x, y = random_graph(), inputs(9, 5), inputs(9, 2)
    layer = randomized(LAYERS[name]((5, 2), WIDTH, HEADS))
    assert_same(layer(g, (x, y)), by_hand(layer, g, (x, y)), [x, y, *layer.parameters()])
    one = randomized(LAYERS[name](5, WIDTH, HEADS))
    z = inputs(9, 5)
    torch.testing.assert_close(one(g, (x, z)), by_hand(one, g, (x, z)))


@pytest.mark.parametrize("name", LAYERS)
def test_attention_is_what_the_rows_were_made_with(name: str) -> None:
    g, x = random_graph(), inputs(9, 5)
    layer = randomized(LAYERS[name](5, WIDTH, HEADS))
    rows, attention = layer(g, x, get_attention=True)
    assert attention.shape == (g.num_edges(), HEADS, 1)
    sums = torch.zeros(9, HEADS, 1, dtype=torch.float64).index_add(0, g.edges()[1], attention)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert_same(layer(g, x), rows, [x, *layer.parameters()])
    assert not list(g.ndata) and not list(g.edata)


def test_edge_weight_multiplies_attention() -> None:
    g, x = random_graph(), inputs(9, 5)
    layer, w = randomized(GATConv(5, WIDTH, HEADS)), inputs(g.num_edges())
    rows, attention = layer(g, x, edge_weight=w, get_attention=True)
    for found in (rows, layer(g, x, edge_weight=w)):
        assert_same(found, by_hand(layer, g, (x, x), w), [x, w, *layer.parameters()])
    assert bool((attention < 0).any())
    with pytest.raises(FeatureError, match=r"edge_weight has shape \(4,\)"):
        layer(g, x, edge_weight=torch.ones(4))


@pytest.mark.parametrize("name", ["gat", "gatv2"])
@pytest.mark.parametrize("width", [HEADS * WIDTH, 5], ids=["same width", "mapped"])
def test_residual(name: str, width: int) -> None:
    g, x = random_graph(), inputs(9, width)
    layer = randomized(LAYERS[name](width, WIDTH, HEADS, residual=True, activation=torch.tanh))
    own = layer.res_fc(x).view(9, HEADS, WIDTH)
    wanted = torch.tanh(by_hand(layer, g, (x, x)) + own)
    assert_same(layer(g, x), wanted, [x, *layer.parameters()])


def test_more_dims() -> None:
    g, x = random_graph(), inputs(9, 2, 5)
    layer = randomized(GATConv(5, WIDTH, HEADS))
    each = torch.stack([layer(g, x[:, 0]), layer(g, x[:, 1])], 1)
    torch.testing.assert_close(layer(g, x), each)


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_dropout(name: str) -> None:
    g, x = random_graph(), inputs(9, 5)
    layer = randomized(LAYERS[name](5, WIDTH, HEADS, attn_drop=0.5))
    torch.manual_seed(3)
    first = layer(g, x)
    torch.manual_seed(3)
    assert_same(first, layer(g, x), [x])
    assert not torch.equal(first, layer(g, x))
    _, attention = layer(g, x, get_attention=True)
    assert 0 < int((attention == 0).sum()) < attention.numel()
    assert torch.equal(layer.eval()(g, x), layer(g, x))

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return layer.train()(g, x)

    assert torch.autograd.gradcheck(run, (x,))


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives(name: str) -> None:
    g, x = random_graph(5, 8), inputs(5, 3)
    layer = randomized(LAYERS[name](3, 2, 2))
    assert torch.autograd.gradgradcheck(lambda x: layer(g, x), (x,))


def test_shared_weights() -> None:
    g, x = random_graph(), inputs(9, 5)
    layer = randomized(GATv2Conv(5, WIDTH, HEADS, share_weights=True))
    assert layer.fc_dst is layer.fc_src
    assert_same(layer(g, x), by_hand(layer, g, (x, x)), [x, *layer.parameters()])


def test_parameters_are_those_of_dgl() -> None:
    assert shapes(GATConv(5, 4, 3)) == {"attn_l": (1, 3, 4), "attn_r": (1, 3, 4), "bias": (12,), "fc.weight": (12, 5)}
    pair = shapes(GATConv((5, 2), 4, 3, residual=True))
    assert set(pair) == {"attn_l", "attn_r", "fc_src.weight", "fc_dst.weight", "res_fc.weight", "res_fc.bias"}
    assert set(shapes(GATConv(12, 4, 3, residual=True))) == {"attn_l", "attn_r", "bias", "fc.weight"}
    names = {f"fc_{end}.{kind}" for end in ("src", "dst") for kind in ("weight", "bias")}
    assert set(shapes(GATv2Conv(5, 4, 3))) == names | {"attn"}
    assert set(shapes(GATv2Conv(5, 4, 3, bias=False))) == {"attn", "fc_src.weight", "fc_dst.weight"}
    assert set(shapes(DotGatConv((5, 2), 4, 3))) == {"fc_src.weight", "fc_dst.weight"}
    assert not bool(GATv2Conv(5, 4, 3).fc_src.bias.any())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_for_both_ends_takes_rows_of_a_block(name: str) -> None:
    """The block's receivers are its first senders, as for a layer that was made for one width."""
    block, x = vgraph.create_block(([0, 1, 2, 2], [0, 1, 1, 0]), 3, 2), torch.randn(3, 5)
    layer = LAYERS[name]((5, 5), WIDTH, HEADS)
    torch.testing.assert_close(layer(block, x), layer(block, (x, x[:2])))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_a_softmax_of_narrow_whole_numbers(dtype: torch.dtype) -> None:
    """Their differences wrapped around."""
    logits = torch.tensor([120, 119, 3]).to(dtype)
    found = edge_softmax(vgraph.graph(([0, 1, 2], [0, 0, 0])), logits)
    torch.testing.assert_close(found, torch.softmax(logits.float(), 0))


@pytest.mark.parametrize("name", LAYERS)
def test_vertices_without_in_edges(name: str) -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    layer = LAYERS[name](5, WIDTH, HEADS)
    with pytest.raises(GraphError, match="1 nodes have no in-edge") as info:
        layer(g, torch.randn(3, 5))
    assert "allow_zero_in_degree" in info.value.cure
    if name != "dot":
        layer.set_allow_zero_in_degree(True)
        assert not bool(layer(g, torch.randn(3, 5))[0].any())


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_edge_softmax(norm_by: str) -> None:
    g = random_graph()
    logits = inputs(g.num_edges(), 2, 1)
    end = g.edges()[1 if norm_by == "dst" else 0]
    wanted = torch.zeros_like(logits)
    for vertex in range(9):
        ids = (end == vertex).nonzero().squeeze(1)
        wanted = wanted.index_copy(0, ids, torch.softmax(logits[ids], 0))
    assert_same(edge_softmax(g, logits, norm_by=norm_by), wanted, [logits])
    g.edata["e"] = torch.ones(g.num_edges(), 1)
    edge_softmax(g, logits)
    assert list(g.edata) == ["e"] and not list(g.ndata)
    with pytest.raises(FunctionError, match="norm_by is 'both'"):
        edge_softmax(g, logits, norm_by="both")


def test_large_scores_do_not_overflow() -> None:
    g = vgraph.graph(([0, 1], [2, 2]))
    found = edge_softmax(g, torch.tensor([[1000.0], [-1000.0]]))
    assert found.squeeze(1).tolist() == [1, 0]


def test_scores_of_a_feature_without_gradient() -> None:
    """They are made of the feature itself, and are the same numbers with the same gradients."""
    g = vgraph.add_self_loop(vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 1])))
    layer = GATConv(5, 4, num_heads=3).double()
    found: list[list[Tensor]] = []
    for needs in (False, True):
        rows = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5).requires_grad_(needs)
        out = layer(g, rows)
        weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)
        found.append([out.detach(), *torch.autograd.grad((out * weights).sum(), list(layer.parameters()))])
    for plain, through in zip(*found, strict=True):
        torch.testing.assert_close(plain, through, rtol=1e-12, atol=1e-12)
    rows = torch.linspace(-1, 1, 20, dtype=torch.float64).view(4, 5)
    layer.fc.register_forward_hook(lambda _, given, rows: rows * 2)
    twice = layer(g, rows)
    torch.testing.assert_close(twice, layer(g, rows.clone().requires_grad_()).detach())
    assert not torch.allclose(twice, 2 * found[0][0]), "the scores see what the hook gave"


@pytest.mark.parametrize(
    "layer",
    [
        GATConv(4, 3, 2, allow_zero_in_degree=True, bias=False),
        GATv2Conv(4, 3, 2, allow_zero_in_degree=True, bias=False),
        DotGatConv(4, 3, 2, allow_zero_in_degree=True),
        GraphConv(4, 3, bias=False, allow_zero_in_degree=True),
        EdgeConv(4, 3, allow_zero_in_degree=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_loss_of_a_graph_without_edges_has_a_gradient(layer: Any) -> None:
    """Of zeros, as in DGL: a training step on a batch without edges is one like any other."""
    x = torch.ones(3, 4, requires_grad=True)
    for g, rows in ((vgraph.graph(([], []), num_nodes=3), x), (vgraph.create_block(([], []), 3, 2), (x, x[:2]))):
        made = layer(g, rows)
        assert not made.any()
        made.sum().backward()
        assert x.grad is not None
        assert not x.grad.any()
