"""Explainers: masks against the same training written with dense matrices; subgraphs against all subgraphs."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vgraph
import vgraph.function as fn
from vgraph.errors import ArgumentError, FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.nn import GNNExplainer, HeteroGNNExplainer, HeteroSubgraphX, PGExplainer, SubgraphX, subgraphx

COSTS = {"alpha1": 0.3, "alpha2": 0.2, "beta1": 0.5, "beta2": 0.4}


class Sums(nn.Module):
    """Weighted sums of senders' rows, mapped; rows of graphs where ``whole``."""

    def __init__(self, whole: bool = False) -> None:
        super().__init__()
        self.map, self.whole = nn.Linear(4, 3), whole

    def forward(self, graph: vgraph.Graph, feat: Tensor, eweight: Tensor | None = None, more: Any = 0) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"] = self.map(feat) + more
            graph.edata["w"] = torch.ones(graph.num_edges(), 1) if eweight is None else eweight.unsqueeze(1)
            graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "h"))
            return graph.ndata["h"].sum(0, keepdim=True) if self.whole else graph.ndata["h"]


def entropy(p: Tensor) -> Tensor:
    return torch.distributions.Bernoulli(p).entropy().mean()


def trained(rows: Any, num_feats: int, ends: tuple[Tensor, Tensor], count: int, row: int) -> tuple[Tensor, Tensor]:
    """The masks by dense matrices; ``rows``: of a feature and an adjacency matrix."""
    torch.manual_seed(3)
    x = nn.Parameter(torch.randn(1, num_feats) * 0.1)
    e = nn.Parameter(torch.randn(len(ends[0])) * sqrt(2) * sqrt(1 / count))
    optimizer, label = torch.optim.Adam([x, e], lr=0.05), int(rows(1.0, torch.ones(len(ends[0])))[row].argmax())
    for _ in range(5):
        logits = rows(x.sigmoid(), e.sigmoid())
        loss = -logits.log_softmax(-1)[row, label] + 0.3 * e.sigmoid().sum() + 0.2 * entropy(e.sigmoid())
        loss = loss + 0.5 * x.sigmoid().mean() + 0.4 * entropy(x.sigmoid())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return x.detach().sigmoid()[0], e.detach().sigmoid()


def rows_by(model: Sums, feat: Tensor, ends: tuple[Tensor, Tensor], count: int) -> Any:
    def rows(scale: Any, weight: Tensor) -> Tensor:
        a = torch.zeros(count, count).index_put((ends[1], ends[0]), weight, True)
        found = a @ model.map(feat * scale)
        return found.sum(0, keepdim=True) if model.whole else found

    return rows


@pytest.mark.parametrize("whole", [False, True])
def test_masks_are_those_of_dense_training(whole: bool) -> None:
    ends = torch.tensor([0, 1, 2, 2, 3, 4]), torch.tensor([1, 2, 3, 1, 1, 5])
    g, feat, model = vgraph.graph(ends), torch.randn(6, 4), Sums(whole)
    explainer = GNNExplainer(model, num_hops=1, lr=0.05, num_epochs=5, log=False, **COSTS)
    torch.manual_seed(3)
    if whole:
        found = explainer.explain_graph(g, feat)
        wanted = trained(rows_by(model, feat, ends, 6), 4, ends, 6, 0)
    else:
        center, sg, *found = explainer.explain_node(1, g, feat, more=torch.zeros(6, 1))
        nodes = sg.ndata[vgraph.NID]
        assert nodes[center].tolist() == [1] and set(nodes.tolist()) == {0, 1, 2, 3}
        inner = sg.edges()
        wanted = trained(rows_by(model, feat[nodes], inner, 4), 4, inner, 4, int(center))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not model.training


class Typed(nn.Module):
    """``Sums`` of users into items, and of items into users."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({name: nn.Linear(4, 3) for name in ("u", "v")})

    def forward(self, graph: vgraph.Graph, feat: dict[str, Tensor], eweight: Any = None) -> dict[str, Tensor]:
        with graph.local_scope():
            for name, rows in feat.items():
                graph.nodes[name].data["h"] = self.maps[name](rows)
            for etype in graph.canonical_etypes:
                ones = torch.ones(graph.num_edges(etype))
                graph.edges[etype].data["w"] = (ones if eweight is None else eweight[etype]).unsqueeze(1)
            step = fn.u_mul_e("h", "w", "m"), fn.sum("m", "out")
            graph.multi_update_all(dict.fromkeys(graph.canonical_etypes, step), "sum")
            return {name: graph.nodes[name].data["out"] for name in graph.ntypes}


def test_masks_of_types() -> None:
    a, b = ("u", "a", "v"), ("v", "b", "u")
    g = vgraph.heterograph({a: ([0, 1, 2], [0, 0, 1]), b: ([0, 1], [2, 0])})
    feat, model = {"u": torch.randn(3, 4), "v": torch.randn(2, 4)}, Typed()
    explainer = HeteroGNNExplainer(model, num_hops=1, lr=0.05, num_epochs=5, log=False, **COSTS)
    torch.manual_seed(3)
    center, sg, feats, edges = explainer.explain_node("v", 0, g, feat)
    assert int(center) == 0 and sg.num_edges(a) == 2 and sg.num_edges(b) == 0
    assert feats["u"].shape == (4,) and edges[b].shape == (0,)
    torch.manual_seed(3)
    masks = [nn.Parameter(torch.randn(1, 4) * 0.1) for _ in "uv"]
    weight = nn.Parameter(torch.randn(2) * sqrt(2) * sqrt(2 / 3))
    optimizer = torch.optim.Adam([*masks, weight], lr=0.05)
    sent = model.maps["u"](feat["u"][:2]).sum(0)
    for _ in range(5):
        logits = weight.sigmoid() @ model.maps["u"](feat["u"][:2] * masks[0].sigmoid())
        loss = -logits.log_softmax(-1)[sent.argmax()] + 0.3 * weight.sigmoid().sum() + 0.2 * entropy(weight.sigmoid())
        for mask in masks:
            loss = loss + 0.5 * mask.sigmoid().mean() + 0.4 * entropy(mask.sigmoid())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for mine, theirs in zip((feats["u"], feats["v"], edges[a]), (*masks, weight), strict=True):
        torch.testing.assert_close(mine, theirs.detach().sigmoid().view(-1), rtol=1e-4, atol=1e-5)


class Worth(nn.Module):
    """The probability of class 0 grows by each node's worth: a part's Shapley value is the sum over its nodes."""

    def forward(self, graph: vgraph.Graph, feat: Any) -> Tensor:
        p = 0.5 + sum(rows.sum() for rows in (feat.values() if isinstance(feat, dict) else [feat]))
        return torch.stack([p, 1 - p]).log().unsqueeze(0)


@pytest.mark.parametrize("hops", [1, 2])
def test_the_part_that_counts_most(hops: int) -> None:
    g = vgraph.graph(([0, 1, 2, 3, 4, 1], [1, 2, 3, 4, 5, 6]))
    worth = torch.tensor([[0.01], [0.02], [0.03], [0.06], [0.07], [0.01], [0.2]])
    rules: dict[str, Any] = {"node_min": 2, "num_rollouts": 60, "shapley_steps": 3}
    found = SubgraphX(Worth(), hops, coef=5.0, **rules).explain_graph(g, worth, target_class=0)
    assert found.tolist() == [1, 6], "0.22 of worth; 3 and 4, which are next, have 0.13"
    found = SubgraphX(Worth(), hops, coef=5.0, high2low=False, **rules).explain_graph(g, -worth, target_class=1)
    assert found.tolist() == [1, 6]
    with pytest.raises(GraphError, match="node_min is 7 for a graph of 7 nodes"):
        SubgraphX(Worth(), hops, node_min=7).explain_graph(g, worth, 0)


def test_the_part_that_counts_most_of_types() -> None:
    g = vgraph.heterograph({("u", "a", "v"): ([0, 1, 2], [0, 0, 1]), ("v", "b", "u"): ([1], [1])})
    feat = {"u": torch.tensor([[0.1], [0.02], [0.01]]), "v": torch.tensor([[0.05], [0.12]])}
    explainer = HeteroSubgraphX(Worth(), 2, node_min=2, num_rollouts=30, shapley_steps=3)
    assert {name: ids.tolist() for name, ids in explainer.explain_graph(g, feat, 0).items()} == {"u": [0], "v": [0]}


def test_what_a_part_adds_beside_other_nodes() -> None:
    """A class that needs two nodes at once: each is worth half of what both are."""

    class Both(nn.Module):
        def forward(self, graph: vgraph.Graph, feat: Tensor) -> Tensor:
            p = 0.1 + 0.8 * feat[0, 0] * feat[1, 0]
            return torch.stack([p, 1 - p]).log().unsqueeze(0)

    values: list[float] = []

    class Watched(SubgraphX):
        def _best(self, graph: vgraph.Graph, value: Any) -> Any:
            search = subgraphx._Search(self, subgraphx._ends(graph), graph.num_nodes(), value)
            values.append(search._shapley(np.array([0])))
            return np.array([0])

    Watched(Both(), 3, node_min=1, shapley_steps=400).explain_graph(vgraph.graph(([0, 1], [1, 2])), torch.ones(3, 1), 0)
    assert abs(values[0] - 0.4) < 0.06


ROWS = torch.ones(3, 4)
G = vgraph.graph(([0, 1, 2], [1, 2, 0]))
TYPED = vgraph.heterograph({("u", "a", "v"): ([0, 1, 2], [0, 0, 1])})


@pytest.mark.parametrize(
    "explain",
    [
        lambda g, feat: GNNExplainer(Sums(), 1).explain_node(0, g, feat),
        lambda g, feat: GNNExplainer(Sums(True), 1).explain_graph(g, feat),
        lambda g, feat: SubgraphX(Sums(True), 1, node_min=1).explain_graph(g, feat, 0),
        lambda g, feat: PGExplainer(Sums(True), 4).explain_graph(g, feat),
        lambda g, feat: PGExplainer(Sums(True), 4).train_step(g, feat, 1.0),
        lambda g, feat: PGExplainer(Sums(), 4, 1, explain_graph=False).explain_node(0, g, feat),
        lambda g, feat: PGExplainer(Sums(), 4, 1, explain_graph=False).train_step_node(0, g, feat, 1.0),
    ],
)
def test_features_are_those_of_the_graph(explain: Any) -> None:
    for wrong, told in ((ROWS[:2], r"has shape \(2, 4\)"), (ROWS[:, 0], r"has shape \(3,\)"), ([1.0], "is a list")):
        with pytest.raises(FeatureError, match=f"feat {told} for 3 nodes"):
            explain(G, wrong)
    with pytest.raises(FunctionError, match="tensor of shape"):
        explain(ROWS, ROWS)


@pytest.mark.parametrize(
    "explain",
    [
        lambda g, feat: HeteroGNNExplainer(Sums(), 1).explain_node("u", 0, g, feat),
        lambda g, feat: HeteroGNNExplainer(Sums(), 1).explain_graph(g, feat),
        lambda g, feat: HeteroSubgraphX(Sums(), 1, node_min=1).explain_graph(g, feat, 0),
    ],
)
def test_features_are_those_of_the_types(explain: Any) -> None:
    with pytest.raises(FeatureError, match=r"feat has shape \(3, 4\) for 2 nodes of type 'v'"):
        explain(TYPED, {"u": ROWS, "v": ROWS})
    with pytest.raises(NameLookupError, match="no node type 'w'"):
        explain(TYPED, {"w": ROWS})
    with pytest.raises(FeatureError, match="feat is a Tensor for a graph of several types"):
        explain(TYPED, ROWS)
    with pytest.raises(NameLookupError, match="no node type 'w'"):
        HeteroGNNExplainer(Sums(), 1).explain_node("w", 0, TYPED, {"u": ROWS})


def test_a_class_that_the_model_does_not_tell_of() -> None:
    with pytest.raises(ArgumentError, match=r"target_class=3 for a model that gives logits of shape \(1, 3\)"):
        SubgraphX(Sums(True), 1, node_min=1).explain_graph(G, ROWS, 3)
