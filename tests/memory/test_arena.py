"""Arena: leases never share, buffers come back and are bounded, threads and garbage collection."""

from __future__ import annotations

import gc
import random
import re
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vgraph.errors import VGraphError
from vgraph.memory import arena
from vgraph.memory.arena import SMALLEST, ArenaPool, Lease

CPU = torch.device("cpu")


def take(pool: ArenaPool, num_bytes: int) -> Lease:
    return pool.lease(num_bytes, CPU)


def test_a_released_buffer_is_used_again() -> None:
    pool = ArenaPool()
    lease = take(pool, 100_000)
    place = lease.buffer.data_ptr()
    assert lease.buffer.dtype == torch.uint8 and lease.buffer.numel() >= 100_000
    lease.release()
    lease.release()
    assert pool.num_idle_bytes() == 100_000 and lease.buffer.numel() == 0
    assert take(pool, 90_000).buffer.data_ptr() == place


def test_a_forgotten_lease_comes_back() -> None:
    pool = ArenaPool()
    lease = take(pool, SMALLEST)
    place = lease.buffer.data_ptr()
    del lease
    gc.collect()
    assert take(pool, SMALLEST).buffer.data_ptr() == place


def test_the_smallest_that_fits() -> None:
    pool = ArenaPool()
    leases = [take(pool, n * SMALLEST) for n in (4, 2, 3)]
    places = [lease.buffer.data_ptr() for lease in leases]
    for lease in leases:
        lease.release()
    assert take(pool, 2 * SMALLEST + 1).buffer.data_ptr() == places[2]


def test_growth_is_geometric() -> None:
    pool, places = ArenaPool(), set[int]()
    for step in range(200):
        lease = take(pool, (100 + step) * SMALLEST)
        places.add(lease.buffer.numel())
        lease.release()
    assert len(places) == 4
    assert pool.num_idle_bytes() == max(places), "a buffer that was outgrown is given up"


def test_growth_falls_back_to_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ArenaPool()
    take(pool, 4 * SMALLEST).release()
    limited = arena._empty

    def small_machine(num_bytes: int, device: torch.device) -> torch.Tensor:
        if num_bytes > 5 * SMALLEST:
            raise RuntimeError("out of memory")
        return limited(num_bytes, device)

    monkeypatch.setattr(arena, "_empty", small_machine)
    assert take(pool, 5 * SMALLEST).buffer.numel() == 5 * SMALLEST


Steps = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40)


@given(Steps)
def test_leases_never_share_and_idle_memory_is_bounded(steps: list[tuple[bool, int]]) -> None:
    pool, alive, most = ArenaPool(), list[Lease](), 0
    for is_release, number in steps:
        if is_release and alive:
            alive.pop(number % len(alive)).release()
        else:
            alive.append(take(pool, number * SMALLEST))
        spans = sorted((a.buffer.data_ptr(), a.buffer.numel()) for a in alive)
        pairs = pairwise(spans)
        assert all(start + size <= after for (start, size), (after, _) in pairs)
        leased = sum(size for _, size in spans)
        most = max(most, leased)
        assert leased + pool.num_idle_bytes() <= most


def test_threads() -> None:
    pool, wrong = ArenaPool(), list[str]()

    def work(mark: int) -> None:
        chance = random.Random(mark)
        for _ in range(200):
            lease = take(pool, chance.randrange(1, 4 * SMALLEST))
            head = lease.buffer[:64]
            head.fill_(mark)
            if not bool((head == mark).all()):
                wrong.append(f"another thread wrote into the buffer of {mark}")
            del head
            if chance.random() < 0.5:
                lease.release()

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_lease_freed_while_the_pool_is_busy() -> None:
    pool = ArenaPool()
    lease = take(pool, SMALLEST)
    with pool._lock:  # as if the garbage collector ran inside the pool
        del lease
        gc.collect()
    assert pool.num_idle_bytes() == SMALLEST


def test_a_buffer_outlives_inference_mode() -> None:
    pool = ArenaPool()
    with torch.inference_mode():
        take(pool, SMALLEST).release()
    buffer = take(pool, SMALLEST).buffer
    assert not buffer.is_inference()
    view = buffer[:64].view(torch.float32)
    view.copy_(torch.ones(16, requires_grad=True).detach())


def test_more_than_the_machine_has() -> None:
    pool = ArenaPool()
    with pytest.raises(VGraphError) as caught:
        take(pool, 1 << 50)
    assert isinstance(caught.value, MemoryError)
    assert re.fullmatch(
        r"1,125,899,906,842,624 bytes for the values of one call do not fit in a memory of [\d,]+ bytes",
        caught.value.fact,
    )
    assert caught.value.cure == "pass a smaller batch of graphs"
    assert take(pool, 10).buffer.numel() == SMALLEST


def test_memory_of_large_tensors_is_used_again() -> None:
    pool = ArenaPool()
    one = pool.empty((1000, 200), torch.float32)
    place, view = one.data_ptr(), one[5:, 3]
    assert one.is_contiguous() and place % 64 == 0 and one.untyped_storage().nbytes() == 800_000
    del one
    gc.collect()
    other = pool.empty((1000, 200), torch.float32)
    assert other.data_ptr() != place, "a view still reads it"
    view.fill_(1)
    del view
    gc.collect()
    again = pool.empty((100, 1900), torch.float32)
    assert again.data_ptr() == place and again.shape == (100, 1900)
    assert pool.empty((), torch.int64).shape == () and pool.empty((0, 5), torch.float64).shape == (0, 5)


def flags_of_mapping(place: int) -> set[str]:
    """What Linux knows of the mapping that an address lies in: ``hg`` where large pages were asked for."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *others = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            found = begin <= place < end
        elif found and first == "VmFlags:":
            return set(others)
    raise AssertionError("no mapping has the address")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked for large pages")
@pytest.mark.parametrize("num_rows", [12_500, 100_000])  # 3.2 MB, which NumPy does not ask for, and 25.6
def test_large_tensors_lie_in_large_pages(num_rows: int) -> None:
    pool = ArenaPool()
    rows = pool.empty((num_rows, 64), torch.float32)
    lease = take(pool, num_rows * 256)
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("this kernel has no large pages")
    for place in (rows.data_ptr(), lease.buffer.data_ptr()):
        assert place % (1 << 21) == 0 and "hg" in flags_of_mapping(place)
    rows.fill_(1)
    assert float(rows[-1].sum()) == 64


def test_a_large_tensor_is_no_view_and_shares_its_memory_with_none() -> None:
    """Else autograd forbids its user to write to it, and adds to it in a tensor of its own."""
    pool = ArenaPool()
    rows = pool.empty((1000, 200), torch.float32)
    assert not rows._is_view()
    given = torch.zeros(1000, 200, requires_grad=True)
    (given * rows).sum().backward()  # a use that saves it
    before = rows._version
    rows.zero_()
    assert rows._version == before + 1 and pool.empty((1000, 200), torch.float32).data_ptr() != rows.data_ptr()


def test_a_small_tensor_does_not_hold_a_large_buffer() -> None:
    pool = ArenaPool()
    large = pool.empty((1 << 22,), torch.uint8)
    place = large.data_ptr()
    del large
    gc.collect()
    assert pool.empty((1 << 20,), torch.uint8).data_ptr() != place


def test_a_tensor_without_memory_is_an_error_of_torch() -> None:
    with pytest.raises(RuntimeError, match="allocate"):
        ArenaPool().empty((1 << 50,), torch.uint8)


def test_idle_memory_can_be_released() -> None:
    pool = ArenaPool()
    held = take(pool, SMALLEST)
    take(pool, 8 * SMALLEST).release()
    kept = pool.empty((1 << 20,), torch.uint8)
    gone = pool.empty((1 << 21,), torch.uint8)
    del gone
    assert pool.num_idle_bytes() == 8 * SMALLEST
    assert pool.release() == 8 * SMALLEST + (1 << 21)
    assert pool.num_idle_bytes() == pool.release() == 0
    kept.fill_(1)
    held.buffer.fill_(1)
    held.release()
    assert pool.num_idle_bytes() == SMALLEST


def test_what_was_needed_once_is_not_kept_for_ever() -> None:
    pool = ArenaPool()
    leases = [take(pool, 100 * SMALLEST) for _ in range(3)]
    for lease in leases:
        lease.release()
    assert pool.num_idle_bytes() == 300 * SMALLEST
    for _ in range(2 * arena._WINDOW):
        take(pool, SMALLEST).release()
    assert pool.num_idle_bytes() <= 100 * SMALLEST


def test_rooms_that_were_needed_once_go() -> None:
    pool = ArenaPool()
    many = [pool.empty((1 << 20,), torch.uint8) for _ in range(20)]
    del many
    assert len(pool._rooms.rooms) == 20
    for _ in range(3 * arena._WINDOW * arena._LOOKS):
        pool.empty((1 << 20,), torch.uint8)
    assert len(pool._rooms.rooms) <= 2
