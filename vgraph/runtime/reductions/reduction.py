"""Reductions: one launch over any subset of a tensor's modes.

Takes: a Reduction, what builds its kernel, tensors. Gives: the reduced tensor. Runs at every call.
Source: Koç, multi-mode tensor reduction on GPUs. Without a kernel, torch's operators: ``torch_reduce``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vgraph.ir.modes import Mode, virtual_modes
from vgraph.ir.program import Reduction
from vgraph.ir.reduction import ACCUMULATED, kind_of
from vgraph.ir.reductions import reduce_info
from vgraph.runtime.cpu.kernels import pool_address
from vgraph.runtime.cuda import driver as cuda
from vgraph.runtime.reductions.loops import MOST_MODES, Loops, plan_loops

Combine = Callable[[Tensor, Tensor], Tensor]
_MOST_LAYOUTS = 256  # whose loops are remembered
_WIDE = 64  # elements of rows that torch adds in vectors


Bound = Callable[[Sequence[Tensor]], Tensor]
Bind = Callable[[Reduction, Sequence[Mode], Sequence[Tensor], tuple[int, ...]], "Bound | None"]


class CompiledReduction:
    """A Reduction that runs on tensors of any shape; kernels are built for what operands do along a run."""

    def __init__(self, reduction: Reduction, targets: Mapping[str, Bind]) -> None:
        self.reduction, self._targets = reduction, targets
        self._bound: dict[Any, Bound | None] = {}

    def __call__(self, tensors: Sequence[Tensor], dims: tuple[int, ...]) -> Tensor | None:
        """Reduces ``dims`` (from 0, none empty) of what the operands broadcast to; None: there is no kernel."""
        with cuda.on(tensors[0].device):
            bound = self.bound(tensors, dims)
            return None if bound is None else bound(tensors)

    def bound(self, tensors: Sequence[Tensor], dims: tuple[int, ...]) -> Bound | None:
        """What runs on tensors of this layout."""
        key = (dims, *((t.shape, t.stride(), t.device, t.data_ptr() & 15) for t in tensors))
        if key not in self._bound:
            if len(self._bound) >= _MOST_LAYOUTS:
                self._bound.clear()
            self._bound[key] = self._bind(tensors, dims)
        return self._bound[key]

    def _bind(self, tensors: Sequence[Tensor], dims: tuple[int, ...]) -> Bound | None:
        shape = torch.broadcast_shapes(*(t.shape for t in tensors))
        strides = [tuple(s * t.element_size() for s in t.expand(shape).stride()) for t in tensors]
        modes = virtual_modes(shape, dims, strides, in_order=self.reduction.is_ordered)
        bind = self._targets.get(tensors[0].device.type)
        if bind is None or self._is_plain(modes):
            return None
        return bind(self.reduction, modes, tensors, tuple(n for d, n in enumerate(shape) if d not in dims))

    def _is_plain(self, modes: Sequence[Mode]) -> bool:
        """What torch's own loops do as well: long rows of one tensor are added."""
        row = reduce_info(self.reduction.name) if self.reduction.name else None
        adds = row is not None and row.is_linear and len(self.reduction.element.operands) == 1
        stored = not self.reduction.element.ops
        return (
            adds
            and stored
            and sum(m.is_reduced for m in modes) == 1
            and modes[-1].is_reduced
            and modes[-1].size >= _WIDE
        )


def bind_cpu(
    reduction: Reduction,
    modes: Sequence[Mode],
    tensors: Sequence[Tensor],
    out: tuple[int, ...],
    build: Callable[[Reduction, tuple[str, ...]], Any],
) -> Bound | None:
    """A call on tensors of this layout; None: there is no kernel for it."""
    if len(modes) > MOST_MODES:
        return None
    total = ACCUMULATED[reduction.dtype]
    loops = plan_loops(modes, len(tensors), total.itemsize, in_order=reduction.is_ordered)
    kinds = tuple(kind_of(pace, t.element_size()) for pace, t in zip(loops.paces, tensors, strict=True))
    function = build(reduction, kinds)
    return None if function is None else _CpuReduction(reduction, loops, out, function)


class _CpuReduction:
    """A kernel and a layout's numbers; addresses are filled in at each call."""

    def __init__(self, reduction: Reduction, loops: Loops, out: tuple[int, ...], function: Any) -> None:
        self.dtype, self.total, self.out = reduction.dtype, ACCUMULATED[reduction.dtype], out
        self.num_partial, self.function = loops.num_partial, function
        self.before, self.after = loops.numbers()

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        made = torch.empty(self.out, dtype=self.dtype, device="cpu")
        partial = torch.empty(self.num_partial, dtype=self.total, device="cpu") if self.num_partial else None
        first = [pool_address(), made.data_ptr(), 0 if partial is None else partial.data_ptr()]
        numbers = [*first, *self.before, *(t.data_ptr() for t in tensors), *self.after]
        self.function((ctypes.c_int64 * len(numbers))(*numbers))
        return made


def torch_reduce(element: Tensor, dims: tuple[int, ...], name: str, combine: Combine | None) -> Tensor:
    """The same by torch's operators: the oracle, what runs without a compiler, and what is differentiated."""
    if not dims:  # slices of one element, whose results have the dtype that others have
        element, dims = element.unsqueeze(-1), (element.dim(),)
    if combine is not None:
        return _fold(element, dims, combine)
    return reduce_info(name).dims(element, dims)


def _fold(element: Tensor, dims: tuple[int, ...], combine: Combine) -> Tensor:
    """Neighbours are combined until one is left, so that a function need not be commutative."""
    kept = [d for d in range(element.dim()) if d not in dims]
    slices = element.permute(*kept, *dims).reshape(*(element.shape[d] for d in kept), -1)
    while slices.shape[-1] > 1:
        pairs = slices.shape[-1] // 2 * 2
        left = combine(slices[..., 0:pairs:2], slices[..., 1:pairs:2])
        slices = left if pairs == slices.shape[-1] else torch.cat([left, slices[..., pairs:]], -1)
    return slices.squeeze(-1)
