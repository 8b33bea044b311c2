"""Devices of different speeds: shares in proportion, none where a device only holds the others up."""

from __future__ import annotations

import pytest
import torch

import vgraph
from tests.partition.test_search import Perceptron
from vgraph.partition.search.unequal import busy, counts_to_try, shares_of


def test_shares_are_in_proportion() -> None:
    assert shares_of((1.0, 1.0, 1.0, 1.0), 4) == (1, 1, 1, 1)
    assert shares_of((3.0, 1.0), 4) == (3, 1)
    for count in range(1, 9):  # no other division ends sooner
        speeds = (2.0, 1.5, 0.5)
        others = [(a, b, count - a - b) for a in range(count + 1) for b in range(count + 1 - a)]
        assert busy(speeds, shares_of(speeds, count)) == min(busy(speeds, other) for other in others)
    assert 4 in counts_to_try((2.0, 1.0, 1.0))


def test_a_fast_device_has_more_and_a_slow_one_nothing() -> None:
    model, inputs = Perceptron((512, 1024, 512)), (torch.randn(512, 512), torch.randn(512, 512))
    plan = vgraph.parallelize(model, inputs, 3, speeds=(2e-3, 1e-3, 1e-3))  # slow, so that computing outweighs copies
    assert list(plan.devices) == sorted(plan.devices)
    assert plan.devices.count(0) == 2 * plan.devices.count(1) == 2 * plan.devices.count(2) == plan.num_workers // 2
    torch.testing.assert_close(plan.run_in_process(*inputs).loss, model(*inputs).detach())
    plan = vgraph.parallelize(model, inputs, 3, speeds=(1e-3, 1e-3, 1e-6))
    assert set(plan.devices) == {0, 1}


def test_a_small_step_takes_a_subset() -> None:
    """Copies of a step of microseconds cost more than they save."""
    model, inputs = Perceptron((8, 8)), (torch.zeros(8, 8), torch.zeros(8, 8))
    plan = vgraph.parallelize(model, inputs, 4, speeds=(1.0, 1.0, 1.0, 1.0))
    assert plan.num_workers < 4
    torch.testing.assert_close(plan.run_in_process(*inputs).loss, model(*inputs).detach())


def test_bad_speeds() -> None:
    model, inputs = Perceptron((8, 8)), (torch.zeros(8, 8), torch.zeros(8, 8))
    with pytest.raises(vgraph.VGraphError, match="2 speeds were given for 4 devices"):
        vgraph.parallelize(model, inputs, 4, speeds=(1.0, 2.0))
    with pytest.raises(vgraph.VGraphError, match=r"speeds=\(1.0, 0.0\)"):
        vgraph.parallelize(model, inputs, 2, speeds=(1.0, 0.0))
