"""Placed time: seconds and memory of a step whose ops lie whole on workers, each worker taking what is ready.

Takes: an Account of operator placement, times of its ops. Gives: seconds, a Footprint. Runs once per plan.
Source: Tofu section 7.1 (operator placement: layers on devices in turn, time steps as a pipeline).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from vgraph.ir.sharding import At
from vgraph.ir.tdl.table import is_absent
from vgraph.partition.accounting.account import Account
from vgraph.partition.accounting.footprint import MOMENTS, Books, Footprint


def worker_of(book: Account, number: int) -> int:
    """The worker that runs an op."""
    where = book.plan.strategies[number][0].outputs[0]
    return where.worker if isinstance(where, At) else 0


def is_placed(book: Account) -> bool:
    """Whether the plan places ops instead of dividing them."""
    return any(isinstance(s.outputs[0], At) for row in book.plan.strategies for s in row if s.outputs)


def placed_seconds(book: Account, times: Sequence[float], copies: Sequence[float]) -> float:
    """A list schedule: a free worker takes the earliest op of the Program whose operands have arrived.

    In the order of the Program alone two layers on one worker would wait for each other's time steps.
    """
    ops, home = book.step.ops, {v.id: n for n, op in enumerate(book.step.ops) for v in op.results}
    before = [{home[v.id] for v in op.operands() if v.id in home} for op in ops]
    readers: list[list[int]] = [[] for _ in ops]
    for number, needed in enumerate(before):
        for other in needed:
            readers[other].append(number)
    missing = [len(needed) for needed in before]
    ready: list[list[int]] = [[] for _ in range(book.plan.num_workers)]
    is_free = [True] * book.plan.num_workers
    events = [(0.0, False, number) for number, count in enumerate(missing) if not count]
    heapq.heapify(events)
    now = 0.0
    while events:
        now, is_done, number = heapq.heappop(events)
        worker = worker_of(book, number)
        if is_done:
            is_free[worker] = True
            for reader in readers[number]:
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(events, (now + copies[reader], False, reader))
        else:
            heapq.heappush(ready[worker], number)
        if events and events[0][0] == now:
            continue  # all that becomes ready at this moment is looked at together
        for worker, waiting in enumerate(ready):
            if is_free[worker] and waiting:
                taken = heapq.heappop(waiting)
                is_free[worker] = False
                heapq.heappush(events, (now + times[taken], True, taken))
    return now


def placed_footprint(book: Account) -> Footprint:
    """The fullest worker: what lies there, what ops make there, and what they fetch."""
    books, count = Books(book), book.plan.num_workers
    state, change = np.zeros(count), np.zeros((count, books.end + 2))
    copies = np.zeros((count, books.end + 2))
    where: dict[int, int] = {}
    for given in book.step.program.inputs:
        at = book.homes[given.value.id][0]
        where[given.value.id] = at.worker if isinstance(at, At) else 0
        state[where[given.value.id]] += given.value.row_bytes
    readers: dict[tuple[int, int], list[int]] = {}
    for number, op in enumerate(book.step.ops):
        worker = worker_of(book, number)
        for value in op.operands():
            if where[value.id] != worker:
                readers.setdefault((value.id, worker), []).append(number)
        for value in op.results:
            where[value.id] = worker
            place = books.readings.number[value.id]
            if not is_absent(value) and books.base[place] == place:
                change[worker, number] += value.row_bytes
                change[worker, books.last[place] // MOMENTS + 1] -= value.row_bytes
    sizes = {v.id: v.row_bytes for op in book.step.ops for v in op.operands()}
    for (value, worker), numbers in readers.items():
        copies[worker, numbers[0]] += sizes[value]
        copies[worker, numbers[-1] + 1] -= sizes[value]
    made, fetched = np.cumsum(change, axis=1), np.cumsum(copies, axis=1)
    worker, at = divmod(int(np.argmax(state[:, None] + made + fetched)), books.end + 2)
    return Footprint(float(state[worker]), 0.0, float(made[worker, at]), float(fetched[worker, at]))
