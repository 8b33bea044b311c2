"""Capture while somebody watches the thread's Python code: nobody is lost, and the capture is the same."""

from __future__ import annotations

import cProfile
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import vgraph
import vgraph.function as fn
from vgraph.capture.record import profiler
from vgraph.capture.record.profiler import replace_profiler, unseen

CALL = 0  # of a function of Python, as C profilers are told


def marker() -> None:
    """What every profiler should see, since it runs after the capture."""


@contextmanager
def of_python() -> Iterator[Callable[[], bool]]:
    seen = set[str]()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: seen.add(frame.f_code.co_name))
    try:
        yield lambda: "marker" in seen
    finally:
        sys.setprofile(before)


@contextmanager
def of_tracing() -> Iterator[Callable[[], bool]]:
    seen = set[str]()
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: seen.add(frame.f_code.co_name))
    try:
        yield lambda: "marker" in seen
    finally:
        sys.settrace(before)


@contextmanager
def of_standard_library() -> Iterator[Callable[[], bool]]:
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield lambda: any(entry.code is marker.__code__ for entry in profile.getstats())
    finally:
        profile.disable()


@contextmanager
def of_torch() -> Iterator[Callable[[], bool]]:
    """Its argument is an object that cannot be called."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True):
        argument = sys.getprofile()
        assert argument is not None and not callable(argument)
        yield lambda: sys.getprofile() is argument


@contextmanager
def of_c_alone() -> Iterator[Callable[[], bool]]:
    """A function of C without an argument: Python says that there is none."""
    num_calls = [0]

    def count(_argument: Any, _frame: Any, kind: int, _value: Any) -> int:
        num_calls[0] += kind == CALL
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(count)
    set_profile = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(("PyEval_SetProfile", ctypes.pythonapi))
    set_profile(ctypes.cast(function, ctypes.c_void_p).value, None)

    def has_seen_marker() -> bool:
        before = num_calls[0]
        marker()
        return num_calls[0] > before

    try:
        assert sys.getprofile() is None
        yield has_seen_marker
    finally:
        set_profile(None, None)


WATCHERS = (of_python, of_tracing, of_standard_library, of_torch, of_c_alone)


def a_graph() -> vgraph.Graph:
    g = vgraph.graph(([0, 1], [1, 2]))
    g.ndata["h"] = torch.ones(3, 2)
    return g


@pytest.mark.filterwarnings("ignore")  # torch's profiler warns of its own settings
@pytest.mark.parametrize("watch", WATCHERS)
def test_a_capture_is_the_same_and_the_watcher_stays(watch: Any) -> None:
    g, scale = a_graph(), torch.tensor(3.0)
    with watch() as has_seen_marker:
        g.update_all(lambda e: {"m": e.src["h"] * scale}, fn.sum("m", "o"))
        marker()
        assert has_seen_marker()
    assert g.ndata["o"].tolist() == [[0, 0], [3, 3], [3, 3]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("watch", WATCHERS)
def test_what_a_function_reads_is_noticed_under_a_watcher(watch: Any) -> None:
    g = a_graph()

    def message(edges: Any) -> dict[str, torch.Tensor]:
        return {"m": edges.src["h"].double() * 0 + time.perf_counter()}

    with watch():
        g.update_all(message, fn.sum("m", "first"))
        g.update_all(message, fn.sum("m", "second"))
    assert (g.ndata["second"][1:] > g.ndata["first"][1:]).all()


def test_the_watcher_stays_where_a_capture_fails() -> None:
    g = a_graph()
    with of_c_alone() as has_seen_marker:
        with pytest.raises(ZeroDivisionError):
            g.update_all(lambda e: {"m": e.src["h"] * (1 / 0)}, fn.sum("m", "o"))
        assert has_seen_marker()


def test_an_interpreter_that_hides_its_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, one that Python can call comes back."""
    monkeypatch.setattr(profiler, "_place_of_function", lambda: None)
    with of_python() as has_seen_marker:
        a_graph().update_all(lambda e: {"m": e.src["h"] * 7}, fn.sum("m", "o"))
        marker()
        assert has_seen_marker()


def test_what_is_unseen_tells_no_watcher_of_ours() -> None:
    """It runs as any other, and what runs after it is seen again."""
    told: list[str] = []

    def ours(number: int) -> int:
        return number + 1

    def theirs() -> None:
        pass

    before = replace_profiler(lambda frame, event, arg: told.append(frame.f_code.co_name))
    try:
        result = unseen(ours)(1)
        theirs()
    finally:
        before.resume()
    assert result == 2 and "ours" not in told and "theirs" in told
