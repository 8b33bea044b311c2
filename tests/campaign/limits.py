"""Small limits: what the library does on large graphs, with wide rows or in long functions, on small ones.

Takes: a random number generator. Gives: a context in which some of the library's limits are others. Results are the
same whatever a limit is, up to roundings.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from unittest import mock

LIMITS: dict[str, Sequence[int]] = {  # what a limit may be, by its place in the library
    "fusion.cpu.edge_blocks.EDGES_IN_MEMORY": (1, 3),
    "fusion.cpu.edge_blocks.MOST_EDGES": (1, 3),
    "fusion.cpu.target._MOST_REGISTERS": (0, 100),
    "fusion.cpu.target._MOST_SHORT": (0, 100),
    "fusion.cpu.vectors._MOST_AT_ONCE": (0, 1),
    "fusion.cpu.vectors._MOST_ROWS": (1, 2),
    "fusion.grouping._MOST_FEATURES": (8, 64),
    "fusion.grouping._MOST_OPS": (3, 8),
    "fusion.handed_over._LINE": (1,),
    "fusion.handed_over._TIMES_AS_DEAR": (0, 10_000),
    "fusion.scratch._MOST_ON_STACK": (64, 512),
    "fusion.stages._MOST_KEPT": (0, 200),
    "ir.kernel._ROWS_OF_A_SUM": (1, 3),
    "ir.row_ops._MOST_COLUMNS": (4,),
    "ir.row_ops._MOST_ROWS": (4,),
    "ir.row_ops._MOST_WEIGHTS": (8, 64),
    "ir.row_tiles._MOST_OPS": (1, 10_000),
    "memory.arena._LARGE": (1, 64),
    "memory.row_order._MANY": (1,),
    "passes.factors.MOST_FACTORS": (2,),
    "passes.hoist._MOST_TERMS": (1, 2),
    "passes.join_once._MOST_PIECES": (2, 3),
    "passes.linear_sums._MOST_NUMBERS": (2, 10_000),
    "passes.linear_sums._MOST_TERMS": (1,),
    "runtime.autograd._MOST_HELD": (0,),
    "runtime.compiled.MOST_BYTES": (128, 1024),
    "runtime.cpu.kernels.MOST_OWN": (0, 64),
    "runtime.cpu.kernels._EDGES_A_COPY": (0,),
    "runtime.cpu.kernels._EDGES_A_ROW": (0,),
    "runtime.cpu.kernels._MOST_CACHED": (0,),
    "runtime.cpu.kernels._MOST_WHOLE": (0,),
    "runtime.cpu.native.FEW": (0,),
    "runtime.cpu.native.SMALL": (0,),
    "runtime.moved_rows._LEAST": (1,),
    "runtime.moved_rows._MANY_ROWS": (1,),
}


@contextmanager
def small_limits(
    draw: random.Random, part: float, always: Mapping[str, int] | None = None
) -> Generator[dict[str, int]]:
    """That part of the limits, by chance, are others while it lasts, and those of ``always``; what they are."""
    chosen = {name: draw.choice(values) for name, values in LIMITS.items() if draw.random() < part}
    chosen |= always or {}
    with ExitStack() as after:
        # a kept kernel is found by what it computes, and not by these numbers
        after.enter_context(mock.patch("vgraph.fusion.cpu.known_specs._note_of", lambda specs: None))
        for name, number in chosen.items():
            module, _, limit = name.rpartition(".")
            after.enter_context(mock.patch.object(import_module(f"vgraph.{module}"), limit, number))
        yield chosen
