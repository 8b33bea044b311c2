"""Row tiles: some features of all rows that edges read, copied side by side before a kernel takes these features alone.

Takes: a KernelSpec. Gives: the text that copies them, finds them, and takes tile by tile. Runs once per function.
Whether features are taken in tiles is decided at each call (``runtime/cpu/kernels.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vgraph.fusion.expressions import C_TYPES
from vgraph.fusion.text import block
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Value
from vgraph.ir.row_tiles import TILE_BYTES, num_tiles, tile_size, tiled_loads

# Room for the copies of one tile (0: features are not taken in tiles), how many rows, and which tile is taken.
WORDS = ("tiles", "tile_rows", "tile")


def tile_pointers(spec: KernelSpec, word: Callable[[str], str]) -> str:
    """Where the function of a tile finds the copies, counted from where the first feature of a row would be."""
    lines = [f"const int64_t tile = {word('tile')} * {tile_size(spec)}, tile_rows = {word('tile_rows')};"]
    for place, value in enumerate(tiled_loads(spec)):
        kind, room = C_TYPES[value.dtype], f"({word('tiles')} + {place * TILE_BYTES} * tile_rows)"
        lines.append(f"const {kind}* __restrict__ c{value.id} = (const {kind}*){room} - tile;")
    return block(lines)


def tiled_row(spec: KernelSpec, value: Value, row: str) -> str:
    """The pointer to a copied row."""
    return f"c{value.id} + (int64_t){row} * {tile_size(spec)}"


def copying(spec: KernelSpec, number: int, word: Callable[[str], str]) -> str:
    """The function that copies a tile of some rows."""
    moves: list[str] = []
    for place, value in enumerate(tiled_loads(spec)):
        to = f"(char*){word('tiles')} + ({place} * {word('tile_rows')} + v) * {TILE_BYTES}"
        row_bytes = math.prod(value.row_shape) * value.dtype.itemsize
        start = f"(const char*){word(f'l{value.id}')} + v * {row_bytes} + {word('tile')} * {TILE_BYTES}"
        moves.append(f"__builtin_memcpy({to}, {start}, {TILE_BYTES});")
    return f"""
    static int64_t copy{number}(int64_t begin, int64_t end, int64_t, void* context) {{
      const int64_t* a = (const int64_t*)context;
      for (int64_t v = begin; v < end; ++v) {{
        {block(moves)}
      }}
      return 0;
    }}
    """


def by_tiles(spec: KernelSpec, number: int, word: Callable[[str], str], num_words: int, cost: int) -> str:
    """The statement by which a kernel takes tile by tile, where it was given room for copies."""
    rows, run = word("tile_rows"), f"mine, (void*){word('pool')})) return 1;"
    return f"""
    if ({word("tiles")}) {{
      int64_t mine[{num_words}];
      __builtin_memcpy(mine, a, sizeof mine);
      int64_t* tile = mine + (&{word("tile")} - a);
      for (*tile = 0; *tile < {num_tiles(spec)}; ++*tile) {{
        if (vg_run(0, {rows}, nullptr, {len(tiled_loads(spec)) * tile_size(spec)}, copy{number}, {run}
        if (vg_run(a[0], a[1], ptr, {max(1, cost // num_tiles(spec))}, tile{number}, {run}
      }}
      return 0;
    }}
    """
