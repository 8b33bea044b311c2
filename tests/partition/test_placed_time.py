"""Simulated operator placement: layers on workers are a pipeline over time steps."""

from __future__ import annotations

import pytest
import torch

from benchmarks.partitioning.comparison import operator_placement
from tests.partition.test_search import Recurrent, captured
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.footprint import whole_footprint
from vgraph.partition.accounting.machines import MACHINES, Machine
from vgraph.partition.accounting.simulate import simulate


def test_time_steps_overlap_and_a_worker_takes_what_is_ready() -> None:
    step = captured(Recurrent(64), torch.zeros(12, 32, 64))
    free = Machine("no transfers", 1e9, 1e15, 1e12, MACHINES["nvlink"].links, launch=0.0)
    book = account(step, operator_placement(step, 2))
    alone = simulate(account(step, operator_placement(step, 1)), free)
    both = simulate(book, free)
    assert alone.seconds == pytest.approx(alone.compute_seconds)
    assert alone.seconds / 2 <= both.seconds < 0.7 * alone.seconds
    assert both.memory.total < alone.memory.total
    assert alone.memory.total == pytest.approx(whole_footprint(step).total, rel=0.01)
