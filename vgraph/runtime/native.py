"""Native: the compiled part that all functions share: matrix products, the loop over frontiers, the order of rows.

Takes: functions of one array of numbers. Gives: products written in place; tempo: every step.
Source: Goto and van de Geijn 2008 (blocks and panels of a product); KERNELS, "Frontier cell".
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vgraph_kernels
from vgraph.ir.program import Op
from vgraph.ir.schedule import LOOK_AHEAD, RowOrder
from vgraph.ir.tdl import op_name
from vgraph.runtime.cpu import Empty, pool_address, torch_empty

FLOATS = (torch.float32, torch.float64)
_EXPORTS = (
    "vg_frontiers",
    "vg_pack_matrix",
    "vg_product",
    "vg_tall_product",
    "vg_packed_bytes",
    "vg_sort_rows",
    "vg_levels",
    "vg_bounds",
)
_HEADERS = ("gemm.h", "frontiers.h", "tall.h", "rows.h")
SMALL = 1 << 16  # flops below which torch's own call costs as little
TALL, MOST_ENTRIES = 1 << 14, 1 << 14  # depth from which, entries up to which, ranges of depth have sums of their own
FEW = 4  # rows for which packing the matrix costs more than it gains


@dataclass(frozen=True, eq=False)
class Native:
    """The functions of ``frontiers.h`` and ``rows.h`` in ``vgraph_kernels`` as loaded: see there for arguments."""

    frontiers: Any
    pack_matrix: Any
    product: Any
    tall_product: Any
    packed_bytes: Any
    sort_rows: Any
    find_levels: Any
    find_bounds: Any
    multiplies: bool = True  # whether products of phases that run once are made here
    empty: Empty = torch_empty

    @cached_property
    def _room(self) -> threading.local:
        return threading.local()

    def packed_bytes_of(self, num_columns: int, itemsize: int, depth: int = 0) -> int:
        """Bytes that a row of so many columns takes when packed; or the room for a product of some depth."""
        numbers = (ctypes.c_int64 * 3)(itemsize, num_columns, depth)
        self.packed_bytes(ctypes.addressof(numbers))
        return numbers[0]

    def pack(self, matrix: Tensor) -> Tensor:
        """A matrix (k, n) as the loop's products read it."""
        k, n = matrix.shape
        itemsize = matrix.element_size()
        packed = self.empty((max(k * self.packed_bytes_of(n, itemsize), 1),), torch.uint8)
        call(self.pack_matrix, [itemsize, k, n, matrix.data_ptr(), *matrix.stride(), packed.data_ptr()])
        return packed

    def multiply(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """``a @ b (+ bias)``, (m, k), (k, n), (n,) -> (m, n); ``out`` has rows without gaps inside."""
        (m, k), n = a.shape, b.shape[1]
        itemsize = a.element_size()
        out = self.empty((m, n), a.dtype) if out is None else out
        is_tall = k >= TALL and m * n <= MOST_ENTRIES
        words = [m, n, k, a.data_ptr(), *a.stride(), b.data_ptr(), *b.stride(), 0, out.data_ptr()]
        words += [out.stride(0), 0 if bias is None else bias.data_ptr(), pool_address(), itemsize]
        numbers, function = (ctypes.c_int64 * len(words))(*words), self.tall_product if is_tall else self.product
        if is_tall:
            function(ctypes.addressof(numbers))  # how much room it needs
        room = self._scratch(numbers[9] if is_tall else self.packed_bytes_of(n, itemsize, k))
        numbers[9] = room.data_ptr()
        function(ctypes.addressof(numbers))
        return out

    def _scratch(self, num_bytes: int) -> Tensor:
        """Room that this thread keeps from product to product."""
        room: Tensor | None = getattr(self._room, "bytes", None)
        if room is None or room.numel() < num_bytes:
            room = self._room.bytes = self.empty((num_bytes,), torch.uint8)
        return room

    def levels(self, src: Tensor, dst: Tensor, num_vertices: int) -> NDArray[np.int32] | None:
        """The longest path to every vertex; None: there is a cycle. Ids on the CPU."""
        num_edges = src.shape[0]
        ends = [t if t.dtype == torch.int64 and t.is_contiguous() else t.long().contiguous() for t in (src, dst)]
        found = torch.empty(num_vertices, dtype=torch.int32, device="cpu")
        places = (*ends, found, self._scratch(4 * (3 * num_vertices + num_edges + 1)))
        words = (ctypes.c_int64 * 6)(num_vertices, num_edges, *(t.data_ptr() for t in places))
        self.find_levels(ctypes.addressof(words))
        return found.numpy() if words[0] == num_vertices else None

    def order_rows(self, keys: NDArray[np.int32], src: Tensor, dst: Tensor) -> RowOrder:
        """Vertices by key, edges by destination row; all in int64 on the CPU, fewer than MOST_SHORT edges."""
        n, m, count = len(keys), src.shape[0], int(keys.max(initial=-1)) + 1
        wide = self.empty((5 * n + count + 4,), torch.int64)
        short = self.empty((5, m + LOOK_AHEAD), torch.int32)
        short[:, m:] = 0
        ids, rows, in_ptr, out_ptr, room, starts = wide.split([n, n, n + 1, n + 1, n + 1, count + 1])
        edge_ids, src_rows, dst_rows, out_edges, out_dst = short[:, :m].unbind()
        places = (src, dst, ids, rows, in_ptr, out_ptr, edge_ids, src_rows, dst_rows, out_edges, out_dst, starts, room)
        words = (ctypes.c_int64 * 17)(n, m, keys.ctypes.data, count, *(t.data_ptr() for t in places))
        self.sort_rows(ctypes.addressof(words))
        is_sorted, is_grouped = bool(words[0]), bool(words[1])
        own = None if is_grouped else edge_ids
        order = RowOrder(
            None if is_sorted else ids, None if is_sorted else rows, lambda: own, src_rows, in_ptr, out_ptr
        )
        order.__dict__.update(dst_rows=dst_rows, out_edges=out_edges, out_dst=out_dst)
        return order

    def bounds(self, keys: NDArray[np.int32], in_ptr: Tensor) -> tuple[list[int], list[int], list[int | None]]:
        """Where the rows of each key and their in-edges begin, and where the last end; in-degrees that rows share."""
        keys = np.ascontiguousarray(keys, np.int32)
        count = int(keys.max(initial=-1)) + 1
        found = torch.empty((3, count + 1), dtype=torch.int64, device="cpu")
        words = [len(keys), keys.ctypes.data, count, in_ptr.data_ptr(), *(row.data_ptr() for row in found.unbind())]
        call(self.find_bounds, words)
        first, edges, degrees = found.tolist()
        return first, edges, [None if degree < 0 else degree for degree in degrees[:-1]]

    # ------------------------------------------------------------ in the place of torch's operators
    def mm(self, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        """As ``torch.mm``."""
        if not _can_multiply(a, b, out):
            return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
        return self.multiply(a, b, None, out)

    def addmm(self, bias: Tensor, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        """As ``torch.addmm``."""
        if not (_can_multiply(a, b, out) and bias.dim() == 1 and bias.stride(0) == 1 and bias.shape[0] == b.shape[1]):
            return torch.addmm(bias, a, b) if out is None else torch.addmm(bias, a, b, out=out)
        return self.multiply(a, b, bias, out)

    def stand_in(self, op: Op) -> Any:
        """What runs an op here in torch's place, or None."""
        if not self.multiplies or op.kwargs or not all(v.dtype in FLOATS for v in op.operands()):
            return None
        return {"mm": self.mm, "addmm": self.addmm}.get(op_name(op.target)) if len(op.args) <= 3 else None


def _can_multiply(a: Tensor, b: Tensor, out: Tensor | None) -> bool:
    if a.device.type != "cpu" or a.dtype not in FLOATS or a.dtype != b.dtype:
        return False
    if a.shape[0] < FEW or a.shape[0] * b.numel() * 2 < SMALL:
        return False
    return out is None or out.stride(1) == 1


def native_source() -> tuple[str, int]:
    """The source of what ``Native`` holds, and of how many functions, in its order."""
    folder = Path(vgraph_kernels.__file__).parent
    texts = [(folder / name).read_text().replace('#include "gemm.h"', "") for name in _HEADERS]
    exports = [f'extern "C" void kernel{i}(int64_t* a) {{ {name}(a); }}' for i, name in enumerate(_EXPORTS)]
    return "\n".join([*texts, *exports]), len(exports)


def call(function: Any, words: Sequence[int]) -> None:
    """Runs a function of one array of numbers."""
    array = (ctypes.c_int64 * len(words))(*words)
    function(ctypes.addressof(array))


def table(words: Sequence[int]) -> NDArray[np.int64]:
    """Numbers as an array that native code may read."""
    return np.array(words, np.int64)
