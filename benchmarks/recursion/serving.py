"""Serving: how long a graph waits where it joins the next run or frontier, and where a batch has to fill first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import torch
import tree_lstm

import vgraph


def capacity(task: tree_lstm.Task, xs: list[torch.Tensor]) -> float:
    """Trees a second that the server manages where all are there from the beginning."""
    with vgraph.serve(task.cell) as server:
        server.submit(task.graphs[0], x=xs[0]).result()
        start = time.perf_counter()
        for future in [server.submit(g, x=x) for g, x in zip(task.graphs, xs, strict=True)]:
            future.result()
        return len(xs) / (time.perf_counter() - start)


def latencies(hidden: int, batch: int, count: int, load: float) -> dict[str, float]:
    """Mean seconds from arrival to result; trees arrive at random times, ``load`` of what the server manages."""
    task = tree_lstm.Task(tree_lstm.make_trees(count), hidden)
    xs = [_embedded(task, i) for i in range(count)]
    rate = load * capacity(task, xs)
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / rate, count))
    return {
        "rate": rate,
        "whole, between runs": _mean(arrivals, _served(task, xs, None)),
        "between frontiers": _mean(arrivals, _served(task, xs, 0)),
        "full batches": _mean(arrivals, _batched(task, xs, batch, count)),
    }


def _embedded(task: tree_lstm.Task, number: int) -> torch.Tensor:
    words = task.graphs[number].ndata["word"]
    with torch.no_grad():
        return task.embed(words.clamp(min=0)) * (words >= 0).unsqueeze(1)


Run = Callable[[Callable[[int], None], list[float]], None]


def _mean(arrivals: np.ndarray, run: Run) -> float:
    done = [0.0] * len(arrivals)
    start = time.perf_counter()

    def wait(number: int) -> None:
        time.sleep(max(0.0, start + arrivals[number] - time.perf_counter()))

    run(wait, done)
    return float(np.mean([at - start - came for at, came in zip(done, arrivals, strict=True)]))


def _served(task: tree_lstm.Task, xs: list[torch.Tensor], whole: int | None) -> Run:
    def run(wait: Callable[[int], None], done: list[float]) -> None:
        with vgraph.serve(task.cell, whole=whole) as server:
            server.submit(task.graphs[0], x=xs[0]).result()  # captured before anybody waits
            wait(-len(done))
            for number, x in enumerate(xs):
                wait(number)
                future = server.submit(task.graphs[number], x=x)
                future.add_done_callback(lambda _, n=number: done.__setitem__(n, time.perf_counter()))

    return run


def _batched(task: tree_lstm.Task, xs: list[torch.Tensor], batch: int, count: int) -> Run:
    def run(wait: Callable[[int], None], done: list[float]) -> None:
        there = threading.Semaphore(0)

        def arrive() -> None:
            for number in range(count):
                wait(number)
                there.release()

        thread = threading.Thread(target=arrive)
        thread.start()
        with torch.no_grad():
            for first in range(0, count, batch):
                numbers = range(first, min(first + batch, count))
                for _ in numbers:
                    there.acquire()
                graph = vgraph.batch([task.graphs[i] for i in numbers])
                task.cell(graph, x=torch.cat([xs[i] for i in numbers]))
                for number in numbers:
                    done[number] = time.perf_counter()
        thread.join()

    return run
