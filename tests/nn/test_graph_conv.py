"""GraphConv against dense matrices: outputs and every gradient, in fp64; its errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.cli.citations import GCN
from vgraph.errors import FeatureError, FunctionError, GraphError
from vgraph.nn import GraphConv

NORMS = ("none", "both", "right", "left")


def random_graph(num_vertices: int = 12, num_edges: int = 40) -> vgraph.Graph:
    ends = torch.randint(num_vertices, (2, num_edges))
    return vgraph.add_self_loop(vgraph.graph((ends[0], ends[1]), num_nodes=num_vertices))


def dense(g: vgraph.Graph, norm: str, edge_weight: Tensor | None = None) -> Tensor:
    """The matrix that a layer multiplies its input by: rows receive, columns send."""
    src, dst = g.edges()
    weight = torch.ones(g.num_edges(), dtype=torch.float64) if edge_weight is None else edge_weight
    count = g.num_nodes()
    matrix = torch.zeros(count, count, dtype=torch.float64).index_put((dst, src), weight, True)
    ones = torch.ones(g.num_edges(), dtype=torch.float64)
    out_degree = torch.zeros(count, dtype=torch.float64).index_add(0, src, ones).clamp(min=1)
    in_degree = torch.zeros(count, dtype=torch.float64).index_add(0, dst, ones).clamp(min=1)
    if norm == "both":
        return in_degree.pow(-0.5)[:, None] * matrix * out_degree.pow(-0.5)
    if norm == "right":
        return matrix / in_degree[:, None]
    return matrix / out_degree if norm == "left" else matrix


def assert_same(found: Tensor, wanted: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    a = torch.autograd.grad(found.square().sum(), inputs)
    b = torch.autograd.grad(wanted.square().sum(), inputs)
    for left, right in zip(a, b, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", [(5, 3), (3, 5)], ids=["narrower", "wider"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_dense(norm: str, sizes: tuple[int, int], weighted: bool) -> None:
    g = random_graph()
    layer = GraphConv(*sizes, norm=norm).double()
    assert layer.weight is not None and layer.bias is not None
    nn.init.normal_(layer.bias)
    x = torch.randn(12, sizes[0], dtype=torch.float64, requires_grad=True)
    w = torch.rand(g.num_edges(), dtype=torch.float64, requires_grad=True) if weighted else None
    wanted = dense(g, norm, w) @ x @ layer.weight + layer.bias
    inputs = [x, layer.weight, layer.bias, *([] if w is None else [w])]
    assert_same(layer(g, x, edge_weight=w), wanted, inputs)
    if w is not None:
        torch.testing.assert_close(layer(g, x, edge_weight=w.unsqueeze(1)), wanted)


def test_two_layers_equal_dense() -> None:
    g = random_graph()
    model = GCN(6, 4, 3, dropout=0.5).double().eval()
    x = torch.randn(12, 6, dtype=torch.float64)
    first, second = model.first, model.second
    matrix = dense(g, "both")
    assert first.weight is not None and second.weight is not None
    wanted = matrix @ torch.relu(matrix @ x @ first.weight + first.bias) @ second.weight
    assert_same(model(g, x.to_sparse()), wanted + second.bias, list(model.parameters()))


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_both_orders(weighted: bool) -> None:
    g = random_graph(5, 8)
    layer = GraphConv(3, 2, weight=False, bias=False)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    w = torch.rand(g.num_edges(), dtype=torch.float64, requires_grad=True) if weighted else None

    def run(x: Tensor, weight: Tensor, w: Tensor | None = None) -> Tensor:
        return torch.tanh(layer(g, x, weight=weight, edge_weight=w))

    inputs = (x, weight) if w is None else (x, weight, w)
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


def test_parameters_are_those_of_dgl() -> None:
    layer = GraphConv(5, 3)
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {"weight": (5, 3), "bias": (3,)}
    assert layer.bias is not None and not bool(layer.bias.any())
    assert not list(GraphConv(5, 3, weight=False, bias=False).parameters())
    assert repr(layer) == "GraphConv(in=5, out=3, normalization=both)"
    assert "activation=" in repr(GraphConv(5, 3, activation=torch.relu))


def test_more_dims_and_activation() -> None:
    g = random_graph()
    layer = GraphConv(5, 3, activation=torch.relu)
    x = torch.randn(12, 2, 5)
    each = torch.stack([layer(g, x[:, 0]), layer(g, x[:, 1])], 1)
    torch.testing.assert_close(layer(g, x), each)
    assert float(each.detach().min()) == 0
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(g, x), each)
    torch.testing.assert_close(layer(g, (x, x)), each)


def test_features_stay_as_they_are() -> None:
    g = random_graph()
    g.ndata["h"] = torch.zeros(12, 1)
    GraphConv(5, 3)(g, torch.randn(12, 5))
    assert list(g.ndata) == ["h"] and g.ndata["h"].shape == (12, 1) and not list(g.edata)


def test_vertices_without_in_edges() -> None:
    g = vgraph.graph(([0, 1], [1, 2]))
    layer = GraphConv(5, 3)
    with pytest.raises(GraphError, match="1 nodes have no in-edge, node 0 is the first") as info:
        layer(g, torch.randn(3, 5))
    assert "add_self_loop" in info.value.cure
    layer.set_allow_zero_in_degree(True)
    nn.init.ones_(layer.bias)  # type: ignore[arg-type]
    assert layer(g, torch.randn(3, 5))[0].tolist() == [1, 1, 1]


def test_bad_arguments() -> None:
    g = random_graph()
    with pytest.raises(FunctionError, match="no norm 'sym'"):
        GraphConv(5, 3, norm="sym")
    with pytest.raises(FunctionError, match="weight is passed") as info:
        GraphConv(5, 3)(g, torch.randn(12, 5), weight=torch.randn(5, 3))
    assert "weight=False" in info.value.cure
    with pytest.raises(FeatureError, match=r"edge_weight has shape \(4,\)"):
        GraphConv(5, 3)(g, torch.randn(12, 5), edge_weight=torch.ones(4))
