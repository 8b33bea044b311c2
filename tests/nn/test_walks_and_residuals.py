"""Embeddings from walks, layers computed back, steps of descent: against what they say they compute."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vgraph
from tests.nn.dense import assert_same, inputs, random_graph, randomized
from vgraph.errors import FunctionError, GraphError
from vgraph.nn import DeepWalk, GraphConv, GroupRevRes, MetaPath2Vec, TWIRLSConv, TWIRLSUnfoldingAndAttention


@pytest.mark.parametrize("fast", [True, False])
def test_deep_walk(fast: bool) -> None:
    vgraph.seed(0)
    g = vgraph.graph(([0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]))
    layer = DeepWalk(g, 4, walk_length=4, window_size=2, neg_weight=0.5, negative_size=3, fast_neg=fast, sparse=False)
    assert list(layer.state_dict()) == ["node_embed.weight", "context_embed.weight"]
    assert float(layer.node_embed.weight.detach().abs().max()) <= 0.25 and not bool(layer.context_embed.weight.any())
    nn.init.normal_(layer.context_embed.weight)
    walks = layer.sample(torch.tensor([0, 2]))
    assert walks.shape == (2, 4) and walks[:, 0].tolist() == [0, 2]
    assert bool(g.has_edges_between(walks[:, :-1].flatten(), walks[:, 1:].flatten()).all())
    table, around = layer.node_embed.weight, layer.context_embed.weight
    pairs = [(w[j], w[i]) for w in walks for i in range(4) for j in range(4) if 0 < abs(i - j) <= 2]
    near = torch.stack([-F.logsigmoid((table[u] * around[v]).sum()) for u, v in pairs]).mean()
    chances = torch.bincount(walks.flatten(), minlength=3).float() if fast else g.out_degrees().float() ** 0.75
    score = -F.logsigmoid(-(table @ around.t())) @ (chances / chances.sum())
    far = torch.stack([score[v] for _, v in pairs]).mean()
    losses = torch.stack([layer(walks) for _ in range(300)]).detach()
    wanted = (near + 0.5 * 3 * far).detach()
    assert abs(float(losses.mean() - wanted)) < 5 * float(losses.std()) / 300**0.5 + 1e-4
    with pytest.raises(FunctionError, match="walks of 2 nodes for a window of 2"):
        DeepWalk(g, walk_length=2, window_size=2)
    with pytest.raises(GraphError, match="a walk ended"):
        layer(torch.tensor([[0, 1, -1, -1]]))


def test_sparse_gradients() -> None:
    g = vgraph.graph(([0, 1, 2], [1, 2, 0]))
    layer = DeepWalk(g, 4, walk_length=3, window_size=1)
    optimizer, before = torch.optim.SparseAdam(list(layer.parameters()), lr=0.1), layer(layer.sample([0, 1, 2])).item()
    for _ in range(20):
        optimizer.zero_grad()
        layer(layer.sample([0, 1, 2])).backward()
        optimizer.step()
    assert layer.node_embed.weight.grad.is_sparse
    assert layer(layer.sample([0, 1, 2])).item() < before


def test_meta_paths() -> None:
    g = vgraph.heterograph({("a", "ab", "b"): ([0, 1], [1, 0]), ("b", "ba", "a"): ([0], [0])}, {"a": 2, "b": 3})
    layer = MetaPath2Vec(g, ["ab", "ba"], window_size=1, emb_dim=4, negative_size=2, sparse=False)
    assert {name: ids.tolist() for name, ids in layer.local_to_global_nid.items()} == {"a": [0, 1], "b": [2, 3, 4]}
    counts = torch.tensor([2.0, 1, 1, 1, 0]) ** 0.75  # walks 0-3, which ends there, and 1-2-0
    torch.testing.assert_close(layer.neg_prob, counts / counts.sum())
    u, v, others = layer.sample(torch.tensor([0, 1]))
    assert sorted(zip(u.tolist(), v.tolist(), strict=True)) == [(0, 2), (0, 3), (1, 2), (2, 0), (2, 1), (3, 0)]
    assert others.shape == (6, 2) and int(others.max()) < 4
    nn.init.normal_(layer.context_embed.weight)
    table, around = layer.node_embed.weight, layer.context_embed.weight
    each = [F.logsigmoid(table[i] @ around[j]) + sum(F.logsigmoid(-table[i] @ around[k]) for k in more)
            for i, j, more in zip(u, v, others, strict=True)]  # fmt: skip
    torch.testing.assert_close(layer(u, v, others), -torch.stack(each).mean())
    assert layer.sample([0])[2].shape == (2, 2)
    with pytest.raises(FunctionError, match="walks of 2 nodes for a window of 3"):
        MetaPath2Vec(g, ["ab"], window_size=3)


class Mixed(nn.Module):
    """A layer with a dropout and rows of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)

    def forward(self, graph: vgraph.Graph, x: Tensor, *more: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"] = torch.tanh(self.drop(self.map(x)))
            graph.edata["w"] = more[0] if more else torch.ones(graph.num_edges(), 3, dtype=x.dtype)
            graph.update_all(vgraph.function.u_mul_e("h", "w", "m"), vgraph.function.sum("m", "h"))
            return graph.ndata["h"]


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("with_edges", [True, False])
def test_reversible_residuals(groups: int, with_edges: bool) -> None:
    g, x = random_graph(), inputs(9, 3 * groups)
    more = [inputs(39, 3 * groups)] if with_edges else []
    layer = randomized(GroupRevRes(Mixed(), groups))
    torch.manual_seed(5)
    found = layer(g, x, *more)
    torch.manual_seed(5)
    xs, parts = x.chunk(groups, -1), [w.chunk(groups, -1) for w in more]
    row, rows = torch.stack(xs[1:]).sum(0), list[Tensor]()
    for i in range(groups):
        row = xs[i] + layer.gnn_modules[i](g, row, *(w[i] for w in parts))
        rows.append(row)
    assert_same(found, torch.cat(rows, -1), [x, *more, *layer.parameters()], tolerance=1e-8)


def test_reversible_residuals_in_a_row() -> None:
    g, x = random_graph(), inputs(9, 4)
    layers = [randomized(GroupRevRes(GraphConv(2, 2), 2)) for _ in range(2)]
    layers[0].gnn_modules[1].requires_grad_(False)
    rows = layers[1](g, layers[0](g, x)).sum()
    rows.backward()
    assert x.grad is not None and all(p.grad is None for p in layers[0].gnn_modules[1].parameters())
    assert all(p.grad is not None for p in [*layers[0].gnn_modules[0].parameters(), *layers[1].parameters()])


def test_reversible_residuals_under_autocast() -> None:
    g, x = random_graph(), inputs(9, 4).float().detach()
    layer = GroupRevRes(GraphConv(2, 2), 2)
    grads: list[list[Tensor]] = []
    for whole in (layer, lambda g, x: in_turn(layer, g, x)):
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            rows = whole(g, given)
        grads.append(list(torch.autograd.grad(rows.float().square().sum(), [given, *layer.parameters()])))
    for found, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(found, wanted)


def test_reversible_residuals_read_the_features_of_the_call() -> None:
    """What the caller gives the graph later is neither read by the gradient nor held, though it be the result."""

    class Weighted(nn.Module):
        def forward(self, graph: vgraph.Graph, x: Tensor) -> Tensor:
            return x * graph.ndata["w"]

    g, x = random_graph(), inputs(9, 4)
    g.ndata["w"] = torch.full((9, 1), 2.0, dtype=torch.float64)
    out = g.ndata["out"] = GroupRevRes(Weighted(), 2)(g, x)
    g.ndata["w"] = torch.full((9, 1), 5.0, dtype=torch.float64)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0], torch.tensor([3.0, 3.0, 7.0, 7.0], dtype=torch.float64))
    seen = weakref.ref(out)
    del g, out
    assert seen() is None


def in_turn(layer: GroupRevRes, g: vgraph.Graph, x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    first = first + layer.gnn_modules[0](g, second)
    return torch.cat([first, second + layer.gnn_modules[1](g, first)], -1)


@pytest.mark.parametrize("precond", [True, False])
@pytest.mark.parametrize("weighs", [True, False])
def test_unfolding(precond: bool, weighs: bool) -> None:
    g, x = random_graph(), inputs(9, 4)
    options: dict[str, Any] = {"attn_aft": 1, "init_att": True, "use_eta": True, "T": 4.0, "tau": 0.7, "p": 0.5}
    layer = randomized(TWIRLSUnfoldingAndAttention(4, 0.3, 0.8, 2, precond=precond, **(options if weighs else {})))
    (src, dst), rows = g.edges(), x
    w = torch.ones(len(src), dtype=torch.float64)
    for k in range(2):
        if weighs and k in (0, 1):  # before the first step, and after it
            y = rows * layer.etas
            apart = ((y[src] - y[dst]).square().sum(1) + 1e-7) ** 0.75
            apart = torch.where(apart < 0.7, torch.full_like(apart, 0.7), apart)
            w = torch.where(apart > 4.0, torch.zeros_like(apart), 1 / apart) + 1e-9
        a = torch.zeros(9, 9, dtype=torch.float64).index_put((dst, src), w, True)
        d = a.sum(1)
        d = 0.8 * d + 0.2 if precond else d
        step = 0.3 * 0.8 * (d[:, None] ** -0.5 * a * d**-0.5) @ rows
        rest = 0.7 * rows + 0.3 * x / d[:, None] if precond else (1 - 0.24 - 0.3) * rows + 0.3 * x
        rows = rest + step
    assert_same(layer(g, x), rows, [x, *layer.parameters()], tolerance=1e-8)
    assert not list(g.ndata) and not list(g.edata)


def test_twirls_keeps_steps_without_a_network_before() -> None:
    g, x = random_graph(), inputs(9, 4)
    layer = randomized(TWIRLSConv(4, 2, 8, 2, num_mlp_before=0, num_mlp_after=2, norm="layer"))
    first = layer(g, x)
    assert torch.equal(layer(g, 2 * x), first) and layer.cached_unfolding is not None
    looped = vgraph.add_self_loop(vgraph.remove_self_loop(g))
    rows = layer.mlp_aft.layers[0](layer.unfolding(looped, x))
    torch.testing.assert_close(first, layer.mlp_aft.layers[1](torch.relu(layer.mlp_aft.norms[0](rows))))
    both = TWIRLSConv(4, 2, 8, 2, norm="batch", attention=True, inp_dropout=0.5)
    assert not both.cacheable and both.unfolding.attn_aft == 1 and both(g, x.detach().float()).shape == (9, 2)
