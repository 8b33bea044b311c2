"""Fetches begin as early as their sources are made, in one order everywhere, and end as late as they are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.partition.small_models import model_and_batch
from vgraph.api.dense.parallel import parallelize
from vgraph.ir.buffers import held_bytes, lifetimes, transit_bytes
from vgraph.ir.departures import early_departures, overlapped_bytes
from vgraph.ir.exchange import Fetch, ReplicaMean


@pytest.mark.parametrize(("name", "workers", "make"), [("block", 2, torch.optim.SGD), ("lstm", 4, torch.optim.Adagrad)])
def test_what_is_under_way_needs_no_more_memory(name: str, workers: int, make: Any) -> None:
    plan = parallelize(*model_and_batch(name), workers, optimizer=lambda p: make(p, lr=0.1))
    overlapped, late, orders = 0, 0, []
    for program in plan.parts.programs:
        found = early_departures(program, plan.parts.overwrites)
        told = held_bytes(program, lifetimes(program, plan.parts.overwrites))
        made = {value.id: position for position, op in enumerate(program.ops) for value in op.results}
        orders.append([])
        for position, op in enumerate(program.ops):
            if isinstance(op.target, Fetch) and op.target.exchange.num_bytes:
                begin, exchange, me = found.begins[position], op.target.exchange, op.target.worker
                orders[-1].append(exchange)
                if exchange.sent_bytes(me):
                    assert begin >= max(made.get(value.id, -1) for value in op.operands())
                made.update((value.id, max(position, found.ends[position] - 1)) for value in op.results)
                end = found.ends[position]
                assert not any(v in op.results for later in program.ops[position + 1 : end] for v in later.operands())
                for between in range(begin + 1, end):
                    told[between] += exchange.sent_bytes(me) + exchange.received_bytes(me) if between < position else 0
                    told[between] += transit_bytes(op) if between > position else 0
        assert all(more >= least for more, least in zip(found.held, told, strict=True))
        late += sum(end > position for position, end in found.ends.items())
        assert max(found.held) == max(held_bytes(program, lifetimes(program, plan.parts.overwrites)))
        assert list(found.begins) == sorted(found.begins) and list(found.begins.values()) == sorted(
            found.begins.values()
        )
        overlapped += overlapped_bytes(program, found)
    assert all(order == orders[0] for order in orders)
    assert late > 0
    assert 0 < overlapped == plan.overlapped_bytes <= plan.communicated_bytes


def test_fetches_wait_for_means_over_replicas() -> None:
    """Collectives of two groups keep their order: else two processes could each wait for the other's."""
    plan = parallelize(*model_and_batch("mlp"), 2, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), max_norm=0.5)
    form = plan._new_forms(has_replicas=True).first
    program = form.parts.programs[0]
    means = [position for position, op in enumerate(program.ops) if isinstance(op.target, ReplicaMean)]
    begins = early_departures(program, form.parts.overwrites).begins
    assert means and max(begins) > min(means)
    assert all(begin >= max((m for m in means if m < fetch), default=-1) for fetch, begin in begins.items())
