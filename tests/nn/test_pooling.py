"""Pooling layers against loops over the graphs of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vgraph
from tests.nn.dense import assert_same, inputs, random_graph, randomized
from vgraph.errors import FeatureError
from vgraph.nn import (
    AvgPooling,
    GlobalAttentionPooling,
    MaxPooling,
    Set2Set,
    SortPooling,
    SumPooling,
    WeightAndSum,
)

COUNTS = (5, 1, 9)


def by_graph(x: Tensor, row: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.stack([row(part) for part in x.split(COUNTS)])


def sort_pool(part: Tensor) -> Tensor:
    part = part.sort(-1).values
    best = part[part[:, -1].argsort(descending=True)[:3]]
    return nn.functional.pad(best, (0, 0, 0, 3 - len(best))).flatten()


def set2set(layer: Any) -> Callable[[Tensor], Tensor]:
    def run(part: Tensor) -> Tensor:
        carried, asked = None, part.new_zeros(1, 1, 10)
        for _ in range(3):
            question, carried = layer.lstm(asked, carried)
            a = torch.softmax(part @ question[0, 0], 0)
            asked = torch.cat([question, (a @ part)[None, None]], -1)
        return asked[0, 0]

    return run


CASES: dict[str, tuple[Any, Callable[[Any], Callable[[Tensor], Tensor]]]] = {
    "sum": (SumPooling(), lambda layer: lambda p: p.sum(0)),
    "mean": (AvgPooling(), lambda layer: lambda p: p.mean(0)),
    "max": (MaxPooling(), lambda layer: lambda p: p.amax(0)),
    "sort": (SortPooling(3), lambda layer: sort_pool),
    "attention": (
        GlobalAttentionPooling(nn.Linear(5, 1), nn.Linear(5, 3)),
        lambda layer: lambda p: torch.softmax(layer.gate_nn(p), 0).T.mm(layer.feat_nn(p))[0],
    ),
    "weight and sum": (WeightAndSum(5), lambda layer: lambda p: (p * layer.atom_weighting(p)).sum(0)),
    "set2set": (Set2Set(5, 3, 2), set2set),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_graph_by_graph(name: str) -> None:
    g = vgraph.batch([random_graph(count, 2 * count) for count in COUNTS])
    layer, reference = CASES[name]
    x, layer = inputs(15, 5), randomized(layer)
    assert_same(layer(g, x), by_graph(x, reference(layer)), [x, *layer.parameters()])
    assert not list(g.ndata)


def test_a_seed_gives_set2set_the_weights_that_it_has_in_dgl() -> None:
    torch.manual_seed(3)
    layer = Set2Set(5, 2, 1)
    torch.manual_seed(3)
    drawn = nn.LSTM(10, 5, 1)
    drawn.reset_parameters()
    for name, value in drawn.named_parameters():
        assert torch.equal(layer.lstm.get_parameter(name), value), name


def test_attention_is_told_and_checked() -> None:
    g, x = random_graph(5, 9), torch.randn(5, 4)
    rows, attention = GlobalAttentionPooling(nn.Linear(4, 1))(g, x, get_attention=True)
    assert rows.shape == (1, 4) and attention.shape == (5, 1)
    torch.testing.assert_close(attention.sum(), torch.tensor(1.0))
    with pytest.raises(FeatureError, match=r"gate_nn gives \(5, 2\)"):
        GlobalAttentionPooling(nn.Linear(4, 2))(g, x)
    assert "n_iters=3" in repr(Set2Set(4, 3, 1))
