"""Kernel: one function of a kernel in CUDA C++: its head, its scratch, and what a team of lanes does with a row.

Takes: a kernel's layout. Gives: the text of one function. Runs once per function.
Numbers that lanes hand to one another lie in scratch: in a block's own memory, or in the GPU's where that is too small
or where several functions share a row.
"""

from __future__ import annotations

from collections.abc import Iterable

from vgraph.fusion.cuda.target import CudaTarget
from vgraph.fusion.emitter import INDICES, Emitter, index_pointers, value_pointers
from vgraph.fusion.scratch import Array, bytes_of, edge_arrays, row_arrays
from vgraph.fusion.text import block, indented
from vgraph.ir.kernel import Entry

# Words ahead of INDICES, loads and stores: rows (0: all from ``first`` on), how many, scratch in the GPU's memory;
# of rows in chunks: ``first`` edges a chunk, each chunk's row in ``rows`` (or each row's first chunk) and first edge.
# In a loop over frontiers, rows of more than ``most`` edges (0: none) are left to those.
HEAD = ("rows", "first", "count", "scratch", "hubs", "starts", "partials", "most")
THREADS = 128  # a block
SHARED_BYTES = 48 * 1024  # of a block's own memory, that every GPU has without asking
_RESIDENT = 512  # threads of a processor that registers must be left for
BLOCK = 8  # vg_block of teams.cuh


def head(entry: Entry, words: Iterable[str], lanes: int, residents: int, own: str) -> str:
    """A function's arguments, 64-bit words all, and what every lane knows of itself; ``own``: of its team."""
    parameters = ", ".join(f"int64_t w_{word}" for word in words)
    return f"""
    extern "C" __global__ void __launch_bounds__({entry.threads}, {residents}) {entry.name}({parameters}) {{
      const int all = threadIdx.x % {entry.team}, lane = threadIdx.x % {lanes}; (void)all; (void)lane;
      const int slot = all / {lanes}; (void)slot;
      {own}
      {index_pointers(lambda index: f"w_{index}")}
    """


def lay_scratch(arrays: Iterable[Array], slots: int, base: str = "scratch") -> tuple[str, int]:
    """What finds every array in ``base``, and the bytes of all."""
    lines: list[str] = []
    end = 0
    for one in arrays:
        room = rounded_up(one.size * bytes_of(one.value))
        at = f"{end} + slot * {room}" if one.of_an_edge and slots > 1 else f"{end}"
        lines.append(f"{one.kind}* {one.name} = ({one.kind}*)({base} + {at}); (void){one.name};")
        end += room * (slots if one.of_an_edge else 1)
    return block(lines), end


def rounded_up(num_bytes: int) -> int:
    """To where the next values may begin."""
    return -(-num_bytes // 16) * 16


class Function:
    """One function of a kernel."""

    def __init__(self, target: CudaTarget, name: str) -> None:
        self.target, self.layout = target, target.layout
        self.emitter = Emitter(target.layout, target)
        self.near, self.near_bytes = lay_scratch(self.near_arrays(), target.slots)
        self.teams = THREADS // self.target.team
        while self.teams * self.near_bytes > SHARED_BYTES and self.teams * self.target.team > 32:
            self.teams //= 2
        self.is_far = self.teams * self.near_bytes > SHARED_BYTES
        self.entry = Entry(name, self.target.team, self.teams * self.target.team)

    def near_arrays(self) -> list[Array]:
        """What lies in the team's scratch."""
        return [*row_arrays(self.layout), *edge_arrays(self.layout, BLOCK)]

    @property
    def far_bytes(self) -> int:
        """Bytes of a team's scratch, if that lies in the GPU's memory."""
        return self.near_bytes if self.is_far else 0

    def text(self) -> str:
        """The whole function."""
        return "\n" + indented(block(self._open(), self.body(), "}"))

    def _open(self) -> str:
        spec, residents = self.layout.spec, _RESIDENT // self.entry.threads
        values = [*(f"l{v.id}" for v in spec.loads), *(f"o{v.id}" for v in spec.stores)]
        own = f"""
        const int64_t team = (int64_t)blockIdx.x * {self.teams} + threadIdx.x / {self.target.team};
        const int64_t teams = (int64_t)gridDim.x * {self.teams};
        const int32_t* rows = (const int32_t*)w_rows;
        """
        return block(
            head(self.entry, (*HEAD, *INDICES, *values), self.target.lanes, residents, own),
            value_pointers(spec, lambda name: f"w_{name}", "team"),
        )

    def near_scratch(self) -> str:
        """Where this team's scratch lies."""
        if not self.near_bytes:
            return ""
        if self.is_far:
            return block(f"char* scratch = (char*)w_scratch + team * {self.near_bytes};", self.near)
        return block(
            f"alignas(16) __shared__ char shared[{self.teams * self.near_bytes}];",
            f"char* scratch = shared + threadIdx.x / {self.target.team} * {self.near_bytes};",
            self.near,
        )

    def body(self) -> str:
        """What it does, for whole rows."""
        after_last = self.target.row_team.sync if self.near_bytes else ""  # the row before has been read
        skip = "if (vg_is_hub(in_ptr, out_ptr, v, w_most)) continue;" if self.layout.spec.in_loop else ""
        return f"""
        {self.near_scratch()}
        {self.emitter.open_outer_sums()}
        for (int64_t item = team; item < w_count; item += teams) {{
          const int64_t v = rows ? (int64_t)rows[item] : w_first + item;
          {skip}
          {after_last}
          {self.emitter.row()}
        }}
        {self.emitter.close_outer_sums()}
        """
