"""Random walks: every step is an edge; ends, types, chances, and node2vec's memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from tests.sampling.test_neighbors import edges_of, random_graph
from vgraph.errors import ArgumentError, FunctionError, NameLookupError
from vgraph.graphs.draw import kernels
from vgraph.sampling import node2vec_random_walk, pack_traces, random_walk, sample_neighbors


def seeded(run: Any) -> Any:
    torch.manual_seed(3)
    return run()


@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_compiled_and_numpy_walk_the_same(idtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    g = random_graph()
    g = g.int() if idtype == torch.int32 else g

    def run() -> Any:
        return random_walk(g, torch.arange(30), length=6, restart_prob=0.2, return_eids=True)

    first = seeded(run)
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    assert all(torch.equal(a, b) for a, b in zip(first, seeded(run), strict=True)) and first[0].dtype == idtype


@pytest.mark.parametrize("prob", [None, "w"])
@pytest.mark.parametrize("idtype", [torch.int64, torch.int32])
def test_compiled_and_numpy_remember_the_same(
    idtype: torch.dtype, prob: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = random_graph().to_simple()
    g = g.int() if idtype == torch.int32 else g
    g.edata["w"] = torch.arange(g.num_edges()) % 3

    def run() -> Any:
        return node2vec_random_walk(g, torch.arange(30), 0.3, 3.0, 7, prob, return_eids=True)

    first = seeded(run)
    goes = first[1] >= 0
    assert torch.equal(
        torch.stack(g.find_edges(first[1][goes])), torch.stack([first[0][:, :-1][goes], first[0][:, 1:][goes]])
    )
    assert prob is None or bool((g.edata["w"][first[1][goes].long()] > 0).all())
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    assert all(torch.equal(a, b) for a, b in zip(first, seeded(run), strict=True)) and first[0].dtype == idtype


@pytest.mark.parametrize("prob", [None, "w"])
def test_node2vec_follows_its_chances(prob: str | None) -> None:
    """The third vertex, from each pair of the first two, as often as written out."""
    g = vgraph.graph(([0, 0, 1, 1, 1, 2, 2, 3], [1, 2, 0, 2, 3, 0, 1, 1]))
    g.edata["w"] = torch.tensor([1.0, 2, 1, 3, 2, 1, 1, 1])
    p, q, count = 0.5, 4.0, 20000
    walks = node2vec_random_walk(g, [0] * count, p, q, 2, prob)
    edges = {
        (u, v): w if prob else 1.0
        for u, v, w in zip(*(e.tolist() for e in g.edges()), g.edata["w"].tolist(), strict=True)
    }
    for middle in (1, 2):
        weights = {
            v: w * (1 / p if v == 0 else 1.0 if (0, v) in edges else 1 / q)
            for (u, v), w in edges.items()
            if u == middle
        }
        third = walks[walks[:, 1] == middle][:, 2]
        for v, weight in weights.items():
            wanted = weight / sum(weights.values())
            assert abs(float((third == v).double().mean()) - wanted) < 4.5 * 0.5 / len(third) ** 0.5


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("prob", [None, "w"])
def test_node2vec_ends_where_hardly_any_step_is_kept(
    prob: str | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the end of a long path there is but the way on, with a weight of 1e-12 of that of the way back."""
    if not is_compiled:
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    path = vgraph.graph(([0, 1, 1, 1, 1], [1, 2, 3, 4, 5]))
    path.edata["w"] = torch.tensor([1.0, 1, 2, 0, 1])
    walks, edges = node2vec_random_walk(path, [0] * 900, 1.0, 1e12, 2, prob, return_eids=True)
    assert torch.equal(path.find_edges(edges[:, 1])[1], walks[:, 2])
    shares = torch.bincount(walks[:, 2], minlength=6)[2:] / 900
    wanted = torch.tensor([0.25, 0.5, 0, 0.25] if prob else [0.25] * 4)
    assert torch.allclose(shares, wanted, rtol=0, atol=0.075)
    pair = vgraph.graph(([0, 1], [1, 0]))
    assert node2vec_random_walk(pair, [0], math.inf, 1.0, 3).tolist() == [[0, 1, -1, -1]]


@pytest.mark.parametrize("prob", [None, "w"])
def test_steps_are_edges(prob: str | None) -> None:
    g = random_graph()
    traces, edges, types = random_walk(g, torch.arange(30).repeat(3), length=5, prob=prob, return_eids=True)
    assert traces.shape == (90, 6) and edges.shape == (90, 5) and types.tolist() == [0] * 6
    goes = edges >= 0
    src, dst = g.find_edges(edges[goes])
    assert torch.equal(src, traces[:, :-1][goes]) and torch.equal(dst, traces[:, 1:][goes])
    assert torch.equal(goes, traces[:, 1:] >= 0) and bool((goes[:, 1:] <= goes[:, :-1]).all())


def test_chances() -> None:
    g = vgraph.graph(([0, 0, 0], [1, 2, 3]))
    g.edata["w"] = torch.tensor([1.0, 0.0, 3.0])
    ends = random_walk(g, torch.zeros(4000, dtype=torch.int64), length=1, prob="w")[0][:, 1]
    assert abs(float((ends == 3).double().mean()) - 0.75) < 0.035 and not bool((ends == 2).any())
    plain = random_walk(g, torch.zeros(4000, dtype=torch.int64), length=1)[0][:, 1]
    assert all(abs(float((plain == v).double().mean()) - 1 / 3) < 0.04 for v in (1, 2, 3))
    loop = vgraph.graph(([0], [0]))
    kept = random_walk(loop, torch.zeros(4000, dtype=torch.int64), length=2, restart_prob=0.3)[0]
    assert abs(float((kept[:, 2] >= 0).double().mean()) - 0.49) < 0.04
    steps = random_walk(loop, [0] * 50, length=2, restart_prob=torch.tensor([0.0, 1.0]))[0]
    assert bool((steps[:, 1] == 0).all()) and bool((steps[:, 2] == -1).all())


@pytest.mark.parametrize("chance", [-0.5, 1.5, math.nan, torch.tensor([0.1, 0.1, 0.1])])
def test_what_is_no_chance_to_end_is_refused(chance: Any) -> None:
    """A walk ended at once with a chance below 0."""
    with pytest.raises(FunctionError, match="restart_prob"):
        random_walk(vgraph.graph(([0], [0])), [0], length=2, restart_prob=chance)


def test_metapaths() -> None:
    edges: Any = {
        ("u", "likes", "f"): ([0, 1], [0, 1]),
        ("f", "by", "d"): ([0, 1], [0, 0]),
        ("d", "made", "f"): ([0, 0], [0, 1]),
    }
    g = vgraph.heterograph(edges)
    traces, types = random_walk(g, [0, 1], metapath=["likes", "by", "made"])
    assert traces[:, :3].tolist() == [[0, 0, 0], [1, 1, 0]] and [g.ntypes[i] for i in types] == ["u", "f", "d", "f"]
    with pytest.raises(FunctionError, match="does not begin where"):
        random_walk(g, [0], metapath=["likes", "made"])
    with pytest.raises(FunctionError, match="a length alone in a graph with edges of 3 types"):
        random_walk(g, [0], length=2)
    for wrong in ({}, {"metapath": ["likes"], "length": 1}):
        with pytest.raises(FunctionError, match="either a metapath or a length"):
            random_walk(g, [0], **wrong)
    with pytest.raises(NameLookupError):
        random_walk(g, [0], metapath=["hates"])
    liked = g["likes"]
    for walk in (lambda: random_walk(liked, [0], length=2), lambda: node2vec_random_walk(liked, [0], 1.0, 1.0, 2)):
        with pytest.raises(FunctionError, match="does not begin where"):
            walk()
    assert random_walk(liked, [1], length=1)[0].tolist() == [[1, 1]]
    with pytest.raises(ArgumentError, match="length=-1"):
        random_walk(liked, [0], length=-1)


def test_small_weights_beside_large_ones() -> None:
    g = vgraph.graph(([0, 1, 1, 2], [1, 2, 2, 0]))
    g.edata["w"] = torch.tensor([1e30, 1e-10, 0.0, 1.0])
    traces, edges, _ = random_walk(g, [0, 1], length=3, prob="w", return_eids=True)
    assert traces.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]] and edges.tolist() == [[0, 1, 3], [1, 3, 0]]
    traces, edges = node2vec_random_walk(g, [0, 1], 1.0, 1.0, 3, "w", return_eids=True)
    assert traces.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]] and edges.tolist() == [[0, 1, 3], [1, 3, 0]]
    assert sample_neighbors(g, [1, 2], 2, prob="w", replace=True).edata["_ID"].tolist() == [0, 0, 1, 1]


def test_node2vec() -> None:
    # 0 - 1, 0 - 2, 1 - 2, 1 - 3: from 1 coming from 0, back is 0, 2 is a neighbour of 0, 3 is not
    pairs = [(0, 1), (0, 2), (1, 2), (1, 3)]
    src, dst = zip(*(pairs + [(b, a) for a, b in pairs]), strict=True)
    g = vgraph.graph((list(src), list(dst)))
    walks = node2vec_random_walk(g, torch.zeros(20_000, dtype=torch.int64), p=4.0, q=0.5, walk_length=2).numpy()
    third = walks[walks[:, 1] == 1, 2]
    found = np.array([(third == v).mean() for v in (0, 2, 3)])
    wanted = np.array([1 / 4, 1.0, 2.0]) / 3.25
    assert abs(found - wanted).max() < 0.03
    traces, edges = node2vec_random_walk(g, [3, 2], 1.0, 1.0, 4, return_eids=True)
    ends = g.find_edges(edges.flatten())
    assert torch.equal(ends[0], traces[:, :-1].flatten()) and torch.equal(ends[1], traces[:, 1:].flatten())
    dead = node2vec_random_walk(vgraph.graph(([0], [1])), [0], 1.0, 1.0, 3)
    assert dead.tolist() == [[0, 1, -1, -1]]
    with pytest.raises(ArgumentError, match="p=0"):
        node2vec_random_walk(g, [0], 0, 1.0, 2)


def test_packed() -> None:
    g = random_graph()
    traces, types = random_walk(g, torch.arange(30), length=4, restart_prob=0.4)
    nodes, kinds, lengths, offsets = pack_traces(traces, types)
    assert len(nodes) == len(kinds) == int(lengths.sum()) and torch.equal(nodes[offsets], traces[:, 0])
    assert edges_of(g)
