"""Where a step's time goes: construction, memory operations, loops, products that run once, the rest (figure 9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import vgraph
from recursion.workload import Step
from vgraph import compiler
from vgraph.runtime import compiled
from vgraph.runtime.frontier_loop import FrontierLoop
from vgraph.runtime.native import Native

PARTS: dict[str, list[tuple[Any, str]]] = {
    "construction": [(vgraph, "batch"), (compiler, "_make_plan")],
    "memory operations": [(compiled._Rows, "bring_in"), (compiled._Rows, "bring_out")],  # pyright: ignore[reportPrivateUsage]
    "loops over frontiers": [(FrontierLoop, "run")],
    "products once": [(Native, "multiply")],
}


def divide(step: Step, repeats: int) -> dict[str, float]:
    """Seconds a step in each part; what is not in any of them is computation outside of loops, and Python."""
    spent = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                spent[part] += time.perf_counter() - start

        return call

    step()
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for owner, name in places:
                if hasattr(owner, name):
                    stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        total = time.perf_counter() - start
    rest = total - sum(spent.values())
    return {name: seconds / repeats for name, seconds in (spent | {"rest": rest}).items()}
