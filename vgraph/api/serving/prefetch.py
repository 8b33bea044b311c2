"""Prefetch: what tasks give, in their order, made ahead by threads.

Takes: a function, its arguments one after the other. Gives: its results. Runs at every step.
The threads are those of a pool, which the interpreter joins before it ends: a thread that it stopped within an
operator of torch would end the process by an abort.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Made = TypeVar("Made")


def prefetched(
    make: Callable[[Task], Made],
    tasks: Iterable[Task],
    num_workers: int,
    ahead: int,
    on_start: Callable[[], None] | None = None,
) -> Iterator[Made]:
    """What becomes of the tasks, in their order; while one is in use, ``ahead`` others are made.

    Without workers each is made when it is asked for. What ``make`` raises is raised here. A reader that stops early
    leaves at most one task a worker to be finished. ``on_start`` is called by each worker before its first task.
    A forked child has no workers: whatever comes next is made there when it is asked for.
    """
    if not num_workers:
        yield from map(make, tasks)
        return
    waiting, process = deque[tuple[Task, Future[Made] | None]](), os.getpid()

    def start(task: Task) -> None:
        waiting.append((task, pool.submit(make, task) if os.getpid() == process else None))

    def next_made() -> Made:
        task, future = waiting.popleft()
        return make(task) if future is None or os.getpid() != process else future.result()

    pool = ThreadPoolExecutor(num_workers, thread_name_prefix="vgraph-prefetch", initializer=on_start)
    try:
        for task in tasks:
            start(task)
            if len(waiting) > ahead:
                yield next_made()
        while waiting:
            yield next_made()
    finally:  # also where the reader stops early
        if os.getpid() == process:
            pool.shutdown(wait=False, cancel_futures=True)
