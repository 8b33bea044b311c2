"""Fetches in slices: the numbers of the whole, and no more memory than a plan tells while they travel."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vgraph
from benchmarks.partitioning.listed import listed
from vgraph.api.dense.parallel import Plan
from vgraph.api.dense.plan_file import load_plan, save_plan
from vgraph.ir.buffers import held_bytes, lifetimes
from vgraph.ir.exchange import MOST_SLICES
from vgraph.partition.accounting.account import account
from vgraph.partition.accounting.footprint import footprint, program_footprint
from vgraph.partition.rewrite.rewrite import rewrite
from vgraph.runtime.distributed.in_process import run_all, scatter
from vgraph.runtime.distributed.process_group import WorkerGroup


class Mailbox:
    """What threads that stand for processes have sent each other."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.sent: list[list[Tensor]] = [[] for _ in range(count)]


class Threaded(WorkerGroup):
    """A worker in a thread, whose all-to-all writes into the buffer of the receiver."""

    def __init__(self, rank: int, mailbox: Mailbox) -> None:
        super().__init__(rank, None, None, torch.device("cpu"))
        self.mailbox, self.overlaps = mailbox, False

    def _all_to_all(self, buffer: Tensor, packed: Tensor, expected: list[int], sizes: list[int]) -> Any:
        box, me = self.mailbox, self.rank
        box.sent[me] = list(packed.split(sizes))
        box.barrier.wait(20)
        self._receive(buffer, expected)
        box.barrier.wait(20)  # nobody holds what this one has sent
        box.sent[me] = []
        return Done()

    def _receive(self, buffer: Tensor, expected: list[int]) -> None:
        for part, sent in zip(buffer.split(expected), self.mailbox.sent, strict=True):
            part.copy_(sent[self.rank])


class Done:
    def wait(self) -> None:
        return None


class Watched(TorchDispatchMode):
    """The most bytes that tensors of this thread lay in at once, after any operator."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0
        self.note(inputs)

    def note(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.alive[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {at: entry for at, entry in self.alive.items() if not entry[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.note(tree_leaves(found))
        return found


def shards(plan: Plan, batch: tuple[Tensor, ...]) -> list[list[Tensor]]:
    given = plan.given(batch, {}, None, 0)
    layouts = zip(plan.step.program.inputs, plan.parts.input_layouts, strict=True)
    inputs = [[part.clone() for part in scatter(given[i.value.id], layout)] for i, layout in layouts]
    return [[each[w] for each in inputs] for w in range(plan.num_workers)]


def run_threads(plan: Plan, batch: tuple[Tensor, ...]) -> tuple[list[list[Tensor | None]], list[int]]:
    """What each worker gives in a thread of its own, and the most bytes that it held."""
    mailbox, inputs = Mailbox(plan.num_workers), shards(plan, batch)
    found: list[list[Tensor | None]] = [[] for _ in inputs]
    most = [0] * len(inputs)

    def work(rank: int) -> None:
        with torch.no_grad(), Watched(inputs[rank]) as watched:
            group = Threaded(rank, mailbox)
            found[rank] = group.run(plan.parts.programs[rank], inputs[rank], plan.parts.overwrites)
        most[rank] = watched.most

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, most


@pytest.mark.parametrize(("name", "workers"), [("perceptron", 8), ("CLIP", 8), ("Fourier operator", 8)])
def test_a_running_worker_holds_what_the_plan_tells(name: str, workers: int) -> None:
    """The tensors that are alive, those in transit among them; the books are a little above at most."""
    model, batch = listed(name)
    plan = vgraph.parallelize(model, batch, workers)
    assert any(exchange.slices > 1 for exchange in plan.parts.exchanges)
    found, most = run_threads(plan, batch)
    for mine, theirs in zip(found, run_all(plan.parts, shards(plan, batch)), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert (one is None) == (other is None)
            assert one is None or other is None or torch.equal(one, other)
    told = [max(held_bytes(p, lifetimes(p, plan.parts.overwrites))) for p in plan.parts.programs]
    for measured, by_program in zip(most, told, strict=True):
        assert 0.95 * by_program <= measured <= 1.02 * by_program
    assert plan.memory_per_worker == max(told)
    assert footprint(plan.book).total == pytest.approx(plan.memory_per_worker, rel=0.1)


def test_slices_hold_less_and_move_the_same() -> None:
    model, batch = listed("perceptron")
    plan = vgraph.parallelize(model, batch, 8)
    step, free = plan.step, replace(plan.sharding, room=None)
    whole = rewrite(step.program, free, None, step.overwrites)
    assert whole.communicated_bytes == plan.communicated_bytes
    assert plan.memory_per_worker < program_footprint(whole, step).total
    assert footprint(account(step, plan.sharding)).total < footprint(account(step, free)).total
    for one, other in zip(whole.exchanges, plan.parts.exchanges, strict=True):
        assert sum(part.num_bytes for part in other.parts) == one.num_bytes
        for part, worker in itertools.product(other.parts, range(8)):
            assert part.slices == 1
            assert part.received_bytes(worker) <= -(-one.received_bytes(worker) // other.slices) + 8 * 8 * 24


def test_what_has_no_order_of_its_own_is_not_sliced() -> None:
    """Terms of overlapping regions would be joined before the first is written."""
    model, batch = listed("perceptron")
    exchange = next(e for e in vgraph.parallelize(model, batch, 2).parts.exchanges if e.num_bytes)
    assert exchange.is_divisible
    pieces = tuple((*own, replace(own[0], region=own[0].slice(0, 2).region, term=1)) for own in exchange.pieces)  # type: ignore[union-attr]
    assert not replace(exchange, pieces=pieces).is_divisible
    assert not replace(exchange, fill=True).is_divisible


def test_a_short_dim_has_fewer_slices() -> None:
    model, batch = listed("perceptron")
    exchange = next(e for e in vgraph.parallelize(model, batch, 2).parts.exchanges if e.num_bytes)
    piece = exchange.pieces[0][0]
    short = replace(piece, region=tuple(entries.at(entries.one(0, 3)) for entries in piece.region))
    parts = [short.slice(which, MOST_SLICES) for which in range(MOST_SLICES)]
    assert sum(part.num_entries for part in parts if part is not None) == short.num_entries
    assert parts.count(None) == MOST_SLICES - 3
    scalar = replace(piece, region=())
    assert [scalar.slice(which, 2) for which in range(2)] == [scalar, None]


def test_a_saved_plan_knows_its_room(tmp_path: Any) -> None:
    model, batch = listed("perceptron")
    plan = vgraph.parallelize(model, batch, 8)
    assert plan.sharding.room is not None
    save_plan(tmp_path / "plan.json", plan.sharding, plan.step)
    assert load_plan(tmp_path / "plan.json", plan.step) == plan.sharding
    save_plan(tmp_path / "plan.json", replace(plan.sharding, room=-1.0), plan.step)
    with pytest.raises(vgraph.VGraphError, match=r"its room is -1\.0"):
        load_plan(tmp_path / "plan.json", plan.step)
