"""Degree buckets: every in-edge in the one bucket of its vertex, and nothing without an in-edge."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.ir.topology import Topology
from vgraph.scheduler.degree_buckets import DegreeBucket, active_part, degree_buckets


@st.composite
def graphs(draw: st.DrawFn) -> Topology:
    num_src, num_dst = draw(st.integers(0, 6)), draw(st.integers(0, 9))
    pairs = st.tuples(st.integers(0, max(num_src - 1, 0)), st.integers(0, max(num_dst - 1, 0)))
    edges = draw(st.lists(pairs, max_size=25 if num_src and num_dst else 0))
    src, dst = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    cut = draw(st.integers(0, num_dst))
    return Topology(src, dst, num_src, num_dst, draw(st.sampled_from([None, (cut, num_dst - cut)])))


def assert_part_of(part: DegreeBucket, topology: Topology) -> None:
    vertices, inner = part.vertex_ids, part.topology
    assert vertices.equal(vertices.unique())
    assert (inner.num_src, inner.num_dst) == (topology.num_src, vertices.shape[0])
    assert inner.src.equal(topology.src[part.edge_ids])
    assert vertices[inner.dst].equal(topology.dst[part.edge_ids])
    keys = inner.dst * max(topology.num_edges, 1) + part.edge_ids
    assert bool((keys[1:] > keys[:-1]).all()), "by vertex, then by edge id"
    assert inner.in_degrees.equal(topology.in_degrees[vertices])
    if topology.graph_sizes is not None:
        assert inner.graph_ids.equal(topology.graph_ids[vertices])


@given(graphs())
def test_buckets_divide_the_edges(topology: Topology) -> None:
    buckets = degree_buckets(topology)
    for bucket in buckets:
        assert_part_of(bucket, topology)
        assert set(bucket.topology.in_degrees.tolist()) == {bucket.degree}
    degrees = [bucket.degree for bucket in buckets]
    assert degrees == sorted({d for d in topology.in_degrees.tolist() if d})
    edges = [i for bucket in buckets for i in bucket.edge_ids.tolist()]
    assert sorted(edges) == list(range(topology.num_edges))


@given(graphs())
def test_active_part(topology: Topology) -> None:
    part = active_part(topology)
    wanted = [v for v, d in enumerate(topology.in_degrees.tolist()) if d]
    if part is None:
        assert len(wanted) == topology.num_dst
    else:
        assert_part_of(part, topology)
        assert part.vertex_ids.tolist() == wanted != list(range(topology.num_dst))
        assert part.edge_ids.sort().values.tolist() == list(range(topology.num_edges))


def test_kept() -> None:
    topology = Topology(torch.tensor([0]), torch.tensor([1]), 2, 2)
    assert degree_buckets(topology) is degree_buckets(topology)
    assert active_part(topology) is active_part(topology)


def test_one_star() -> None:
    topology = Topology(torch.tensor([3, 1, 2]), torch.tensor([4, 0, 4]), 4, 5)
    one, two = degree_buckets(topology)
    assert (one.vertex_ids.tolist(), one.edge_ids.tolist()) == ([0], [1])
    assert (two.vertex_ids.tolist(), two.edge_ids.tolist()) == ([4], [0, 2])
    assert (two.topology.src.tolist(), two.topology.dst.tolist()) == ([3, 2], [0, 0])
