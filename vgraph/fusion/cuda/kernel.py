"""Device text: what a team of lanes does with a row, in CUDA C++.

Takes: a kernel's layout. Gives: the text of one function. Runs once per function.
A team of lanes has a row, and each slot of a team an edge. Numbers that lanes hand to one another lie in scratch:
in a block's own memory, or in the GPU's where that is too small or where several functions share a row.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from vgraph.fusion.cpu.emit import INDICES, WIDE_INDICES
from vgraph.fusion.cuda.features import LaneBody, LaneFeatures, widest
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.feature_body import Body
from vgraph.fusion.layout import Layout, Loop, Stage
from vgraph.fusion.stores import accumulated, combined, finished, put_loop_store, start
from vgraph.ir.kernel import Entry, KernelSpec
from vgraph.ir.moves import SegmentReduce
from vgraph.ir.program import Op, Value
from vgraph.ir.space import SHARED

# Words ahead of INDICES, loads and stores: rows (0: all from ``first`` on), how many, scratch in the GPU's memory;
# of rows in chunks: ``first`` edges a chunk, each chunk's row in ``rows`` (or each row's first chunk) and first edge.
# In a loop over frontiers, rows of more than ``most`` edges (0: none) are left to those.
HEAD = ("rows", "first", "count", "scratch", "hubs", "starts", "partials", "most")
THREADS = 128  # a block
_RESIDENT = 512  # threads of a processor that registers must be left for
_SHARED_BYTES = 48 * 1024  # of a block, that every GPU has without asking
_BLOCK = 8  # vg_block of teams.cuh
_REGISTERS = 64  # numbers of sums that a lane keeps
_WIDTHS = {"bool": 1, "float": 4, "int32_t": 4}  # bytes of a number in scratch, where not 8


@dataclass(frozen=True, eq=False)
class Design:
    """What all functions of one kernel share; ``most``: numbers in a vector, ``lanes``: how many share an edge.

    ``span``: vectors of a row that a launch has in one go, where features are cut into tiles; 0: all.
    """

    spec: KernelSpec
    layout: Layout
    used: frozenset[int]
    outer: tuple[Op, ...]
    most: int
    lanes: int
    span: int = 0


@dataclass(eq=False)
class Writer:
    """The text of one function: ``slots`` edges of a row at a time."""

    design: Design
    name: str
    slots: int
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        design = self.design
        self.spec, self.layout, self.lanes, self.most = design.spec, design.layout, design.lanes, design.most
        self.team = self.lanes * self.slots
        self.near, self.near_bytes = lay_scratch(self.near_values(), self.slots)
        self.teams = THREADS // self.team
        while self.teams * self.near_bytes > _SHARED_BYTES and self.teams * self.team > 32:
            self.teams //= 2
        self.is_far = self.teams * self.near_bytes > _SHARED_BYTES
        self.entry = Entry(self.name, self.team, self.teams * self.team)
        self.write()

    @property
    def far_bytes(self) -> int:
        """Bytes of a team's scratch, if that lies in the GPU's memory."""
        return self.near_bytes if self.is_far else 0

    # ------------------------------------------------------------ scratch
    def row_values(self) -> list[Room]:
        """What stages hand to later stages of the same row."""
        needed = self.layout.row_arrays.union(*(s.arrays for s in self.layout.stages if not s.over))
        return [(f"t{v.id}", v, 1, False) for v in self._made(needed)]

    def edge_values(self) -> list[Room]:
        """What loops over the features of an edge hand to later loops."""
        needed = frozenset[int]().union(*(s.arrays for s in self.layout.stages if s.over))
        blocks = [
            (f"{side}{op.results[0].id}", value, _BLOCK, False)
            for op in self.design.outer
            for side, value in zip(("left", "right"), op.args, strict=True)
        ]
        return [*((f"t{v.id}", v, 1, True) for v in self._made(needed)), *blocks]

    def near_values(self) -> list[Room]:
        return [*self.row_values(), *self.edge_values()]

    def _made(self, ids: frozenset[int]) -> list[Value]:
        return [v for op in self.spec.ops for v in op.results if v.id in ids and v.id in self.design.used]

    # ------------------------------------------------------------ the whole
    def write(self) -> None:
        """The function, for whole rows."""
        self.open()
        self.lines += self.near_scratch("team")
        self.lines += [f"  int rows{op.results[0].id} = 0;" for op in self.design.outer]
        self.lines += [
            "  for (int64_t item = team; item < w_count; item += teams) {",
            "    const int64_t v = rows ? (int64_t)rows[item] : w_first + item;",
        ]
        if self.spec.in_loop:
            self.lines.append("    if (vg_is_hub(in_ptr, out_ptr, v, w_most)) continue;")
        if self.near_bytes:
            self.lines.append(f"    {self.sync()}")  # the row before has been read
        for stage in self.layout.stages:
            self.lines += self.edge_stage(stage) if stage.over else self.row_stage(stage)
        self.lines.append("  }")
        for op in self.design.outer:
            self.lines += [f"  {self.sync()}", f"  {self._add_outer(op)}"]
        self.lines.append("}")

    def open(self) -> None:
        """The head, and the variables that all functions have."""
        values = [*(f"l{v.id}" for v in self.spec.loads), *(f"o{v.id}" for v in self.spec.stores)]
        parameters = ", ".join(f"int64_t w_{name}" for name in (*HEAD, *INDICES, *values))
        bounds = f"{self.entry.threads}, {_RESIDENT // self.entry.threads}"
        self.lines += [
            f'extern "C" __global__ void __launch_bounds__({bounds}) {self.name}({parameters}) {{',
            f"  const int all = threadIdx.x % {self.team}, lane = threadIdx.x % {self.lanes}; (void)all; (void)lane;",
            f"  const int slot = all / {self.lanes}; (void)slot;",
            f"  const int64_t team = (int64_t)blockIdx.x * {self.teams} + threadIdx.x / {self.team};",
            f"  const int64_t teams = (int64_t)gridDim.x * {self.teams};",
            "  const int32_t* rows = (const int32_t*)w_rows;",
        ]
        for name in INDICES:
            kind = "int64_t" if name in WIDE_INDICES else "int32_t"
            self.lines.append(f"  const {kind}* __restrict__ {name} = (const {kind}*)w_{name}; (void){name};")
        for value in self.spec.loads:
            kind = C_TYPES[value.dtype]
            self.lines.append(f"  const {kind}* __restrict__ l{value.id} = (const {kind}*)w_l{value.id};")
        for value in self.spec.stores:
            kind, own = C_TYPES[value.dtype], ""
            if value.space == SHARED:
                kind, own = NUMBER_TYPES[value.dtype], f" + team * {math.prod(value.row_shape)}"
            self.lines.append(f"  {kind}* __restrict__ o{value.id} = ({kind}*)w_o{value.id}{own};")

    def near_scratch(self, number: str) -> list[str]:
        """Where this team's scratch lies; ``number``: that of the team among all, if in the GPU's memory."""
        if not self.near_bytes:
            return []
        if self.is_far:
            found = [f"char* scratch = (char*)w_scratch + {number} * {self.near_bytes};"]
        else:
            found = [
                f"alignas(16) __shared__ char shared[{self.teams * self.near_bytes}];",
                f"char* scratch = shared + threadIdx.x / {self.team} * {self.near_bytes};",
            ]
        return [f"  {line}" for line in (*found, *self.near)]

    def features(self, stage: Stage, loop: Loop, lanes: int, lane: str) -> LaneFeatures:
        return LaneFeatures(self.layout, stage, loop, self.most, lanes=lanes, lane=lane, span=self.design.span)

    def sync(self) -> str:
        return f"vg_sync<{self.team}>();"

    # ------------------------------------------------------------ stages
    def row_stage(self, stage: Stage) -> list[str]:
        lines: list[str] = []
        for loop in stage.loops:
            features = self.features(stage, loop, self.team, "all")
            lines += features.text(lambda body, loop=loop: self._statements(body, loop), "    ")
            if _hands_over(loop):
                lines.append(f"    {self.sync()}")
        return lines

    def edge_stage(self, stage: Stage) -> list[str]:
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        rows: set[str] = set()
        picks = False
        for loop in stage.loops:
            features = self.features(stage, loop, self.lanes, "lane")
            features.unrolled = self._reduces_in_registers(loop, features)
            inside += features.text(lambda body, loop=loop: self._statements(body, loop), "        ")
            if _hands_over(loop):
                inside.append(f"        vg_sync<{self.lanes}>();")
            rows |= features.rows
            for name, kind in features.peaks.items():
                before += _open_peak(name, kind, features.num_rounds())
            after += self._join_peaks(stage, loop, features)
            for op in reductions_of(loop):
                before += self.open_reduction(op, features)
                after += self.close_reduction(op, features, stage)
                picks |= op.reduction.picks
        if any(_hands_over(loop) for loop in stage.loops):
            inside.insert(0, f"        vg_sync<{self.lanes}>();")  # the edge before has been read
        if self.design.outer:
            inside += self._full_blocks(stage)
        if picks:
            before.append("    bool fresh = true;")
            inside.append("        fresh = false;")
        return ["    {", *before, *self._over_edges(stage, rows, inside), *after, "    }", f"    {self.sync()}"]

    def first_edge(self, ptr: str) -> str:
        return f"{ptr}[v]"

    def last_edge(self, ptr: str) -> str:
        return f"{ptr}[v + 1]"

    def _over_edges(self, stage: Stage, rows: set[str], inside: list[str]) -> list[str]:
        """Ids are read by all lanes of a team at once, then handed round."""
        ptr, edge, other = ("in_ptr", "e", "src_rows") if stage.over == "in" else ("out_ptr", "k", "out_dst")
        team, mask = self.team, f"vg_mask<{self.team}>()"
        reads = [("o", other)] if "o" in rows else []
        names_edge = any(re.search(r"\be\b", line) for line in inside)
        reads += [("e", "out_edges")] if edge == "k" and names_edge else []
        ends = f"from = {self.first_edge(ptr)}, stop = {self.last_edge(ptr)}"
        lines = [
            f"    for (int64_t {ends}; from < stop; from += {team}) {{",
            f"      const int num = stop - from < {team} ? (int)(stop - from) : {team};",
        ]
        for name, table in reads:
            lines.append(f"      const int32_t my_{name} = all < num ? {table}[from + all] : 0;")
        pragma = "" if any(_hands_over(loop) for loop in stage.loops) else "      #pragma unroll 4"
        lines += [pragma] if pragma else []
        lines.append(f"      for (int at = 0; at < num; at += {self.slots}) {{")
        lines.append("        const int mine = at + slot;")
        for name, _ in reads:
            given = f"__shfl_sync({mask}, my_{name}, mine, {team})" if team > 1 else f"my_{name}"
            lines.append(f"        const int64_t {name} = {given};")
        lines += ["        if (mine < num) {"] if self.slots > 1 else ["        {"]
        if edge == "e":
            lines.append("        const int64_t e = from + mine; (void)e;")
        lines.append(f"        const int64_t j = from + mine - {ptr}[v]; (void)j;")
        return [*lines, *inside, "        }", "      }", "    }"]

    # ------------------------------------------------------------ sums of outer products
    def _full_blocks(self, stage: Stage) -> list[str]:
        ops = {id(s.op): s.op for loop in stage.loops for s in loop.loop_stores if s.kind == "left"}
        lines: list[str] = []
        for op in ops.values():
            name = f"rows{op.results[0].id}"
            lines += [
                f"        if (++{name} == vg_block) {{",
                f"          {self.sync()} {self._add_outer(op)} {self.sync()} {name} = 0;",
                "        }",
            ]
        return lines

    def _add_outer(self, op: Op) -> str:
        (left, right), name = op.args, op.results[0].id
        columns = right.shape[1]
        sizes = f"{widest(columns, self.most)}, {left.shape[1]}, {columns}, {self.team}"
        return f"vg_outer<{sizes}>(o{name}, left{name}, right{name}, rows{name}, all);"

    # ------------------------------------------------------------ reductions over edges
    def _reduces_in_registers(self, loop: Loop, features: LaneFeatures) -> bool:
        count = sum(1 + self.needs_slot(op) for op in reductions_of(loop))
        return count * features.num_rounds() * features.width <= _REGISTERS

    def needs_slot(self, op: Op) -> bool:
        return len(op.results) > 1 and op.results[1].id in self.design.used

    def open_reduction(self, op: Op, features: LaneFeatures) -> list[str]:
        result, rounds, kind = op.results[0], features.num_rounds(), NUMBER_TYPES[op.results[0].dtype]
        vector, first = f"vg_t<{kind}, {features.width}>", start(op.reduction, kind)
        lines = [
            f"    {vector} a{result.id}[{rounds}];",
            f"    VG_UNROLL for (int n = 0; n < {rounds}; ++n) a{result.id}[n] = vg_set<{vector}>({first});",
        ]
        if self.needs_slot(op):
            places = f"vg_t<int32_t, {features.width}>"
            lines += [
                f"    {places} b{result.id}[{rounds}];",
                f"    VG_UNROLL for (int n = 0; n < {rounds}; ++n) b{result.id}[n] = vg_set<{places}>(-1);",
            ]
        return lines

    def _join_peaks(self, stage: Stage, loop: Loop, features: LaneFeatures) -> list[str]:
        """The sums of all slots that ride on a peak, each relative to the highest one."""
        lines: list[str] = []
        for name in features.peaks if self.slots > 1 else ():
            sums = [op.results[0].id for op in reductions_of(loop) if peak_name(stage, op, loop) == name]
            lines += [
                f"    VG_UNROLL for (int n = 0; n < {features.num_rounds()}; ++n)",
                f"    VG_UNROLL for (int across = {self.lanes}; across < {self.team}; across *= 2) {{",
                f"      const auto was = {name}[n], other = vg_swap(vg_mask<{self.team}>(), was, across);",
                f"      const auto mine = vg_raise({name}[n], other), theirs = vg_fade(other, {name}[n]);",
                *(
                    f"      a{s}[n] = a{s}[n] * mine + vg_swap(vg_mask<{self.team}>(), a{s}[n], across) * theirs;"
                    for s in sums
                ),
                "    }",
            ]
        return lines

    def close_reduction(self, op: Op, features: LaneFeatures, stage: Stage) -> list[str]:
        """From the registers of all slots to the scratch that later stages read."""
        lines = [f"    VG_UNROLL for (int n = 0; n < {features.num_rounds()}; ++n) {{"]
        if self.slots > 1 and op.results[0].id not in stage.online_sums.rides:
            lines.append(f"      {self._across_slots(op, features.width)}")
        lines += [
            f"      {features.vector()}",
            f"      if (slot == 0 && {features.live() or 'true'}) {{",
            *(f"        {line}" for line in features.positions()),
            *(f"        {line}" for line in self.put_reduction(op, features, peak_name(stage, op, features.loop))),
        ]
        return [*lines, "      }", "    }"]

    def put_reduction(self, op: Op, features: LaneFeatures, peak: str) -> list[str]:
        """To where the row's other stages find it; ``peak``: on which it rides, or nothing."""
        result, lines, width, flat = op.results[0], list[str](), features.width, features.flat()
        if result.id in self.design.used:
            given = finished(op, f"a{result.id}[n]", width)
            if peak:
                given = f"vg_settle({given}, {peak}[n], in_ptr[v] < in_ptr[v + 1])"
            lines.append(f"vg_store<{width}>(t{result.id} + {flat}, {given});")
        if self.needs_slot(op):
            slots = f"vg_cast<int64_t>(b{result.id}[n])"
            lines.append(f"vg_store<{width}>(t{op.results[1].id} + {flat}, {slots});")
        return lines

    def _across_slots(self, op: Op, width: int) -> str:
        name, sizes, row = f"a{op.results[0].id}[n]", f"{self.team}, {self.lanes}", op.reduction
        largest = "true" if row.largest else "false"
        if row.picks and self.needs_slot(op):
            return f"vg_team_extremum<{largest}, {sizes}>({name}, b{op.results[0].id}[n]);"
        if row.picks:
            return f"vg_team_extreme<{largest}, {sizes}>({name}, fresh);"
        if row.team:
            return f"{name} = {row.team}<{sizes}>({name});"
        other = f"const auto other = vg_swap(vg_mask<{self.team}>(), {name}, across);"
        lanes = f"for (int across = {self.lanes}; across < {self.team}; across *= 2)"
        return f"VG_UNROLL {lanes} {{ {other} {combined(op, name, 'other', width)} }}"

    # ------------------------------------------------------------ statements
    def _statements(self, body: Body, loop: Loop) -> None:
        for store in loop.loop_stores:
            put_loop_store(body, store, self._accumulate)

    def _accumulate(self, body: Body, op: Op) -> None:
        (operand,) = op.operands()
        result, given, width = op.results[0], body.get(operand, reader=op), body.features.width
        target, ride = f"a{result.id}[n]", body.features.stage.online_sums.rides.get(result.id)
        if ride is not None:
            assert isinstance(body, LaneBody)
            body.put(f"{target} = {target} * fade{body.raise_peak(ride)} + {given};")
            return
        if op.reduction.picks:
            given = f"vg_set<vg_t<{NUMBER_TYPES[result.dtype]}, {width}>>({given})"
        place = f"b{result.id}[n]" if self.needs_slot(op) else ""
        position = f"vg_set<vg_t<int32_t, {width}>>((int32_t)j)"
        body.put(accumulated(op, target, given, width, place=place, position=position, first="fresh"))


def _hands_over(loop: Loop) -> bool:
    """Whether other lanes may read what this loop writes to scratch."""
    return any(store.kind in ("array", "feature", "product", "left", "right") for store in loop.loop_stores)


def reductions_of(loop: Loop) -> list[Op]:
    return [
        store.op for store in loop.loop_stores if isinstance(store.op.target, SegmentReduce) and store.kind == "reduce"
    ]


def peak_name(stage: Stage, op: Op, loop: Loop) -> str:
    """The running peak of a loop on which a sum rides; nothing if it does not."""
    ride = stage.online_sums.rides.get(op.results[0].id)
    return f"p{ride.peak.id}_{stage.loops.index(loop)}" if ride is not None else ""


def _open_peak(name: str, kind: str, rounds: int) -> list[str]:
    lowest = f"vg_set<{kind}>(-(vg_elem<{kind}>)vg_inf)"
    return [f"    {kind} {name}[{rounds}];", f"    VG_UNROLL for (int n = 0; n < {rounds}; ++n) {name}[n] = {lowest};"]


Room = tuple[str, Value, int, bool]  # a name, what lies there, how many of it, whether each slot has its own


def lay_scratch(values: list[Room], slots: int) -> tuple[list[str], int]:
    """The lines that find every value in ``scratch``, and the bytes of all."""
    lines: list[str] = []
    end = 0
    for name, value, times, per_slot in values:
        kind, size = NUMBER_TYPES[value.dtype], math.prod(value.row_shape) * times
        room = -(-size * _WIDTHS.get(kind, 8) // 16) * 16
        at = f"{end} + slot * {room}" if per_slot and slots > 1 else f"{end}"
        lines.append(f"{kind}* {name} = ({kind}*)(scratch + {at}); (void){name};")
        end += room * (slots if per_slot else 1)
    return lines, end
