"""Process group: one worker of a PartitionedProgram in each process, exchanges over torch.distributed.

Takes: one worker's Program, its shards. Gives: its outputs, and the bytes it sent. Runs at every step.
Source: Tofu section 6 (MultiFetch), as one all-to-all with uneven parts an exchange, begun as early as memory allows;
where it is short, as several of a slice each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from vgraph.errors import CheckpointError, WorkerError
from vgraph.ir.buffers import Overwrites
from vgraph.ir.departures import Departures, early_departures
from vgraph.ir.exchange import Exchange
from vgraph.ir.program import Program
from vgraph.runtime.distributed.groups import Group, begin, end, lost_workers, make_group
from vgraph.runtime.distributed.shards import (
    assemble,
    cut,
    empty_region,
    expected,
    num_entries,
    put_pieces,
    run_with,
    sent_pieces,
    unpack,
)

_ROUNDING = 1e-2  # as of features in bfloat16


def _as_numbers(tensor: Tensor) -> Tensor:
    """What every backend sends: neither bools nor complex numbers."""
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8)
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


class WorkerGroup:
    """The workers of one replica, this process among them; counts what this process sends.

    ``peers``: the processes that are the same worker of other replicas. ``overlaps``: whether fetches travel while
    the worker computes; what is computed is the same.
    """

    def __init__(
        self, rank: int, group: Group | None, peers: Group | None, device: torch.device, *, is_first: bool = True
    ) -> None:
        self.rank, self.device = rank, device
        self._group, self._peers = group, peers
        self.is_first_replica = is_first
        self.sent_bytes = 0
        self.overlaps = True
        self._departures: WeakKeyDictionary[Program, Departures] = WeakKeyDictionary()

    @property
    def has_replicas(self) -> bool:
        return self._peers is not None

    @property
    def group(self) -> Any:
        """Torch's group of the replica's workers; None: the default one."""
        return self._group and self._group.handle

    @property
    def peers(self) -> Any:
        """Torch's group of the same worker of all replicas; None: there is one replica."""
        return self._peers and self._peers.handle

    def run(self, program: Program, inputs: Sequence[Tensor], overwrites: Overwrites = ()) -> list[Tensor | None]:
        """One step of this worker, which updates inputs in their own memory."""
        departures = self.departures_of(program, overwrites) if self.overlaps else None
        with lost_workers(), torch.autocast(self.device.type, enabled=False):  # casts are ops of the step
            return run_with(self, program, inputs, self.device, overwrites=overwrites, departures=departures)

    def departures_of(self, program: Program, overwrites: Overwrites = ()) -> Departures:
        """When each fetch of a Program begins and ends, so that its bytes travel while the worker computes."""
        if program not in self._departures:
            self._departures[program] = early_departures(program, overwrites)
        return self._departures[program]

    def exchange(self, exchange: Exchange, shard: Tensor | None) -> Tensor | None:
        """This worker's region of a value, of which ``shard`` is what it has."""
        with lost_workers():  # state is moved outside of steps, too
            if exchange.slices == 1:
                return self.finish(exchange, shard, self.start(exchange, shard))
            result = empty_region(exchange, self.rank, self.device)
            for part in exchange.parts:
                self._bring_slice(part, shard, result)
            return result

    def _bring_slice(self, part: Exchange, shard: Tensor | None, result: Tensor | None) -> None:
        """Nothing of it is left in transit when the next one begins."""
        coming = self.start(part, shard)
        data = unpack(part, self.rank, shard, coming.wait() if coming is not None else None)
        if result is not None:
            put_pieces(result, part, self.rank, data)

    def finish(self, exchange: Exchange, shard: Tensor | None, coming: Arriving | None) -> Tensor | None:
        """The region, when all of it has arrived."""
        come = coming.wait() if coming is not None else None
        return assemble(exchange, self.rank, unpack(exchange, self.rank, shard, come), self.device)

    def start(self, exchange: Exchange, shard: Tensor | None) -> Arriving | None:
        """Sends all pieces for other workers: packed flat, one part a receiver, in one all-to-all.

        They are copies, so that the shard's memory may be used again. None: the exchange moves nothing.
        """
        if not exchange.num_bytes:
            return None
        sizes = num_entries(sent_pieces(exchange, self.rank))
        packed, start = torch.empty(sum(sizes), dtype=exchange.dtype, device=self.device), 0
        for part in cut(exchange, self.rank, shard):
            packed[start : start + part.numel()].view(part.shape).copy_(part)
            start += part.numel()
        return self.send(exchange, packed)

    def send(self, exchange: Exchange, packed: Tensor) -> Arriving:
        """Sends what is packed, which stays as it is until all have answered."""
        self.sent_bytes += packed.numel() * packed.element_size()
        sizes = num_entries(sent_pieces(exchange, self.rank))
        counts = num_entries(expected(exchange, self.rank))
        buffer = torch.empty(sum(counts), dtype=exchange.dtype, device=self.device)
        return Arriving(self._all_to_all(buffer, packed, counts, sizes), packed, buffer)

    def _all_to_all(self, buffer: Tensor, packed: Tensor, expected: list[int], sizes: list[int]) -> _Work:
        work = dist.all_to_all_single(
            _as_numbers(buffer), _as_numbers(packed), expected, sizes, group=self.group, async_op=True
        )
        assert work is not None  # this process is one of the group
        return work

    def agree(self, tensor: Tensor, *, everywhere: bool = False) -> Tensor:
        """The tensor of the group's first worker, on every worker; ``everywhere``: of the first replica's, on all."""
        tensor = tensor.to(self.device)
        with lost_workers():
            dist.broadcast(tensor, group=self.group, group_src=0)
            if everywhere and self.has_replicas:
                dist.broadcast(tensor, group=self.peers, group_src=0)
        return tensor

    def from_first(self, tensor: Tensor) -> Tensor:
        """The tensor of the first process of all, on every worker of every replica."""
        tensor = tensor.to(self.device, copy=True, memory_format=torch.contiguous_format)
        with lost_workers():
            dist.broadcast(tensor, src=0)
        return tensor

    def check_equal(self, what: str, number: int, *, everywhere: bool = True) -> None:
        """Refuses to go on where processes do not hold the same ``what``, of which ``number`` is a digest.

        ``everywhere``: processes of all replicas are asked, else those of this one.

        Raises:
            WorkerError: some process has another number.
        """
        mine = torch.tensor([number, -number], device=self.device)
        with lost_workers():
            dist.all_reduce(mine, dist.ReduceOp.MIN, group=None if everywhere else self.group)
        if mine.tolist() != [number, -number]:
            raise WorkerError(
                f"the processes have made different {what}",
                cure="call parallelize with the same model, shapes and arguments in every process",
            )

    def check_batch(self, batch: Sequence[Tensor]) -> None:
        """Refuses a batch that is another on some worker of the replica; what differs by rounding is the same.

        Raises:
            WorkerError: it is another on some worker than on the first.
        """
        others = torch.zeros((), device=self.device)
        for tensor in batch:
            mine = _as_numbers(tensor.detach().to(self.device))
            first = self.agree(mine.clone(memory_format=torch.contiguous_format))
            within = _ROUNDING if mine.is_floating_point() else 0.0
            others += not torch.allclose(mine, first, rtol=within, atol=within, equal_nan=True)
        if self.total(others):
            raise WorkerError(
                "the workers were given different batches, of which each would take its part",
                cure="pass the same full batch in every process of a replica: from a DataLoader without "
                "DistributedSampler, shuffled by one seed",
            )

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over the workers of the replica."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of every element over the workers of the replica."""
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def _reduced(self, tensor: Tensor, reduction: dist.ReduceOp.RedOpType) -> Tensor:
        tensor = tensor.to(self.device)
        with lost_workers():
            dist.all_reduce(tensor, reduction, group=self.group)
        return tensor

    def mean(self, shard: Tensor | None) -> Tensor | None:
        """The mean over replicas, as a new tensor."""
        if shard is None:
            return None
        mean = shard.clone(memory_format=torch.contiguous_format)
        self.average([mean])
        return mean

    def average(self, tensors: Sequence[Tensor]) -> None:
        """The mean over replicas, in place."""
        with lost_workers():
            for tensor in tensors:
                dist.all_reduce(tensor, group=self.peers)
                tensor.div_(dist.get_world_size(self.peers))

    def barrier(self) -> None:
        """Waits for all processes."""
        with lost_workers():
            dist.barrier()


class _Work(Protocol):
    def wait(self) -> object: ...


class Arriving:
    """Bytes under way; both buffers stay until all workers that this one exchanges with have answered."""

    def __init__(self, work: _Work, packed: Tensor, buffer: Tensor) -> None:
        self._work, self._packed, self._buffer = work, packed, buffer
        begin(work)

    def wait(self) -> Tensor:
        """What has arrived, packed flat."""
        try:
            self._work.wait()
        finally:
            end(self._work)
        return self._buffer


def local_device(name: str | torch.device | None) -> torch.device:
    """The device of this process: the CPU unless one is named; "cuda" is the GPU of the process's local rank.

    Raises:
        WorkerError: there is no such device.
    """
    try:
        device = torch.device("cpu" if name is None else name)
    except (RuntimeError, TypeError, ValueError) as error:
        raise WorkerError(f"there is no device {name!r}", cure="name cpu, cuda or cuda:0") from error
    if device.type not in ("cpu", "cuda"):
        raise WorkerError(f"workers do not run on {device.type!r}", cure="name cpu, cuda or cuda:0")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        index = device.index if ":" in str(device) else int(os.environ.get("LOCAL_RANK", "0"))
        if index >= count:
            there = f"{count} are" if count else "no GPU is"
            raise WorkerError(
                f"this process would run on cuda:{index}: {there} visible to torch",
                cure="start as many processes on a host as it has GPUs, or launch on the CPU: plan.launch()",
            )
        device = torch.device("cuda", index)  # pragma: no cover - needs a GPU
        torch.cuda.set_device(device)  # pragma: no cover - needs a GPU
    return device


def replica_groups(num_workers: int, size: int) -> tuple[Group | None, Group | None]:
    """The group of this process's replica of the plan, and that of its peers in the other replicas."""
    if size == num_workers:
        return None, None
    mine = peers = None
    for start in range(0, size, num_workers):
        mine = make_group(list(range(start, start + num_workers)), None, None) or mine
    for place in range(num_workers):
        peers = make_group(list(range(place, size, num_workers)), None, None) or peers
    return mine, peers


# ---------------------------------------------------------------- checkpoints
def as_dtensor(local: Tensor, shape: Sequence[int], workers: WorkerGroup) -> DTensor:
    """A worker's chunk along the first dim as a DTensor; a tensor without dims is on every worker."""
    group: Any = workers.group or dist.group.WORLD
    mesh = DeviceMesh.from_group(group, workers.device.type)
    placement = Shard(0) if shape else Replicate()
    whole = torch.empty(tuple(shape), device="meta")
    return DTensor.from_local(local, mesh, [placement], run_check=False, shape=whole.shape, stride=whole.stride())


def own_chunk(tensor: Tensor, workers: WorkerGroup) -> Tensor | None:
    """This worker's part of what ``as_dtensor`` gave; None: it is another tensor."""
    if not isinstance(tensor, DTensor) or tensor.placements != ((Shard(0) if tensor.dim() else Replicate()),):
        return None
    ranks = dist.get_process_group_ranks(workers.group)
    return tensor.to_local() if tensor.device_mesh.mesh.flatten().tolist() == ranks else None


def whole_tensor(tensor: Tensor) -> Tensor:
    """A plain tensor as it is, a DTensor put together; all of its processes call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def save_sharded(state: Mapping[str, Any], path: Path, workers: WorkerGroup) -> None:
    """Writes a checkpoint beside its place and moves it there when it is whole."""
    partial, previous = path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.previous")
    with lost_workers():
        if workers.is_first_replica:
            if workers.rank == 0 and partial.exists():
                shutil.rmtree(partial)
            dist.barrier(group=workers.group)
            dcp.save(dict(state), checkpoint_id=partial, process_group=workers.group)
            dist.barrier(group=workers.group)
            if workers.rank == 0:
                _replace(partial, path, previous)
        dist.barrier()


def _replace(partial: Path, path: Path, previous: Path) -> None:
    if path.exists():  # else the one before is the only one, of a process that was lost here
        if previous.exists():
            shutil.rmtree(previous)
        path.rename(previous)
    partial.rename(path)
    if previous.exists():
        shutil.rmtree(previous)


def _place_of(path: Path) -> Path:
    """Where a checkpoint is: the one before, where a process was lost while it was replaced."""
    previous = path.with_name(f"{path.name}.previous")
    place = path if path.exists() else previous
    if not place.exists():
        raise CheckpointError(f"there is no checkpoint at {path}", cure="save one with worker.save(path)")
    return place


def saved_names(path: Path) -> frozenset[str]:
    """The names of all that a checkpoint holds, each after that of its part: ``optimizer.weight/exp_avg``.

    Raises:
        CheckpointError: there is none, or its index is damaged.
    """
    place = _place_of(path)
    try:
        return frozenset(dcp.FileSystemReader(place).read_metadata().state_dict_metadata)
    except Exception as error:  # torch unpickles it, which may end in anything
        fact = f"the checkpoint at {path} is damaged: its index cannot be read ({_told(error)})"
        raise CheckpointError(fact, cure="load another one, or train anew") from error


def _told(error: BaseException) -> str:
    """An error in one line; some have no words."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def load_sharded(state: dict[str, Any], path: Path, workers: WorkerGroup) -> None:
    """Fills the tensors of ``state`` from a checkpoint, whatever number of workers wrote it."""
    place = _place_of(path)
    try:
        with lost_workers():
            dcp.load(state, checkpoint_id=place, process_group=workers.group)
    except dcp.CheckpointException as error:
        first = next(iter(error.failures.values()))
        raise CheckpointError(
            f"the checkpoint at {path} does not fit: {_told(first[0])}",
            cure="load it into the model and optimizer that it was saved from",
        ) from error
