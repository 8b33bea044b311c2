"""Batches of one type each: children first, never more than by levels, never fewer than the bound."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import vgraph
from vgraph.ir.topology import Topology
from vgraph.scheduler.agenda import agenda, split_levels, typed_lower_bound
from vgraph.scheduler.policy import count_batches, lower_bound


@st.composite
def typed_dags(draw: st.DrawFn) -> tuple[Topology, np.ndarray]:
    count = draw(st.integers(0, 14))
    ids = st.integers(0, max(count - 1, 0))
    pairs = draw(st.lists(st.tuples(ids, ids), max_size=30 if count else 0))
    ends = torch.tensor([(min(p), max(p)) for p in pairs if p[0] != p[1]], dtype=torch.int64).reshape(-1, 2)
    types = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return Topology(ends[:, 0], ends[:, 1], count, count), np.array(types, np.int64)


@given(typed_dags())
def test_batches_are_of_one_type_and_children_come_first(case: tuple[Topology, np.ndarray]) -> None:
    topology, types = case
    for batches in (agenda(topology, types), split_levels(topology, types)):
        assert all(len(set(types[batches == b])) == 1 for b in set(batches.tolist()))
        assert set(batches.tolist()) == set(range(batches.max(initial=-1) + 1)), "no batch is empty"
        assert (batches[topology.src.numpy()] < batches[topology.dst.numpy()]).all()
        inner = topology.in_degrees.numpy() > 0
        assert not inner.any() or inner.all() or batches[~inner].max() < batches[inner].min(), "leaves come first"


@given(typed_dags())
def test_between_the_bound_and_the_levels(case: tuple[Topology, np.ndarray]) -> None:
    topology, types = case
    counts = count_batches(topology, types)
    assert typed_lower_bound(topology, types) <= counts["type-aware"] <= counts["frontier"] <= counts["serial"]


def test_the_bound_by_hand() -> None:
    """Two chains, A B A B and B A B A: both types are in every level. Leaves first, then A and B by turns, make six."""
    chain = torch.arange(3)
    topology = Topology(torch.cat([chain, chain + 4]), torch.cat([chain + 1, chain + 5]), 8, 8)
    types = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    assert typed_lower_bound(topology, types) == 4
    assert count_batches(topology, types) == {"serial": 8, "frontier": 8, "type-aware": 6}
    assert lower_bound(topology) == 4


def test_one_type_is_the_levels() -> None:
    tree = vgraph.graph(([0, 1, 2, 3], [2, 2, 4, 4])).topology
    assert count_batches(tree) == {"serial": 5, "frontier": 3, "type-aware": 3}
    assert count_batches(tree, np.zeros(5, np.int64)) == count_batches(tree)
