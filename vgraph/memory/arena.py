"""Arena: buffers of bytes that are kept from one step to the next.

Takes: a number of bytes and a device. Gives: a Lease on a buffer. Runs at every step.
Source: Cavs section 3.3 (memory of dynamic tensors, allocated once and reused).
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vgraph.errors import VGraphError
from vgraph.forks import held_by_forks

SMALLEST = 1 << 16  # bytes; below this a buffer of its own size saves nothing
_LARGE = 1 << 18  # bytes of a tensor from which on the system's fresh pages cost more than ours do to keep
_ALIGNMENT = 64
_LARGE_PAGE = 1 << 21  # bytes, on the processors that vgraph runs on
_WINDOW = 256  # times that memory is asked for, after which what was once in use begins to be forgotten
_LOOKS = 16  # rooms taken between two looks at all of them
Place: TypeAlias = tuple[torch.device, int]  # a device and, on a GPU, the stream that uses it
Bytes: TypeAlias = NDArray[np.uint8]


class ArenaMemoryError(VGraphError, MemoryError):
    """More bytes than the device has left."""


class Lease:
    """``buffer``, uint8 (bytes,), is nobody else's until ``release``, or until the Lease is freed.

    Views of it must not outlive the Lease.
    """

    def __init__(self, buffer: Tensor, give_back: Callable[[Tensor], None]) -> None:
        self.buffer = buffer
        self._give_back: Callable[[Tensor], None] | None = give_back

    def release(self) -> None:
        """Gives the buffer back now; a second time does nothing."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            buffer, self.buffer = self.buffer, _NOTHING
            give_back(buffer)

    def __del__(self) -> None:
        if self._give_back is not None and not sys.is_finalizing():
            self._give_back(self.buffer)


_NOTHING = torch.empty(0, dtype=torch.uint8, device="cpu")


@dataclass(eq=False)
class _Peak:
    """The most bytes in use at once of late: what was needed once is not kept for ever."""

    now: int = 0
    before: int = 0  # of the window before this one
    num_noted: int = 0

    def note(self, in_use: int) -> None:
        self.now, self.num_noted = max(self.now, in_use), self.num_noted + 1
        if self.num_noted == _WINDOW:
            self.before, self.now, self.num_noted = self.now, in_use, 0

    @property
    def bytes(self) -> int:
        return max(self.now, self.before)

    def forget(self, in_use: int) -> None:
        """Nothing more was ever in use."""
        self.now, self.before, self.num_noted = in_use, 0, 0


@dataclass(eq=False)
class _Shelf:
    """The buffers of one place: sizes of idle ones ascend."""

    idle: list[Tensor] = field(default_factory=list[Tensor])
    leased: int = 0
    peak: _Peak = field(default_factory=_Peak)

    def take(self, num_bytes: int) -> Tensor | None:
        """The smallest that fits."""
        fits = (i for i, buffer in enumerate(self.idle) if buffer.numel() >= num_bytes)
        index = next(fits, None)
        return None if index is None else self.idle.pop(index)

    def lend(self, buffer: Tensor) -> None:
        self.leased += buffer.numel()
        self.peak.note(self.leased)
        self.trim()

    def put(self, buffer: Tensor) -> None:
        self.leased -= buffer.numel()
        insort(self.idle, buffer, key=Tensor.numel)
        self.trim()

    def trim(self) -> None:
        """Idle and leased together are never more than was leased of late; small ones go first."""
        excess = self.leased + sum(map(Tensor.numel, self.idle)) - self.peak.bytes
        while excess > 0 and self.idle:
            excess -= self.idle.pop(0).numel()

    def replace(self, num_bytes: int) -> int:
        """Gives up the largest, which is too small; how large the one in its place should be."""
        grown = self.idle.pop().numel() * 3 // 2 if self.idle else 0
        return max(num_bytes, grown, SMALLEST)


class ArenaPool:
    """Buffers by device, shared by all threads.

    >>> pool = ArenaPool()
    >>> lease = pool.lease(1000, torch.device("cpu"))
    >>> lease.buffer.dtype, lease.buffer.numel() >= 1000
    (torch.uint8, True)
    >>> lease.release()
    """

    def __init__(self) -> None:
        self._lock = held_by_forks(threading.Lock())
        self._shelves: dict[Place, _Shelf] = {}
        # A lease may be freed by the garbage collector anywhere, even while this thread holds the
        # lock: what comes back is put here first, and sorted in by whoever can take the lock.
        self._returned: deque[tuple[_Shelf, Tensor]] = deque()
        self._rooms = _Rooms()

    def lease(self, num_bytes: int, device: torch.device) -> Lease:
        """At least ``num_bytes`` bytes that no other lease has; what they hold is arbitrary."""
        with self._lock:
            self._sort_in()
            place = _place(device)
            shelf = self._shelves.get(place)
            if shelf is None:
                shelf = self._shelves[place] = _Shelf()
            buffer = shelf.take(num_bytes)
            if buffer is None:
                buffer = _allocate(shelf, num_bytes, device)
            shelf.lend(buffer)
        self._settle()
        return Lease(buffer, lambda returned: self._give_back(shelf, returned))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """As ``torch.empty`` on the CPU; the memory of a large one is used again when its last view is freed.

        The system hands out fresh memory page by page and clears it, which takes longer than most of what is
        done with it. It is no view of another tensor, so that what a call gives may be written in place.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes < _LARGE:
            return torch.empty(shape, dtype=dtype, device="cpu")
        try:
            return torch.from_numpy(self._rooms.take(num_bytes)).view(dtype).view(*shape).data
        except MemoryError:
            return torch.empty(shape, dtype=dtype, device="cpu")  # or torch's own error

    def num_idle_bytes(self) -> int:
        """Bytes that are kept for later leases, on all devices."""
        self._settle()
        with self._lock:
            return sum(b.numel() for shelf in self._shelves.values() for b in shelf.idle)

    def release(self) -> int:
        """Gives idle memory back to the system and to torch; the number of its bytes."""
        with self._lock:
            self._sort_in()
            released = sum(b.numel() for shelf in self._shelves.values() for b in shelf.idle)
            for shelf in self._shelves.values():
                shelf.idle.clear()
                shelf.peak.forget(shelf.leased)
        return released + self._rooms.release()

    def _give_back(self, shelf: _Shelf, buffer: Tensor) -> None:
        self._returned.append((shelf, buffer))
        self._settle()

    def _settle(self) -> None:
        """Sorts in what has come back, but for where this thread may hold the lock: who does sorts it in later."""
        while self._returned and not self._lock.locked():
            with self._lock:  # not ``acquire``: Ctrl-C between that and a ``try`` would leave it held for ever
                self._sort_in()

    def _sort_in(self) -> None:
        while self._returned:
            shelf, buffer = self._returned.popleft()
            shelf.put(buffer)


@dataclass(eq=False)
class _Room:
    """Memory of one tensor; ``user`` is the array that torch holds for as long as any view lives."""

    bytes: Bytes
    user: Callable[[], Bytes | None]
    taken: int = 0  # when, counted in rooms taken


@dataclass(eq=False)
class _Rooms:
    """Who has left is found out when room is asked for. Smallest rooms first."""

    rooms: list[_Room] = field(default_factory=list[_Room])
    peak: _Peak = field(default_factory=_Peak)
    clock: Iterator[int] = field(default_factory=count)
    lock: threading.Lock = field(default_factory=lambda: held_by_forks(threading.Lock()))

    def take(self, num_bytes: int) -> Bytes:
        """Bytes that nobody uses, of a room not twice as large as need be."""
        with self.lock:
            for room in self.rooms:
                if num_bytes <= len(room.bytes) < 2 * num_bytes and room.user() is None:
                    break
            else:
                room = self._add(_rounded(num_bytes))
            found = room.bytes[:num_bytes]
            room.user, room.taken = weakref.ref(found), next(self.clock)
            if room.taken % _LOOKS == 0:  # now and then, since all rooms are looked at
                self._shrink(0)
            return found

    def release(self) -> int:
        """Gives up the rooms that nobody uses; the number of their bytes."""
        with self.lock:
            free = [room for room in self.rooms if room.user() is None]
            self.rooms = [room for room in self.rooms if room not in free]
            self.peak.forget(sum(len(room.bytes) for room in self.rooms))
            return sum(len(room.bytes) for room in free)

    def _add(self, num_bytes: int) -> _Room:
        """A new room."""
        made = _Room(_aligned_bytes(num_bytes), lambda: None)
        self._shrink(num_bytes)
        insort(self.rooms, made, key=lambda room: len(room.bytes))
        return made

    def _shrink(self, num_bytes: int) -> None:
        """Those longest idle go where there are half as many bytes again as were in use at once of late.

        Tensors of one step differ in size, so with no room to spare each step would ask for fresh memory.
        ``num_bytes``: of a room that is to come.
        """
        in_use = num_bytes + sum(len(room.bytes) for room in self.rooms if room.user() is not None)
        self.peak.note(in_use)
        excess = num_bytes + sum(len(room.bytes) for room in self.rooms) - self.peak.bytes * 3 // 2
        for room in sorted(self.rooms, key=lambda room: room.taken):
            if excess > 0 and room.user() is None:
                self.rooms.remove(room)
                excess -= len(room.bytes)


def _place(device: torch.device) -> Place:
    """Work queued on one stream may still use what was given back: no other stream gets it."""
    if device.type != "cuda":
        return device, 0
    stream = torch.cuda.current_stream(device)
    return stream.device, stream.cuda_stream


def _rounded(num_bytes: int) -> int:
    """One of eight sizes between powers of two, so that batches of about one size share buffers."""
    step = 1 << max(num_bytes.bit_length() - 4, 0)
    return -(-num_bytes // step) * step


def _allocate(shelf: _Shelf, num_bytes: int, device: torch.device) -> Tensor:
    """More than asked for where a buffer was outgrown; just that where more does not fit."""
    if num_bytes > most_bytes(device):  # the system may promise more than it has
        fact = f"{num_bytes:,} bytes for the values of one call do not fit in a memory of {most_bytes(device):,} bytes"
        raise ArenaMemoryError(fact, cure="pass a smaller batch of graphs")
    try:
        return _empty(shelf.replace(num_bytes), device)
    except (RuntimeError, MemoryError):
        shelf.idle.clear()
    try:
        return _empty(num_bytes, device)
    except (RuntimeError, MemoryError) as error:
        fact = f"{num_bytes:,} bytes for the values of one call do not fit in the memory of {device}"
        raise ArenaMemoryError(fact, cure="pass a smaller batch of graphs") from error


def most_bytes(device: torch.device) -> int:
    """All memory that the device has."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # where the system does not say
        return sys.maxsize


def _empty(num_bytes: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a buffer outlives the mode that it was first asked for in
        if device.type != "cpu":
            return torch.empty(num_bytes, dtype=torch.uint8, device=device)
        return torch.from_numpy(_aligned_bytes(num_bytes))


def _aligned_bytes(num_bytes: int) -> Bytes:
    """Fresh memory that begins with a line of the cache; from half a large page on, with a large page."""
    if num_bytes >= _LARGE_PAGE // 2 and sys.platform == "linux":
        return _large_pages(num_bytes)
    room = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + num_bytes]


def _large_pages(num_bytes: int) -> Bytes:
    """Memory in large pages, where the system has them: rows that edges read at random are then found sooner.

    It is mapped rather than allocated: what an allocator hands out again has the pages that it had before.
    """
    size = -(-num_bytes // _LARGE_PAGE) * _LARGE_PAGE
    try:
        mapped = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{num_bytes:,} bytes") from error
    with suppress(OSError):  # a kernel without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(mapped, np.uint8)
    start = -room.ctypes.data % _LARGE_PAGE
    return room[start : start + num_bytes]
