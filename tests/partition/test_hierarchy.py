"""Steps of the recursion on a hierarchy of links: what moves least crosses hosts."""

from __future__ import annotations

import pytest
import torch

import vgraph
from tests.partition.test_search import Heads, Perceptron
from vgraph.api.dense.parallel import Plan
from vgraph.partition.accounting.machines import MACHINES, Link, Machine
from vgraph.partition.accounting.simulate import link_seconds
from vgraph.partition.search.fit import search_best

PAIRS = Machine("hosts of two", 1e12, 1e11, 2.0**34, (Link(2, 1e9, 1e-5), Link(1, 1e11, 1e-5)))


def crossing(plan: Plan, size: int) -> int:
    """Bytes between hosts of ``size`` workers, piece by piece of the generated program."""
    total = 0
    for exchange in plan.parts.exchanges:
        for receiver, pieces in enumerate(exchange.pieces):
            apart = sum(p.num_entries for p in pieces if p.source // size != receiver // size)
            total += apart * exchange.dtype.itemsize
    return total


def test_fewer_bytes_cross_hosts() -> None:
    """Whatever is moved in all, the busy time of the links is no longer than that of a plan made without them."""
    for model, inputs in [
        (Heads(), (torch.zeros(8, 16, 64),)),
        (Perceptron((256, 512, 256)), (torch.zeros(64, 256), torch.zeros(64, 256))),
    ]:
        plain = vgraph.parallelize(model, inputs, 8)
        aware = vgraph.parallelize(model, inputs, 8, machine=PAIRS)
        assert link_seconds(aware.book, PAIRS) <= link_seconds(plain.book, PAIRS)
        assert crossing(aware, 2) <= crossing(plain, 2)
        assert crossing(aware, 2) < aware.communicated_bytes
        torch.manual_seed(0)
        given = [torch.randn(x.shape) for x in inputs]
        torch.testing.assert_close(aware.run_in_process(*given).loss, model(*given).detach())


def test_the_first_steps_are_between_hosts() -> None:
    """Six workers in hosts of three: two hosts first, though three is the larger factor."""
    threes = Machine("hosts of three", 1e12, 1e11, 2.0**34, (Link(3, 1e8, 1e-5), Link(1, 1e11, 1e-5)))
    model, inputs = Perceptron((48, 96, 48)), (torch.zeros(96, 48), torch.zeros(96, 48))
    plan = vgraph.parallelize(model, inputs, 6, machine=threes)
    assert plan.sharding.axes[0] == 2
    assert vgraph.parallelize(model, inputs, 6).sharding.axes[0] != 2


def test_one_link_weighs_bytes_alike() -> None:
    model, inputs = Perceptron((64, 128, 64)), (torch.zeros(32, 64), torch.zeros(32, 64))
    step = vgraph.parallelize(model, inputs, 8).step
    plain, same = search_best(step, 8), search_best(step, 8, machine=MACHINES["nvlink"])
    assert plain.plan == same.plan


def test_an_unknown_machine() -> None:
    with pytest.raises(vgraph.VGraphError, match="no machine is called 'abacus'"):
        vgraph.parallelize(Perceptron((8, 8)), (torch.zeros(8, 8), torch.zeros(8, 8)), 2, machine="abacus")
