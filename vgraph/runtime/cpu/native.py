"""Native: the compiled part that all functions share: matrix products, the loop over frontiers, the order of rows.

Takes: functions of one array of numbers. Gives: products written in place. Runs at every step.
Source: Goto and van de Geijn 2008 (blocks and panels of a product); KERNELS, "Frontier cell".
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vgraph_kernels
from vgraph.ir.program import Op, op_name
from vgraph.ir.schedule import LOOK_AHEAD, Bounds, Leveled, RowOrder, room_for_rows
from vgraph.ir.topology import Topology
from vgraph.runtime.cpu.kernels import MOST_OWN, Empty, no_memory, pool_address, torch_empty
from vgraph.runtime.cpu.sorted_rows import GroupedEdges, SortedRows, places_in, room_for

Function = Callable[[int], int]  # of the address of an array of numbers; whether there was no memory
FLOATS = (torch.float32, torch.float64)
_EXPORTS = (
    "vg_frontiers", "vg_bind", "vg_pack_matrices", "vg_product", "vg_tall_product", "vg_packed_bytes", "vg_sort_rows",
    "vg_bounds", "vg_plan_rows", "vg_take_members", "vg_take_rows", "vg_sort_edges", "vg_group_numbers", "vg_checksum",
    "vg_use_tiles",
)  # fmt: skip
_HEADERS = ("frontiers.h", "tall.h", "rows.h")
_TILES = tuple(
    f'#include "tiles.h"\nextern "C" int64_t kernel0(const int64_t* a) {{ return vg_multiply_block<{kind}>(a); }}'
    for kind in ("float", "double")
)
SMALL = 1 << 16  # flops below which torch's own call costs as little
TALL, MOST_ENTRIES = 1 << 14, 1 << 14  # depth from which, entries up to which, ranges of depth have sums of their own
MOST_PACKED = 31  # matrices in one call
MOST_KEPT = 1 << 23  # bytes of room that a thread keeps
_EdgeWords = ctypes.c_int64 * 15
FEW = 4  # rows for which packing the matrix costs more than it gains


class ChoosesProducts(Protocol):
    """Says of each product whether it is made here; see ``products.py``."""

    def __call__(self, native: Native, a: Tensor, b: Tensor, ids: Tensor | None) -> bool: ...
    def told(self, dtype: torch.dtype, sizes: tuple[int, int, int], *, of_rows: bool) -> str: ...


@dataclass(frozen=True, eq=False)
class Native:
    """The functions of ``frontiers.h`` and ``rows.h`` in ``vgraph_kernels`` as loaded: see there for arguments."""

    frontiers: Function
    bind: Function
    pack_matrices: Function
    product: Function
    tall_product: Function
    packed_bytes: Function
    sort_rows: Function
    find_bounds: Function
    plan_rows: Function
    members: Function
    move_rows: Function
    sort_edges: Function
    group_numbers: Function
    sum_bytes: Function
    use_tiles: Function
    multiplies: bool = True  # whether products of phases that run once may be made here
    choose: ChoosesProducts | None = None  # which of them; None: all
    empty: Empty = torch_empty

    @cached_property
    def _room(self) -> threading.local:
        return threading.local()

    def packed_bytes_of(self, num_columns: int, itemsize: int, depth: int = 0) -> int:
        """Bytes that a row of so many columns takes when packed; or the room for a product of some depth."""
        numbers = (ctypes.c_int64 * 3)(itemsize, num_columns, depth)
        self.packed_bytes(ctypes.addressof(numbers))
        return numbers[0]

    def pack(self, matrices: Sequence[Tensor], places: Sequence[int]) -> None:
        """Matrices (k, n) as the loop's products read them, each to its address; see ``packed_bytes_of``."""
        for first in range(0, len(matrices), MOST_PACKED):
            some, words = matrices[first : first + MOST_PACKED], list[int]()
            for matrix, place in zip(some, places[first:], strict=False):
                words += [matrix.element_size(), *matrix.shape, matrix.data_ptr(), *matrix.stride(), place]
            call(self.pack_matrices, [len(some), *words, pool_address()])

    def multiply(
        self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor | None = None, ids: Tensor | None = None
    ) -> Tensor:
        """``a @ b (+ bias)``, (m, k), (k, n), (n,) -> (m, n); ``out`` has rows without gaps inside.

        ``ids``, (k,) int32: the rows ``b[ids]`` in the place of ``b``, whose rows have no gaps.
        """
        (m, k), n = a.shape, b.shape[1]
        itemsize = a.element_size()
        out = self.empty((m, n), a.dtype) if out is None else out
        deep = is_tall(m, n, k) and ids is None
        words = [m, n, k, a.data_ptr(), *a.stride(), b.data_ptr(), *b.stride(), 0, out.data_ptr()]
        words += [out.stride(0), 0 if bias is None else bias.data_ptr(), pool_address(), itemsize]
        words.append(0 if ids is None else ids.data_ptr())
        numbers, function = (ctypes.c_int64 * len(words))(*words), self.tall_product if deep else self.product
        if deep:
            function(ctypes.addressof(numbers))  # how much room it needs
        room = self.room(numbers[9] if deep else self.packed_bytes_of(n, itemsize, k))
        numbers[9] = room.data_ptr()
        if function(ctypes.addressof(numbers)):
            raise no_memory("a matrix product")
        return out

    def room(self, num_bytes: int) -> Tensor:
        """Room of which nobody reads what it held; this thread keeps what is not large from call to call."""
        if num_bytes > MOST_KEPT:
            return self.empty((num_bytes,), torch.uint8)
        room: Tensor | None = getattr(self._room, "bytes", None)
        if room is None or room.numel() < num_bytes:
            room = self._room.bytes = self.empty((num_bytes,), torch.uint8)
        return room

    def levels(self, src: Tensor, dst: Tensor, num_vertices: int) -> Leveled | None:
        """The longest path to every vertex; None: there is a cycle. Ids on the CPU.

        Whoever asks for levels asks for rows in their order next, which are found at once where they may be asked for.
        """
        n, m = num_vertices, src.shape[0]
        ends = [_wide(end) for end in (src, dst)]
        found, (wide, short) = np.empty(n, np.int32), room_for(n, m)
        bounds, room = np.empty((3, n + 1), np.int64), self.room(4 * (7 * n + m + 16))
        places, free = places_in(wide, short), room.data_ptr()
        at, step = bounds.ctypes.data, bounds.strides[0]
        own = (at, at + step, at + 2 * step, free + 8 * (2 * n + 4), free, _sorting_pool())
        given = (ends[0].data_ptr(), ends[1].data_ptr(), found.ctypes.data)
        words = (ctypes.c_int64 * 20)(n, m, *given, *places, *own)
        self.plan_rows(ctypes.addressof(words))
        if words[0] != n:
            return None
        if words[4]:
            return Leveled(found)
        order = _row_order(SortedRows(wide, short, bool(words[2]), bool(words[3])), places)
        return Leveled(found, order, _bounds(bounds[:, : words[1] + 1]))

    def order_rows(self, keys: NDArray[np.int32], src: Tensor, dst: Tensor) -> RowOrder:
        """Vertices by key, edges by destination row; all in int64 on the CPU, fewer than MOST_SHORT edges."""
        n, m, count = len(keys), src.shape[0], int(keys.max(initial=-1)) + 1
        (wide, short), room = room_for(n, m), self.room(8 * (n + count + 2))
        places = places_in(wide, short)
        given = (keys.ctypes.data, count, src.data_ptr(), dst.data_ptr())
        own = (room.data_ptr(), room.data_ptr() + 8 * (count + 1), _sorting_pool())
        words = (ctypes.c_int64 * 18)(n, m, *given, *places, *own)
        self.sort_rows(ctypes.addressof(words))
        return _row_order(SortedRows(wide, short, bool(words[0]), bool(words[1])), places)

    def order_edges(self, topology: Topology) -> tuple[RowOrder, int | None] | None:
        """Edges by destination and by source, both on the CPU and few; and the in-degree of all, if there is one.

        None: an id is that of no vertex.
        """
        src, dst = _wide(topology.src), _wide(topology.dst)
        num_src, num_dst, count = topology.num_src, topology.num_dst, topology.num_edges
        grouped = GroupedEdges(num_src, num_dst, count)
        in_ptr, out_ptr, _, src_rows, _, out_edges, out_dst = places = grouped.places
        room = self.room(8 * max(num_src, num_dst)).data_ptr()
        given = (num_src, num_dst, count, src.data_ptr(), dst.data_ptr())
        words = _EdgeWords(*given, *places, room, _sorting_pool(), LOOK_AHEAD)
        self.sort_edges(ctypes.addressof(words))
        if not words[2]:
            return None
        grouped.is_grouped = bool(words[0])
        order = RowOrder(grouped.find)
        order.is_grouped = grouped.is_grouped
        order.addresses = (in_ptr, src_rows, out_ptr, out_edges, out_dst, 0)
        return order, None if words[1] < 0 else words[1]

    def group(self, keys: Tensor, starts: Tensor, numbers: Tensor | None = None, runs: Tensor | None = None) -> Tensor:
        """What is asked of each of many elements, int32, by ``keys``, int32; elements of a key keep their order.

        Their ``numbers``, int32; those of the ``runs`` in which they lie, (runs + 1,); or by what place they have.
        ``starts``: where those of each key begin, and where the last end, int64. All on the CPU, without gaps.
        """
        assert keys.is_contiguous() and (numbers is None or numbers.is_contiguous()), "rows of elements have no gaps"
        count, groups = keys.shape[0], starts.shape[0] - 1
        made, room = room_for_rows(count), self.room(8 * groups)
        given = [0 if t is None else t.data_ptr() for t in (keys, numbers)]
        ends = [0, 0] if runs is None else [runs.shape[0] - 1, runs.data_ptr()]
        call(self.group_numbers, [count, groups, *given, *ends, starts.data_ptr(), room.data_ptr(), made.data_ptr()])
        return made

    def bounds(self, keys: NDArray[np.int32], in_ptr: Tensor) -> Bounds:
        """Where the rows of each key and their in-edges begin, and where the last end; in-degrees that rows share."""
        keys = np.ascontiguousarray(keys, np.int32)
        count = int(keys.max(initial=-1)) + 1
        found = np.empty((3, count + 1), np.int64)
        words = [len(keys), keys.ctypes.data, count, in_ptr.data_ptr(), *(row.ctypes.data for row in found)]
        call(self.find_bounds, words)
        return _bounds(found)

    def take_members(
        self,
        numbers: Sequence[int],
        bounds: Sequence[NDArray[np.int64]],
        pairs: NDArray[np.signedinteger],
        sizes: tuple[int, int],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.signedinteger]]:
        """Rows and edges of some graphs of a whole, and (2, edges) ends as in a batch of them.

        ``bounds``: where the rows of each graph of the whole begin, how many they are, and the same of edges.
        ``pairs``: (2, edges of the whole), counted within each graph; ``sizes``: rows and edges of the batch.
        """
        rows, edges = np.empty(sizes[0], np.int64), np.empty(sizes[1], np.int64)
        ends, chosen = np.empty((2, sizes[1]), pairs.dtype), (ctypes.c_int64 * len(numbers))(*numbers)
        given = [len(numbers), ctypes.addressof(chosen), *(one.ctypes.data for one in bounds), pairs.ctypes.data]
        at = ends.ctypes.data
        places = (rows.ctypes.data, edges.ctypes.data, at, at + ends.strides[0])
        call(self.members, [*given, pairs.shape[1], pairs.itemsize, *places])
        return rows, edges, ends

    # ------------------------------------------------------------ in the place of torch's operators
    def take_rows(self, rows: Tensor, ids: Tensor, out: Tensor) -> Tensor:
        """As ``torch.index_select(rows, 0, ids, out=out)`` of ids that are there; ``out`` has no gaps."""
        fits = ids.dtype == torch.int32 and ids.is_contiguous() and rows.is_contiguous() and rows.device.type == "cpu"
        num_bytes = math.prod(rows.shape[1:]) * rows.element_size()
        if not fits or num_bytes == 0:
            return torch.index_select(rows, 0, ids, out=out)
        call(self.move_rows, [len(ids), num_bytes, rows.data_ptr(), ids.data_ptr(), out.data_ptr(), pool_address()])
        return out

    def checksum(self, tensor: Tensor) -> int:
        """Of all bytes of a tensor without gaps on the CPU: another tensor has the same by one chance in 2^64."""
        words = (ctypes.c_int64 * 3)(tensor.numel() * tensor.element_size(), tensor.data_ptr(), pool_address())
        self.sum_bytes(ctypes.addressof(words))
        return words[0]

    def _makes(self, a: Tensor, b: Tensor, out: Tensor | None) -> bool:
        """Whether ``a @ b`` is made here."""
        return _can_multiply(a, b, out) and (self.choose is None or self.choose(self, a, b, None))

    def mm(self, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        """As ``torch.mm``."""
        if not self._makes(a, b, out):
            return torch.mm(a, b, out=self._room_for(a, b) if out is None else out)
        return self.multiply(a, b, None, out)

    def addmm(self, bias: Tensor, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        """As ``torch.addmm``."""
        fits = bias.dim() == 1 and bias.stride(0) == 1 and bias.shape[0] == b.shape[1]
        if not (fits and self._makes(a, b, out)):
            return torch.addmm(bias, a, b, out=self._room_for(a, b) if out is None else out)
        return self.multiply(a, b, bias, out)

    def _room_for(self, a: Tensor, b: Tensor) -> Tensor | None:
        """Room for a large product that torch makes, as for those that are made here; None: torch's own."""
        if a.device.type != "cpu" or a.dtype not in FLOATS or a.dtype != b.dtype or not a.dim() == b.dim() == 2:
            return None
        shape = (a.shape[0], b.shape[1])
        return self.empty(shape, a.dtype) if math.prod(shape) * a.element_size() > MOST_OWN else None

    def mm_of_rows(self, a: Tensor, rows: tuple[Tensor, Tensor]) -> Tensor:
        """``torch.mm(a, b[ids])``, of which nobody reads ``b[ids]``."""
        b, ids = rows
        fits = ids.dtype == torch.int32 and ids.is_contiguous() and b.dim() == 2 and b.stride(1) == 1
        known = a.dtype in FLOATS and a.dtype == b.dtype and a.device.type == "cpu" and a.shape[0] >= FEW
        if not (fits and known) or is_tall(a.shape[0], b.shape[1], a.shape[1]):
            return self.mm(a, b.index_select(0, ids))
        if self.choose is not None and not self.choose(self, a, b, ids):
            return torch.mm(a, b.index_select(0, ids))
        return self.multiply(a, b, None, None, ids)

    @property
    def of_rows(self) -> Callable[[Tensor, tuple[Tensor, Tensor]], Tensor] | None:
        """``mm_of_rows``, if products are made here."""
        return self.mm_of_rows if self.multiplies else None

    def stand_in(self, op: Op) -> Callable[..., Tensor] | None:
        """What runs an op here in torch's place, or None."""
        if not self.multiplies or op.kwargs or not all(v.dtype in FLOATS for v in op.operands()):
            return None
        return {"mm": self.mm, "addmm": self.addmm}.get(op_name(op.target)) if len(op.args) <= 3 else None


def _sorting_pool() -> int:
    """The pool, if it has several threads: one sorts sooner without the passes that several need."""
    return pool_address() if torch.get_num_threads() > 1 else 0


def _wide(ids: Tensor) -> Tensor:
    """Ids as native code reads them."""
    return ids if ids.dtype == torch.int64 and ids.is_contiguous() else ids.long().contiguous()


def _row_order(rows: SortedRows, places: tuple[int, ...]) -> RowOrder:
    """With the addresses that kernels ask for."""
    order = RowOrder(rows.find)
    ids, _, in_ptr, out_ptr, _, src_rows, _, out_edges, out_dst = places
    order.addresses = (in_ptr, src_rows, out_ptr, out_edges, out_dst, 0 if rows.is_sorted else ids)
    return order


def _bounds(found: NDArray[np.int64]) -> Bounds:
    first, edges, degrees = found.tolist()
    return first, edges, [None if degree < 0 else degree for degree in degrees[:-1]]


def is_tall(m: int, n: int, k: int) -> bool:
    """Whether ranges of depth have sums of their own."""
    return k >= TALL and m * n <= MOST_ENTRIES


def _can_multiply(a: Tensor, b: Tensor, out: Tensor | None) -> bool:
    if a.device.type != "cpu" or a.dtype not in FLOATS or a.dtype != b.dtype:
        return False
    if a.shape[0] < FEW or a.shape[0] * b.numel() * 2 < SMALL:
        return False
    return out is None or out.stride(1) == 1


def native_sources() -> list[tuple[str, int]]:
    """Source texts of what ``Native`` holds, and of how many functions: its own in order, then tiles of products.

    Compilers take as long for the tiles of floats, and for those of doubles, as for all else.
    """
    text = 'extern "C" int64_t kernel{}(int64_t* a) {{ return vg_status({}, a); }}'
    lines = [f'#include "{name}"' for name in _HEADERS] + [text.format(i, name) for i, name in enumerate(_EXPORTS)]
    return [("\n".join(lines), len(_EXPORTS)), *((tiles, 1) for tiles in _TILES)]


def join_native(
    parts: Sequence[Sequence[Function]],
    *,
    multiplies: bool = True,
    choose: ChoosesProducts | None = None,
    empty: Empty = torch_empty,
) -> Native:
    """The functions of each of ``native_sources``, which know of one another from now on."""
    own, *tiles = parts
    native = Native(*own, multiplies=multiplies, choose=choose, empty=empty)
    call(native.use_tiles, [address_of(function) for (function,) in tiles])
    return native


@cache
def native_version() -> str:
    """A word for the source of what is compiled."""
    folder = Path(vgraph_kernels.__file__).parent
    texts = [(folder / name).read_bytes() for name in (*_HEADERS, "gemm.h", "panels.h", "tiles.h")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def address_of(function: Function) -> int:
    """Where a compiled function lies."""
    return ctypes.cast(cast("ctypes.c_void_p", function), ctypes.c_void_p).value or 0


def call(function: Function, words: Sequence[int]) -> bool:
    """Runs a function of one array of numbers; gives whether it found memory."""
    array = (ctypes.c_int64 * len(words))(*words)
    return not function(ctypes.addressof(array))


def table(words: Sequence[int]) -> NDArray[np.int64]:
    """Numbers as an array that native code may read."""
    return np.array(words, np.int64)
