"""Products agree with torch's, whatever the shape, strides and dtype."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph import compiler, native_part
from vgraph.errors import CycleError
from vgraph.fusion.cpu import build
from vgraph.ir.topology import Topology
from vgraph.memory.row_order import build_row_order
from vgraph.runtime.cpu.kernels import index_addresses
from vgraph.runtime.cpu.native import TALL, Native
from vgraph.scheduler.build import build_schedule
from vgraph.scheduler.frontiers import levels

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")
SHAPES = [(1, 1, 1), (2, 64, 192), (13, 31, 33), (15, 385, 100), (29, 770, 65), (200, 7, 450), (3, 0, 4), (400, 40, 8)]


@pytest.fixture
def native() -> Native:
    native_part.begin_native.cache_clear()
    found = native_part.load_native()
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_products_agree_with_torch(native: Native, m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b, bias = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype), torch.randn(n, dtype=dtype)
    rtol = 1e-12 if dtype == torch.float64 else 1e-5
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            for added in (None, bias):
                wanted = a.double() @ b.double() + (0 if added is None else added.double())
                found = native.multiply(left, right, added)
                torch.testing.assert_close(found.double(), wanted, rtol=rtol, atol=rtol * max(k, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (200, 1), (128, 64), (64, 128), (7, 5), (602, 16), (3, 200)])
def test_products_of_great_depth(native: Native, m: int, n: int, dtype: torch.dtype) -> None:
    """Whatever lies how, and however many threads there are: the same ranges of depth, added in order."""
    k, before, atol = TALL + 4321, torch.get_num_threads(), 1e-10 if dtype == torch.float64 else 5e-3
    a, b, bias = torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype), torch.randn(n, dtype=dtype)
    wanted, out = a.double() @ b.double(), torch.full((m, n + 3), 7.0, dtype=dtype)
    for left in (a, a.t().contiguous().t()):
        for right in (b, b.t().contiguous().t()):
            for added in (None, bias):
                native.multiply(left, right, added, out[:, :n])
                sums = wanted if added is None else wanted + bias
                torch.testing.assert_close(out[:, :n].double(), sums, rtol=0, atol=atol)
                try:
                    torch.set_num_threads(1)
                    assert torch.equal(native.multiply(left, right, added), out[:, :n])
                finally:
                    torch.set_num_threads(before)
    assert (out[:, n:] == 7).all()


def test_products_are_written_where_they_belong(native: Native) -> None:
    out, a, b = torch.full((4, 10), 7.0), torch.randn(4, 3), torch.randn(3, 6)
    native.multiply(a, b, None, out[:, 2:8])
    torch.testing.assert_close(out[:, 2:8], a @ b)
    assert (out[:, :2] == 7).all() and (out[:, 8:] == 7).all()


@pytest.mark.parametrize("has_bias", [False, True])
def test_large_products_of_torchs_fill_rooms(native: Native, has_bias: bool) -> None:
    """Where torch's library is the faster, its result lies in memory that the next step uses again."""
    asked: list[tuple[int, ...]] = []

    def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        asked.append(tuple(shape))
        return native.empty(shape, dtype)

    torchs = dataclasses.replace(native, choose=lambda *_: False, empty=empty)
    for rows in (20, 2000):
        a, b, bias = torch.randn(rows, 40), torch.randn(40, 50), torch.randn(50)
        made, own = (torchs.addmm(bias, a, b), torch.addmm(bias, a, b)) if has_bias else (torchs.mm(a, b), a @ b)
        assert torch.equal(made, own)
    assert asked == [(2000, 50)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "k", "n"), [(150, 400, 31), (5, 1, 64), (8, 0, 4), (2, 3, 3)])
def test_products_of_gathered_rows(native: Native, m: int, k: int, n: int, dtype: torch.dtype) -> None:
    left, rows = torch.randn(k, m, dtype=dtype).t(), torch.randn(50, n, dtype=dtype)
    ids = torch.randint(0, 50, (k,), dtype=torch.int32)
    wanted = left.double() @ rows.double()[ids.long()]
    found = native.mm_of_rows(left, (rows, ids))
    torch.testing.assert_close(found, wanted.to(dtype), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(native.mm_of_rows(left, (rows, ids.long())), found)


def test_infinities_and_nan_stay_in_their_rows(native: Native) -> None:
    a, b = torch.ones(20, 40), torch.ones(40, 33)
    a[3, 5], a[7, 1] = float("nan"), float("inf")
    found = native.multiply(a, b, None)
    assert found[3].isnan().all() and found[7].isinf().all()
    assert found.isfinite().all(1).sum() == 18


@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_are_equal_bit_for_bit(native: Native, threads: int) -> None:
    a, b, before = torch.randn(3000, 100), torch.randn(100, 70), torch.get_num_threads()
    one = native.multiply(a, b, None)
    try:
        torch.set_num_threads(threads)
        assert torch.equal(native.multiply(a, b, None), native.multiply(a, b, None))
        torch.testing.assert_close(native.multiply(a, b, None), one)
    finally:
        torch.set_num_threads(before)


def test_what_it_cannot_multiply_is_torchs(native: Native) -> None:
    a, b = torch.ones(300, 300, dtype=torch.bfloat16), torch.ones(300, 300, dtype=torch.bfloat16)
    assert torch.equal(native.mm(a, b), torch.mm(a, b))
    wide = torch.zeros(2, 300, 300)
    assert torch.equal(native.addmm(wide[0], wide[0], wide[1]), wide[0])


@pytest.mark.parametrize("shape", [(0, 0, 1), (1, 0, 1), (7, 5, 3), (300, 900, 20), (40_000, 60_000, 9)])
def test_rows_are_ordered_as_by_numpy(native: Native, shape: tuple[int, int, int]) -> None:
    n, m, most = shape
    draw = np.random.default_rng(0)
    for keys in (draw.integers(0, most, n), np.sort(draw.integers(0, most, n)), np.arange(n)):
        ends = torch.from_numpy(draw.integers(0, max(n, 1), (2, m)))
        for src, dst in (ends, ends.sort(1).values):
            topology = Topology(src, dst, n, n)
            wanted = build_row_order(topology, keys.astype(np.int32))
            found = build_row_order(topology, keys.astype(np.int32), sort=native.order_rows)
            made = "vertex_ids vertex_rows edge_ids src_rows dst_rows in_ptr out_ptr out_edges out_dst edge_rows"
            for name in made.split():
                one, two = getattr(wanted, name), getattr(found, name)
                assert (one is None) == (two is None), name
                assert one is None or (one.tolist() == two.tolist() and one.dtype == two.dtype), name


@pytest.mark.parametrize("shape", [(0, 0, 0), (3, 5, 0), (1, 4, 6), (5, 1, 9), (30, 30, 60), (700, 300, 2_000)])
def test_edges_are_ordered_as_by_numpy(native: Native, shape: tuple[int, int, int]) -> None:
    num_src, num_dst, m = shape
    draw = np.random.default_rng(0)
    src, dst = (torch.from_numpy(draw.integers(0, max(n, 1), m)) for n in (num_src, num_dst))
    for heads in (dst, dst.sort().values, dst.int(), torch.arange(m) % max(num_dst, 1)):
        topology = Topology(src, heads, num_src, num_dst)
        wanted = build_row_order(topology, None)
        ordered = native.order_edges(topology)
        assert ordered is not None
        found, degree = ordered
        assert degree == build_schedule(topology, "once", None, wanted).frontiers[0].degree
        for name in "vertex_ids edge_ids src_rows dst_rows in_ptr out_ptr out_edges out_dst edge_rows".split():
            one, two = getattr(wanted, name), getattr(found, name)
            assert (one is None) == (two is None), name
            assert one is None or (one.tolist() == two.tolist() and one.dtype == two.dtype), name


@pytest.mark.parametrize("threads", [2, 16])
def test_many_edges_are_ordered_by_any_number_of_threads(native: Native, threads: int) -> None:
    """Those of few vertices, of a hub among many, and those that are in order already."""
    m, before = 1 << 18, torch.get_num_threads()
    ends = torch.stack([torch.randint(n, (m,)) for n in (3, 1000, 70_000)])
    hub = torch.where(torch.arange(m) % 3 == 0, 7, ends[1])
    try:
        torch.set_num_threads(threads)
        for src, dst in ((ends[2], ends[0]), (ends[1], hub), (hub, ends[2].sort().values)):
            found, _ = native.order_edges(Topology(src, dst, 70_000, 70_000)) or (None, None)
            assert found is not None
            by_head = torch.sort(dst, stable=True)
            by_tail = torch.sort(src[by_head.indices], stable=True)
            for row, wanted in ((found.dst_rows, by_head.values), (found.src_rows, src[by_head.indices])):
                assert torch.equal(row.long(), wanted)
            assert torch.equal(found.out_edges.long(), by_tail.indices)
            assert torch.equal(found.out_dst.long(), by_head.values[by_tail.indices])
            assert torch.equal(found.in_ptr.diff(), torch.bincount(dst, minlength=70_000))
            assert torch.equal(found.out_ptr.diff(), torch.bincount(src, minlength=70_000))
            assert (found.edge_ids is None) == torch.equal(dst, by_head.values)
            assert found.edge_ids is None or torch.equal(found.edge_ids.long(), by_head.indices)
    finally:
        torch.set_num_threads(before)


def test_ids_that_are_none_are_not_sorted(native: Native) -> None:
    for src, dst in ((0, 3), (2, 0), (-1, 0), (0, -(2**40))):
        assert native.order_edges(Topology(torch.tensor([0, src]), torch.tensor([0, dst]), 2, 3)) is None


@pytest.mark.usefixtures("with_kernels")
def test_first_small_graphs_do_not_wait_for_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_small_graphs", itertools.count())
    x, orders = torch.eye(3), list[bool]()
    for _ in range(compiler._FEW_GRAPHS + 1):
        g = vgraph.graph(([0, 1], [1, 2]))
        g.ndata["h"] = x
        g.update_all(fn.copy_u("h", "m"), fn.sum("m", "s"))
        assert g.ndata["s"].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
        orders.append(native_part.begin_native.cache_info().currsize > 0)
    assert orders == [False] * compiler._FEW_GRAPHS + [True]


def test_a_copy_of_rows_lies_in_memory_of_its_own(native: Native) -> None:
    ends = np.sort(np.random.default_rng(0).integers(0, 60, (200, 2)), 1)
    src, dst = torch.from_numpy(ends[ends[:, 0] < ends[:, 1]]).unbind(1)
    known = native.levels(src.contiguous(), dst.contiguous(), 60)
    assert known is not None and known.order is not None
    order = known.order
    for copied in (copy.deepcopy(order), pickle.loads(pickle.dumps(order))):
        assert not set(index_addresses(copied)) & set(index_addresses(order))
        for name in ("vertex_ids", "vertex_rows", "edge_ids", "src_rows", "in_ptr", "out_edges", "out_dst", "dst_rows"):
            assert torch.equal(getattr(copied, name), getattr(order, name)), name
        assert index_addresses(copied)[0] == copied.in_ptr.data_ptr()


@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 0), (7, 3), (60, 200), (3_000, 2_000)])
def test_frontiers_are_as_found_by_numpy(native: Native, n: int, m: int) -> None:
    draw = np.random.default_rng(n + m)
    ends = np.sort(draw.integers(0, max(n, 1), (m, 2)), 1)
    src, dst = torch.from_numpy(ends[ends[:, 0] < ends[:, 1]].reshape(-1, 2)).unbind(1)
    topology = Topology(src, dst, n, n)
    keys = levels(topology)
    order = build_row_order(topology, keys)
    wanted = build_schedule(topology, "frontier", keys, order)
    found = build_schedule(topology, "frontier", keys, order, native.bounds)
    assert found.frontiers == wanted.frontiers
    if len(keys) > 1:  # a key that nothing has leaves an empty frontier
        gap = np.where(keys > 0, keys + 1, keys).astype(np.int32)
        frontiers = build_schedule(topology, "frontier", gap, order, native.bounds).frontiers
        assert [f for f in frontiers if f.batch_size] == list(wanted.frontiers)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, 0), (7, 3), (60, 200), (3_000, 9_000)])
def test_levels_are_as_found_vertex_by_vertex(native: Native, n: int, m: int, dtype: torch.dtype) -> None:
    draw = np.random.default_rng(n)
    names = draw.permutation(n)
    ends = np.sort(draw.integers(0, max(n, 1), (m, 2)), 1)
    ends = torch.from_numpy(names[ends[ends[:, 0] < ends[:, 1]]].reshape(-1, 2)).to(dtype)
    src, dst = ends.unbind(1)  # not contiguous
    found = native.levels(src, dst, n)
    assert found is not None
    assert found.levels.tolist() == levels(Topology(src, dst, n, n)).tolist()


def test_a_cycle_has_no_levels(native: Native) -> None:
    src, dst = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 1, 4])
    assert native.levels(src, dst, 5) is None
    with pytest.raises(CycleError, match="vertices 1, 2 in graph 1 of the batch form a cycle"):
        levels(Topology(src, dst, 5, 5, (1, 2, 2)), native.levels)


def test_a_chain_is_walked_without_recursion(native: Native) -> None:
    names = torch.randperm(100_000)
    found = native.levels(names[:-1], names[1:], 100_000)
    assert found is not None and found.levels[names.numpy()].tolist() == list(range(100_000))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (8,), (2, 8), (70,), (0,)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32, torch.complex128])
def test_rows_by_ids(native: Native, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    for count in (0, 1, 40_000):
        rows = torch.randn(500, *shape).to(dtype)
        ids = torch.randint(0, 500, (count,), dtype=torch.int32)
        for given in (rows, rows.repeat_interleave(2, 0)[::2]):
            room = torch.empty(count, *shape, dtype=dtype)
            assert native.take_rows(given, ids, room) is room and torch.equal(room, rows[ids.long()])
