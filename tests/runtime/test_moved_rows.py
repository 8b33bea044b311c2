"""Rows of edges that come again unchanged are moved once, and never used when they are not what they were."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

import vgraph
from vgraph import function as fn
from vgraph.ir.schedule import RowOrder
from vgraph.native_part import load_native
from vgraph.runtime import moved_rows
from vgraph.runtime.moved_rows import MovedRows

EDGES = 4000


@pytest.fixture(autouse=True)
def _few_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    monkeypatch.setattr(moved_rows, "_LEAST", 0)
    if load_native() is None:
        pytest.skip("nothing is compiled here")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of edges whose rows were made to be kept, move by move."""
    moves, make = list[int](), MovedRows._made

    def noted(self: MovedRows, edges: Tensor, ids: Tensor) -> Tensor:
        moves.append(edges.shape[0])
        return make(self, edges, ids)

    monkeypatch.setattr(MovedRows, "_made", noted)
    yield moves


def drawn_graph(*, is_sorted: bool = False) -> vgraph.Graph:
    torch.manual_seed(0)
    src, dst = torch.randint(0, 300, (EDGES,)), torch.randint(5, 305, (EDGES,))
    return vgraph.graph((src, dst.sort().values if is_sorted else dst), num_nodes=310)


def step(g: vgraph.Graph, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """A weighed sum and its gradient by the rows of vertices."""
    x = x.detach().requires_grad_()
    with g.local_scope():
        g.ndata["x"], g.edata["w"] = x, w
        g.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "o"))
        out = g.ndata["o"]
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    return out.detach(), gradient


def by_torch(g: vgraph.Graph, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    src, dst = (end.long() for end in g.edges())
    out = torch.zeros_like(x).index_add_(0, dst, x[src] * w)
    return out, torch.zeros_like(x).index_add_(0, src, (2 * out)[dst] * w)


def agree(g: vgraph.Graph, x: Tensor, w: Tensor) -> None:
    """With sums of doubles, within what some tens of roundings of the largest of them make."""
    for ours, theirs in zip(step(g, x, w), by_torch(g, x.double(), w.double()), strict=True):
        near = 32 * torch.finfo(ours.dtype).eps * max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=near)


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3])
def test_the_same_bits_and_moved_once(made: list[int], is_sorted: bool, dtype: torch.dtype, width: int) -> None:
    g, x, w = (
        drawn_graph(is_sorted=is_sorted),
        torch.randn(310, width, dtype=dtype),
        torch.rand(EDGES, width, dtype=dtype),
    )
    first = step(g, x, w)
    for _ in range(4):
        for one, other in zip(step(g, x, w), first, strict=True):
            assert torch.equal(one, other)
    assert made == [EDGES] * (1 if is_sorted else 2), "in order, unless it is, and by source"
    agree(g, x, w)


def test_every_change_is_seen(made: list[int]) -> None:
    """Also those that no version counts: through NumPy's array, through ``data``, of the last number, of two."""
    g, x, array = drawn_graph(), torch.randn(310, 3), np.random.default_rng(0).random((EDGES, 1), np.float32)
    w = torch.from_numpy(array)
    for _ in range(3):
        agree(g, x, w)
    array[7] *= -1
    agree(g, x, w)
    for change in (
        lambda: w.data.mul_(2),
        lambda: w[-1].fill_(9),
        lambda: array.__setitem__([3, 5], array[[5, 3]]),
        lambda: np.negative(array, out=array),
        lambda: array.fill(0),
    ):
        for _ in range(3):
            agree(g, x, w)
        change()
        agree(g, x, w)
    assert made, "rows were kept in between"


def test_what_changes_at_every_call_is_soon_let_be(made: list[int]) -> None:
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    for _ in range(8):
        with torch.no_grad(), g.local_scope():
            g.ndata["x"], g.edata["w"] = x, w
            g.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"], by_torch(g, x, w)[0])
        w.mul_(1.1)
    assert len(made) == 1
    for _ in range(3):
        agree(g, x, w)
        w.mul_(1.1)
    assert len(made) == 1


def test_what_changes_from_step_to_step_is_moved_once_a_step(made: list[int]) -> None:
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    for number in range(1, 5):
        agree(g, x, w)
        assert len(made) == 2 * number, "in order, for both passes, and by source"
        w.mul_(1.1)


def test_another_tensor_in_the_same_memory(made: list[int]) -> None:
    g, x = drawn_graph(), torch.randn(310, 3)
    room = torch.rand(2 * EDGES, 1)
    for _ in range(3):
        for w in (room[:EDGES], room[EDGES:], room[:EDGES].view(-1), room.view(-1)[EDGES:].unsqueeze(1), room[::2]):
            agree(g, x, w.reshape(EDGES, 1))
    assert made, "rows of some of them were kept meanwhile"


def test_rows_go_with_the_graph_and_with_their_tensor() -> None:
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    for _ in range(3):
        agree(g, x, w)
    kept = all_kept()
    assert len(kept) == 1
    others = [torch.rand(EDGES, 1) for _ in range(moved_rows._MOST)]
    del w
    for other in others:
        agree(g, x, other)
    assert not [rows for rows in all_kept() if rows is kept[0]]
    del g, kept
    gc.collect()
    assert all_kept() == []


def all_kept() -> list[Tensor]:
    """Of all orders of this process."""
    orders = [found for found in gc.get_objects() if type(found) is RowOrder and "moved" in vars(found)]
    return [kept.rows for order in orders for kept in order.moved.values() if kept.rows is not None]


def test_rows_kept_in_inference_mode_train() -> None:
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    with torch.inference_mode():
        for _ in range(3):
            with g.local_scope():
                g.ndata["x"], g.edata["w"] = x, w
                g.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "o"))
    assert len(all_kept()) == 1
    agree(g, x, w)
    assert len(all_kept()) == 1, "the backward saved what was kept in that mode"


def test_what_a_program_gives_back_is_not_what_is_kept() -> None:
    """Whoever writes to results writes to no row that is kept."""
    g, w = drawn_graph(), torch.rand(EDGES, 2)
    for _ in range(4):
        with g.local_scope():
            g.edata["w"] = w
            g.apply_edges(lambda edges: {"same": edges.data["w"], "twice": edges.data["w"] * 2})
            for name in ("same", "twice"):
                torch.testing.assert_close(g.edata[name], w * (1 + (name == "twice")))
                g.edata[name].zero_()
            g.update_all(fn.copy_e("w", "m"), fn.sum("m", "o"))
            torch.testing.assert_close(g.ndata["o"], torch.zeros(310, 2).index_add_(0, g.edges()[1].long(), w))


def test_a_call_that_is_late_keeps_nothing_for_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers change, and are read by another thread, while a call that has read them before still moves them."""
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    is_moving, may_go_on, make = threading.Event(), threading.Event(), MovedRows._made
    agree(g, x, torch.rand(EDGES, 1))  # a first call records, and others wait for it

    def late(self: MovedRows, edges: Tensor, ids: Tensor) -> Tensor:
        rows = make(self, edges, ids)
        if threading.current_thread() is not threading.main_thread():
            is_moving.set()
            assert may_go_on.wait(20)
        return rows

    monkeypatch.setattr(MovedRows, "_made", late)
    thread = threading.Thread(target=lambda: step(g, x, w))
    thread.start()
    assert is_moving.wait(20)
    agree(g, x, w)
    w.neg_()
    agree(g, x, w)
    may_go_on.set()
    thread.join()
    for _ in range(2):
        agree(g, x, w)


def test_several_threads() -> None:
    g, x, w = drawn_graph(), torch.randn(310, 3), torch.rand(EDGES, 1)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(8):
                agree(g, x, w)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 511 * 8, 4096, 4097, 100_003])
def test_a_checksum_depends_on_every_byte_and_its_place(count: int) -> None:
    native = load_native()
    assert native is not None
    rows = torch.randint(0, 255, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    known = native.checksum(rows)
    assert native.checksum(rows.clone()) == known
    sums = {known}
    places = sorted({0, count // 3, count // 2, count - 1} & set(range(count)))
    for place in places:
        changed = rows.clone()
        changed[place] ^= 1
        sums.add(native.checksum(changed))
    assert len(sums) == 1 + len(places)
    assert native.checksum(torch.cat([rows, rows.new_zeros(1)])) not in sums
    if count > 16:
        assert native.checksum(torch.cat([rows[8:16], rows[:8], rows[16:]])) not in sums


def test_threads_do_not_change_a_checksum() -> None:
    native = load_native()
    assert native is not None
    rows, threads = torch.rand(1_000_003), torch.get_num_threads()
    try:
        sums: set[int] = set()
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            sums.add(native.checksum(rows))
    finally:
        torch.set_num_threads(threads)
    assert len(sums) == 1
