"""The loops of a reduction never keep more sums than the kernel has room for, whatever the layout."""

from __future__ import annotations

import math
import random

import pytest

from vgraph.ir.modes import virtual_modes
from vgraph.runtime.reductions.loops import Loops, plan_loops

RUN_BYTES = 8192  # vg_run_bytes in reduction.h


def num_sums(loops: Loops) -> int:
    """How many numbers ``vg_slice.sum`` writes into its memory at once."""
    steps = math.prod(m.size for m in loops.reduced)
    alone = -(-steps // loops.chunks) == 1
    if alone and loops.run and loops.run[-1].is_reduced:
        size = loops.run[-1].size
        if len(loops.run) == 1 or size > 8 or size % 2:  # vg_by_row: a sum a row
            return loops.length // size
    return loops.length


@pytest.mark.parametrize("sum_bytes", [4, 8])
@pytest.mark.parametrize("in_order", [False, True])
def test_sums_fit_their_memory(sum_bytes: int, in_order: bool) -> None:
    draw = random.Random(sum_bytes + in_order)
    sizes = [1, 2, 3, 4, 6, 8, 9, 16, 17, 64, 130, 300, 1024, 1025, 4000, 40000]
    for _ in range(5000):
        shape = [draw.choice(sizes[: 16 - 4 * rank]) for rank in range(draw.randint(1, 4))]
        draw.shuffle(shape)
        dims = [d for d in range(len(shape)) if draw.random() < 0.5]
        strides = [math.prod(shape[d + 1 :]) * sum_bytes for d in range(len(shape))]
        order = sorted(range(len(shape)), key=lambda _: draw.random()) if draw.random() < 0.3 else range(len(shape))
        modes = virtual_modes([shape[d] for d in order], dims, [[strides[d] for d in order]], in_order=in_order)
        loops = plan_loops(modes, 1, sum_bytes, in_order=in_order)
        assert num_sums(loops) * sum_bytes <= RUN_BYTES, (shape, dims, list(order), loops)
