"""Threads and forks: nobody waits for another one's compiler, and a child finds no lock held."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph import forks
from vgraph.capture import capture
from vgraph.fusion.cpu import build, compilers
from vgraph.memory.arena import ArenaPool
from vgraph.native_part import load_native

LONG = 60  # seconds until a test that hangs is ended

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
needs_compiler = pytest.mark.skipif(build.find_compiler() is None, reason="there is no C++ compiler")


class SlowCompiler:
    """Begins, and waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.goes_on, self.num_calls = threading.Event(), threading.Event(), 0
        self.real = compilers.run_on
        monkeypatch.setattr(compilers, "run_on", self)

    def __call__(self, *given: Any) -> Any:
        self.num_calls += 1
        self.began.set()
        assert self.goes_on.wait(LONG)
        return self.real(*given)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCompiler]:
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    load_native()  # which a process compiles once: not while calls of the compiler are counted
    known()
    yield SlowCompiler(monkeypatch)
    capture.forget()


def a_graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 2)
    return g


def known() -> None:
    g = a_graph()
    g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o"))
    assert g.ndata["o"][:, 0].tolist() == [0, 1, 1]


def fresh(factor: float) -> Callable[[], None]:
    """A call whose kernels nobody has compiled; ``factor`` tells their sources apart."""

    def run() -> None:
        g = a_graph()
        g.update_all(lambda edges: {"m": edges.src["h"].exp() * factor}, fn.sum("m", "o"))
        assert g.ndata["o"][0, 0] == 0
        assert g.ndata["o"][1, 0] != 0

    return run


def in_thread(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def fork_and_run(run: Callable[[], None]) -> int:
    """The status with which a child that runs it ends."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(LONG)
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


@pytest.mark.guards
@needs_compiler
def test_other_functions_run_while_one_is_compiled(slow: SlowCompiler) -> None:
    thread = in_thread(fresh(1.25))
    assert slow.began.wait(LONG)
    known()
    other = a_graph()
    other.edata["w"] = torch.ones(2, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VGRAPH_KERNELS", "0")  # one that is captured meanwhile
        other.update_all(lambda edges: {"m": edges.src["h"] * edges.data["w"]}, fn.sum("m", "o"))
    assert thread.is_alive()
    slow.goes_on.set()
    thread.join(LONG)
    assert not thread.is_alive()


@needs_compiler
def test_threads_that_want_one_kernel_compile_it_once(slow: SlowCompiler) -> None:
    threads = [in_thread(fresh(1.75)) for _ in range(4)]
    assert slow.began.wait(LONG)
    slow.goes_on.set()
    for thread in threads:
        thread.join(LONG)
    assert slow.num_calls == 1


@pytest.mark.guards
@needs_fork
@needs_compiler
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_another_thread_compiles(slow: SlowCompiler) -> None:
    thread = in_thread(fresh(1.5))
    assert slow.began.wait(LONG)

    def child() -> None:
        slow.goes_on.set()
        known()
        fresh(1.5)()
        fresh(2.5)()

    status = fork_and_run(child)
    slow.goes_on.set()
    thread.join(LONG)
    assert status == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_another_thread_records() -> None:
    """The child finds the user's objects as they are, not as a recording leaves them meanwhile."""
    began, factor = threading.Event(), [1.0]

    def message(edges: Any) -> dict[str, torch.Tensor]:
        began.set()
        time.sleep(0.2)
        return {"m": edges.src["h"] * factor[0]}

    def run() -> None:
        g = a_graph()
        for value in (1.0, 2.0, 3.0):  # a number that changes becomes an input, whose place a stand-in takes
            factor[0] = value
            g.update_all(message, fn.sum("m", "o"))

    thread = in_thread(run)
    assert began.wait(LONG)

    def child() -> None:
        assert type(factor[0]) is float
        known()

    status = fork_and_run(child)
    thread.join(LONG)
    assert status == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_another_thread_takes_memory() -> None:
    pool, holds, ends = ArenaPool(), threading.Event(), threading.Event()

    def hold() -> None:
        with pool._lock, pool._rooms.lock:
            holds.set()
            ends.wait(0.2)

    thread = in_thread(hold)
    assert holds.wait(LONG)

    def child() -> None:
        pool.lease(1 << 20, torch.device("cpu")).release()
        assert pool.empty((1 << 20,), torch.float32).numel() == 1 << 20

    status = fork_and_run(child)
    thread.join(LONG)
    assert status == 0


def test_a_lock_that_is_gone_is_waited_for_by_nobody() -> None:
    before = sum(map(len, forks._locks))
    lock = forks.held_by_forks(threading.Lock())
    assert sum(map(len, forks._locks)) == before + 1
    del lock
    assert sum(map(len, forks._locks)) == before


class _Handing:
    """A lock for which another thread waits that is about to fork: it takes them all as soon as it can."""

    waits = True

    def acquire(self) -> None: ...

    def release(self) -> None:
        if self.waits:
            self.waits = False
            forks._take()


def test_two_threads_that_fork_at_once_give_back_their_own_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_locks", [[_Handing(), threading.Lock()]])
    forks._take()
    forks._give_back()
    assert len(forks._held) == 2  # those of the other one
    forks._give_back()
    assert not forks._held
