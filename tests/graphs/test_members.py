"""Batches of graphs that are slices of one whole are what batches of any graphs are."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph.errors import GraphError
from vgraph.graphs import batching
from vgraph.graphs.batch_slices import batch_of_members


def whole(dtype: torch.dtype = torch.int64, *, shuffled: bool = False) -> vgraph.Graph:
    """Seven graphs of 0 to 6 nodes as one, of edges in order of graphs or not."""
    sizes = [3, 0, 6, 1, 2, 5, 4]
    pairs: list[tuple[int, int]] = []
    first = 0
    for size in sizes:
        pairs += [(first + int(a), first + int(b)) for a, b in torch.randint(0, size, (2 * size, 2))] if size else []
        first += size
    if shuffled:
        pairs = [pairs[i] for i in torch.randperm(len(pairs))]
    src, dst = torch.tensor(pairs, dtype=dtype).unbind(1)
    g = vgraph.graph((src, dst), num_nodes=sum(sizes))
    g.ndata["x"], g.ndata["word"] = torch.randn(sum(sizes), 3), torch.arange(sum(sizes))
    g.edata["w"] = torch.randn(len(pairs))
    g.set_batch_num_nodes(sizes)
    g.gdata["y"] = torch.randn(len(sizes), 2)
    return g


def alone(g: vgraph.Graph) -> vgraph.Graph:
    """The same graph as one that was never part of another."""
    return pickle.loads(pickle.dumps(g))


def assert_same(found: vgraph.Graph, wanted: vgraph.Graph) -> None:
    assert found.topology.src.tolist() == wanted.topology.src.tolist()
    assert found.topology.dst.tolist() == wanted.topology.dst.tolist()
    assert found.idtype == wanted.idtype and found.form == wanted.form
    assert found.batch_num_nodes().tolist() == wanted.batch_num_nodes().tolist()
    assert found.batch_num_edges().tolist() == wanted.batch_num_edges().tolist()
    for one, two in ((found.ndata, wanted.ndata), (found.edata, wanted.edata), (found.gdata, wanted.gdata)):
        assert list(one) == list(two) and one.num_rows == two.num_rows
        assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("chosen", [[0], [1], [3, 0], [5, 2, 2, 6, 1], list(range(7))])
def test_a_batch_of_slices(chosen: Sequence[int], shuffled: bool, dtype: torch.dtype) -> None:
    parts = vgraph.unbatch(whole(dtype, shuffled=shuffled))
    some = [parts[i] for i in chosen]
    assert batch_of_members(some) is not None
    found = vgraph.batch(some)
    assert_same(found, vgraph.batch([alone(g) for g in some]))
    again = vgraph.unbatch(found)
    assert all(one.topology is two.topology for one, two in zip(again, some, strict=True))
    assert_same(vgraph.batch(again[::-1]), vgraph.batch([alone(g) for g in some[::-1]]))


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_slice_is_one_of_unbatch(shuffled: bool) -> None:
    g = whole(shuffled=shuffled)
    for number, part in enumerate(vgraph.unbatch(g)):
        assert_same(vgraph.slice_batch(g, number), part)
    slices = [vgraph.slice_batch(g, i) for i in (4, 2)]
    assert (batch_of_members(slices) is None) is shuffled, "one whole for all, but of edges that had to be copied"
    g.ndata["x"] = g.ndata["x"] + 1
    assert torch.equal(vgraph.slice_batch(g, 4).ndata["x"], slices[0].ndata["x"] + 1)
    assert batch_of_members([slices[0], vgraph.slice_batch(g, 2)]) is None


def set_feature(g: vgraph.Graph) -> None:
    g.ndata["x"] = g.ndata["x"] * 2


def set_edges(g: vgraph.Graph) -> None:
    g.edata["w"] = g.edata["w"] * 2


def set_graph(g: vgraph.Graph) -> None:
    g.gdata["y"] = g.gdata["y"] * 2


def add_edges(g: vgraph.Graph) -> None:
    g.add_edges([0], [1], {"w": torch.ones(1)})


def add_nodes(g: vgraph.Graph) -> None:
    g.add_nodes(1)


def swap_a_feature(g: vgraph.Graph) -> None:
    word = g.ndata.pop("word")
    g.ndata["word"] = word + 1


def ask_for_gradient(g: vgraph.Graph) -> None:
    g.ndata["x"].requires_grad_()


CHANGES = [set_feature, set_edges, set_graph, add_edges, add_nodes, swap_a_feature, ask_for_gradient]


@pytest.mark.parametrize("change", CHANGES)
def test_a_graph_that_was_changed_is_no_slice(change: Callable[[vgraph.Graph], None]) -> None:
    parts = vgraph.unbatch(whole())
    change(parts[2])
    some = [parts[i] for i in (0, 2, 5)]
    assert batch_of_members(some) is None
    found = vgraph.batch(some)
    assert_same(found, vgraph.batch([alone(g) for g in some]))
    assert found.ndata["x"].requires_grad is parts[2].ndata["x"].requires_grad


def test_what_a_scope_sets_is_seen_within_it() -> None:
    parts = vgraph.unbatch(whole())
    with parts[2].local_scope():
        parts[2].ndata["x"] = parts[2].ndata["x"] + 1
        inside = vgraph.batch(parts[2:4]).ndata["x"]
    assert torch.equal(vgraph.batch(parts[2:4]).ndata["x"][:6] + 1, inside[:6])


def test_what_is_written_in_place_is_seen() -> None:
    parts = vgraph.unbatch(whole())
    before = vgraph.batch(parts[2:4]).ndata["x"]
    parts[2].ndata["x"][0] = 5.0
    assert vgraph.batch(parts[2:4]).ndata["x"][0].tolist() == [5.0] * 3
    assert before[0].tolist() != [5.0] * 3, "a batch is a copy"


def test_gradients_reach_the_whole() -> None:
    x = torch.randn(21, 3, dtype=torch.float64, requires_grad=True)
    g = whole()

    def function(x: Tensor) -> Tensor:
        g.ndata["x"] = x
        parts = vgraph.unbatch(g)
        assert batch_of_members(parts[4:6]) is not None
        return vgraph.batch([parts[5], parts[4], parts[5]]).ndata["x"].sin()

    assert torch.autograd.gradcheck(function, (x,))


def test_a_gradient_of_one_slice_alone() -> None:
    for dtype in (torch.float32, torch.complex64):
        g = whole()
        g.ndata["c"] = torch.ones(21, dtype=dtype)
        parts = vgraph.unbatch(g)
        parts[4].ndata["c"].requires_grad_()
        assert vgraph.batch(parts[4:6]).ndata["c"].requires_grad


def test_only_features_asked_for() -> None:
    parts = vgraph.unbatch(whole())
    assert list(vgraph.batch(parts, ndata=["word"], edata=None).ndata) == ["word"]


def test_slices_of_two_wholes_are_batched_as_any() -> None:
    one, two = vgraph.unbatch(whole()), vgraph.unbatch(whole())
    assert batch_of_members([one[0], two[0]]) is None
    assert_same(vgraph.batch([one[2], two[2]]), vgraph.batch([alone(one[2]), alone(two[2])]))
    assert batch_of_members([one[0], vgraph.graph(([0], [1]))]) is None


def test_no_graphs() -> None:
    assert batch_of_members([]) is None
    with pytest.raises(GraphError, match="no graphs to batch"):
        vgraph.batch([])


def test_samples_of_a_file_of_trees_are_slices() -> None:
    trees = vgraph.data.TreeDataset(vgraph.data.parse_ptb("(1 (0 bad) (1 good))(0 bad)(1 (1 a) (1 (0 b) (0 c)))"))
    graphs = [trees[i].graph for i in (2, 0)]
    assert batching.batch_of_members(graphs) is not None
    joined = vgraph.batch(graphs)
    assert joined.ndata["word"].tolist() == [-1, 2, -1, 3, 4, -1, 0, 1]
    assert [ids.tolist() for ids in joined.edges()] == [[1, 2, 3, 4, 6, 7], [0, 0, 2, 2, 5, 5]]
    trees[2].graph.ndata["word"][1] = 9
    assert trees.forest.features["word"].max() == 4, "the forest stays as it was read"


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("divide", [vgraph.unbatch, lambda g: [vgraph.slice_batch(g, i) for i in range(7)]])
def test_features_are_as_they_are_now(divide: Callable[[vgraph.Graph], list[vgraph.Graph]], shuffled: bool) -> None:
    g = whole(shuffled=shuffled)
    first = divide(g)
    g.edata["w"].mul_(10)
    g.ndata["x"].data.add_(1)
    g.gdata["y"].numpy()[:] = 3
    for part, wanted in zip(divide(g), vgraph.unbatch(alone(g)), strict=True):
        assert_same(part, wanted)
    before = g.edata["w"].clone()
    for part in first:
        part.edata["w"].fill_(7)
    assert all((part.edata["w"] == 7).all() for part in vgraph.unbatch(vgraph.batch(first)))
    if shuffled:  # copies
        assert torch.equal(g.edata["w"], before)
        assert torch.equal(torch.cat([part.edata["w"] for part in divide(g)]).sort().values, before.sort().values)


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_the_batch_is_given_later_is_its_own(shuffled: bool) -> None:
    g = whole(shuffled=shuffled)
    parts = vgraph.unbatch(g)
    wanted = vgraph.batch([alone(part) for part in parts])
    g.ndata["x"], g.ndata["new"] = torch.zeros_like(g.ndata["x"]), torch.ones(g.num_nodes())
    del g.edata["w"]
    g.gdata["y"] = g.gdata["y"] + 1
    assert_same(vgraph.batch(parts), wanted)
