"""Ranks: the processes of a job, and the collectives by which parts of a graph work together.

Takes: tensors of this process. Gives: tensors of others, or of all. Runs at every exchange.
Engine: torch.distributed, in whatever group torchrun, a scheduler or the program itself has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vgraph import config
from vgraph.errors import WorkerError
from vgraph.runtime.distributed.groups import Group, begin, end, group_of_all, join, lost_workers
from vgraph.runtime.distributed.waits import Waits

MOST_BYTES = 2**31 - 1  # elements that one all-to-all can count
_HEADER_BYTES = 512


class Ranks:
    """All processes of a job, in groups of their own: nothing of the program's own groups comes in between.

    ``sent_bytes`` counts what this process has sent to others by ``all_to_all``. With ``VGRAPH_CHECK_RANKS=1``
    every collective is announced first, and ranks that would make different ones raise a WorkerError.
    """

    def __init__(self, timeout: timedelta) -> None:
        self.rank, self.size = join(1, torch.device("cpu"), timeout)
        self.timeout, self.sent_bytes, self.num_collectives = timeout, 0, 0
        self.waits = Waits()
        self._world = Group(dist.group.WORLD)
        with lost_workers():
            self._of_cpu = group_of_all(timeout, "gloo")
            # connections are made at the first collective, which waits longer than any later one
            dist.barrier(group=self._group)
        self._of_gpus: Group | None = None
        if "nccl" in str(dist.get_backend()):  # pragma: no cover - needs GPUs
            self._of_gpus = group_of_all(timeout, "nccl")

    @property
    def is_current(self) -> bool:
        """Whether the group from which these were made is still there."""
        return self._world.is_default

    @property
    def _group(self) -> Any:
        return self._of_cpu.handle

    # ------------------------------------------------------------ collectives
    def all_to_all(self, given: Tensor, counts: Sequence[int], expected: Sequence[int], what: str) -> Tensor:
        """Rows for every rank, in order of ranks, against rows from every rank; in rounds, where they are many."""
        out = given.new_empty((sum(expected), *given.shape[1:]))
        return self.start_all_to_all(out, given, counts, expected, what=what).wait()

    def start_all_to_all(
        self, out: Tensor, given: Tensor, counts: Sequence[int], expected: Sequence[int], *, what: str
    ) -> Arriving:
        """The same while the program goes on; ``wait`` gives ``out``."""
        self.announce(what)
        self.sent_bytes += (given.shape[0] - counts[self.rank]) * _row_bytes(given)
        group = self._group_of(given)
        staged = given if group is not None else given.cpu()
        room = out if group is not None else torch.empty_like(out, device="cpu")
        with lost_workers():
            work = dist.all_to_all_single(
                room, staged, list(expected), list(counts), group=group or self._group, async_op=True
            )
        return Arriving(work, room, out, staged, self.waits)

    def sum(self, tensor: Tensor, what: str) -> Tensor:
        """The sum over ranks, as a new tensor."""
        return self._reduced(tensor, dist.ReduceOp.SUM, what)

    def max(self, tensor: Tensor, what: str) -> Tensor:
        """The largest over ranks, entry by entry, as a new tensor."""
        return self._reduced(tensor, dist.ReduceOp.MAX, what)

    def _reduced(self, tensor: Tensor, kind: Any, what: str) -> Tensor:
        self.announce(what)
        group = self._group_of(tensor)
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        total = total if group is not None else total.cpu()
        with lost_workers(), self.waits:
            dist.all_reduce(total, kind, group=group or self._group)
        return total.to(tensor.device)

    def of_first(self, tensor: Tensor, what: str) -> Tensor:
        """The tensor of rank 0, which lies on the CPU as this one does."""
        self.announce(what)
        found = tensor.clone()
        with lost_workers():
            dist.broadcast(found, group=self._group, group_src=0)
        return found

    def gather(self, number: int, what: str) -> list[int]:
        """A number of every rank."""
        every = torch.zeros(self.size, dtype=torch.int64, device="cpu")
        every[self.rank] = number
        return self.sum(every, what).tolist()

    def barrier(self, what: str) -> None:
        """Waits for all ranks."""
        self.announce(what)
        with lost_workers(), self.waits:
            dist.barrier(group=self._group)

    def step(self) -> None:
        """All ranks have come to the end of a step, such as a loss."""
        if self.size > 1:
            self.waits.step(self.rank, self.gather)

    def _group_of(self, tensor: Tensor) -> Any:
        """The group that moves tensors where this one lies; None: they are moved by way of the CPU."""
        if tensor.device.type == "cpu":
            return self._group
        return self._of_gpus and self._of_gpus.handle

    # ------------------------------------------------------------ checks
    def check_equal(self, number: int, fact: str, cure: str) -> None:
        """WorkerError: ranks do not have the same number."""
        pair = self.max(torch.tensor([number, -number], device="cpu"), "check_equal")
        if pair.tolist() != [number, -number]:
            raise WorkerError(fact, cure=cure)

    def announce(self, what: str) -> None:
        """Counts a collective; where ranks are checked, refuses one that others do not make now."""
        self.num_collectives += 1
        if not config.checks_ranks():
            return
        text = f"{self.num_collectives} {what}".encode()[:_HEADER_BYTES]
        mine = torch.zeros(_HEADER_BYTES, dtype=torch.uint8, device="cpu")
        mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        with lost_workers():
            dist.all_gather(every, mine, group=self._group)
        said = [bytes(one.tolist()).rstrip(b"\0").decode(errors="replace") for one in every]
        if len(set(said)) > 1:
            told = "; ".join(f"rank {rank}: {one}" for rank, one in enumerate(said))
            raise WorkerError(
                f"ranks are out of step: {told}",
                cure="call the same layers, functions and collectives in the same order on all ranks, "
                "also on one without edges or training vertices",
            )


class Arriving:
    """An exchange that is under way; what is sent stays as it is until it is over."""

    def __init__(self, work: Any, room: Tensor, out: Tensor, staged: Tensor, waits: Waits) -> None:
        self._work, self._room, self._out, self._staged, self._waits = work, room, out, staged, waits
        begin(work)

    def wait(self) -> Tensor:
        """What has arrived; WorkerError: a rank is lost, or too late."""
        try:
            with lost_workers(), self._waits:
                self._work.wait()
        finally:
            end(self._work)
        return self._out if self._room is self._out else self._out.copy_(self._room)


def _row_bytes(rows: Tensor) -> int:
    return rows.element_size() * rows.shape[1:].numel()


def rank_in_group() -> tuple[int, int] | None:
    """This process's rank in the group that the program has made, and how many there are; None: it has made none."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else None


_current: list[Ranks] = []


def current_ranks(timeout: timedelta | None = None) -> Ranks:
    """The ranks of this job, which are joined at the first call, and again where another ``timeout`` is asked for.

    Raises:
        WorkerError: a rank is lost.
    """
    is_new = not (_current and _current[0].is_current)
    if is_new or timeout not in (None, _current[0].timeout):
        _current[:] = [Ranks(timeout or timedelta(minutes=30))]
    return _current[0]
