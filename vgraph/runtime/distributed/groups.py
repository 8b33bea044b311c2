"""Groups of processes: joined, held and left.

Takes: what torchrun, a scheduler or the program itself has made. Gives: groups for exchanges. Runs once per process.

torch holds every group, vgraph none of them: a ``Group`` is a weak reference, so that a group ends with its threads
where the program destroys it, and at exit where the program does not. A thread of Gloo's that lets go of a tensor
takes the interpreter's lock; in an interpreter that is already ending this would abort the process.

A program that fails may leave exchanges that no other process will ever answer, and a group waits for its exchanges
before it ends. A thread of its own therefore ends the groups at exit, and a failed program waits for it briefly.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from vgraph.errors import WorkerError

WAIT_OF_A_FAILED_PROGRAM = 2.0  # seconds
_OF_GLOO = ("gloo", "caused pair closure")  # errors name its files, or say that another exchange's timeout came first

_under_way: set[object] = set()  # exchanges that have begun and are not over
_ours: list[weakref.ref[Any]] = []  # groups that vgraph has made, the default one perhaps first


class Group:
    """A process group that torch holds."""

    def __init__(self, group: Any) -> None:
        self._found = weakref.ref(group)

    @property
    def is_default(self) -> bool:
        """Whether this is torch's default group now."""
        return dist.is_initialized() and self._found() is dist.group.WORLD

    @property
    def handle(self) -> Any:
        """The group, for torch's collectives; WorkerError: it was destroyed."""
        group = self._found()
        if group is None:
            raise WorkerError(
                "the process group of this exchange was destroyed",
                cure="make the graph, loader or worker again, after torch.distributed.init_process_group",
            )
        return group


def is_alone() -> bool:
    """Whether this process is the only one of its job, as far as the environment and torch know."""
    if os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
        return False
    return not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1


def join(num_workers: int, device: torch.device, timeout: timedelta) -> tuple[int, int]:
    """This process's rank and the number of processes; the default group is made where there is none."""
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        if "RANK" in os.environ:
            with lost_workers():
                dist.init_process_group(backend, timeout=timeout)
        elif num_workers == 1:
            dist.init_process_group(backend, timeout=timeout, store=dist.HashStore(), rank=0, world_size=1)
        else:
            raise WorkerError(
                f"the plan is for {num_workers} workers and this process is alone: torchrun did not start it",
                cure=f"start torchrun --nproc-per-node {num_workers} program.py, or use plan.run_in_process(*batch)",
            )
        _leave_at_exit(dist.group.WORLD)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size % num_workers:
        raise WorkerError(
            f"the plan is for {num_workers} workers and there are {size} processes",
            cure=f"start torchrun --nproc-per-node {num_workers}, or a multiple of it to add data parallelism",
        )
    return rank, size


def make_group(ranks: Sequence[int], timeout: timedelta | None, backend: str | None) -> Group | None:
    """A group of some ranks; every process of the job calls, also one that is not in it, which gets None."""
    made = dist.new_group(ranks, timeout=timeout, backend=backend)
    if made is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    _leave_at_exit(made)
    return Group(made)


def group_of_all(timeout: timedelta | None, backend: str) -> Group:
    """A group of all ranks, beside the default one."""
    made = make_group(list(range(dist.get_world_size())), timeout, backend)
    assert made is not None
    return made


def _leave_at_exit(group: Any) -> None:
    if not _ours:
        is_exit = threading.Event()
        leaver = threading.Thread(target=_leave, args=(is_exit,), name="vgraph: ends process groups", daemon=True)
        leaver.start()  # now: Python starts no thread at exit
        atexit.register(_await_leaving, leaver, is_exit)
    _ours.append(weakref.ref(group))


def _leave(is_exit: threading.Event) -> None:
    """Ends vgraph's groups at exit and waits for their threads; runs in a thread of its own."""
    is_exit.wait()
    for found in reversed(_ours):
        group = found()
        if group is not None:
            with contextlib.suppress(ValueError):  # the program has ended it itself
                dist.destroy_process_group(group)
        del group  # the last reference: the group's threads end here
    gc.collect()  # or that was one in a cycle


def _await_leaving(leaver: threading.Thread, is_exit: threading.Event) -> None:
    """Waits until the groups have ended, or only briefly where an exchange may wait for a process that is gone."""
    has_failed = bool(_under_way) or getattr(sys, "last_value", None) is not None
    is_exit.set()
    leaver.join(WAIT_OF_A_FAILED_PROGRAM if has_failed else None)


def begin(exchange: object) -> None:
    """An exchange goes on until ``end`` is called with the same object."""
    _under_way.add(exchange)


def end(exchange: object) -> None:
    """An exchange is over, or has failed."""
    _under_way.discard(exchange)


@contextmanager
def lost_workers() -> Generator[None]:
    """Turns what a backend says of a worker that is gone, or late, into an error with a cure.

    What vgraph sends is within one already; around a training loop it serves what others send, like
    ``DistributedDataParallel``.

    Yields:
        Nothing: what is within the block runs. Other errors pass as they are.

    Raises:
        WorkerError: a worker was lost.

    Source: PyTorch, ``torch.distributed.DistBackendError`` and Gloo's errors, which come without a cure.

    Example:
        >>> import vgraph.distributed as vd
        >>> with vd.lost_workers():
        ...     raise RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")
        Traceback (most recent call last):
        vgraph.errors.WorkerError: a worker was lost: ...
    """
    block = object()
    begin(block)
    try:
        yield
    except WorkerError:  # a RuntimeError that has been told already
        raise
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(word in str(error).lower() for word in _OF_GLOO):
            raise
        raise WorkerError(
            f"a worker was lost: {str(error).splitlines()[0]}",
            cure="start all workers again; a checkpoint that was saved before is whole: worker.load(path)",
        ) from error
    finally:
        end(block)
