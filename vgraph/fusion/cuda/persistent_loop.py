"""Persistent loop: a loop over frontiers in CUDA C++, section by section or as one function that walks all frontiers.

Takes: a LoopBody. Gives: source text, a LoopOnDevice. Runs once per function.
Source: Cavs section 3.5, and persistent kernels: what a frontier's rows need between two products is one section,
run by a team a row; in a walk, blocks keep their part of the matrices and wait for one another between frontiers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgraph.fusion.cuda.emit import NARROW, design
from vgraph.fusion.cuda.high_degree_rows import write_stages
from vgraph.fusion.cuda.kernel import BLOCK, SHARED_BYTES, THREADS, head, lay_scratch
from vgraph.fusion.cuda.lanes import widest
from vgraph.fusion.cuda.target import WARP
from vgraph.fusion.emitter import INDICES, Emitter
from vgraph.fusion.expressions import C_TYPES
from vgraph.fusion.scratch import edge_arrays, row_arrays
from vgraph.fusion.text import block, indented
from vgraph.ir.kernel import Entry, HubStep, KernelSpec
from vgraph.ir.loop_body import HubCopy, HubKernel, LoopBody, LoopOnDevice, Product, Section, Spot, Walk
from vgraph.ir.moves import Gather, PutSlot, TakeSlot
from vgraph.ir.program import Op, Value, op_name
from vgraph.ir.space import EDGE, SHARED

_WALK_THREADS = 256  # a block
_ROWS = 4  # that a thread multiplies at once
SECTION_HEAD = ("first", "count", "edge", "most")  # the first vertex row, how many, their first edge; hubs have more
COPY_HEAD = ("first", "count", "edge", "rows", "hubs", "starts", "chunk")  # ``count`` chunks of ``chunk`` edges
WALK_HEAD = ("v_ptr", "first", "stop", "step", "slices", "arrived")
PRODUCT_WORDS = ("at", "columns", "from", "down", "across")  # place in the block's memory, columns a slice, matrix

Things = Sequence["KernelSpec | Op"]  # all that a row's team can do without asking others
Part = Product | Things


def emit_loop(body: LoopBody, name: str) -> tuple[str, LoopOnDevice] | None:
    """The functions of a loop, and how they are launched; None: rows are too long for a block's own memory."""
    parts = _parts(body)
    lanes = max((design(u.kernel).lanes for u in body.units if u.kernel is not None), default=WARP)
    steps: list[Section | Product] = []
    texts: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, Product):
            steps.append(part)
            continue
        own = f"{name}_section{number}"
        found = [_SectionText(body, own, lanes, 1, part)]
        if lanes < WARP and _kernel_pointers(part):
            found.append(_SectionText(body, f"{own}_wide", lanes, WARP // lanes, part))
        if any(section.room_bytes > SHARED_BYTES for section in found):
            return None
        wide = found[1].entry if len(found) > 1 else None
        section = Section(found[0].entry, wide, NARROW * (WARP // lanes), found[0].roots)
        hubs, text = _hubs(body, part, own, lanes, section.roots)
        steps.append(replace(section, hubs=hubs, pointers=_pointers(part) if hubs else ()))
        texts += [*(section.text for section in found), text]
    walk = _WalkText(body, f"{name}_walk", lanes, parts)
    return "".join([*texts, walk.text]), LoopOnDevice(body, tuple(steps), walk.walk)


def _parts(body: LoopBody) -> list[Part]:
    """Products, and what lies between them; views do nothing."""
    parts: list[Part] = []
    things: list[KernelSpec | Op] = []
    for unit in body.units:
        op = unit.op
        if op is not None and op_name(op.target) in ("mm", "addmm"):
            parts.append(Product(op))
            things = []
        elif op is None or body.place(op.results[0]).root is op.results[0]:
            if not things:
                parts.append(things)
            thing = unit.kernel or op
            assert thing is not None
            things.append(thing)
    return parts


def _hubs(
    body: LoopBody, part: Things, name: str, lanes: int, roots: tuple[Value, ...]
) -> tuple[tuple[HubKernel | HubCopy, ...], str]:
    """What the same part does with rows of very many edges: each of its kernels and copies in stages."""
    texts: list[str] = []
    hubs: list[HubKernel | HubCopy] = []
    for number, thing in enumerate(part if _pointers(part) else ()):
        if isinstance(thing, KernelSpec):
            target = design(thing)
            functions, loop = write_stages(replace(target, slots=WARP // target.lanes), f"{name}_{number}")
            if loop is None:
                return (), ""
            hubs.append(HubKernel(loop, thing))
            texts += [function.text() for function in functions]
        else:
            copy = _CopyText(body, f"{name}_copy{number}", lanes, thing, roots)
            hubs.append(HubCopy(HubStep(copy.entry, takes_chunks=True, pointer="in_ptr")))
            texts.append(copy.text)
    return tuple(hubs), "".join(texts)


def _kernel_pointers(part: Things) -> set[str]:
    specs = [thing for thing in part if isinstance(thing, KernelSpec)]
    return {f"{stage.over}_ptr" for spec in specs for stage in design(spec).layout.stages if stage.over}


def _pointers(part: Things) -> tuple[str, ...]:
    """By which index tensors the part goes over edges."""
    copies = any(not isinstance(thing, KernelSpec) and thing.results[0].space == EDGE for thing in part)
    return tuple(sorted(_kernel_pointers(part) | ({"in_ptr"} if copies else set())))


class _Text:
    """What sections, copies and walks share: rows by teams of ``lanes`` times ``slots``.

    ``edges``: those of a row, that are copied; ``near_bytes``: of a team's scratch.
    """

    edges = ("in_ptr[v]", "in_ptr[v + 1]")

    def __init__(self, body: LoopBody, name: str, lanes: int, slots: int = 1, threads: int = THREADS) -> None:
        self.body, self.lanes, self.slots = body, lanes, slots
        self.team = lanes * slots
        self.teams = threads // self.team
        self.entry = Entry(name, self.team, threads)
        self.near_bytes = 0

    @property
    def room_bytes(self) -> int:
        """Scratch of all teams of a block."""
        return self.near_bytes * self.teams

    # ------------------------------------------------------------ one row
    def row(self, part: Things) -> str:
        """A row's work, in the order of its units; what one lane leaves in memory the others may read."""
        sync = f"vg_sync<{self.team}>();"
        texts = (self._kernel(thing) if isinstance(thing, KernelSpec) else self.copy(thing) for thing in part)
        return block(sync, (block("{", text, "}", sync) for text in texts))  # the row before has been read

    def _kernel(self, spec: KernelSpec) -> str:
        target = replace(design(spec), lanes=self.lanes, slots=self.slots)
        near, num_bytes = lay_scratch([*row_arrays(target.layout), *edge_arrays(target.layout, BLOCK)], self.slots)
        self.near_bytes = max(self.near_bytes, num_bytes)
        return block(
            (f"const {_kind(v)}* l{v.id} = {self._base(v)}; (void)l{v.id};" for v in spec.loads),
            (f"{_kind(v)}* o{v.id} = {self._base(v)};" for v in spec.stores),
            near,
            Emitter(target.layout, target).row(),
        )

    def _base(self, value: Value) -> str:
        """The first row of what a kernel reads row by row."""
        spot = self.body.place(value)
        assert value.space == SHARED or spot.root.row_bytes == value.row_bytes, "kernels see through views themselves"
        return f"p{spot.root.id} + {spot.offset // value.dtype.itemsize}"

    def at(self, value: Value, row: str) -> str:
        """Where a row of a value lies."""
        spot = self.body.place(value)
        offset = spot.offset // value.dtype.itemsize
        if spot.root.space == SHARED:
            return f"p{spot.root.id} + {offset}"
        return f"p{spot.root.id} + {row} * {math.prod(spot.root.row_shape)} + {offset}"

    def copy(self, op: Op) -> str:
        """A row's own numbers, or those of its edges, from where they lie to where they are wanted."""
        result, size = op.results[0], math.prod(op.results[0].row_shape)
        row = "e" if result.space == EDGE else "v"
        to = self.at(result, row)
        each = f"for (int64_t e = {self.edges[0]}; e < {self.edges[1]}; ++e)"
        cleared = f"else vg_clear_row<{self.team}>({to}, {size}, all);"
        if isinstance(op.target, Gather):
            other = "(int64_t)src_rows[e]" if op.target.end == "src" else "v"
            return f"{each} {self._moved(to, self.at(op.args[0], other), size)}"
        if isinstance(op.target, TakeSlot):
            copied = self._moved(to, self.at(op.args[0], "e"), size)
            return block(f"const int64_t e = in_ptr[v] + {op.target.k};", f"if (e < in_ptr[v + 1]) {copied}", cleared)
        if isinstance(op.target, PutSlot):
            copied = self._moved(to, self.at(op.args[0], "v"), size)
            return block(f"{each} {{", f"if (e == in_ptr[v] + {op.target.k}) {copied}", cleared, "}")
        lines, offset = list[str](), 0
        for value in op.args[0] if op_name(op.target) == "cat" else [op.args[0]]:
            width = size if op_name(op.target) == "expand" else math.prod(value.row_shape)
            lines.append(self._moved(f"{to} + {offset}", self.at(value, row), width))
            offset += width
        return block(f"{each} {{" if row == "e" else "{", lines, "}")

    def _moved(self, to: str, source: str, size: int) -> str:
        return f"vg_copy_row<{self.team}>({to}, {source}, {size}, all);"

    # ------------------------------------------------------------ around it
    def head(self, words: Iterable[str], roots: Iterable[Value], residents: int = 4) -> str:
        words = (*words, *INDICES, *(f"p{v.id}" for v in roots))
        own = f"const int team = threadIdx.x / {self.team}; (void)team;"
        return head(self.entry, words, self.lanes, residents, own)

    def pointers(self, roots: Iterable[Value]) -> str:
        """Rows that one frontier alone needs lie as if those of all did; v0, e0: where it begins."""
        temporary = {v.id for v in self.body.temporary}
        lines: list[str] = []
        for v in roots:
            shift = f" - {'e0' if v.space == EDGE else 'v0'} * {math.prod(v.row_shape)}" if v.id in temporary else ""
            lines.append(f"{_kind(v)}* p{v.id} = ({_kind(v)}*)w_p{v.id}{shift};")
        return block(lines)

    def roots_of(self, text: str, parts: Sequence[Part]) -> tuple[Value, ...]:
        """Whose addresses the text names."""
        named = {int(found) for found in re.findall(r"\bp(\d+)\b", text)}
        values: list[Value] = []
        for thing in (one for part in parts for one in ((part.op,) if isinstance(part, Product) else part)):
            kernel = isinstance(thing, KernelSpec)
            values += (*thing.loads, *thing.stores) if kernel else (*thing.operands(), *thing.results)
        found = {spot.root.id: spot.root for spot in map(self.body.place, values)}
        return tuple(found[i] for i in sorted(named))


def _kind(value: Value) -> str:
    return C_TYPES[value.dtype]


class _SectionText(_Text):
    """One section, for the rows of one frontier."""

    def __init__(self, body: LoopBody, name: str, lanes: int, slots: int, part: Things) -> None:
        super().__init__(body, name, lanes, slots)
        row = self.row(part)
        self.roots = self.roots_of(row, [part])
        scratch = f"""
        alignas(16) __shared__ char shared[{self.room_bytes}];
        char* scratch = shared + team * {self.near_bytes};
        """
        first, step = f"w_first + (int64_t)blockIdx.x * {self.teams} + team", f"(int64_t)gridDim.x * {self.teams}"
        text = f"""
        {self.head(SECTION_HEAD, self.roots)}
          {scratch if self.near_bytes else ""}
          const int64_t v0 = w_first, e0 = w_edge; (void)e0;
          {self.pointers(self.roots)}
          for (int64_t v = {first}; v < w_first + w_count; v += {step}) {{
            if (vg_is_hub(in_ptr, out_ptr, v, w_most)) continue;
            {row}
          }}
        }}
        """
        self.text = "\n" + indented(text)


class _CopyText(_Text):
    """One copy of rows, for the hubs of one frontier: a team a chunk of edges."""

    edges = ("start", "stop")

    def __init__(self, body: LoopBody, name: str, lanes: int, op: Op, roots: tuple[Value, ...]) -> None:
        super().__init__(body, name, lanes)
        first, step = f"(int64_t)blockIdx.x * {self.teams} + team", f"(int64_t)gridDim.x * {self.teams}"
        text = f"""
        {self.head(COPY_HEAD, roots)}
          const int64_t v0 = w_first, e0 = w_edge; (void)v0; (void)e0;
          {self.pointers(roots)}
          for (int64_t item = {first}; item < w_count; item += {step}) {{
            const int64_t v = ((const int32_t*)w_rows)[((const int32_t*)w_hubs)[item]];
            const int64_t start = ((const int64_t*)w_starts)[item], most = start + w_chunk;
            const int64_t stop = most < in_ptr[v + 1] ? most : in_ptr[v + 1]; (void)stop;
            {"" if op.results[0].space == EDGE else "if (start > in_ptr[v]) continue;"}
            {{
              {self.copy(op)}
            }}
          }}
        }}
        """
        self.text = "\n" + indented(text)


class _WalkText(_Text):
    """All frontiers: groups of blocks share out a frontier's rows, the blocks of a group the columns of products."""

    def __init__(self, body: LoopBody, name: str, lanes: int, parts: Sequence[Part]) -> None:
        super().__init__(body, name, lanes, threads=_WALK_THREADS)
        products = [part for part in parts if isinstance(part, Product)]
        frontier = self._frontier(parts)
        roots = self.roots_of(frontier, parts)
        numbered = (f"{word}{i}" for i in range(len(products)) for word in PRODUCT_WORDS)
        text = f"""
        {self.head((*WALK_HEAD, "scratch", *numbered), roots, 1)}
          const int64_t* __restrict__ v_ptr = (const int64_t*)w_v_ptr;
          uint32_t* arrived = (uint32_t*)w_arrived;
          const int slices = (int)w_slices, slice = blockIdx.x % slices;
          const int64_t group = blockIdx.x / slices, groups = gridDim.x / slices;
          char* scratch = vg_room + w_scratch + team * {self.near_bytes}; (void)scratch;
          {block(_matrix(i, product) for i, product in enumerate(products))}
          __syncthreads();
          for (int64_t number = w_first; number != w_stop; number += w_step) {{
            const int64_t v0 = v_ptr[number], v1 = v_ptr[number + 1], e0 = in_ptr[v0]; (void)e0;
            const int64_t share = (v1 - v0 + groups - 1) / groups;
            const int64_t mine = v0 + group * share, from = mine < v1 ? mine : v1;
            const int64_t stop = from + share < v1 ? from + share : v1;
            {self.pointers(roots)}
            {frontier}
            vg_meet(arrived);
          }}
        }}
        """
        self.text = "\n" + indented(text)
        self.walk = Walk(self.entry, tuple(products), self.room_bytes, roots)

    def _frontier(self, parts: Sequence[Part]) -> str:
        """Sections and products; blocks of a group wait for one another where one reads what others wrote."""
        texts: list[str] = []
        written: set[int] = set()  # since they last waited
        number = 0
        for part in parts:
            waits = bool(written) if not isinstance(part, Product) else self.body.place(part.left).root.id in written
            if waits:
                texts.append("if (slices > 1) vg_meet(arrived); else __syncthreads();")
                written.clear()
            if isinstance(part, Product):
                texts.append(self._product(number, part))
                number += 1
                written.add(part.result.id)
                continue
            head = f"for (int64_t v = from + slice * {self.teams} + team; v < stop; v += slices * {self.teams})"
            texts.append(f"{head} {{\n{self.row(part)}\n}}")
            made = (thing.stores if isinstance(thing, KernelSpec) else thing.results for thing in part)
            written |= {v.id for values in made for v in values}
        return block(texts)

    def _product(self, number: int, product: Product) -> str:
        left, result = self.body.place(product.left), product.result
        rows = "in_ptr[from], in_ptr[stop]" if product.is_on_edges else "from, stop"
        bias = self.at(product.bias, "") if product.bias is not None else f"(const {_kind(result)}*)nullptr"
        k = product.right.shape[0]
        assert isinstance(k, int)
        return (
            f"vg_rows_times<{_ROWS}, {_width(left, k)}, {k}>({self.at(result, '0')}, {result.shape[1]}, "
            f"{self.at(product.left, '0')}, {math.prod(left.root.row_shape)}, m{number}, {bias}, first{number}, "
            f"has{number}, {rows});"
        )


def _matrix(number: int, product: Product) -> str:
    """A block's columns of a matrix, fetched to its own memory."""
    kind, (k, n) = _kind(product.right), product.right.shape
    left, columns = f"left{number}", f"(int)w_columns{number}"
    given = f"w_down{number}, w_across{number}, {k}, first{number}, has{number}"
    return f"""
    {kind}* m{number} = ({kind}*)(vg_room + w_at{number});
    const int first{number} = slice * {columns};
    const int {left} = {n} - first{number}, has{number} = {left} < {columns} ? ({left} > 0 ? {left} : 0) : {columns};
    vg_fetch(m{number}, (const {kind}*)w_from{number}, {given});
    """


def _width(left: Spot, k: int) -> int:
    """Numbers of a row in one aligned access."""
    size = left.root.dtype.itemsize
    step, offset = math.prod(left.root.row_shape), left.offset // size
    return widest(math.gcd(k, step, offset), 16 // size)
