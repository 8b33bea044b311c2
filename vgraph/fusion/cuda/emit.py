"""Emit for CUDA: KernelSpecs to one source in CUDA C++, and how each is launched.

Takes: KernelSpecs. Gives: source text, DeviceLoops. Runs once per function.
There are no atomics: whatever is summed is summed in an order that graph and kernel alone decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vgraph.fusion.cuda.features import LaneFeatures
from vgraph.fusion.cuda.high_degree_rows import write_stages
from vgraph.fusion.cuda.kernel import Design, Writer
from vgraph.fusion.layout import Layout
from vgraph.fusion.stages import lay_out
from vgraph.ir.kernel import DeviceLoop, KernelSpec
from vgraph.ir.moves import OuterSum
from vgraph.ir.program import Op

_WARP = 32
_SPAN = 8  # vectors of a tile: 128 bytes of a row of 32-bit numbers, a line of the cache
NARROW = 4  # edges a slot, up to which a row gets one slot alone
_MOST_PIECES, _PIECE_BYTES = 1024, 32 << 20


def emit_cuda(specs: Sequence[KernelSpec]) -> tuple[str, list[DeviceLoop]]:
    """One source with the functions of all specs, and how each spec is launched."""
    found = [_emit(spec, f"kernel{i}") for i, spec in enumerate(specs)]
    return "\n".join(['#include "prelude.cuh"', *(text for text, _ in found)]), [loop for _, loop in found]


def _emit(spec: KernelSpec, name: str) -> tuple[str, DeviceLoop]:
    design = design_of(spec)
    over = {stage.over for stage in design.layout.stages} - {""}
    slots = 1 if design.outer or not over else _WARP // design.lanes
    writers = [Writer(design, name, 1)]
    if slots > 1:
        writers.append(Writer(design, f"{name}_wide", slots))
    staged, stages = [], None
    if over and not design.outer:
        staged, stages = write_stages(design, name, slots)
    tiles = _tiles(design, name) if over else []
    lines = [line for writer in (*writers, *staged, *tiles) for line in ["", *writer.lines]]
    loop = DeviceLoop(
        narrow=writers[0].entry,
        wide=writers[1].entry if slots > 1 else None,
        most_narrow=NARROW * slots,
        pointer="" if not over else "out_ptr" if spec.is_source or "out" in over else "in_ptr",
        team_bytes=max(writer.far_bytes for writer in writers),
        pieces=_pieces(design.outer),
        hubs=stages,
        tiles=tuple(writer.entry for writer in tiles),
        num_tiles=-(-_longest(design) // _SPAN) if tiles else 1,
    )
    return "\n".join(lines) + "\n", loop


def _tiles(design: Design, name: str) -> list[Writer]:
    """The functions for some features of a row at a time, for rows of few and of many edges; if that is possible."""
    loops = [(stage, loop) for stage in design.layout.stages for loop in stage.loops]
    found = [LaneFeatures(design.layout, stage, loop, design.most) for stage, loop in loops]
    kinds = {store.kind for _, loop in loops for store in loop.loop_stores}
    alike = {(f.shape, f.width, len(f.groups)) for f in found}
    if design.outer or design.spec.in_loop or kinds - {"reduce", "store", "array"} or len(alike) != 1:
        return []
    if len(found[0].groups) != 1 or _longest(design) < 2 * _SPAN:
        return []
    narrow = replace(design, lanes=_SPAN, span=_SPAN)
    return [Writer(narrow, f"{name}_tile", 1), Writer(narrow, f"{name}_tile_wide", _WARP // _SPAN)]


def _longest(design: Design) -> int:
    """Vectors in the longest loop."""
    loops = [(stage, loop) for stage in design.layout.stages for loop in stage.loops]
    return max(LaneFeatures(design.layout, stage, loop, design.most).num_dealt() for stage, loop in loops)


def design_of(spec: KernelSpec) -> Design:
    layout = lay_out(spec, by_lanes=True)
    stored = [v for v in (*spec.loads, *spec.stores) if math.prod(v.row_shape) > 1]
    most = max(1, 16 // max((v.dtype.itemsize for v in stored), default=16))
    used = {v.id for op in spec.ops for v in op.operands()} | {v.id for v in spec.stores}
    used |= {p.base.id for p in spec.places.values()}
    outer = tuple(op for op in spec.ops if isinstance(op.target, OuterSum))
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
