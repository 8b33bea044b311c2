"""Neighbours of each type in a graph whose types are ranges of edge ids."""

from __future__ import annotations

import pytest
import torch

import vgraph
from vgraph.errors import FeatureError, GraphError
from vgraph.sampling import sample_etype_neighbors


def graph() -> tuple[vgraph.Graph, list[int]]:
    """50 nodes; edges of three types, the last of which few nodes have."""
    random = torch.Generator().manual_seed(0)
    counts = [400, 200, 5]
    src, dst = (torch.randint(0, 50, (sum(counts),), generator=random) for _ in range(2))
    g = vgraph.graph((src, dst), num_nodes=50)
    g.edata["w"] = torch.rand(sum(counts), generator=random)
    return g, [0, 400, 600, 605]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighed", [None, "w", "lists"])
@pytest.mark.parametrize("edge_dir", ["in", "out"])
def test_so_many_edges_of_each_type(edge_dir: str, weighed: str | None, replace: bool) -> None:
    g, offsets = graph()
    columns = [g.edata["w"][:400], torch.empty(0), torch.zeros(5)]
    prob = columns if weighed == "lists" else weighed
    part = sample_etype_neighbors(g, torch.arange(20), offsets, torch.tensor([3, -1, 1]), edge_dir, prob, replace)
    ids = part.edata["_ID"]
    ends = part.edges()[1 if edge_dir == "in" else 0]
    whole = (g.in_edges if edge_dir == "in" else g.out_edges)(torch.arange(20), form="eid")
    of_node = g.edges()[1 if edge_dir == "in" else 0]
    assert torch.equal(torch.stack(g.find_edges(ids)), torch.stack(part.edges()))
    for kind, fanout in enumerate([3, -1, 1]):
        for node in range(20):
            there = [e for e in whole.tolist() if offsets[kind] <= e < offsets[kind + 1] and of_node[e] == node]
            mine = [e for e in ids[ends == node].tolist() if offsets[kind] <= e < offsets[kind + 1]]
            possible = 0 if weighed == "lists" and kind == 2 else len(there)
            wanted = possible if fanout < 0 else (fanout if possible and replace else min(fanout, possible))
            assert len(mine) == wanted and set(mine) <= set(there)
            assert replace or len(set(mine)) == len(mine)


def test_weights_lean() -> None:
    g = vgraph.graph(([0, 1, 2, 3], [4, 4, 4, 4]))
    drawn = torch.zeros(4)
    for _ in range(300):
        part = sample_etype_neighbors(g, [4], [0, 2, 4], [1, 1], prob=[torch.tensor([3.0, 1.0]), torch.empty(0)])
        drawn[part.edata["_ID"]] += 1
    assert abs(drawn[0] / 300 - 0.75) < 0.12 and abs(drawn[2] / 300 - 0.5) < 0.13 and drawn.sum() == 600


def test_what_is_refused() -> None:
    g, offsets = graph()
    with pytest.raises(GraphError, match="4 numbers for 2 fanouts"):
        sample_etype_neighbors(g, [0], offsets, [1, 1])
    with pytest.raises(FeatureError, match="prob has 5 numbers for 605 edges"):
        sample_etype_neighbors(g, [0], [0, 605], [1], prob=[torch.ones(5)])
    with pytest.raises(GraphError, match=r"etype_offset is \[0, 5\] for 605 edges"):
        sample_etype_neighbors(g, [0], [0, 5], [1])
    typed = vgraph.heterograph({("a", "r", "b"): ([0], [0]), ("a", "s", "b"): ([0], [0])})
    with pytest.raises(GraphError, match="edges of 2 types"):
        sample_etype_neighbors(typed, {"b": [0]}, [0, 1], [1])
