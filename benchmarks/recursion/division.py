"""Where a step's time goes: construction, memory operations, computation (Cavs, figure 9, tables 1 and 2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import vgraph
from recursion.workload import Step
from vgraph import compiler
from vgraph.runtime import compiled, extent
from vgraph.runtime.cpu.frontier_loop import FrontierLoop
from vgraph.runtime.cpu.kernels import CpuKernel
from vgraph.runtime.cpu.native import Native

MOVES = "gather_src gather_dst gather_graph gather_subset reduce_dst reduce_src reduce_graph reduce_subset inner_rows"
ROWS = compiled.CallRows  # pyright: ignore[reportPrivateUsage]
PARTS: dict[str, list[tuple[Any, str]]] = {
    "construction": [(vgraph, "batch"), (compiler, "_make_plan"), (ROWS, "_make_extents")],
    "memory operations": [(ROWS, "bring_in"), (ROWS, "bring_out"), *((extent.Extent, m) for m in MOVES.split())],
    "loops over frontiers": [(FrontierLoop, "run")],
    "kernels and products once": [(Native, "multiply"), (CpuKernel, "run")],
}
REST = "the rest"


class Span(NamedTuple):
    """A stretch of one step, in seconds from its beginning."""

    part: str
    start: float
    stop: float


def spans(step: Step) -> tuple[list[Span], float]:
    """What a step does when, outermost stretches alone, and its seconds."""
    found, depth = list[Span](), [0]

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start, depth[0] = time.perf_counter(), depth[0] + 1
            try:
                return function(*given, **named)
            finally:
                depth[0] -= 1
                if not depth[0]:
                    found.append(Span(part, start - begin, time.perf_counter() - begin))

        return call

    with ExitStack() as stack:
        for part, places in PARTS.items():
            for owner, name in places:
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        begin = time.perf_counter()
        step()
        total = time.perf_counter() - begin
    return found, total


def divide(step: Step, repeats: int) -> dict[str, float]:
    """Seconds of the best of several steps in each part; the rest is autograd, the loss, the optimizer, Python."""
    step()
    found, total = min((spans(step) for _ in range(repeats)), key=lambda one: one[1])
    spent = {part: sum(s.stop - s.start for s in found if s.part == part) for part in PARTS}
    return spent | {REST: total - sum(spent.values())}


@contextmanager
def stopwatch(spent: list[float]) -> Iterator[None]:
    """Adds the seconds of a block to a list of one number."""
    start = time.perf_counter()
    yield
    spent[0] += time.perf_counter() - start


def divide_peer(step: Step, repeats: int) -> dict[str, float]:
    """The same of a step that says itself what it spends on construction, as ``step.construction``."""
    spent: list[float] = step.construction  # type: ignore[attr-defined]
    step()
    best = {"construction": 0.0, REST: float("inf")}
    for _ in range(repeats):
        spent[0] = 0.0
        start = time.perf_counter()
        step()
        total = time.perf_counter() - start
        if total < sum(best.values()):
            best = {"construction": spent[0], REST: total - spent[0]}
    return best
