"""PGExplainer: masks and losses against formulas, and training that finds the edges that matter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from vgraph.errors import FunctionError
from vgraph.nn import PGExplainer

ENDS = torch.tensor([0, 1, 1, 2, 2, 3]), torch.tensor([1, 0, 2, 1, 3, 2])


class Sums(nn.Module):
    """Weighted sums of senders' rows; of all nodes where ``whole``."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, graph: Any, feat: Tensor, embed: bool = False, edge_weight: Tensor | None = None) -> Tensor:
        src, dst = graph.edges()
        weight = torch.ones(len(src)) if edge_weight is None else edge_weight
        sums = torch.zeros_like(feat).index_add(0, dst, feat[src] * weight[:, None])
        return sums.sum(0, keepdim=True) if self.whole and not embed else sums


def test_a_mask_of_a_graph() -> None:
    g, x, explainer = vgraph.graph(ENDS), torch.randn(4, 2), PGExplainer(Sums(True), 2)
    rows, (src, dst) = explainer.model(g, x, embed=True), ENDS
    values = torch.sigmoid(explainer.elayers(torch.cat([rows[src], rows[dst]], 1)))[:, 0]
    mask = (values + values[[1, 0, 3, 2, 5, 4]]) / 2
    probs, found = explainer.explain_graph(g, x)
    torch.testing.assert_close(found, mask)
    torch.testing.assert_close(probs, explainer.model(g, x, edge_weight=mask).softmax(-1))
    assert list(explainer.parameters()) == list(explainer.elayers.parameters())


def test_the_loss() -> None:
    g, x = vgraph.graph(ENDS), torch.randn(4, 2)
    explainer = PGExplainer(Sums(True), 2, coff_budget=0.3, coff_connect=0.2, sample_bias=0.5)  # the noise is 0.5: none
    rows, (src, dst) = explainer.model(g, x, embed=True), ENDS
    values = torch.sigmoid(explainer.elayers(torch.cat([rows[src], rows[dst]], 1)) / 2)[:, 0]
    mask = (values + values[[1, 0, 3, 2, 5, 4]]) / 2
    label = int(explainer.model(g, x).argmax())
    told = -(explainer.model(g, x, edge_weight=mask).softmax(-1)[0, label] + 1e-6).log()
    entropy = torch.distributions.Bernoulli(0.98 * mask + 0.01).entropy().mean()
    wanted = told + 0.3 * (values.sum() - 0.3) + 0.2 * entropy
    found = explainer.train_step(g, x, temperature=2.0)
    torch.testing.assert_close(found, wanted)
    pairs = zip(*(torch.autograd.grad(loss, list(explainer.parameters())) for loss in (found, wanted)), strict=True)
    for left, right in pairs:
        torch.testing.assert_close(left, right)


def test_masks_around_nodes() -> None:
    g, x, explainer = (
        vgraph.graph(ENDS),
        torch.randn(4, 2),
        PGExplainer(Sums(False), 2, num_hops=1, explain_graph=False),
    )
    probs, mask, around, centers = explainer.explain_node(torch.tensor([0, 2]), g, x)
    assert around.ndata[vgraph.NID][centers].tolist() == [0, 2] and around.batch_size == 2
    assert mask.shape == (around.num_edges(),) and probs.shape == (around.num_nodes(), 2)
    first = explainer.explain_node(0, g, x)
    torch.testing.assert_close(first[1], mask[: first[2].num_edges()])
    torch.testing.assert_close(first[0], probs[: first[2].num_nodes()])
    explainer.train_step_node([0, 2], g, x, temperature=2.0).backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in explainer.parameters())


def test_training_finds_the_edges_that_matter() -> None:
    """The answer is class 0 by edges of node 0 alone; the others are for class 1."""
    g, x = vgraph.graph(ENDS), torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 0.5], [0.0, 0.5]])
    explainer = PGExplainer(Sums(True), 2, coff_budget=0.05)
    optimizer = torch.optim.Adam(list(explainer.parameters()), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        explainer.train_step(g, x, temperature=1.0).backward()
        optimizer.step()
    mask = explainer.explain_graph(g, x)[1]
    assert float(mask[:2].detach().min()) > float(mask[2:].detach().max())


def test_refusals() -> None:
    g, x = vgraph.graph(ENDS), torch.randn(4, 2)
    with pytest.raises(FunctionError, match="made for graphs and is asked for nodes"):
        PGExplainer(Sums(True), 2).explain_node(0, g, x)
    with pytest.raises(FunctionError, match="made for nodes and is asked for graphs"):
        PGExplainer(Sums(False), 2, 1, explain_graph=False).explain_graph(g, x)
    with pytest.raises(FunctionError, match="without num_hops"):
        PGExplainer(Sums(False), 2, explain_graph=False).explain_node(0, g, x)
