"""Graphs in files of ``torch.save``: ``weights_only=True`` gives them, and no part of them is believed unseen."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
import torch

import vgraph
from vgraph.errors import GraphError
from vgraph.graphs.graph_data import restored

TREE = vgraph.graph(([0, 1], [2, 2]))
TREE.ndata["x"], TREE.edata["w"] = torch.rand(3, 2), torch.rand(2)
TYPED = vgraph.heterograph({("u", "f", "u"): ([0], [1]), ("u", "p", "g"): ([0, 1], [1, 0])})
GRAPHS = {
    "tree": TREE,
    "batch": vgraph.batch([TREE, TREE]),
    "typed": TYPED,
    "batch of typed": vgraph.batch([TYPED, TYPED]),
    "block": vgraph.to_block(TREE),
    "typed block": vgraph.to_block(TYPED),
    "empty": vgraph.Graph(),
    "types without edges": vgraph.heterograph({("a", "b", "c"): ([0], [1])}, {"a": 1, "c": 2, "d": 3}).int(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_weights_only_gives_graphs(name: str) -> None:
    g, file = GRAPHS[name], io.BytesIO()
    torch.save({"graph": g, "epoch": 3}, file)
    file.seek(0)
    again = torch.load(file, weights_only=True)["graph"]
    assert type(again) is vgraph.Graph
    assert repr(again) == repr(g)
    for etype in g.canonical_etypes:
        assert all(torch.equal(a, b) for a, b in zip(again.edges(etype=etype), g.edges(etype=etype), strict=True))


def test_weights_only_runs_nothing() -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("ran",)

    file = io.BytesIO()
    torch.save([TREE, Harmful()], file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="print"):
        torch.load(file, weights_only=True)


IDS = torch.tensor([0, 1])
EDGES = (("_N", "_E", "_N"), IDS, IDS + 1, 3, 3, None)
FRAMES = [[("_N", 3, {})], [("_N", 3, {})], [(("_N", "_E", "_N"), 2, {})], [("", 1, {})]]


def edges(place: int, value: object) -> list[Any]:
    return [tuple(value if i == place else part for i, part in enumerate(EDGES))]


def frames(kind: int, *group: object) -> list[Any]:
    return [list(group) if i == kind else part for i, part in enumerate(FRAMES)]


WRONG = {
    "id too large": (edges(1, IDS + 2), FRAMES, None, "an end of '_E' is 3 where there are 3"),
    "id below 0": (edges(2, IDS - 1), FRAMES, None, "an end of '_E' is -1"),
    "ids of another kind": (edges(1, IDS.float()), FRAMES, None, "no list of int64"),
    "more sources": (edges(1, torch.tensor([0])), FRAMES, None, "do not fit each other"),
    "count": (edges(3, -1), FRAMES, None, "joins -1 nodes"),
    "two counts": (edges(3, 4), FRAMES, None, "there are 4 and 3 rows of '_N'"),
    "sizes": (edges(5, (1, 1)), FRAMES, None, "the graphs of the batch do not have the 3 nodes"),
    "sizes by type": ([EDGES], FRAMES, {"_N": (4, -1)}, "the graphs of the batch do not have the 3 nodes"),
    "sizes of no type": ([EDGES], FRAMES, {}, "not by type"),
    "edge type": (edges(0, ("_N", 3, "_N")), FRAMES, None, "is no edge type"),
    "no edges": ([], FRAMES, None, "no edges by type"),
    "edges": ([EDGES[:5]], FRAMES, None, "a tuple stands where edges should"),
    "rows of nodes": ([EDGES], frames(1, ("_N", 4, {})), None, "there are 4 rows of '_N' where edges join 3"),
    "rows of edges": ([EDGES], frames(2, (EDGES[0], 2, {"w": IDS[:1]})), None, "edge feature 'w' does not have 2"),
    "no rows": ([EDGES], frames(2), None, "there are no rows of"),
    "no kinds": ([EDGES], FRAMES[:3], None, "not by kind"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_no_graph(case: str) -> None:
    topologies, features, sizes, fact = WRONG[case]
    assert restored(vgraph.Graph, False, [EDGES], FRAMES, None).num_edges() == 2
    with pytest.raises(GraphError, match=fact):
        restored(vgraph.Graph, False, topologies, features, sizes)
