"""Levels: the longest path from the leaves, on single graphs, batches, and graphs with a cycle."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.errors import CycleError, GraphError
from vgraph.ir.schedule import Leveled
from vgraph.ir.topology import Topology
from vgraph.scheduler import frontiers
from vgraph.scheduler.frontiers import levels

Edge = tuple[int, int]
CURE = "a vertex function needs a DAG; remove one of these edges, or use update_all"


def make(num_vertices: int, edges: list[Edge]) -> Topology:
    src, dst = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Topology(src, dst, num_vertices, num_vertices)


def batch(parts: list[Topology]) -> Topology:
    offsets = np.cumsum([0, *(part.num_dst for part in parts)]).tolist()
    none = torch.empty(0, dtype=torch.int64)
    src = torch.cat([none, *(p.src + o for p, o in zip(parts, offsets, strict=False))])
    dst = torch.cat([none, *(p.dst + o for p, o in zip(parts, offsets, strict=False))])
    sizes = tuple(n for part in parts for n in part.graph_sizes or (part.num_dst,))
    return Topology(src, dst, offsets[-1], offsets[-1], sizes, tuple(parts))


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool) -> Topology:
    """Any edges, repeated ones too; those of a DAG ascend in a numbering that is then forgotten."""
    num_vertices = draw(st.integers(0, 12))
    ids = st.integers(0, max(num_vertices - 1, 0))
    edges = draw(st.lists(st.tuples(ids, ids), max_size=30 if num_vertices else 0))
    if acyclic:
        names = draw(st.permutations(range(num_vertices)))
        edges = [(names[min(e)], names[max(e)]) for e in edges if e[0] != e[1]]
    return make(num_vertices, edges)


def assert_longest_paths(topology: Topology, found: np.ndarray) -> None:
    wanted = np.zeros(topology.num_dst, np.int64)
    pairs = list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    for _ in range(topology.num_dst):
        for tail, head in pairs:
            wanted[head] = max(wanted[head], wanted[tail] + 1)
    assert found.tolist() == wanted.tolist()


@given(graphs(acyclic=True))
def test_longest_paths_vertex_by_vertex(topology: Topology) -> None:
    assert_longest_paths(topology, levels(topology))


@given(graphs(acyclic=True))
def test_longest_paths_over_arrays(topology: Topology) -> None:
    found = frontiers._peel(topology, max_rounds=topology.num_dst + 1)
    assert found is not None
    assert_longest_paths(topology, found)
    assert not topology.num_dst or frontiers._peel(topology, max_rounds=0) is None


def test_wide_graph_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontiers, "_walk", None)
    src = torch.randint(0, 4_000, (20_000,))
    topology = Topology(src, src + torch.randint(1, 1_000, (20_000,)), 5_000, 5_000)
    found = levels(topology)
    ranks = torch.from_numpy(found).long()
    wanted = torch.zeros(5_000, dtype=torch.int64)
    wanted.scatter_reduce_(0, topology.dst, ranks[topology.src] + 1, "amax")
    assert ranks.equal(wanted)


def test_long_chain() -> None:
    names = torch.randperm(30_000)
    found = levels(Topology(names[:-1], names[1:], 30_000, 30_000))
    assert found[names.numpy()].tolist() == list(range(30_000))


def test_kept() -> None:
    topology = make(3, [(2, 1), (1, 0)])
    assert levels(topology) is levels(topology)
    assert levels(topology).tolist() == [2, 1, 0]
    assert levels(topology.reversed).tolist() == [0, 1, 2]


@given(st.lists(graphs(acyclic=True), max_size=4))
def test_batch_has_the_levels_of_its_graphs(parts: list[Topology]) -> None:
    whole = batch(parts)
    separate = [int(level) for part in parts for level in levels(part)]
    assert levels(whole).tolist() == separate
    assert levels(batch([whole, whole])).tolist() == separate * 2
    assert_longest_paths(whole, levels(whole))


def test_batch_reads_what_its_graphs_keep() -> None:
    part = make(2, [(0, 1)])
    part.kept["levels"] = Leveled(np.array([7, 8], np.int32))
    assert levels(batch([part, make(1, [])])).tolist() == [7, 8, 0]


@given(graphs(acyclic=False))
def test_cycles_are_real_and_found(topology: Topology) -> None:
    pairs = set(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    try:
        levels(topology)
    except CycleError as error:
        cycle = error.cycle
        assert pairs.issuperset(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        assert len(set(cycle)) == len(cycle) and cycle[0] == min(cycle)
    else:
        assert nx.is_directed_acyclic_graph(nx.DiGraph(pairs))


@pytest.mark.parametrize(
    ("num_vertices", "edges", "fact"),
    [
        (2, [(0, 1), (1, 1)], "vertex 1 has an edge to itself"),
        (5, [(4, 3), (3, 1), (1, 2), (2, 3), (2, 0)], "vertices 1, 2, 3 form a cycle"),
        (
            30,
            [(i, (i + 1) % 30) for i in range(30)],
            "vertices 0, 1, 2, 3, 4, 5, 6, 7 ... (30 in all) form a cycle",
        ),
    ],
)
def test_cycle_message(num_vertices: int, edges: list[Edge], fact: str) -> None:
    with pytest.raises(CycleError) as caught:
        levels(make(num_vertices, edges))
    assert (caught.value.fact, caught.value.cure) == (fact, CURE)
    assert isinstance(caught.value, GraphError) and isinstance(caught.value, ValueError)


def test_cycle_in_a_batch_is_named_in_its_ids() -> None:
    good, bad = make(3, [(1, 0)]), make(3, [(0, 2), (2, 1), (1, 2)])
    whole = batch([good, make(0, []), batch([good, bad])])
    with pytest.raises(CycleError) as caught:
        levels(whole)
    assert (caught.value.fact, caught.value.cure) == ("vertices 7, 8 in graph 3 of the batch form a cycle", CURE)
    assert caught.value.cycle == [7, 8]
    assert caught.value.__context__ is None


def test_cycle_in_a_wide_graph() -> None:
    src = torch.cat([torch.arange(5_000), torch.tensor([9_000, 9_001])])
    dst = torch.cat([torch.arange(5_000) + 5_000, torch.tensor([9_001, 9_000])])
    with pytest.raises(CycleError, match="vertices 9000, 9001 form a cycle"):
        levels(Topology(src, dst, 10_000, 10_000))


def test_nothing_at_all() -> None:
    assert levels(make(0, [])).tolist() == []
    assert levels(batch([])).tolist() == []
    assert levels(make(3, [])).tolist() == [0, 0, 0]
