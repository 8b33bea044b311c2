"""Loop text: a loop over frontiers in CUDA C++, section by section or as one function that walks all frontiers.

Takes: a LoopBody. Gives: source text, a LoopOnDevice. Runs once per function.
Source: Cavs section 3.5, and persistent kernels: what a frontier's rows need between two products is one section,
run by a team a row; in a walk, blocks keep their part of the matrices and wait for one another between frontiers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from vgraph.fusion.cpu.emit import INDICES, WIDE_INDICES
from vgraph.fusion.cuda.emit import NARROW, design_of
from vgraph.fusion.cuda.features import widest
from vgraph.fusion.cuda.high_degree_rows import write_stages
from vgraph.fusion.cuda.kernel import Design, Writer
from vgraph.fusion.expressions import C_TYPES
from vgraph.ir.kernel import Entry, HubStep, KernelSpec
from vgraph.ir.loop_body import HubCopy, HubKernel, LoopBody, LoopOnDevice, Product, Section, Spot, Walk
from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.space import EDGE, SHARED

_WARP = 32
_THREADS, _WALK_THREADS = 128, 256  # a block
_SECTION_BYTES = 48 * 1024  # of a block's own memory, that every GPU has without asking
_ROWS = 4  # that a thread multiplies at once
SECTION_HEAD = ("first", "count", "edge", "most")  # the first vertex row, how many, their first edge; hubs have more
COPY_HEAD = ("first", "count", "edge", "rows", "hubs", "starts", "chunk")  # ``count`` chunks of ``chunk`` edges
WALK_HEAD = ("v_ptr", "first", "stop", "step", "slices", "arrived")
PRODUCT_WORDS = ("at", "columns", "from", "down", "across")  # place in the block's memory, columns a slice, matrix


def emit_loop(body: LoopBody, name: str) -> tuple[str, LoopOnDevice] | None:
    """The functions of a loop, and how they are launched; None: rows are too long for a block's own memory."""
    parts = _parts(body)
    lanes = max((design_of(u.kernel).lanes for u in body.units if u.kernel is not None), default=_WARP)
    steps: list[Section | Product] = []
    lines: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, Product):
            steps.append(part)
            continue
        names = (f"{name}_section{number}", f"{name}_section{number}_wide")
        both = zip(names, _slots(part, lanes), strict=False)
        writers = [_SectionText(body, part, own, lanes, slots) for own, slots in both]
        if any(writer.room_bytes > _SECTION_BYTES for writer in writers):
            return None
        lines += [line for writer in writers for line in ["", *writer.lines]]
        wide = writers[1].entry if len(writers) > 1 else None
        section = Section(writers[0].entry, wide, NARROW * (_WARP // lanes), writers[0].roots)
        text, section = _with_hubs(body, part, section, f"{name}_section{number}", lanes)
        lines += text
        steps.append(section)
    walk = _WalkText(body, parts, f"{name}_walk", lanes)
    lines += ["", *walk.lines]
    return "\n".join(lines) + "\n", LoopOnDevice(body, tuple(steps), walk.walk)


Part = Product | list["KernelSpec | Op"]


def _parts(body: LoopBody) -> list[Part]:
    """Products, and between them all that a row's team can do without asking others; views do nothing."""
    parts: list[Part] = []
    for unit in body.units:
        op = unit.op
        if op is not None and op_name(op.target) in ("mm", "addmm"):
            parts.append(Product(op))
            continue
        if op is not None and body.place(op.results[0]).root is not op.results[0]:
            continue
        if not parts or isinstance(parts[-1], Product):
            parts.append([])
        part, thing = parts[-1], unit.kernel or op
        assert isinstance(part, list) and thing is not None
        part.append(thing)
    return parts


def _with_hubs(
    body: LoopBody, part: list[KernelSpec | Op], section: Section, name: str, lanes: int
) -> tuple[list[str], Section]:
    """What the same part does with rows of very many edges: each of its kernels and copies in stages."""
    pointers = _pointers(part)
    if not pointers:
        return [], section
    lines: list[str] = []
    hubs: list[HubKernel | HubCopy] = []
    for number, thing in enumerate(part):
        if isinstance(thing, KernelSpec):
            design = design_of(thing)
            writers, loop = write_stages(design, f"{name}_{number}", _WARP // design.lanes)
            if loop is None:
                return [], section
            hubs.append(HubKernel(loop, thing))
            lines += [line for writer in writers for line in ["", *writer.lines]]
        else:
            text = _CopyText(body, thing, f"{name}_copy{number}", lanes, section.roots)
            hubs.append(HubCopy(text.step))
            lines += ["", *text.lines]
    return lines, replace(section, hubs=tuple(hubs), pointers=pointers)


def _pointers(part: list[KernelSpec | Op]) -> tuple[str, ...]:
    """By which index tensors the part goes over edges."""
    found: set[str] = set()
    for thing in part:
        if isinstance(thing, KernelSpec):
            found |= {f"{stage.over}_ptr" for stage in design_of(thing).layout.stages if stage.over}
        elif thing.results[0].space == EDGE:
            found.add("in_ptr")
    return tuple(sorted(found))


def _slots(part: list[KernelSpec | Op], lanes: int) -> tuple[int, ...]:
    """Edges of a row at a time: one, and as many as a warp has room for where there are loops over edges."""
    loops = any(stage.over for spec in part if isinstance(spec, KernelSpec) for stage in design_of(spec).layout.stages)
    return (1, _WARP // lanes) if loops and lanes < _WARP else (1,)


class _RowText(Writer):
    """What a team does with a row of one kernel."""

    def __init__(self, design: Design, slots: int) -> None:
        super().__init__(design, "", slots)

    def write(self) -> None:
        self.lines += [line.removeprefix("  ") for line in self.near]
        for stage in self.layout.stages:
            self.lines += self.edge_stage(stage) if stage.over else self.row_stage(stage)


@dataclass(eq=False)
class _Text:
    """What sections and walks share: rows by teams of ``lanes`` times ``slots``."""

    body: LoopBody
    name: str
    lanes: int
    slots: int
    threads: int
    lines: list[str] = field(default_factory=list[str])
    near_bytes: int = 0  # of a team
    edges: tuple[str, str] = ("in_ptr[v]", "in_ptr[v + 1]")  # of a row, that are copied

    @property
    def team(self) -> int:
        return self.lanes * self.slots

    # ------------------------------------------------------------ one row
    def row(self, part: list[KernelSpec | Op]) -> list[str]:
        """A row's work, in the order of its units; what one lane leaves in memory the others may read."""
        lines = [f"    vg_sync<{self.team}>();"]  # the row before has been read
        for thing in part:
            lines += ["    {", *(self._kernel(thing) if isinstance(thing, KernelSpec) else self._copy(thing)), "    }"]
            lines.append(f"    vg_sync<{self.team}>();")
        return lines

    def _kernel(self, spec: KernelSpec) -> list[str]:
        text = _RowText(replace(design_of(spec), lanes=self.lanes), self.slots)
        self.near_bytes = max(self.near_bytes, text.near_bytes)
        lines = [f"    const {self._kind(v)}* l{v.id} = {self._base(v)}; (void)l{v.id};" for v in spec.loads]
        lines += [f"    {self._kind(v)}* o{v.id} = {self._base(v)};" for v in spec.stores]
        return lines + text.lines

    def _base(self, value: Value) -> str:
        """The first row of what a kernel reads row by row."""
        spot = self.body.place(value)
        assert value.space == SHARED or spot.root.row_bytes == value.row_bytes, "kernels see through views themselves"
        return f"p{spot.root.id} + {spot.offset // value.dtype.itemsize}"

    @staticmethod
    def _kind(value: Value) -> str:
        return C_TYPES[value.dtype]

    def at(self, value: Value, row: str) -> str:
        """Where a row of a value lies."""
        spot = self.body.place(value)
        offset = spot.offset // value.dtype.itemsize
        if spot.root.space == SHARED:
            return f"p{spot.root.id} + {offset}"
        return f"p{spot.root.id} + {row} * {math.prod(spot.root.row_shape)} + {offset}"

    def _copy(self, op: Op) -> list[str]:
        result, size = op.results[0], math.prod(op.results[0].row_shape)
        to = self.at(result, "e" if result.space == EDGE else "v")
        each = f"    for (int64_t e = {self.edges[0]}; e < {self.edges[1]}; ++e)"
        if isinstance(op.target, Gather):
            other = "(int64_t)src_rows[e]" if op.target.end == "src" else "v"
            return [f"{each} {self._moved(to, self.at(op.args[0], other), size)}"]
        if isinstance(op.target, TakeSlot):
            found = f"const int64_t e = in_ptr[v] + {op.target.k};"
            copied = self._moved(to, self.at(op.args[0], "e"), size)
            return [f"    {found}", f"    if (e < in_ptr[v + 1]) {copied}", f"    else {self._cleared(to, size)}"]
        if isinstance(op.target, PutSlot):
            copied = self._moved(to, self.at(op.args[0], "v"), size)
            test = f"if (e == in_ptr[v] + {op.target.k})"
            return [f"{each} {{", f"      {test} {copied}", f"      else {self._cleared(to, size)}", "    }"]
        lines, offset = list[str](), 0
        row = "e" if result.space == EDGE else "v"
        for value in op.args[0] if op_name(op.target) == "cat" else [op.args[0]]:
            width = math.prod(result.row_shape) if op_name(op.target) == "expand" else math.prod(value.row_shape)
            lines.append(f"      {self._moved(f'{to} + {offset}', self.at(value, row), width)}")
            offset += width
        return [f"{each} {{" if row == "e" else "    {", *lines, "    }"]

    def _moved(self, to: str, source: str, size: int) -> str:
        return f"vg_copy_row<{self.team}>({to}, {source}, {size}, all);"

    def _cleared(self, to: str, size: int) -> str:
        return f"vg_clear_row<{self.team}>({to}, {size}, all);"

    # ------------------------------------------------------------ around it
    def open(self, words: tuple[str, ...], roots: tuple[Value, ...], residents: int) -> None:
        names = (*words, *INDICES, *(f"p{v.id}" for v in roots))
        parameters = ", ".join(f"int64_t w_{name}" for name in names)
        bounds = f"{self.threads}, {residents}"
        self.lines += [
            f'extern "C" __global__ void __launch_bounds__({bounds}) {self.name}({parameters}) {{',
            f"  const int all = threadIdx.x % {self.team}, lane = threadIdx.x % {self.lanes}; (void)all; (void)lane;",
            f"  const int slot = all / {self.lanes}, team = threadIdx.x / {self.team}; (void)slot; (void)team;",
        ]
        for name in INDICES:
            kind = "int64_t" if name in WIDE_INDICES else "int32_t"
            self.lines.append(f"  const {kind}* __restrict__ {name} = (const {kind}*)w_{name}; (void){name};")

    def pointers(self, roots: tuple[Value, ...]) -> Iterator[str]:
        """Rows that one frontier alone needs lie as if those of all did; v0, e0: where it begins."""
        temporary = {v.id for v in self.body.temporary}
        for v in roots:
            shift = f" - {'e0' if v.space == EDGE else 'v0'} * {math.prod(v.row_shape)}" if v.id in temporary else ""
            yield f"{self._kind(v)}* p{v.id} = ({self._kind(v)}*)w_p{v.id}{shift};"

    def roots_of(self, lines: list[str], parts: list[Part]) -> tuple[Value, ...]:
        """Whose addresses the lines name."""
        named = {int(found) for line in lines for found in re.findall(r"\bp(\d+)\b", line)}
        values: list[Value] = []
        for part in parts:
            for thing in [part.op] if isinstance(part, Product) else part:
                kernel = isinstance(thing, KernelSpec)
                values += (*thing.loads, *thing.stores) if kernel else (*thing.operands(), *thing.results)
        found = {spot.root.id: spot.root for spot in map(self.body.place, values)}
        return tuple(found[i] for i in sorted(named))


class _SectionText(_Text):
    """One section, for the rows of one frontier."""

    def __init__(self, body: LoopBody, part: list[KernelSpec | Op], name: str, lanes: int, slots: int) -> None:
        super().__init__(body, name, lanes, slots, _THREADS)
        row = self.row(part)
        self.roots = self.roots_of(row, [part])
        self.open(SECTION_HEAD, self.roots, 4)
        if self.near_bytes:
            self.lines.append(f"  alignas(16) __shared__ char shared[{self.room_bytes}];")
            self.lines.append(f"  char* scratch = shared + team * {self.near_bytes};")
        self.lines.append("  const int64_t v0 = w_first, e0 = w_edge; (void)e0;")
        self.lines += [f"  {line}" for line in self.pointers(self.roots)]
        teams = _THREADS // self.team
        first = f"w_first + (int64_t)blockIdx.x * {teams} + team"
        head = f"for (int64_t v = {first}; v < w_first + w_count; v += (int64_t)gridDim.x * {teams}) {{"
        skip = "    if (vg_is_hub(in_ptr, out_ptr, v, w_most)) continue;"
        self.lines += [f"  {head}", skip, *row, "  }", "}"]
        self.entry = Entry(name, self.team, _THREADS)

    @property
    def room_bytes(self) -> int:
        return self.near_bytes * (_THREADS // self.team)


class _CopyText(_Text):
    """One copy of rows, for the hubs of one frontier: a team a chunk of edges."""

    def __init__(self, body: LoopBody, op: Op, name: str, lanes: int, roots: tuple[Value, ...]) -> None:
        super().__init__(body, name, lanes, 1, _THREADS, edges=("start", "stop"))
        self.open(COPY_HEAD, roots, 4)
        teams = _THREADS // self.team
        first = f"(int64_t)blockIdx.x * {teams} + team"
        self.lines += [
            "  const int64_t v0 = w_first, e0 = w_edge; (void)v0; (void)e0;",
            *(f"  {line}" for line in self.pointers(roots)),
            f"  for (int64_t item = {first}; item < w_count; item += (int64_t)gridDim.x * {teams}) {{",
            "    const int64_t v = ((const int32_t*)w_rows)[((const int32_t*)w_hubs)[item]];",
            "    const int64_t start = ((const int64_t*)w_starts)[item], most = start + w_chunk;",
            "    const int64_t stop = most < in_ptr[v + 1] ? most : in_ptr[v + 1]; (void)stop;",
            *([] if op.results[0].space == EDGE else ["    if (start > in_ptr[v]) continue;"]),
            "    {",
            *self._copy(op),
            "    }",
            "  }",
            "}",
        ]
        self.step = HubStep(Entry(name, self.team, _THREADS), takes_chunks=True, pointer="in_ptr")


class _WalkText(_Text):
    """All frontiers: groups of blocks share out a frontier's rows, the blocks of a group the columns of products."""

    def __init__(self, body: LoopBody, parts: list[Part], name: str, lanes: int) -> None:
        super().__init__(body, name, lanes, 1, _WALK_THREADS)
        self.products = [part for part in parts if isinstance(part, Product)]
        frontier = self._frontier(parts)
        roots = self.roots_of(frontier, parts)
        numbered = (f"{word}{i}" for i in range(len(self.products)) for word in PRODUCT_WORDS)
        self.open((*WALK_HEAD, "scratch", *numbered), roots, 1)
        self.lines += [
            "  const int64_t* __restrict__ v_ptr = (const int64_t*)w_v_ptr;",
            "  uint32_t* arrived = (uint32_t*)w_arrived;",
            "  const int slices = (int)w_slices, slice = blockIdx.x % slices;",
            "  const int64_t group = blockIdx.x / slices, groups = gridDim.x / slices;",
            f"  char* scratch = vg_room + w_scratch + team * {self.near_bytes}; (void)scratch;",
            *(line for i, product in enumerate(self.products) for line in self._matrix(i, product)),
            "  __syncthreads();",
            "  for (int64_t number = w_first; number != w_stop; number += w_step) {",
            "    const int64_t v0 = v_ptr[number], v1 = v_ptr[number + 1], e0 = in_ptr[v0]; (void)e0;",
            "    const int64_t share = (v1 - v0 + groups - 1) / groups;",
            "    const int64_t mine = v0 + group * share, from = mine < v1 ? mine : v1;",
            "    const int64_t stop = from + share < v1 ? from + share : v1;",
            *(f"    {line}" for line in self.pointers(roots)),
            *frontier,
            "    vg_meet(arrived);",
            "  }",
            "}",
        ]
        entry = Entry(name, self.team, _WALK_THREADS)
        room = self.near_bytes * (_WALK_THREADS // self.team)
        self.walk = Walk(entry, tuple(self.products), room, roots)

    def _matrix(self, number: int, product: Product) -> list[str]:
        kind, (k, n) = self._kind(product.right), product.right.shape
        return [
            f"  {kind}* m{number} = ({kind}*)(vg_room + w_at{number});",
            f"  const int first{number} = slice * (int)w_columns{number};",
            f"  const int left{number} = {n} - first{number}, has{number} = "
            f"left{number} < (int)w_columns{number} ? (left{number} > 0 ? left{number} : 0) : (int)w_columns{number};",
            f"  vg_fetch(m{number}, (const {kind}*)w_from{number}, w_down{number}, w_across{number}, {k}, "
            f"first{number}, has{number});",
        ]

    def _frontier(self, parts: list[Part]) -> list[str]:
        """Sections and products; blocks of a group wait for one another where one reads what others wrote."""
        lines: list[str] = []
        waits = "    if (slices > 1) vg_meet(arrived); else __syncthreads();"
        written: set[int] = set()  # since they last waited
        number = 0
        for part in parts:
            if isinstance(part, Product):
                if self.body.place(part.left).root.id in written:
                    lines.append(waits)
                    written.clear()
                lines.append(self._product(number, part))
                number += 1
                written.add(part.result.id)
                continue
            if written:
                lines.append(waits)
                written.clear()
            teams = _WALK_THREADS // self.team
            head = f"for (int64_t v = from + slice * {teams} + team; v < stop; v += slices * {teams}) {{"
            lines += [f"    {head}", *(f"  {line}" for line in self.row(part)), "    }"]
            written |= {v.id for thing in part for v in _made(thing)}
        return lines

    def _product(self, number: int, product: Product) -> str:
        left, result = self.body.place(product.left), product.result
        rows = "in_ptr[from], in_ptr[stop]" if product.is_on_edges else "from, stop"
        bias = self.at(product.bias, "") if product.bias is not None else f"(const {self._kind(result)}*)nullptr"
        k = product.right.shape[0]
        assert isinstance(k, int)
        width = self._width(left, k)
        return (
            f"    vg_rows_times<{_ROWS}, {width}, {k}>({self.at(result, '0')}, {result.shape[1]}, "
            f"{self.at(product.left, '0')}, {math.prod(left.root.row_shape)}, m{number}, {bias}, first{number}, "
            f"has{number}, {rows});"
        )

    @staticmethod
    def _width(left: Spot, k: int) -> int:
        """Numbers of a row in one aligned access."""
        size = left.root.dtype.itemsize
        step, offset = math.prod(left.root.row_shape), left.offset // size
        return widest(math.gcd(k, step, offset), 16 // size)


def _made(thing: KernelSpec | Op) -> tuple[Value, ...]:
    return thing.stores if isinstance(thing, KernelSpec) else thing.results
