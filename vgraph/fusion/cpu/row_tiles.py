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


def tile_pointers(spec: KernelSpec, word: Callable[[str], str], *, fills_tiles: bool) -> str:
    """Where the function of a tile finds the copies, counted from where the first feature of a row would be.

    ``fills_tiles``: of the function that puts there the rows that are made ahead.
    """
    edges, const = spec.over_edges, "" if fills_tiles else "const "
    lines = [f"const int64_t tile = {word('tile')} * {tile_size(edges)}, tile_rows = {word('tile_rows')};"]
    for place, value in enumerate(tiled_loads(edges)):
        kind, room = C_TYPES[value.dtype], f"({word('tiles')} + {place * TILE_BYTES} * tile_rows)"
        if not fills_tiles or value in spec.made_ahead:
            lines.append(f"{const}{kind}* __restrict__ c{value.id} = ({const}{kind}*){room} - tile;")
    return block(lines)


def tile_row(value: Value, row: str, tile: int) -> str:
    """The pointer to a copied row of ``tile`` features."""
    return f"c{value.id} + (int64_t){row} * {tile}"


def copying(spec: KernelSpec, number: int, word: Callable[[str], str]) -> str:
    """The function that copies a tile of some rows; nothing where all of them are made ahead."""
    if not _copied(spec):
        return ""
    moves: list[str] = []
    for place, value in enumerate(tiled_loads(spec.over_edges)):
        if value in spec.made_ahead:
            continue
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


def _copied(spec: KernelSpec) -> list[Value]:
    return [value for value in tiled_loads(spec.over_edges) if value not in spec.made_ahead]


def ahead(spec: KernelSpec, number: int, word: Callable[[str], str]) -> str:
    """The statement that makes rows ahead, whole, where features are not taken in tiles."""
    if not spec.made_ahead:
        return ""
    count, cost = word("tile_rows"), sum(math.prod(v.row_shape) for v in spec.made_ahead)
    return f"if (vg_run(0, {count}, nullptr, {cost}, ahead{number}, (void*)a, (void*){word('pool')})) return 1;"


def by_tiles(spec: KernelSpec, number: int, word: Callable[[str], str], num_words: int, cost: int) -> str:
    """The statement by which a kernel takes tile by tile, where it was given room for copies."""
    edges, run = spec.over_edges, f"mine, (void*){word('pool')})) return 1;"
    filled = [("copy", len(_copied(spec))), ("fill", len(spec.made_ahead))]
    of_rows = f"if (vg_run(0, {word('tile_rows')}, nullptr, "
    fills = [f"{of_rows}{count * tile_size(edges)}, {name}{number}, {run}" for name, count in filled if count]
    return f"""
    if ({word("tiles")}) {{
      int64_t mine[{num_words}];
      __builtin_memcpy(mine, a, sizeof mine);
      int64_t* tile = mine + (&{word("tile")} - a);
      for (*tile = 0; *tile < {num_tiles(edges)}; ++*tile) {{
        {block(fills)}
        if (vg_run(a[0], a[1], ptr, {max(1, cost // num_tiles(edges))}, tile{number}, {run}
      }}
      return 0;
    }}
    """
