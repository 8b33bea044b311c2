"""The lists that edges are drawn from: short ids, ids of edges made late, and what of them a block knows already."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import vgraph
from vgraph.graphs.draw import kernels, pick
from vgraph.graphs.draw.grouped import lists_of
from vgraph.graphs.draw.lists import ListPart, Lists
from vgraph.graphs.lazy_columns import Late, gathered
from vgraph.ir.topology import Topology, compress
from vgraph.sampling import DataLoader, NeighborSampler


def edges(count: int = 3000, nodes: int = 70, dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, torch.Tensor]:
    ends = (torch.rand(count, 2) ** 2 * nodes).to(dtype)
    return ends[:, 0], ends[:, 1]  # which are not contiguous


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("given", ["edges", "edges in order", "lists"])
@pytest.mark.parametrize("of_in_edges", [True, False])
def test_lists_are_those_of_the_topology(by: str, given: str, of_in_edges: bool, dtype: torch.dtype) -> None:
    src, dst = edges(dtype=dtype)
    if given == "edges in order":
        src, dst = src.sort()[0], dst.sort()[0]
    topology, name = Topology(src, dst, 70, 75), "csc" if of_in_edges else "csr"
    wanted = compress(dst, src, 75) if of_in_edges else compress(src, dst, 70)
    if given == "lists":
        _ = topology.csc, topology.csr
    lists = lists_of(topology, of_in_edges=of_in_edges)
    assert lists_of(topology, of_in_edges=of_in_edges) is lists
    places = np.array([0, 2999, 17, 17, 1234])
    assert lists.parts[0].ptr.tolist() == wanted.ptr.tolist()
    assert lists.parts[0].other.tolist() == wanted.other.tolist()
    ids = torch.arange(3000) if wanted.edge_ids is None else wanted.edge_ids
    assert lists.edge_ids(places).tolist() == ids[places].tolist()
    assert [numbers.tolist() for numbers in lists.fetch(places)] == [
        wanted.other[places].tolist(), ids[places].tolist()
    ]  # fmt: skip
    if by == "compiled" and given == "edges":
        assert name not in vars(topology) and lists.parts[0].other.dtype == np.int32


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_graph_that_was_drawn_from_is_copied(copied: Any) -> None:
    g = vgraph.graph(edges())
    sampler = NeighborSampler([5, 5])

    def draw(graph: vgraph.Graph) -> list[Any]:
        vgraph.seed(4)
        given, _, blocks = sampler.sample(graph, [1, 2])
        return [given.tolist(), *([e.tolist() for e in b.edges()] + b.edata["_ID"].tolist() for b in blocks)]

    first, other = draw(g), copied(g)
    del g
    assert draw(other) == first


def test_ids_that_nobody_has_read_are_copied_with_a_block() -> None:
    block = NeighborSampler([5]).sample(vgraph.graph(edges()), [1, 2])[2][0]
    other = pickle.loads(pickle.dumps(block))
    assert torch.equal(other.edata["_ID"], block.edata["_ID"])
    assert torch.equal(copy.deepcopy(block).edata["_ID"], block.edata["_ID"])
    assert block.to("meta").edata["_ID"].is_meta and block.int().edata["_ID"].dtype in (torch.int32, torch.int64)


def test_ids_are_made_once_when_they_are_read() -> None:
    calls: list[int] = []

    def make() -> torch.Tensor:
        calls.append(1)
        return torch.arange(4)

    column = Late(make, 4, torch.int32)
    assert column.shape == (4,) and column.dtype == torch.int32 and not calls
    with torch.inference_mode():
        first = column.read()
    assert column.read() is first and not first.is_inference() and len(calls) == 1
    assert column.some(torch.tensor([2])).read().tolist() == [2]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 15, 16, 17, 33, 48, 49])
def test_lists_of_all_lengths_are_drawn_from_alike(fanout: int, replace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists within one word of bits, those in which hardly a number is drawn twice, and those between."""
    if kernels.compiled() is None:
        pytest.skip("there is no compiler")
    lengths = np.array([*range(140), 63, 64, 65, 1000, 5000, 70_000])
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    lists = Lists([ListPart(ptr, np.arange(ptr[-1], dtype=np.int32))])
    spans = lists.spans(np.arange(len(lengths)))
    first = [pick.draw_uniform(lists, spans, fanout, key, replace=replace) for key in range(20)]
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    for key, found in enumerate(first):
        for left, right in zip(found, pick.draw_uniform(lists, spans, fanout, key, replace=replace), strict=True):
            assert np.array_equal(left, right)
        assert np.array_equal(found[0], found[1])  # each place has its own number


def test_several_arrays_are_renumbered_as_one(by: str) -> None:
    one, two = np.array([7, 3, 7]), np.arange(20)[::-3]
    for limit in (20, 2**40):
        unique, local = pick.renumber_all([one, np.empty(0, np.int64), two], limit)
        assert np.array_equal(unique[local], np.concatenate([one, two])) and unique.tolist()[:2] == [7, 3]
    assert len(pick.renumber_all([], 5)[0]) == 0


def test_seeds_need_not_lie_side_by_side(by: str) -> None:
    g = vgraph.graph(edges())
    found: list[Any] = []
    for seeds in (torch.arange(0, 60)[::3], torch.arange(0, 60, 3)):
        vgraph.seed(2)
        given, _, blocks = NeighborSampler([4]).sample(g, seeds)
        found.append([given.tolist(), blocks[0].edata["_ID"].tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_a_block_knows_its_lists(idtype: torch.dtype) -> None:
    g = vgraph.graph(edges(dtype=idtype), num_nodes=75)  # the last five have no edges
    for block in NeighborSampler([4, -1]).sample(g, [70, 3, 71, 5])[2]:
        topology = block.relation(block.canonical_etypes[0])[0]
        known, wanted = topology.csc, compress(topology.dst, topology.src, topology.num_dst)
        assert "csc" in vars(topology) and known.edge_ids is None and wanted.edge_ids is None
        assert torch.equal(known.ptr, wanted.ptr) and torch.equal(known.other, wanted.other)
        assert torch.equal(topology.in_degrees, torch.bincount(topology.dst, minlength=topology.num_dst))


def test_workers_and_none_draw_the_same() -> None:
    found, ends = list[list[Any]](), edges()
    for workers in (0, 3):
        g = vgraph.graph(ends)  # all workers need lists that nobody has made
        loader = DataLoader(g, torch.arange(60), NeighborSampler([4, 3]), batch_size=7, num_workers=workers)
        torch.manual_seed(5)
        found.append([(i.tolist(), b[0].edata["_ID"].tolist(), b[1].edges()[0].tolist()) for i, _, b in loader])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_many_rows_are_gathered_as_few_are(dtype: torch.dtype) -> None:
    whole = torch.randn(50, 3, 40).to(dtype)
    ids = torch.randint(0, 50, (1 << 16,))
    found = gathered(whole, ids)
    assert found.dtype == dtype and found.shape == (1 << 16, 3, 40)
    assert torch.equal(found[-100:], whole[ids[-100:]]) and torch.equal(found[:100], whole[ids[:100]])
    wide = torch.randn(50, 120, requires_grad=True)
    gathered(wide, ids).sum().backward()
    assert wide.grad is not None and torch.equal(wide.grad[:, 0], torch.bincount(ids, minlength=50).float())
