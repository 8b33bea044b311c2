"""Schedules: every vertex once, after its children; frontiers are slices; policies."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.errors import NameLookupError
from vgraph.ir.schedule import Frontier, Phase, Schedule
from vgraph.ir.topology import Topology
from vgraph.memory.row_order import build_row_order
from vgraph.scheduler.build import build_schedule
from vgraph.scheduler.policy import choose_policy, lower_bound, second_keys, vertex_keys


def make(num_vertices: int, edges: list[tuple[int, int]]) -> Topology:
    src, dst = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Topology(src, dst, num_vertices, num_vertices)


@st.composite
def dags(draw: st.DrawFn) -> Topology:
    num_vertices = draw(st.integers(0, 12))
    ids = st.integers(0, max(num_vertices - 1, 0))
    edges = draw(st.lists(st.tuples(ids, ids), max_size=30 if num_vertices else 0))
    names = draw(st.permutations(range(num_vertices)))
    return make(num_vertices, [(names[min(e)], names[max(e)]) for e in edges if e[0] != e[1]])


def schedule_of(topology: Topology, policy: str) -> Schedule:
    keys = vertex_keys(topology, policy)
    return build_schedule(topology, policy, keys, build_row_order(topology, keys))


def user_ids(ids: torch.Tensor | None, count: int) -> list[int]:
    return list(range(count)) if ids is None else ids.tolist()


@given(dags(), st.sampled_from(["frontier", "serial"]))
def test_children_first(topology: Topology, policy: str) -> None:
    schedule = schedule_of(topology, policy)
    vertices = user_ids(schedule.order.vertex_ids, topology.num_dst)
    edges = user_ids(schedule.order.edge_ids, topology.num_edges)
    done: set[int] = set()
    for f in schedule.frontiers:
        mine = vertices[f.v0 : f.v1]
        assert mine and done.isdisjoint(mine)
        wanted = [i for v in mine for i, d in enumerate(topology.dst.tolist()) if d == v]
        assert edges[f.e0 : f.e1] == wanted, "a vertex's in-edges lie together, in order of ids"
        assert done.issuperset(topology.src[wanted].tolist()), "children first"
        done.update(mine)
    assert done == set(range(topology.num_dst))


@given(dags())
def test_frontiers_touch_and_cover(topology: Topology) -> None:
    for policy in ("frontier", "serial", "once"):
        at = Frontier(0, 0, 0, 0, None)
        for f in schedule_of(topology, policy).frontiers:
            assert (f.v0, f.e0) == (at.v1, at.e1)
            at = f
        assert (at.v1, at.e1) == (topology.num_dst, topology.num_edges)


@given(dags())
def test_degree_is_the_common_one(topology: Topology) -> None:
    for policy in ("frontier", "serial", "once"):
        schedule = schedule_of(topology, policy)
        counts = schedule.order.in_ptr.diff()
        for f in schedule.frontiers:
            found = set(counts[f.v0 : f.v1].tolist())
            assert f.degree == (found.pop() if len(found) == 1 else None)


@given(dags())
def test_number_of_frontiers(topology: Topology) -> None:
    assert len(schedule_of(topology, "frontier").frontiers) == lower_bound(topology)
    assert len(schedule_of(topology, "serial").frontiers) == topology.num_dst
    assert len(schedule_of(topology, "once").frontiers) == 1


def test_slices_of_two_trees() -> None:
    topology = make(7, [(1, 0), (2, 0), (3, 1), (4, 1), (6, 5)])
    schedule = schedule_of(topology, "frontier")
    assert schedule.order.vertex_ids is not None
    assert schedule.order.vertex_ids.tolist() == [2, 3, 4, 6, 1, 5, 0]
    assert schedule.frontiers == (
        Frontier(0, 4, 0, 0, 0),
        Frontier(4, 6, 0, 3, None),
        Frontier(6, 7, 3, 5, 2),
    )
    assert schedule.frontiers[0].batch_size == 4
    assert isinstance(schedule.frontiers[2].degree, int)


def test_serial_and_frontier_share_their_rows() -> None:
    topology = make(4, [(3, 2), (2, 0), (1, 0)])
    orders = [schedule_of(topology, policy).order for policy in ("frontier", "serial")]
    assert orders[0].src_rows.equal(orders[1].src_rows)
    assert vertex_keys(topology, "once") is None


def test_once_takes_cycles_and_two_sets_of_vertices() -> None:
    cycle = schedule_of(make(2, [(0, 1), (1, 0)]), "once")
    assert cycle.frontiers == (Frontier(0, 2, 0, 2, 1),)
    bipartite = Topology(torch.tensor([4, 0]), torch.tensor([1, 1]), 5, 2)
    assert schedule_of(bipartite, "once").frontiers == (Frontier(0, 2, 0, 2, None),)


def test_nothing_at_all() -> None:
    empty = make(0, [])
    assert schedule_of(empty, "frontier").frontiers == ()
    assert schedule_of(empty, "serial").frontiers == ()
    assert schedule_of(empty, "once").frontiers == (Frontier(0, 0, 0, 0, None),)
    assert lower_bound(empty) == 0


def test_choose_policy() -> None:
    once, loop = Phase((), is_loop=False), Phase((), is_loop=True)
    serial = Phase((), is_loop=True, is_serial=True)
    assert choose_policy([once]) == "once"
    assert choose_policy([once, loop]) == "frontier"
    assert choose_policy([once, loop], "serial") == "serial"
    assert choose_policy([loop, serial], "frontier") == "serial"
    # The backward of a function that loops may have no loop, but must find rows where they are.
    assert choose_policy([once], "frontier") == "frontier"
    assert choose_policy([once], "once") == "once"


def test_unknown_policy() -> None:
    with pytest.raises(NameLookupError) as caught:
        choose_policy([], "lazy")
    assert caught.value.fact == 'there is no policy "lazy"'
    assert caught.value.cure == 'pass one of "frontier", "type-aware", "serial", "once"'


def test_children_in_sequences_lie_in_one_piece() -> None:
    """Of chains of many lengths: each frontier's children are the first rows of the one before it."""
    sizes = [3, 7, 1, 7, 2, 5]
    ends = torch.cat([torch.arange(size - 1) + sum(sizes[:i]) for i, size in enumerate(sizes)])
    topology = Topology(ends, ends + 1, sum(sizes), sum(sizes))
    keys = vertex_keys(topology, "frontier")
    second = second_keys(topology, "frontier", keys)
    assert second is not None
    schedule = build_schedule(topology, "frontier", keys, build_row_order(topology, keys, second))
    for before, frontier in zip(schedule.frontiers[1:], schedule.frontiers[2:], strict=False):
        rows = schedule.order.src_rows[frontier.e0 : frontier.e1].tolist()
        assert rows == list(range(before.v0, before.v0 + frontier.batch_size))
    first = schedule.order.vertex_ids
    assert first is not None and first[:6].tolist() == [0, 3, 10, 11, 18, 20], "leaves stay in order of ids"
    pair = Topology(torch.tensor([0, 1]), torch.tensor([2, 2]), 3, 3)
    assert second_keys(pair, "frontier", vertex_keys(pair, "frontier")) is None
