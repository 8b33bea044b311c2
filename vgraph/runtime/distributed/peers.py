"""Peers: one process of every other machine, with which a process exchanges ids and rows of any number.

Takes: tensors by machine. Gives: tensors of other machines. Runs at every round of sampling, in a thread of its own.
Process i of a machine meets processes i of the others alone, so that there are as many connections as machines.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from vgraph.errors import WorkerError
from vgraph.runtime.distributed.groups import Group, lost_workers, make_group
from vgraph.runtime.distributed.ranks import Ranks

MOST_BYTES = 2**31 - 1  # that one all-to-all can count


@dataclass(frozen=True)
class Machines:
    """Which ranks each machine has; ranks and machines are in one order."""

    ranks: tuple[tuple[int, ...], ...]

    def of(self, rank: int) -> int:
        """The machine of a rank."""
        return next(i for i, members in enumerate(self.ranks) if rank in members)


def find_machines(ranks: Ranks) -> Machines:
    """The machines of a job: torchrun's nodes, else hosts; all ranks call.

    Raises:
        WorkerError: ranks of one machine do not follow one another.
    """
    agent = os.environ.get("GROUP_RANK")
    number = int(agent) if agent else int(sha256(socket.gethostname().encode()).hexdigest()[:12], 16)
    numbers = ranks.gather(number, "machines")
    members = {one: tuple(r for r, other in enumerate(numbers) if other == one) for one in dict.fromkeys(numbers)}
    for own in members.values():
        if own[-1] - own[0] + 1 != len(own):
            raise WorkerError(
                f"ranks {', '.join(map(str, own))} are on one machine, and others are between them",
                cure="number the ranks machine by machine, as torchrun does",
            )
    return Machines(tuple(members.values()))


class Peers:
    """The processes that this one exchanges with, in a group of their own; all ranks make one at the same time.

    ``places``: for every machine, the place in the group of the process there that serves this one.
    ``sent_bytes`` counts what went to others.
    """

    def __init__(self, ranks: Ranks, machines: Machines) -> None:
        self.machine, self.num_machines = machines.of(ranks.rank), len(machines.ranks)
        self.sent_bytes = 0
        members = [ranks.rank]
        self._own: Group | None = None
        if self.num_machines > 1:
            local = machines.ranks[self.machine].index(ranks.rank)
            for group in _groups(machines):
                made = make_group(group, ranks.timeout, "gloo")
                if made is not None:
                    self._own, members = made, group
            with lost_workers():  # connections are made at the first collective, which waits longer than any later one
                dist.barrier(group=self._group)
            self.places = [members.index(own[local % len(own)]) for own in machines.ranks]
        else:
            self.places = [0]
        self.size, self.place = len(members), members.index(ranks.rank)
        self._rooms: dict[str, Tensor] = {}

    def room(self, name: str, num_bytes: int) -> Tensor:
        """So many bytes, in which the last round's were under this name: the system clears pages of new memory."""
        if len(self._rooms.get(name, ())) < num_bytes:
            self._rooms[name] = torch.empty(num_bytes + num_bytes // 8, dtype=torch.uint8, device="cpu")
        return self._rooms[name][:num_bytes] if num_bytes else torch.empty(0, dtype=torch.uint8, device="cpu")

    @property
    def _group(self) -> Any:
        return self._own and self._own.handle

    def swap_counts(self, counts: Tensor) -> Tensor:
        """A row of numbers for every member of the group, against one of every member: (size, n)."""
        return self.swap(counts, [1] * self.size, [1] * self.size)

    def swap(self, given: Tensor, counts: Sequence[int], expected: Sequence[int], out: Tensor | None = None) -> Tensor:
        """Rows for every member, against rows of every member, which lie in ``out`` if it is given."""
        if self.size == 1:
            return given
        found = given.new_empty((sum(expected), *given.shape[1:])) if out is None else out
        self.sent_bytes += (given.shape[0] - counts[self.place]) * given.element_size() * given.shape[1:].numel()
        with lost_workers():
            dist.all_to_all_single(found, given.contiguous(), list(expected), list(counts), group=self._group)
        return found

    def swap_bytes(self, given: Tensor, counts: Sequence[int], expected: Sequence[int]) -> Tensor:
        """As ``swap``, of any number of bytes, in as many rounds as somebody needs; what comes is gone at the next."""
        if self.size == 1:
            return given
        most = torch.tensor(max(sum(counts), sum(expected)), device="cpu")
        with lost_workers():
            dist.all_reduce(most, dist.ReduceOp.MAX, group=self._group)
        rounds = max(1, -(-int(most) // (MOST_BYTES - self.size)))
        found = self.room("come", sum(expected))
        if rounds == 1:
            return self.swap(given, counts, expected, found)
        sources = given.split(list(counts))
        into = found.split(list(expected))
        for index in range(rounds):
            mine, theirs = (_stretches(sizes, index, rounds) for sizes in (counts, expected))
            part = torch.cat([source[a:b] for source, (a, b) in zip(sources, mine, strict=True)])
            sizes, expecting = ([b - a for a, b in stretches] for stretches in (mine, theirs))
            arrived = self.swap(part, sizes, expecting).split(expecting)
            for place, (a, b), rows in zip(into, theirs, arrived, strict=True):
                place[a:b] = rows
        return found


def _groups(machines: Machines) -> list[list[int]]:
    """Processes of the same place on every machine; all processes, where machines have different numbers."""
    sizes = {len(own) for own in machines.ranks}
    if len(sizes) > 1:
        return [[rank for own in machines.ranks for rank in own]]
    return [[own[i] for own in machines.ranks] for i in range(sizes.pop())]


def _stretches(sizes: Sequence[int], index: int, rounds: int) -> list[tuple[int, int]]:
    return [(size * index // rounds, size * (index + 1) // rounds) for size in sizes]
