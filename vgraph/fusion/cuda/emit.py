"""Emit for CUDA: KernelSpecs to one source in CUDA C++, and how each is launched.

Takes: KernelSpecs. Gives: source text, DeviceLoops. Runs once per function.
There are no atomics: whatever is summed is summed in an order that graph and kernel alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vgraph.fusion.cuda.high_degree_rows import write_stages
from vgraph.fusion.cuda.kernel import Function
from vgraph.fusion.cuda.lanes import LaneBody
from vgraph.fusion.cuda.target import WARP, CudaTarget
from vgraph.fusion.stages import lay_out
from vgraph.ir.kernel import DeviceLoop, KernelSpec
from vgraph.ir.program import Op

_SPAN = 8  # vectors of a tile: 128 bytes of a row of 32-bit numbers, a line of the cache
NARROW = 4  # edges a slot, up to which a row gets one slot alone
_MOST_PIECES, _PIECE_BYTES = 1024, 32 << 20


def emit_cuda(specs: Sequence[KernelSpec]) -> tuple[str, list[DeviceLoop]]:
    """One source with the functions of all specs, and how each spec is launched."""
    found = [_emit(spec, f"kernel{i}") for i, spec in enumerate(specs)]
    return "\n".join(['#include "prelude.cuh"', *(text for text, _ in found)]), [loop for _, loop in found]


def _emit(spec: KernelSpec, name: str) -> tuple[str, DeviceLoop]:
    target = design(spec)
    outer, over = target.layout.outer_sums, {stage.over for stage in target.layout.stages} - {""}
    slots = 1 if outer or not over else WARP // target.lanes
    wide = replace(target, slots=slots)
    plain = [Function(target, name), *([Function(wide, f"{name}_wide")] if slots > 1 else [])]
    staged, hubs = write_stages(wide, name) if over and not outer else ([], None)
    tiles = _tiles(target, name) if over else []
    loop = DeviceLoop(
        narrow=plain[0].entry,
        wide=plain[1].entry if slots > 1 else None,
        most_narrow=NARROW * slots,
        pointer="" if not over else "out_ptr" if spec.is_source or "out" in over else "in_ptr",
        team_bytes=max(function.far_bytes for function in plain),
        pieces=_pieces(outer),
        hubs=hubs,
        tiles=tuple(function.entry for function in tiles),
        num_tiles=-(-_longest(target) // _SPAN) if tiles else 1,
    )
    return "".join(function.text() for function in (*plain, *staged, *tiles)), loop


def _tiles(target: CudaTarget, name: str) -> list[Function]:
    """The functions for some features of a row at a time, for rows of few and of many edges; if that is possible."""
    found = _bodies(target)
    kinds = set[str]().union(*(body.loop.kinds for body in found))
    alike = {(body.features.shape, body.features.width, len(body.features.groups)) for body in found}
    if target.layout.spec.in_loop or kinds - {"reduce", "store", "array"} or len(alike) != 1:
        return []
    if len(found[0].features.groups) != 1 or _longest(target) < 2 * _SPAN:
        return []
    narrow = replace(target, lanes=_SPAN, span=_SPAN)
    return [Function(narrow, f"{name}_tile"), Function(replace(narrow, slots=WARP // _SPAN), f"{name}_tile_wide")]


def _bodies(target: CudaTarget) -> list[LaneBody]:
    """Every loop over features."""
    return [target.body(stage, loop) for stage in target.layout.stages for loop in stage.loops]


def _longest(target: CudaTarget) -> int:
    """Vectors in the longest loop."""
    return max(body.num_dealt for body in _bodies(target))


def design(spec: KernelSpec) -> CudaTarget:
    """As many lanes as the longest loop has vectors, up to a warp; where there are edges, of the loops over them."""
    stored = [v for v in (*spec.loads, *spec.stores) if math.prod(v.row_shape) > 1]
    most = max(1, 16 // max((v.dtype.itemsize for v in stored), default=16))
    target = CudaTarget(lay_out(spec, by_lanes=True), most)
    if target.layout.outer_sums:
        return target
    has_edges = any(stage.over for stage in target.layout.stages)
    vectors = [body.num_dealt for body in _bodies(target) if body.stage.over or not has_edges]
    return replace(target, lanes=min(WARP, 1 << (max(vectors, default=1) - 1).bit_length()))


def _pieces(outer: Sequence[Op]) -> int:
    if not outer:
        return 0
    most = max(math.prod(v.row_shape) * v.dtype.itemsize for op in outer for v in op.results)
    return max(1, min(_MOST_PIECES, _PIECE_BYTES // most))
