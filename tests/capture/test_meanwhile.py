"""With ``VGRAPH_WAIT=0`` torch's operators serve until kernels are compiled, and kernels from then on."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, current_thread, main_thread

import pytest
import torch
from torch import Tensor

import vgraph
from vgraph import compiler
from vgraph.capture import capture
from vgraph.fusion.cpu.build import Compiled, find_compiler
from vgraph.runtime.autograd import Pair

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")


def step(g: vgraph.Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    g.ndata["h"] = x
    g.update_all(lambda e: {"m": torch.tanh(e.src["h"]) * e.dst["h"]}, lambda v: {"o": v.mailbox["m"].sum(1)})
    return g.ndata["o"].detach(), torch.autograd.grad(g.ndata["o"].square().sum(), x)[0]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """What ran, call by call."""
    seen: list[Pair] = []
    real = capture.Bound.pair

    def pair(bound: capture.Bound, *key: object) -> Pair:
        seen.append(real(bound, *key))
        return seen[-1]

    monkeypatch.setattr(capture.Bound, "pair", pair)
    monkeypatch.setenv("VGRAPH_WAIT", "0")
    monkeypatch.setenv("VGRAPH_KERNELS", "1")
    capture.forget()
    return seen


@pytest.mark.guards
def test_operators_serve_until_kernels_are_there(pairs: list[Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    go, build = Event(), compiler.build_kernels
    threads: list[bool] = []

    def slow(source: str, count: int) -> Sequence[Compiled] | None:
        threads.append(current_thread() is main_thread())
        assert go.wait(60)
        return build(source, count)

    monkeypatch.setattr(compiler, "build_kernels", slow)
    g, x = vgraph.graph(([0, 1, 2, 3], [1, 2, 3, 1])), torch.rand(4, 3, requires_grad=True)
    first = step(g, x)
    assert threads and not any(threads), "the caller compiles nothing itself"
    assert not pairs[0].forward.has_kernels and not pairs[0].backward.has_kernels
    (entry,) = (one for family in capture._families.values() for one in family.entries)
    assert len(entry.meanwhile.pending) == 1
    go.set()
    while entry.meanwhile.pending:
        entry.meanwhile.settle()
    second = step(g, x)
    assert pairs[-1].forward.has_kernels and pairs[-1].backward.has_kernels
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other)


def test_kept_kernels_are_waited_for(pairs: list[Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading takes moments, for which nothing serves in between."""
    monkeypatch.setattr("vgraph.capture.meanwhile.PATIENCE", 60)
    step(vgraph.graph(([0, 1], [1, 1])), torch.rand(2, 3, requires_grad=True))
    assert pairs[0].forward.has_kernels and pairs[0].backward.has_kernels
