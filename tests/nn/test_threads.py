"""Layers leave the graph that they are given alone, also while they run: threads may share it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph import nn
from vgraph.graphs.frame import Frame

Call = Callable[[vgraph.Graph, Tensor], object]


def ring_and_more(count: int = 40) -> vgraph.Graph:
    ids = torch.arange(count)
    return vgraph.graph((torch.cat([ids, ids]), torch.cat([(ids + 1) % count, (7 * ids + 3) % count])))


def layers() -> dict[str, Call]:
    torch.manual_seed(0)
    weight = torch.rand(80) + 0.1
    norm, egnn, egat = nn.EdgeWeightNorm("both"), nn.EGNNConv(6, 3, 4), nn.EGATConv(6, 2, 3, 4, 2)
    edge_gat = nn.EdgeGATConv(6, 2, 3, 2)
    ends: dict[str, torch.nn.Module] = {
        "GATConv": nn.GATConv(6, 3, 2),
        "GATv2Conv": nn.GATv2Conv(6, 3, 2),
        "DotGatConv": nn.DotGatConv(6, 3, 2),
        "AGNNConv": nn.AGNNConv(),
        "EdgeConv": nn.EdgeConv(6, 3),
        "GINConv": nn.GINConv(torch.nn.Linear(6, 3)),
        "GraphConv": nn.GraphConv(6, 3),
        "PNAConv": nn.PNAConv(6, 3, ["mean", "max"], ["identity"], 1.0),
        "TWIRLSConv": nn.TWIRLSConv(6, 3, 4, 2),
        "SumPooling": nn.SumPooling(),
        "SortPooling": nn.SortPooling(3),
        "GlobalAttentionPooling": nn.GlobalAttentionPooling(torch.nn.Linear(6, 1)),
    }
    return {
        **{name: layer.__call__ for name, layer in ends.items()},
        "EdgeWeightNorm": lambda g, x: norm(g, weight),
        "EGNNConv": lambda g, x: egnn(g, x, x[:, :3]),
        "EGATConv": lambda g, x: egat(g, x, torch.ones(80, 2)),
        "EdgeGATConv": lambda g, x: edge_gat(g, x, torch.ones(80, 2)),
    }


@pytest.mark.parametrize("name", layers())
def test_a_layer_sets_nothing_in_the_graph_that_it_is_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g, x = ring_and_more(), torch.randn(40, 6)
    own, found = {id(frame) for frame in (g.ndata, g.edata, g.gdata)}, list[str]()
    set_feature = Frame.__setitem__

    def note(self: Frame, feature: object, value: object) -> None:
        if id(self) in own:
            found.append(str(feature))
        set_feature(self, feature, value)

    monkeypatch.setattr(Frame, "__setitem__", note)
    layers()[name](g, x)
    assert found == []


def test_threads_share_a_layer_and_a_graph() -> None:
    g, layer, wrong = ring_and_more(), nn.GATConv(6, 3, 2), list[int]()
    rows = [torch.randn(40, 6) for _ in range(4)]
    with torch.no_grad():
        wanted = [layer(ring_and_more(), x) for x in rows]

    def run(number: int) -> None:
        for _ in range(30):
            with torch.no_grad():
                if not torch.allclose(layer(g, rows[number]), wanted[number], atol=1e-5):
                    wrong.append(number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == [] and list(g.ndata) == []
