"""First calls: how much Python the first call of a new function runs, where its kernels are kept already."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch

import vgraph
from vgraph.capture.guards import code_watch

_FUNCTIONS = """(
    lambda e: {"m": e.src["h"] * torch.tanh(e.dst["b"]), "s": (e.src["a"] * e.dst["b"]).sum(-1, keepdim=True)},
    lambda v: {"o": (torch.softmax(v.mailbox["s"], 1) * v.mailbox["m"]).sum(1)},
)"""
_MOST_CALLS = 52_000  # of Python 3.11 it takes 43,000; others have fewer frames for comprehensions, or as many


def _first_call(number: int) -> None:
    """Of functions that nobody has called."""
    graph = vgraph.rand_graph(20, 60)
    for name in "hab":
        graph.ndata[name] = torch.randn(20, 32, requires_grad=True)
    message, reduce = eval(compile("\n" * number + _FUNCTIONS, f"new{number}.py", "eval"), {"torch": torch})
    graph.update_all(message, reduce)
    graph.ndata["o"].sum().backward()


def _count_calls(run: Callable[[], object]) -> int:
    """The frames of Python that begin on this thread."""
    count = 0

    def note(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def test_a_first_call_runs_no_more_python_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock would tell less: what is done twice, or asked of each op by each stage, shows in the number of calls."""
    monkeypatch.setattr(code_watch, "replace_profiler", lambda by: SimpleNamespace(resume=lambda: None))
    _first_call(0)
    assert _count_calls(lambda: _first_call(1)) < _MOST_CALLS
