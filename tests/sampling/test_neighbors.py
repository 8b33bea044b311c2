"""What is drawn from adjacency lists: counts, membership, evenness, weights; compiled and in NumPy alike."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from vgraph.errors import FeatureError, FunctionError, GraphError, NameLookupError
from vgraph.graphs.draw import kernels, pick
from vgraph.graphs.draw.lists import ListPart, Lists, Rows, Spans
from vgraph.graphs.draw.random_numbers import below, draw, keyed, mix, next_key, uniform
from vgraph.ir.topology import Compressed
from vgraph.sampling import sample_neighbors, select_topk


def lists(num_vertices: int = 40, longest: int = 90) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(0, longest, num_vertices))])


def spans(ptr: np.ndarray, seeds: np.ndarray) -> Spans:
    return Lists([ListPart(ptr, np.zeros(ptr[-1], np.int64))]).spans(seeds)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 7, 60])
def test_compiled_and_numpy_draw_the_same(fanout: int, replace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ptr, seeds = lists(), np.array([3, 0, 39, 17, 3])
    first = pick.pick_uniform(spans(ptr, seeds), fanout, 123456789, replace=replace)
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    second = pick.pick_uniform(spans(ptr, seeds), fanout, 123456789, replace=replace)
    for left, right in zip(first, second, strict=True):
        assert np.array_equal(left, right)


@pytest.mark.parametrize("replace", [False, True])
def test_counts_and_places(by: str, replace: bool) -> None:
    ptr, seeds = lists(), np.arange(40)
    degrees = np.diff(ptr)
    places, owners = pick.pick_uniform(spans(ptr, seeds), 60, 5, replace=replace)
    wanted = np.where(degrees > 0, 60, 0) if replace else np.minimum(degrees, 60)
    assert np.array_equal(np.bincount(owners, minlength=40), wanted) and (np.diff(owners) >= 0).all()
    for v in seeds:
        mine = places[owners == v]
        assert bool(((mine >= ptr[v]) & (mine < ptr[v + 1])).all())
        assert replace or (np.diff(mine) > 0).all()


@pytest.mark.parametrize("replace", [False, True])
def test_every_place_is_as_likely(by: str, replace: bool) -> None:
    ptr, rounds = np.array([0, 20]), 4000
    count = np.zeros(20)
    for key in range(rounds):
        np.add.at(count, pick.pick_uniform(spans(ptr, np.array([0])), 5, mix(key), replace=replace)[0], 1)
    assert abs(count / rounds - 0.25).max() < 5 * (0.25 * 0.75 / rounds) ** 0.5


@pytest.mark.parametrize("replace", [False, True])
def test_weights(replace: bool) -> None:
    ptr, rounds, weights = np.array([0, 3, 7]), 4000, np.array([1.0, 0.0, 3.0, 0.0, 2.0, 0.0, 2.0])
    both, heavy = np.array([1, 0]), np.concatenate([weights[3:], weights[:3]])
    count = np.zeros(7)
    for key in range(rounds):
        np.add.at(count, pick.pick_weighted(spans(ptr, both), heavy, 1, mix(key), replace=replace)[0], 1)
    wanted = np.array([0.25, 0, 0.75, 0, 0.5, 0, 0.5])
    assert abs(count / rounds - wanted).max() < 5 * (0.25 / rounds) ** 0.5
    places, owners = pick.pick_weighted(spans(ptr, both), heavy, 5, 3, replace=False)
    assert owners.tolist() == [0, 0, 1, 1] and places.tolist() == [4, 6, 0, 2]
    everything = pick.pick_weighted(spans(ptr, both[1:]), weights[:3], -1, 3, replace=replace)[0]
    assert everything.tolist() == [0, 2]


def test_renumber(by: str) -> None:
    for limit in (20, 10**13):  # a table of all ids, or one as large as what is given
        large = limit - 1
        unique, local = pick.renumber(np.array([7, 3, 7, large, 0, 3]), limit)
        assert unique.tolist() == [7, 3, large, 0] and local.tolist() == [0, 1, 0, 2, 3, 1]
        unique, local = pick.renumber(np.empty(0, np.int64), limit)
        assert len(unique) == len(local) == 0
        many = np.random.default_rng(0).integers(0, 500, 3000)
        unique, local = pick.renumber(many, max(limit, 500))
        assert np.array_equal(unique[local], many) and len(unique) == len(np.unique(many))


@pytest.mark.parametrize("width", [torch.int32, torch.int64])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_fetch(by: str, width: torch.dtype, is_sorted: bool) -> None:
    edge_ids = None if is_sorted else torch.randperm(50)
    lists = Compressed(torch.tensor([0, 50]), torch.randint(9, (50,), dtype=width), edge_ids)
    places = np.array([3, 49, 0, 3])
    far, edges = Lists.of(lists).fetch(places)
    assert far.tolist() == lists.other[torch.from_numpy(places)].tolist() and far.dtype == np.int64
    assert edges.tolist() == (places.tolist() if edge_ids is None else edge_ids[torch.from_numpy(places)].tolist())


@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_parts_are_read_as_one(by: str, width: Any) -> None:
    """Lists and rows in several arrays, some of them without a vertex, give what they give in one."""
    random, ptr = np.random.default_rng(1), lists()
    other, edge_ids = random.integers(0, 40, ptr[-1]).astype(width), random.permutation(ptr[-1]).astype(width)
    names, rows = random.permutation(40).astype(width), random.random((40, 3)).astype(np.float32)
    whole, cuts = Lists([ListPart(ptr, other, edge_ids, names)]), [0, 7, 7, 29, 40]
    ranges = [slice(a, b) for a, b in pairwise(cuts)]
    ends = [slice(ptr[a], ptr[b]) for a, b in pairwise(cuts)]
    parts = Lists(
        [
            ListPart(ptr[r.start : r.stop + 1] - ptr[r.start], other[e], edge_ids[e], names[r])
            for r, e in zip(ranges, ends, strict=True)
        ]
    )
    seeds = random.integers(0, 40, 100)
    for left, right in zip(vars(whole.spans(seeds)).values(), vars(parts.spans(seeds)).values(), strict=True):
        assert np.array_equal(left, right)
    places = random.integers(0, ptr[-1], 200)
    for left, right in zip(whole.fetch(places), parts.fetch(places), strict=True):
        assert np.array_equal(left, right)
    assert np.array_equal(Rows([torch.from_numpy(rows[r]) for r in ranges]).take(seeds).numpy(), rows[seeds])


def test_draws_follow_from_names(by: str) -> None:
    """A vertex that is renumbered draws the same places of its list."""
    ptr, names = np.array([0, 50, 90]), np.array([1, 0])
    turned = Lists([ListPart(np.array([0, 40, 90]), np.zeros(90, np.int64), None, names)])
    for fanout, replace in ((5, False), (5, True), (60, True)):
        one, _ = pick.pick_uniform(spans(ptr, np.array([0, 1])), fanout, 7, replace=replace)
        two, _ = pick.pick_uniform(turned.spans(np.array([1, 0])), fanout, 7, replace=replace)
        assert np.array_equal(np.where(one < 50, one, one - 50), np.where(two < 40, two, two - 40))


def test_threads_draw_the_same() -> None:
    ptr = np.arange(0, 50 * 5001, 50)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(pick.pick_uniform(spans(ptr, np.arange(5000)), 20, 9, replace=False))
    finally:
        torch.set_num_threads(threads)
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_keys() -> None:
    with keyed(5):
        first = [next_key() for _ in range(3)]
        with keyed(6):
            assert next_key() not in first
        fourth = next_key()
    with keyed(5):
        assert [next_key() for _ in range(4)] == [*first, fourth]
    torch.manual_seed(1)
    one = next_key()
    torch.manual_seed(1)
    assert next_key() == one and len(set(first)) == 3
    drawn = draw(9, np.arange(10_000), 0)
    assert abs(uniform(drawn).mean() - 0.5) < 0.02 and set(below(drawn, 3).tolist()) == {0, 1, 2}


def edges_of(g: vgraph.Graph) -> set[tuple[int, int]]:
    return set(zip(*(end.tolist() for end in g.edges()), strict=True))


def random_graph() -> vgraph.Graph:
    ends = torch.randint(30, (2, 200))
    g = vgraph.graph((ends[0], ends[1]), num_nodes=30)
    g.edata["w"], g.ndata["h"] = torch.rand(200), torch.rand(30, 2)
    return g


@pytest.mark.parametrize("edge_dir", ["in", "out"])
def test_sample_neighbors(by: str, edge_dir: str) -> None:
    g, seeds = random_graph(), torch.tensor([4, 9, 1])
    part = sample_neighbors(g, seeds, 3, edge_dir)
    degrees = [getattr(graph, f"{edge_dir}_degrees")() for graph in (g, part)]
    assert torch.equal(degrees[1][seeds], degrees[0][seeds].clamp(max=3)) and part.num_nodes() == 30
    assert int(degrees[1].sum()) == part.num_edges() and edges_of(part) <= edges_of(g)
    ids = part.edata["_ID"]
    assert all(torch.equal(a, b) for a, b in zip(part.edges(), g.find_edges(ids), strict=True))
    torch.testing.assert_close(part.edata["w"], g.edata["w"][ids])
    assert list(sample_neighbors(g, seeds, 3, copy_ndata=False, copy_edata=False).edata) == ["_ID"]
    left = sample_neighbors(g, seeds, -1, edge_dir, exclude_edges=ids)
    assert not set(left.edata["_ID"].tolist()) & set(ids.tolist())


def test_masks_and_ids() -> None:
    g = random_graph().int()
    g.edata["good"] = torch.rand(200) < 0.5
    part = sample_neighbors(g, torch.arange(30), 4, prob="good")
    assert bool(g.edata["good"][part.edata["_ID"].long()].all()) and part.idtype == torch.int32
    mask = torch.zeros(30, dtype=torch.bool)
    mask[3] = True
    assert set(sample_neighbors(g, mask, 9).edges()[1].tolist()) <= {3}


def test_types() -> None:
    edges: Any = {("u", "likes", "f"): ([0, 1, 2, 0], [0, 0, 0, 1]), ("u", "knows", "u"): ([0, 1], [1, 2])}
    g = vgraph.heterograph(edges)
    part = sample_neighbors(g, {"f": [0], "u": [1]}, {"likes": 2, "knows": -1})
    assert part.num_edges("likes") == 2 and part.num_edges("knows") == 1
    assert sample_neighbors(g, {"f": [0]}, {"knows": 1}).num_edges() == 0
    with pytest.raises(GraphError, match="nodes without a type in a graph of 2 types"):
        sample_neighbors(g, [0], 2)
    with pytest.raises(NameLookupError, match="there is no type of node 'film'"):
        sample_neighbors(g, {"film": [0]}, 2)


def test_topk() -> None:
    g = random_graph()
    for ascending in (False, True):
        part = select_topk(g, 2, "w", [4, 9], ascending=ascending)
        for v in (4, 9):
            weights = g.edata["w"][g.in_edges(v, "eid")].sort(descending=not ascending).values
            mine = part.edata["w"][part.in_edges(v, "eid")].sort(descending=not ascending).values
            torch.testing.assert_close(mine, weights[:2])
            torch.testing.assert_close(part.edata["w"][part.edges()[1] == v], mine)  # in this order, as in DGL
    assert list(select_topk(g, 1, "w", copy_edata=False).edata) == ["_ID"]


def test_topk_goes_node_by_node_the_heaviest_first() -> None:
    g = vgraph.graph(([0, 1, 2, 3, 0, 1, 2], [4, 4, 4, 4, 3, 3, 0]), num_nodes=5)
    g.edata["w"] = torch.tensor([0.3, 0.9, 0.9, 0.1, 0.2, 0.8, 0.5])
    part = select_topk(g, 3, "w", [4, 0, 3])
    assert [end.tolist() for end in part.edges()] == [[1, 2, 0, 2, 1, 0], [4, 4, 4, 0, 3, 3]]
    assert part.edata["_ID"].tolist() == [1, 2, 0, 6, 5, 4]
    out = select_topk(g, -1, "w", [1, 0], edge_dir="out", ascending=True)
    assert out.edata["_ID"].tolist() == [5, 1, 4, 0]


def test_refusals() -> None:
    g = random_graph()
    with pytest.raises(FunctionError, match="edge_dir is 'both'"):
        sample_neighbors(g, [0], 2, "both")
    with pytest.raises(GraphError, match="the fanout is -2"):
        sample_neighbors(g, [0], -2)
    for fanout in (None, "2", 1.5, math.nan, math.inf, [3]):
        with pytest.raises(GraphError, match="the fanout is"):
            sample_neighbors(g, [0], fanout)  # type: ignore[arg-type]
    with pytest.raises(GraphError):
        sample_neighbors(g, [30], 2)
    with pytest.raises(NameLookupError):
        sample_neighbors(g, [0], 2, prob="missing")
    g.edata["v"], g.edata["n"], g.edata["i"] = torch.rand(200, 2), -torch.ones(200), torch.full((200,), math.inf)
    for name, words in (("v", r"'v' has shape \(200, 2\)"), ("n", "numbers below 0"), ("i", "not finite")):
        with pytest.raises(FeatureError, match=words):
            sample_neighbors(g, [0], 2, prob=name)
    with pytest.raises(FeatureError, match=r"'v' has shape \(200, 2\)"):
        select_topk(g, 1, "v")


def test_rounded_aims_fall_on_weights() -> None:
    own = np.array([1e9, 0.0, 0.0, 1e-7, 0.0, 5.0, 0.0])
    sums = np.concatenate([[0.0], np.cumsum(own)])
    begin, stop = np.array([1, 1, 4, 4]), np.array([5, 5, 7, 7])
    drawn = np.array([0, 2**64 - 1, 0, 2**64 - 1], np.uint64)
    assert pick.among_sums(sums, own, begin, stop, drawn).tolist() == [3, 3, 5, 5]


def test_types_without_the_feature_draw_evenly() -> None:
    g = vgraph.heterograph({("u", "a", "v"): ([0, 1, 2], [0, 0, 0]), ("v", "b", "v"): ([0, 1, 2], [0, 0, 0])})
    g.edges["a"].data["w"] = torch.tensor([0.0, 0.0, 1.0])
    part = sample_neighbors(g, {"v": [0]}, 2, prob="w")
    assert part.edges["a"].data["_ID"].tolist() == [2] and part.num_edges("b") == 2
    with pytest.raises(NameLookupError, match="no edge feature"):
        sample_neighbors(g, {"v": [0]}, 2, prob="p")


def test_all_are_the_heaviest() -> None:
    g = random_graph()
    g.edata["w"] = torch.rand(g.num_edges())
    assert select_topk(g, -1, "w").num_edges() == g.num_edges()
    with pytest.raises(GraphError, match="k is -2"):
        select_topk(g, -2, "w")
