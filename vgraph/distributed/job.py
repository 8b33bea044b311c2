"""Job: the processes that work on one graph, joined once.

Takes: a process group, or what torchrun tells in the environment. Gives: this process's rank. Runs once per process.
"""

from __future__ import annotations

from datetime import timedelta

from vgraph.errors import WorkerError
from vgraph.runtime.distributed.ranks import current_ranks


def init(timeout: float | timedelta | None = None) -> int:
    """Joins the processes of the job and gives this one's rank; alone, where no torchrun has started the program.

    A process group that the program, Ray Train or a scheduler has made is used as it is; else one is made from
    torchrun's environment. ``timeout``: how long a collective may take, in seconds or as a timedelta (30 minutes);
    whoever waits longer for a rank raises a WorkerError.

    Raises:
        WorkerError: a rank is lost; the timeout is not above 0.

    >>> import vgraph.distributed as vd
    >>> vd.init(timeout=120)
    0
    """
    if timeout is not None and not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    if timeout is not None and timeout <= timedelta(0):
        raise WorkerError(f"the timeout is {timeout.total_seconds():g} s", cure="give a number of seconds above 0")
    return current_ranks(timeout).rank


def rank() -> int:
    """This process's number, from 0."""
    return current_ranks().rank


def num_ranks() -> int:
    """The number of processes."""
    return current_ranks().size
