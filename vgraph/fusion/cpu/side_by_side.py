"""Side by side: narrow rows that edges read at their other end, moved into one tensor before a kernel runs.

Takes: a KernelSpec. Gives: the text that moves them, and that finds them. Runs once per function.
A GAT's backward reads four tensors of eight numbers a vertex at the far end of each edge: four cache lines, of which it
uses half, where two hold all. Whether they are moved is decided at each call (``runtime/cpu/kernels.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vgraph.fusion.expressions import C_TYPES
from vgraph.fusion.text import block
from vgraph.ir.kernel import KernelSpec
from vgraph.ir.program import Value

WORDS = ("side", "side_rows")  # where they lie side by side (0: each where it was), and how many rows; behind stores


def far_row(spec: KernelSpec, value: Value, row: str) -> str:
    """The pointer to a row that a load has at the other end of an edge."""
    start, step = far_start(spec, value)
    return f"{start} + (int64_t){row} * {step}"


def far_start(spec: KernelSpec, value: Value) -> tuple[str, str]:
    """Where such rows begin, and how far from one another they lie."""
    if value in spec.side_by_side:
        return f"s{value.id}", "side_step"
    return f"l{value.id}", str(math.prod(value.row_shape))


def side_pointers(spec: KernelSpec, word: Callable[[str], str]) -> str:
    """Where a kernel finds them; nothing where it has none."""
    if not spec.side_by_side:
        return ""
    size, kind = _size_and_kind(spec)
    lines = [
        f"const {kind}* __restrict__ side = (const {kind}*){word('side')};",
        f"const int64_t side_step = side ? {spec.side_step} : {size};",
    ]
    for number, value in enumerate(spec.side_by_side):
        lines.append(f"const {kind}* __restrict__ s{value.id} = side ? side + {number * size} : l{value.id};")
    return block(lines)


def moving(spec: KernelSpec, number: int, word: Callable[[str], str]) -> str:
    """The function that moves them, for some rows."""
    if not spec.side_by_side:
        return ""
    size, kind = _size_and_kind(spec)
    loads, moves = list[str](), list[str]()
    for place, value in enumerate(spec.side_by_side):
        loads.append(f"const {kind}* __restrict__ l{value.id} = (const {kind}*){word(f'l{value.id}')};")
        moves.append(f"side[v * {spec.side_step} + {place * size} + z] = l{value.id}[v * {size} + z];")
    loops = block(f"for (int64_t z = 0; z < {size}; ++z) {move}" for move in moves)
    return f"""
    static int64_t side{number}(int64_t begin, int64_t end, int64_t, void* context) {{
      const int64_t* a = (const int64_t*)context;
      {kind}* __restrict__ side = ({kind}*){word("side")};
      {block(loads)}
      for (int64_t v = begin; v < end; ++v) {{
        {loops}
      }}
      return 0;
    }}
    """


def move_first(spec: KernelSpec, number: int, word: Callable[[str], str], pool: str) -> str:
    """The statement by which a kernel moves them before it begins."""
    if not spec.side_by_side:
        return ""
    run = f"vg_run(0, {word('side_rows')}, nullptr, {spec.side_step}, side{number}, (void*)a, (void*){pool})"
    return f"if ({word('side')} && {run}) return 1;"


def _size_and_kind(spec: KernelSpec) -> tuple[int, str]:
    first = spec.side_by_side[0]
    return math.prod(first.row_shape), C_TYPES[first.dtype]
