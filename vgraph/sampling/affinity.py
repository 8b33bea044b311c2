"""Affinity: which cores the threads of a loader and the thread of the program run on.

Takes: cores, how many workers there are. Gives: threads bound to cores within a block. Runs once per training.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import torch

from vgraph.errors import FunctionError


def divided(
    num_workers: int, loader: Sequence[int] | None, compute: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """The cores of the workers, one each, and those of the program: of those that this process may use.

    Raises:
        FunctionError: there are no workers, another number of cores for them, too few cores, or the system binds none.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise FunctionError("this system binds no thread to a core", cure="leave enable_cpu_affinity out")
    if num_workers < 1:
        raise FunctionError("the loader has no workers to give cores to", cure="pass num_workers=1 or more")
    if loader and len(loader) != num_workers:
        fact = f"loader_cores has {len(loader)} cores for {num_workers} workers"
        raise FunctionError(fact, cure="give one core a worker")
    free = sorted(os.sched_getaffinity(0))
    given = [core for core in free if core not in (compute or ())]
    own = list(loader or given[:num_workers])
    rest = list(compute or [core for core in free if core not in own])
    if len(own) < num_workers or not rest:
        fact = f"{num_workers} workers and the program do not fit on {len(free)} cores"
        raise FunctionError(fact, cure="pass fewer workers than there are cores")
    return own, rest


def binder(cores: Sequence[int]) -> Callable[[], None]:
    """What each worker calls when it starts: the next one is bound to the next core."""
    turns = itertools.cycle(cores)

    def bind() -> None:
        os.sched_setaffinity(0, {next(turns)})  # 0: the calling thread

    return bind


@contextmanager
def program_on(cores: Sequence[int]) -> Generator[None]:
    """The program's thread on these cores, with as many threads of torch, until the block ends."""
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)
