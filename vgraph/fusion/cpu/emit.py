"""Emit: KernelSpecs as C++: for each row, loops over its edges and features.

Takes: KernelSpecs. Gives: source text. Runs once per function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgraph.fusion.cpu import by_source, row_tiles, side_by_side
from vgraph.fusion.cpu.target import CpuTarget
from vgraph.fusion.emitter import INDICES, Emitter, index_pointers, value_pointers
from vgraph.fusion.layout import Layout
from vgraph.fusion.scratch import Scratch, bytes_of, edge_arrays, row_arrays
from vgraph.fusion.stages import lay_out
from vgraph.fusion.text import block, indented
from vgraph.fusion.widths import numbers_of
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Value
from vgraph.ir.row_tiles import tile_size, tiled_loads
from vgraph.ir.space import SHARED

_WORDS = (
    "v0",
    "v1",
    "pool",
    *INDICES,
)  # then loads, stores, and what side_by_side, row_tiles and by_source ask for
_BLOCK = 32  # rows whose outer products are summed at once, as in products.h


def emit_kernels(specs: Sequence[KernelSpec]) -> str:
    """One source with ``void kernel<i>(const int64_t* a)``; a holds ``_words``."""
    return "\n".join(['#include "prelude.h"', *(_source(spec, i) for i, spec in enumerate(specs))])


def _source(spec: KernelSpec, number: int) -> str:
    """A kernel's text, with what the stack has no place for on the heap."""
    edges, moves = spec.over_edges, [side_by_side.moving(spec.over_edges, number, _words(spec))]
    bodies = [_Function(spec, edges, f"body{number}")]
    if tiled_loads(edges):
        moves.append(row_tiles.copying(spec, number, _words(spec)))
        bodies.append(_Function(spec, edges, f"tile{number}", tile_size(edges)))
    for rows in spec.parts[:-1]:
        bodies.append(_Function(spec, rows, f"ahead{number}"))
        bodies.append(_Function(spec, rows, f"fill{number}", tile_size(edges), fills_tiles=True))
    texts = (*moves, *(body.text() for body in bodies), _entry(spec, number))
    return "".join(f"\n{indented(text)}" for text in texts if text)


@dataclass(frozen=True)
class _Function:
    """The function of some rows of a kernel's ``part``.

    ``tile``: which takes so many of their features, 0: all. ``fills_tiles``: and leaves them in the copies of a tile.
    """

    spec: KernelSpec
    part: KernelSpec
    name: str
    tile: int = 0
    fills_tiles: bool = False

    def text(self) -> str:
        layout, scratch = lay_out(self.part), Scratch()
        text, spilled = _text(self, layout, scratch), scratch.spilled()
        return _text(self, layout, Scratch(spilled)) if spilled else text


def _text(made: _Function, layout: Layout, scratch: Scratch) -> str:
    spec, tile = made.part, made.tile
    values = [v for op in spec.ops for v in (*op.results, *op.operands())]
    most = numbers_of(8 if any(v.dtype.itemsize == 8 and v.dtype.is_floating_point for v in values) else 4)
    target = CpuTarget(layout, most, scratch, tile, made.fills_tiles)
    emitter = Emitter(layout, target)
    row, kept = emitter.row(), _kept(layout)
    of_blocks = {one.name: one for blocks in target.blocks for one in blocks.arrays()}
    arrays = [*row_arrays(layout), *edge_arrays(layout, _BLOCK), *of_blocks.values()]
    declared = [scratch.array(one.kind, one.name, one.size, bytes_of(one.value)) for one in arrays]
    word = _words(made.spec)
    return f"""
    static int64_t {made.name}(int64_t begin, int64_t end, int64_t piece, void* context) {{
      const int64_t* a = (const int64_t*)context; (void)piece;
      {index_pointers(word)}
      {value_pointers(spec, word, "piece")}
      {side_by_side.side_pointers(spec, word)}
      {row_tiles.tile_pointers(made.spec, word, fills_tiles=made.fills_tiles) if tile else ""}
      {by_source.declared(spec, word)}
      {scratch.open(kept, "out_ptr" if spec.is_source else "in_ptr")}
      {block(declared)}
      {emitter.open_outer_sums()}
      for (int64_t v = begin; v < end; ++v) {{
        {row}
      }}
      {emitter.close_outer_sums()}
      {scratch.close(kept)}
      return 0;
    }}
    """


def _words(spec: KernelSpec) -> Callable[[str], str]:
    """Where each of a kernel's arguments stands, by its name."""
    names, ahead = _names(spec), {f"o{v.id}": f"l{v.id}" for v in spec.made_ahead}  # the next part loads them
    return lambda name: f"a[{names.index(ahead.get(name, name))}]"


def _names(spec: KernelSpec) -> list[str]:
    names = [*_WORDS, *(f"l{v.id}" for v in spec.loads), *(f"o{v.id}" for v in spec.stores)]
    names += side_by_side.WORDS if spec.side_by_side else ()
    names += row_tiles.WORDS if tiled_loads(spec.over_edges) else ()
    names += [f"l{v.id}" for v in spec.made_ahead]
    return [*names, by_source.WORD] if spec.by_source else names


def _entry(whole: KernelSpec, number: int) -> str:
    """The function that is called, which shares out rows by their edges."""
    spec, word = whole.over_edges, _words(whole)
    over = {stage.over for stage in lay_out(spec).stages} - {""}
    sums = f", vg_num_sums(a[0], a[1], ptr, {spec.rows_of_a_sum})"
    most = sums if any(value.space == SHARED for value in spec.stores) else ""
    ptr = f"(const int64_t*){word('out_ptr' if spec.is_source or 'out' in over else 'in_ptr')}"
    cost, num_words = _cost(spec), len(_names(whole))
    return f"""
    extern "C" int64_t kernel{number}(const int64_t* a) {{
      const int64_t* ptr = {ptr if over else "nullptr"};
      {side_by_side.move_first(spec, number, word, word("pool"))}
      {row_tiles.by_tiles(whole, number, word, num_words, cost) if tiled_loads(spec) else ""}
      {row_tiles.ahead(whole, number, word)}
      return vg_run(a[0], a[1], ptr, {cost}, body{number}, (void*)a, (void*)a[2]{most});
    }}
    """


def _cost(spec: KernelSpec) -> int:
    """Of a row or an edge, beside others."""
    size = max((math.prod(v.row_shape) for op in spec.ops for v in op.results if v.space != SHARED), default=1)
    return size * max(1, len(spec.ops) // 4)


def _kept(layout: Layout) -> list[Value]:
    """What one loop over edges keeps of every edge for the next."""
    stores = (s for stage in layout.stages for loop in stage.loops for s in loop.loop_stores)
    return list({s.value.id: s.value for s in stores if s.kind == "keep"}.values())
