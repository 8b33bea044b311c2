"""Row order: stable by key, edges by destination and id, and the same edges from the other end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.fusion.cpu import build
from vgraph.ir import schedule
from vgraph.ir.schedule import LOOK_AHEAD, RowOrder
from vgraph.ir.topology import Topology
from vgraph.memory import row_order
from vgraph.memory.row_order import build_row_order, group_edges
from vgraph.native_part import load_native


@st.composite
def graphs(draw: st.DrawFn, *, bipartite: bool = False) -> Topology:
    num_dst = draw(st.integers(0, 9))
    num_src = draw(st.integers(0, 9)) if bipartite else num_dst
    pairs = st.tuples(st.integers(0, max(num_src - 1, 0)), st.integers(0, max(num_dst - 1, 0)))
    edges = draw(st.lists(pairs, max_size=25 if num_src and num_dst else 0))
    src, dst = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return Topology(src, dst, num_src, num_dst)


def keys_for(topology: Topology, data: st.DataObject, largest: int) -> np.ndarray:
    numbers = st.lists(st.integers(0, largest), min_size=topology.num_dst, max_size=topology.num_dst)
    return np.array(data.draw(numbers), np.int32)


def ids(given_ids: torch.Tensor | None, count: int) -> torch.Tensor:
    return torch.arange(count) if given_ids is None else given_ids


def assert_consistent(order: RowOrder, topology: Topology) -> None:
    num_edges, is_renumbered = topology.num_edges, order.vertex_ids is not None
    edges = ids(order.edge_ids, num_edges)
    sources = ids(order.vertex_rows, topology.num_dst) if is_renumbered else None
    rows = ids(order.vertex_rows, topology.num_dst)
    assert order.dst_rows.equal(rows[topology.dst[edges]])
    src = topology.src[edges]
    assert order.src_rows.equal(src if sources is None else sources[src])
    keys = order.dst_rows * max(num_edges, 1) + edges
    assert bool((keys[1:] > keys[:-1]).all()), "by destination row, then by edge id"
    assert ids(order.edge_rows, num_edges)[edges].equal(torch.arange(num_edges))
    for ptr, ends, count in (
        (order.in_ptr, order.dst_rows, topology.num_dst),
        (order.out_ptr, order.src_rows[order.out_edges], topology.num_src),
    ):
        assert ptr.shape == (count + 1,)
        assert ends.equal(torch.repeat_interleave(torch.arange(count), ptr.diff()))
    assert order.out_edges.equal(torch.argsort(order.src_rows, stable=True))


@given(graphs(), st.data())
def test_sorted_by_level(topology: Topology, data: st.DataObject) -> None:
    keys = keys_for(topology, data, 4)
    order = build_row_order(topology, keys)
    wanted = sorted(range(topology.num_dst), key=lambda v: (keys[v], v))
    assert ids(order.vertex_ids, topology.num_dst).tolist() == wanted
    assert (order.vertex_ids is None) == (wanted == list(range(topology.num_dst)))
    if order.vertex_ids is not None and order.vertex_rows is not None:
        assert order.vertex_rows[order.vertex_ids].tolist() == list(range(topology.num_dst))
    assert_consistent(order, topology)


@given(graphs(), st.data())
def test_second_key(topology: Topology, data: st.DataObject) -> None:
    first, second = keys_for(topology, data, 3), keys_for(topology, data, 2**31 - 1)
    order = build_row_order(topology, first, second)
    wanted = sorted(range(topology.num_dst), key=lambda v: (first[v], second[v], v))
    assert ids(order.vertex_ids, topology.num_dst).tolist() == wanted
    assert_consistent(order, topology)


@given(graphs(bipartite=True))
def test_without_keys_vertices_stay(topology: Topology) -> None:
    order = build_row_order(topology, None)
    assert order.vertex_ids is None and order.vertex_rows is None
    assert (order.edge_ids is None) == (order.edge_rows is None)
    assert_consistent(order, topology)


@given(graphs(bipartite=True))
def test_orders_of_many_edges_are_found_again(topology: Topology) -> None:
    """Nothing is kept that was not asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "MANY", 0)
        patch.setattr(schedule, "MANY", 0)
        order = build_row_order(topology, None)
        assert order.out_dst.equal(order.dst_rows[torch.argsort(order.src_rows, stable=True)])
        assert order.out_dst.untyped_storage().nbytes() >= 4 * (topology.num_edges + LOOK_AHEAD)
        assert not {"edge_ids", "out_edges"} & set(vars(order))
        assert order.is_grouped or "edge_ids" not in vars(order)
        assert order.is_grouped == bool((topology.dst.diff() >= 0).all())
        assert_consistent(order, topology)


@pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
@given(graphs(bipartite=True), st.booleans())
def test_edges_grouped_by_native_code(topology: Topology, is_short: bool) -> None:
    native = load_native()
    assert native is not None
    stored = topology.stored(topology.src.int(), topology.dst.int()) if is_short else topology
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "MANY", 0)
        order = group_edges(stored, native.group)
        assert order.is_grouped == bool((topology.dst.diff() >= 0).all())
        assert "edge_ids" not in vars(order)
        assert order.out_dst.equal(order.dst_rows[torch.argsort(order.src_rows, stable=True)])
        for rows in (order.src_rows, order.out_dst):
            assert rows.untyped_storage().nbytes() >= 4 * (topology.num_edges + LOOK_AHEAD)
        assert_consistent(order, topology)


def test_large_keys() -> None:
    topology = Topology(torch.arange(20_000 - 1), torch.arange(1, 20_000), 20_000, 20_000)
    for span in (3, 1 << 20):
        keys = np.random.default_rng(0).integers(0, span, 20_000).astype(np.int32)
        order = build_row_order(topology, keys)
        assert order.vertex_ids is not None
        assert order.vertex_ids.tolist() == np.argsort(keys, kind="stable").tolist()
    few = Topology(torch.tensor([0]), torch.tensor([1]), 2, 2)
    swapped = build_row_order(few, np.array([1 << 16, 0], np.int32))
    assert swapped.vertex_ids is not None and swapped.vertex_ids.tolist() == [1, 0]


def test_in_order_already() -> None:
    topology = Topology(torch.tensor([0, 1]), torch.tensor([2, 2]), 3, 3)
    order = build_row_order(topology, np.array([0, 0, 1], np.int32))
    assert order.vertex_ids is None and order.edge_ids is None
    assert order.src_rows.tolist() == [0, 1] and order.out_edges.tolist() == [0, 1]
    assert order.in_ptr.tolist() == [0, 0, 0, 2] and order.out_ptr.tolist() == [0, 1, 2, 2]
