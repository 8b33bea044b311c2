"""Job: the processes that work on one graph, joined once.

Takes: a process group, or what torchrun tells in the environment. Gives: this process's rank. Runs once per process.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

import torch
from torch import Tensor

from vgraph.arguments import SECONDS
from vgraph.errors import WorkerError
from vgraph.runtime.distributed.ranks import current_ranks


def init(timeout: float | timedelta | None = None) -> int:
    """Joins the processes of the job; alone, where no torchrun has started the program.

    A process group that the program, Ray Train or a scheduler has made is used as it is; else one is made from
    torchrun's environment. Called again with another timeout, it joins them anew.

    Args:
        timeout: how long a collective may take, in seconds or as a timedelta, before who waits raises a WorkerError;
            None: 30 minutes.

    Returns:
        This process's rank, from 0 up.

    Raises:
        ArgumentError: the timeout is no number above 0, or is longer than a year.
        WorkerError: a rank is lost; the timeout is a timedelta that is not above 0.

    Source: PyTorch, ``torch.distributed.init_process_group``.

    Example:
        >>> import vgraph.distributed as vd
        >>> vd.init(timeout=120)
        0
    """
    if timeout is not None and not isinstance(timeout, timedelta):
        SECONDS.check("init", "timeout", timeout)
        timeout = timedelta(seconds=float(timeout))
    if timeout is not None and timeout <= timedelta(0):
        raise WorkerError(f"the timeout is {timeout.total_seconds():g} s", cure="give a number of seconds above 0")
    return current_ranks(timeout).rank


def rank() -> int:
    """This process's number in the job.

    Returns:
        A number from 0 up; 0 where the process is alone.

    Raises:
        WorkerError: a rank is lost.

    Source: PyTorch, ``torch.distributed.get_rank``.

    Example:
        >>> import vgraph.distributed as vd
        >>> vd.rank()
        0
    """
    return current_ranks().rank


def num_ranks() -> int:
    """The number of processes in the job.

    Returns:
        A number from 1 up.

    Raises:
        WorkerError: a rank is lost.

    Source: PyTorch, ``torch.distributed.get_world_size``.

    Example:
        >>> import vgraph.distributed as vd
        >>> vd.num_ranks()
        1
    """
    return current_ranks().size


def barrier() -> None:
    """Waits for all ranks.

    Raises:
        WorkerError: a rank is lost.

    Source: MPI (MPI_Barrier).

    Example:
        >>> import vgraph.distributed as vd
        >>> vd.barrier()
    """
    current_ranks().barrier("barrier")


def agreed_seed() -> int:
    """A number that rank 0 draws by chance, the same on all ranks: a seed, or part of a name.

    Returns:
        A whole number from 0 to 2^62 - 1.

    Raises:
        WorkerError: a rank is lost.

    Source: MPI (MPI_Bcast).

    Example:
        >>> import vgraph.distributed as vd
        >>> 0 <= vd.agreed_seed() < 2**62
        True
    """
    drawn = torch.tensor(secrets.randbits(62), dtype=torch.int64)
    return int(current_ranks().of_first(drawn, "agreed seed"))


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all ranks, in order of ranks, on every rank: for few rows, as of a score. Without gradient.

    Args:
        rows: (own rows, ...), any number of them; of one shape and dtype on all ranks.

    Returns:
        (rows of all ranks, ...).

    Raises:
        WorkerError: a rank is lost.

    Source: MPI (MPI_Allgatherv).

    Example:
        >>> import torch, vgraph.distributed as vd
        >>> vd.gather_rows(torch.tensor([3.0, 4.0]))
        tensor([3., 4.])
    """
    ranks = current_ranks()
    own = rows.detach().contiguous()
    counts = ranks.gather(len(own), "gather sizes")
    sent = own.repeat(ranks.size, *(1,) * (own.ndim - 1))
    return ranks.all_to_all(sent, [len(own)] * ranks.size, counts, "gather rows")
