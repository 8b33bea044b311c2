"""Bytes that lifetimes tell are those that the tensors of a run hold, op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.partition.small_models import model_and_batch
from vgraph.api.dense.parallel import Plan, parallelize
from vgraph.ir.buffers import held_bytes, lifetimes, transit_bytes
from vgraph.ir.program import Op
from vgraph.runtime.distributed import shards
from vgraph.runtime.distributed.in_process import scatter, serve
from vgraph.runtime.distributed.shards import run_worker


def storages(tensors: Any) -> int:
    """Bytes of all memory that some tensors lie in."""
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(found.values())


def run_watched(plan: Plan, batch: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Bytes that each worker holds after each op that is no fetch, before anything is freed."""
    parts = plan.parts
    given = plan.given(batch, {}, None, 0)
    layouts = zip(plan.step.program.inputs, parts.input_layouts, strict=True)
    inputs = [[part.clone() for part in scatter(given[i.value.id], layout)] for i, layout in layouts]
    mine = [[each[w] for each in inputs] for w in range(len(parts.programs))]
    held: list[list[int]] = [[] for _ in mine]
    active = 0

    def watching(evaluate: Callable[..., None]) -> Callable[..., None]:
        def wrapped(op: Op, env: dict[int, Tensor], device: Any = None) -> None:
            evaluate(op, env, device)
            held[active].append(storages([*env.values(), *mine[active]]))

        return wrapped

    monkeypatch.setattr(shards, "evaluate", watching(shards.evaluate))
    workers = [run_worker(p, i, None, parts.overwrites) for p, i in zip(parts.programs, mine, strict=True)]
    answers: list[Tensor | None] = [None] * len(workers)
    is_running = False
    while True:
        asked: list[Any] = []
        for active, worker in enumerate(workers):
            try:
                asked.append(worker.send([answers[active]]) if is_running else next(worker))
            except StopIteration:
                continue
            answers[active] = None
        if not asked:
            return held
        is_running = True
        own = [shard for _, shard in asked]
        for w, found in enumerate(serve(asked)):  # what lies in another worker's memory would be sent
            theirs = [s.untyped_storage().data_ptr() for i, s in enumerate(own) if s is not None and i != w]
            is_sent = found is not None and found.untyped_storage().data_ptr() in theirs
            answers[w] = found.clone() if is_sent and found is not None else found


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(("name", "make"), [("block", torch.optim.SGD), ("lstm", torch.optim.Adagrad)])
def test_a_run_holds_what_lifetimes_tell(name: str, make: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_and_batch(name)
    plan = parallelize(model, batch, workers, optimizer=lambda p: make(p, lr=0.1))
    held = run_watched(plan, batch, monkeypatch)
    totals = []
    for program, seen in zip(plan.parts.programs, held, strict=True):
        lives = lifetimes(program, plan.parts.overwrites)
        told = held_bytes(program, lives)
        totals.append(max(told))
        quiet = [
            amount - transit_bytes(op) for amount, op in zip(told, program.ops, strict=True)
            if not hasattr(op.target, "exchange")
        ]  # fmt: skip
        assert len(quiet) == len(seen)
        off = [(i, a, b) for i, (a, b) in enumerate(zip(quiet, seen, strict=True)) if a != b]
        assert not off
    assert plan.memory_per_worker == max(totals)


def test_updates_take_the_memory_of_what_they_update() -> None:
    model, batch = model_and_batch("block")
    plan = parallelize(model, batch, 2, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    program = plan.parts.programs[0]
    pairs = [pair for found in lifetimes(program, plan.parts.overwrites).overwritten.values() for pair in found]
    assert len(pairs) == len(plan.step.overwrites)
    apart, together = (max(held_bytes(program, lifetimes(program, o))) for o in ((), plan.parts.overwrites))
    assert together < apart
