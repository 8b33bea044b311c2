"""Emit for CUDA: KernelSpecs to one source in CUDA C++, and how each is launched.

Takes: KernelSpecs. Gives: source text, DeviceLoops; tempo: once a function.
There are no atomics: whatever is summed is summed in an order that graph and kernel alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgraph.fusion.device_text import Design, Writer
from vgraph.fusion.hubs import write_stages
from vgraph.fusion.lanes import LaneFeatures
from vgraph.fusion.stages import Layout, lay_out
from vgraph.ir.kernel import DeviceLoop, KernelSpec
from vgraph.ir.program import Op
from vgraph.ir.row_ops import outer_sum

_WARP = 32
_NARROW = 4  # edges a slot, up to which a row gets one slot alone
_MOST_PIECES, _PIECE_BYTES = 1024, 32 << 20


def emit_cuda(specs: Sequence[KernelSpec]) -> tuple[str, list[DeviceLoop]]:
    """One source with the functions of all specs, and how each spec is launched."""
    found = [_emit(spec, f"kernel{i}") for i, spec in enumerate(specs)]
    return "\n".join(['#include "prelude.cuh"', *(text for text, _ in found)]), [loop for _, loop in found]


def _emit(spec: KernelSpec, name: str) -> tuple[str, DeviceLoop]:
    design = _design(spec)
    over = {stage.over for stage in design.layout.stages} - {""}
    slots = 1 if design.outer or not over else _WARP // design.lanes
    writers = [Writer(design, name, 1)]
    if slots > 1:
        writers.append(Writer(design, f"{name}_wide", slots))
    staged, stages = [], None
    if over and not design.outer and not spec.in_loop:
        staged, stages = write_stages(design, name, slots)
    lines = [line for writer in (*writers, *staged) for line in ["", *writer.lines]]
    loop = DeviceLoop(
        narrow=writers[0].entry,
        wide=writers[1].entry if slots > 1 else None,
        most_narrow=_NARROW * slots,
        pointer="" if not over else "out_ptr" if spec.is_source or "out" in over else "in_ptr",
        team_bytes=max(writer.far_bytes for writer in writers),
        pieces=_pieces(design.outer),
        hubs=stages,
    )
    return "\n".join(lines) + "\n", loop


def _design(spec: KernelSpec) -> Design:
    layout = lay_out(spec, by_lanes=True)
    stored = [v for v in (*spec.loads, *spec.stores) if math.prod(v.row_shape) > 1]
    most = max(1, 16 // max((v.dtype.itemsize for v in stored), default=16))
    used = {v.id for op in spec.ops for v in op.operands()} | {v.id for v in spec.stores}
    used |= {p.base.id for p in spec.places.values()}
    outer = tuple(op for op in spec.ops if op.target is outer_sum)
    lanes = _WARP if outer else _lanes(layout, most)
    return Design(spec, layout, frozenset(used), outer, most, lanes)


def _lanes(layout: Layout, most: int) -> int:
    """As many as the longest loop has vectors, up to a warp; where there are edges, of the loops over them."""
    has_edges = any(stage.over for stage in layout.stages)
    loops = [(s, loop) for s in layout.stages for loop in s.loops if s.over or not has_edges]
    vectors = [LaneFeatures(layout, stage, loop, most).num_dealt() for stage, loop in loops]
    return min(_WARP, 1 << (max(vectors, default=1) - 1).bit_length())


def _pieces(outer: tuple[Op, ...]) -> int:
    if not outer:
        return 0
    most = max(math.prod(v.row_shape) * v.dtype.itemsize for op in outer for v in op.results)
    return max(1, min(_MOST_PIECES, _PIECE_BYTES // most))
