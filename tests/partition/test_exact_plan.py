"""The exact plan is a plan: its program moves the bytes that the integer program counts; the search moves as few."""

from __future__ import annotations

import pytest

from tests.partition.exact_plan import exact_plan
from tests.partition.op_graphs import random_step
from vgraph.partition.accounting.account import account
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.partition.search.search import search


@pytest.mark.parametrize(("seed", "ways", "by_clusters"), [(15, 8, 149_240), (16, 2, 221_192), (17, 3, 500_752)])
def test_a_follower_may_read_its_operand_elsewhere(seed: int, ways: int, by_clusters: int) -> None:
    """By clusters alone, in which an op lies as the operand that it follows, these moved 3 to 50 % more."""
    step = random_step(seed)
    plan, found = exact_plan(step, ways), search(step, (ways,))
    moved = rewrite(step.program, plan).communicated_bytes
    assert moved == pytest.approx(account(step, plan).total_bytes)
    assert sum(found.step_bytes) == pytest.approx(account(step, found.plan).total_bytes) == pytest.approx(moved)
    assert moved < by_clusters
