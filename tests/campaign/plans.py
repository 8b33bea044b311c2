"""Plans of random op graphs beside the exact optimum of the same ops and strategies; one step for 2 to 8 workers."""

from __future__ import annotations

from tests.partition.exact_plan import exact_plan
from tests.partition.op_graphs import random_step
from vgraph.partition.accounting.account import account
from vgraph.partition.search.search import search

FULL_COUNT = 500
SHORT_COUNT = 12
WORKERS = (2, 3, 4, 8)


def run(count: int, seed: int) -> list[str]:
    return [failure for case in range(seed, seed + count) if (failure := _case(case)) is not None]


def _case(seed: int) -> str | None:
    step, ways = random_step(seed), WORKERS[seed % len(WORKERS)]
    least = account(step, exact_plan(step, ways)).total_bytes
    found = account(step, search(step, (ways,)).plan).total_bytes
    if found <= least * (1 + 1e-9):
        return None
    return f"seed {seed}: {ways} workers move {found:.0f} bytes, the optimum of {len(step.ops)} ops is {least:.0f}"
