"""CPU kernels: pointers in, one call out.

Takes: a compiled function, tensors, the index tensors of a schedule. Gives: rows written in place; tempo: every step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.program import Value
from vgraph.ir.schedule import RowOrder


@cache
def pool_address() -> int:
    """Torch's own ``parallel_for`` (so that ``torch.set_num_threads`` holds), or 0: one thread."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        symbol = getattr(ctypes.CDLL(str(library)), "torch_parallel_for", None)
        if symbol is not None:
            return ctypes.cast(symbol, ctypes.c_void_p).value or 0
    return 0


class CpuKernel:
    """A compiled loop over vertices [v0, v1): see ``fusion/emit.py`` for its arguments."""

    def __init__(self, function: Any, stores: Sequence[Value], is_source: bool) -> None:
        self.function, self.stores, self.is_source = function, tuple(stores), is_source

    def bind(self, order: RowOrder, loads: Sequence[Tensor], stores: Sequence[Tensor]) -> Callable[[int, int], None]:
        """A call ``(v0, v1)`` on tensors of all rows; it keeps them alive."""
        assert all(t.device.type == "cpu" for t in (*loads, *stores)), "a CPU kernel reads CPU memory"
        given = [t if t.is_contiguous() else t.contiguous() for t in loads]
        index = (order.in_ptr, order.src_rows, order.dst_rows, order.out_ptr, order.out_edges)
        pointers = [t.data_ptr() for t in (*index, *given, *stores)]
        arguments = (ctypes.c_int64 * (3 + len(pointers)))(0, 0, pool_address(), *pointers)
        function, address = self.function, ctypes.addressof(arguments)

        def call(v0: int, v1: int, keep: Any = (index, given, stores, arguments)) -> None:
            arguments[0], arguments[1] = v0, v1
            function(address)

        return call

    def run(self, extent: Any, *loads: Tensor) -> tuple[Tensor, ...]:
        """Once over all rows; allocates what it stores."""
        made = tuple(self._empty(extent, value) for value in self.stores)
        rows = (0, extent.count("source")) if self.is_source else (extent.v0, extent.v1)
        self.bind(extent.order, loads, made)(*rows)
        return made

    @staticmethod
    def _empty(extent: Any, value: Value) -> Tensor:
        return torch.empty((extent.count(value.space.kind), *value.row_shape), dtype=value.dtype)
