"""Emit for CUDA: KernelSpecs to one source in CUDA C++, and how each is launched.

Takes: KernelSpecs. Gives: source text, DeviceLoops; tempo: once a function.
A team of lanes has a row, and several slots of a team an edge each. Numbers that lanes hand to one another lie
in scratch. There are no atomics: whatever is summed is summed in an order that graph and kernel alone decide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgraph.fusion.emit import INDICES, WIDE_INDICES
from vgraph.fusion.expressions import C_TYPES, NUMBER_TYPES
from vgraph.fusion.features import Body
from vgraph.fusion.lanes import LaneFeatures, widest
from vgraph.fusion.stages import Layout, Loop, Sink, Stage, lay_out
from vgraph.ir.kernel import DeviceLoop, Entry, KernelSpec
from vgraph.ir.moves import SegmentReduce
from vgraph.ir.program import EDGE, SHARED, Op
from vgraph.ir.row_ops import outer_sum

HEAD = ("rows", "first", "count", "scratch")  # words ahead of INDICES, loads and stores
WARP = 32
_THREADS = 128  # a block
_RESIDENT = 512  # threads of a processor that registers must be left for
_SHARED_BYTES = 48 * 1024  # of a block, that every GPU has without asking
_NARROW = 4  # edges a slot, up to which a row gets one slot alone
_MOST_PIECES, _PIECE_BYTES = 1024, 32 << 20
_BLOCK = 8  # vg_block of teams.cuh
_REGISTERS = 64  # numbers of sums that a lane keeps


def emit_cuda(specs: Sequence[KernelSpec]) -> tuple[str, list[DeviceLoop]]:
    """One source with the functions of all specs, and how each spec is launched."""
    emitters = [_Emitter(spec, i) for i, spec in enumerate(specs)]
    texts = [emitter.source() for emitter in emitters]
    return "\n".join(['#include "prelude.cuh"', *texts]), [emitter.loop for emitter in emitters]


@dataclass(eq=False)
class _Emitter:
    """``lanes``: how many share an edge."""

    spec: KernelSpec
    number: int

    def __post_init__(self) -> None:
        self.layout: Layout = lay_out(self.spec, by_lanes=True)
        stored = [v for v in (*self.spec.loads, *self.spec.stores) if math.prod(v.row_shape) > 1]
        self.most = max(1, 16 // max((v.dtype.itemsize for v in stored), default=16))
        used = {v.id for op in self.spec.ops for v in op.operands()} | {v.id for v in self.spec.stores}
        self.used = used | {p.base.id for p in self.spec.places.values()}
        self.outer = [op for op in self.spec.ops if op.target is outer_sum]
        self.over = {stage.over for stage in self.layout.stages} - {""}
        self.lanes = self._lanes()
        self.pieces = self._pieces()

    def _lanes(self) -> int:
        """As many as the longest loop has vectors, up to a warp."""
        loops = [(stage, loop) for stage in self.layout.stages for loop in stage.loops if stage.over or not self.over]
        vectors = [LaneFeatures(self.layout, stage, loop, self.most).num_dealt() for stage, loop in loops]
        return WARP if self.outer else min(WARP, 1 << (max(vectors, default=1) - 1).bit_length())

    def _pieces(self) -> int:
        if not self.outer:
            return 0
        most = max(math.prod(v.row_shape) * v.dtype.itemsize for op in self.outer for v in op.results)
        return max(1, min(_MOST_PIECES, _PIECE_BYTES // most))

    def source(self) -> str:
        slots = 1 if self.outer or not self.over else WARP // self.lanes
        texts = [_Function(self, f"kernel{self.number}", 1)]
        if slots > 1:
            texts.append(_Function(self, f"kernel{self.number}_wide", slots))
        self.team_bytes = max(text.global_bytes for text in texts)
        pointer = "" if not self.over else "out_ptr" if self.spec.is_source or "out" in self.over else "in_ptr"
        wide = texts[1].entry if slots > 1 else None
        self.loop = DeviceLoop(texts[0].entry, wide, _NARROW * slots, pointer, self.team_bytes, self.pieces)
        return "\n".join(line for text in texts for line in ["", *text.lines]) + "\n"


@dataclass(eq=False)
class _Function:
    """The text of one function: ``slots`` edges of a row at a time."""

    emitter: _Emitter
    name: str
    slots: int
    lines: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        emitter = self.emitter
        self.spec, self.layout, self.lanes, self.most = emitter.spec, emitter.layout, emitter.lanes, emitter.most
        self.team = self.lanes * self.slots
        self.places, team_bytes = self._lay_scratch()
        self.teams = _THREADS // self.team
        while self.teams * team_bytes > _SHARED_BYTES and self.teams * self.team > WARP:
            self.teams //= 2
        self.is_global = self.teams * team_bytes > _SHARED_BYTES
        self.team_bytes = team_bytes
        self.global_bytes = team_bytes if self.is_global else 0
        self.entry = Entry(self.name, self.team, self.teams * self.team)
        self._write()

    # ------------------------------------------------------------ scratch
    def _lay_scratch(self) -> tuple[list[str], int]:
        """The lines that find every value in scratch, and the bytes of a team."""
        lines: list[str] = []
        end = 0
        edge = set[int]().union(*(stage.arrays for stage in self.layout.stages if stage.over))
        needed = self.layout.row_arrays.union(*(stage.arrays for stage in self.layout.stages))
        made = [v for op in self.spec.ops for v in op.results if v.id in needed and v.id in self.emitter.used]
        blocks = [(f"{side}{op.results[0].id}", value, _BLOCK) for op in self.emitter.outer
                  for side, value in zip(("left", "right"), op.args, strict=True)]  # fmt: skip
        for name, value, times in [*((f"t{v.id}", v, 1) for v in made), *blocks]:
            kind, size = NUMBER_TYPES[value.dtype], math.prod(value.row_shape) * times
            width = {"bool": 1, "float": 4, "int32_t": 4}.get(kind, 8)
            room = -(-size * width // 16) * 16
            at = f"{end} + slot * {room}" if value.id in edge and self.slots > 1 and times == 1 else f"{end}"
            lines.append(f"{kind}* {name} = ({kind}*)(scratch + {at}); (void){name};")
            end += room * (self.slots if value.id in edge and times == 1 else 1)
        return lines, end

    # ------------------------------------------------------------ the whole
    def _write(self) -> None:
        words = [*HEAD, *INDICES]
        values = [*(f"l{v.id}" for v in self.spec.loads), *(f"o{v.id}" for v in self.spec.stores)]
        parameters = ", ".join(f"int64_t w_{name}" for name in [*words, *values])
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
                own = f" + team * {math.prod(value.row_shape)}"
            self.lines.append(f"  {kind}* __restrict__ o{value.id} = ({kind}*)w_o{value.id}{own};")
        if self.team_bytes:
            if self.is_global:
                self.lines.append(f"  char* scratch = (char*)w_scratch + team * {self.team_bytes};")
            else:
                self.lines += [
                    f"  alignas(16) __shared__ char shared[{self.teams * self.team_bytes}];",
                    f"  char* scratch = shared + threadIdx.x / {self.team} * {self.team_bytes};",
                ]
            self.lines += [f"  {line}" for line in self.places]
        self.lines += [f"  int rows{op.results[0].id} = 0;" for op in self.emitter.outer]
        self.lines += [
            "  for (int64_t item = team; item < w_count; item += teams) {",
            "    const int64_t v = rows ? (int64_t)rows[item] : w_first + item;",
        ]
        if self.team_bytes:
            self.lines.append(f"    {self._sync()}")  # the row before has been read
        for stage in self.layout.stages:
            self.lines += self._edge_stage(stage) if stage.over else self._row_stage(stage)
        self.lines.append("  }")
        for op in self.emitter.outer:
            self.lines += [f"  {self._sync()}", f"  {self._add_outer(op)}"]
        self.lines.append("}")

    def _sync(self) -> str:
        return f"vg_sync<{self.team}>();"

    # ------------------------------------------------------------ stages
    def _row_stage(self, stage: Stage) -> list[str]:
        lines: list[str] = []
        for loop in stage.loops:
            features = LaneFeatures(self.layout, stage, loop, self.most, lanes=self.team, lane="all")
            lines += features.text(lambda body, loop=loop: self._statements(body, loop), "    ")
            if _hands_over(loop):
                lines.append(f"    {self._sync()}")
        return lines

    def _edge_stage(self, stage: Stage) -> list[str]:
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        rows: set[str] = set()
        has_extreme = False
        for loop in stage.loops:
            features = LaneFeatures(self.layout, stage, loop, self.most, lanes=self.lanes)
            features.unrolled = self._reduces_in_registers(loop, features)
            inside += features.text(lambda body, loop=loop: self._statements(body, loop), "        ")
            if _hands_over(loop):
                inside.append(f"        vg_sync<{self.lanes}>();")
            rows |= features.rows
            for op in _reductions(loop):
                before += self._open_reduction(op, features)
                after += self._close_reduction(op, features)
                has_extreme |= op.target.reduction in ("max", "min")
        if any(_hands_over(loop) for loop in stage.loops):
            inside.insert(0, f"        vg_sync<{self.lanes}>();")  # the edge before has been read
        if self.emitter.outer:
            inside += self._full_blocks(stage)
        if has_extreme:
            before.append("    bool fresh = true;")
            inside.append("        fresh = false;")
        return [*before, *self._over_edges(stage, rows, inside), *after, f"    {self._sync()}"]

    def _over_edges(self, stage: Stage, rows: set[str], inside: list[str]) -> list[str]:
        """Ids are read by all lanes of a team at once, then handed round."""
        ptr, edge, other = ("in_ptr", "e", "src_rows") if stage.over == "in" else ("out_ptr", "k", "out_dst")
        team, mask = self.team, f"vg_mask<{self.team}>()"
        reads = [("o", other)] if "o" in rows else []
        names_edge = any(re.search(r"\be\b", line) for line in inside)
        reads += [("e", "out_edges")] if edge == "k" and names_edge else []
        lines = [
            f"    for (int64_t from = {ptr}[v], begin = from, stop = {ptr}[v + 1]; from < stop; from += {team}) {{",
            "      (void)begin;",
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
        lines.append("        const int64_t j = from + mine - begin; (void)j;")
        return [*lines, *inside, "        }", "      }", "    }"]

    # ------------------------------------------------------------ sums of outer products
    def _full_blocks(self, stage: Stage) -> list[str]:
        ops = {id(s.op): s.op for loop in stage.loops for s in loop.sinks if s.kind == "left"}
        lines: list[str] = []
        for op in ops.values():
            name = f"rows{op.results[0].id}"
            lines += [
                f"        if (++{name} == vg_block) {{",
                f"          {self._sync()} {self._add_outer(op)} {self._sync()} {name} = 0;",
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
        count = sum(1 + self._needs_slot(op) for op in _reductions(loop))
        return count * features.num_rounds() * features.width <= _REGISTERS

    def _needs_slot(self, op: Op) -> bool:
        return len(op.results) > 1 and op.results[1].id in self.emitter.used

    def _open_reduction(self, op: Op, features: LaneFeatures) -> list[str]:
        result, rounds, kind = op.results[0], features.num_rounds(), NUMBER_TYPES[op.results[0].dtype]
        start = {"prod": f"{kind}(1)"}.get(op.target.reduction, f"{kind}(0)")
        vector = f"vg_t<{kind}, {features.width}>"
        lines = [
            f"    {vector} a{result.id}[{rounds}];",
            f"    VG_UNROLL for (int n = 0; n < {rounds}; ++n) a{result.id}[n] = vg_set<{vector}>({start});",
        ]
        if self._needs_slot(op):
            places = f"vg_t<int32_t, {features.width}>"
            lines += [
                f"    {places} b{result.id}[{rounds}];",
                f"    VG_UNROLL for (int n = 0; n < {rounds}; ++n) b{result.id}[n] = vg_set<{places}>(-1);",
            ]
        return lines

    def _close_reduction(self, op: Op, features: LaneFeatures) -> list[str]:
        """From the registers of all slots to the scratch that later stages read."""
        result, used = op.results[0], self.emitter.used
        lines = [f"    VG_UNROLL for (int n = 0; n < {features.num_rounds()}; ++n) {{"]
        if self.slots > 1:
            lines.append(f"      {self._across_slots(op)}")
        lines += [
            f"      const int u = lane + n * {self.lanes};",
            f"      if (slot == 0 && u < {features.num_dealt()}) {{",
            *(f"        {line}" for line in features.positions()),
        ]
        width, flat = features.width, features.flat()
        if result.id in used:
            lines.append(f"        vg_store<{width}>(t{result.id} + {flat}, a{result.id}[n]);")
        if self._needs_slot(op):
            slots = f"vg_cast<int64_t>(b{result.id}[n])"
            lines.append(f"        vg_store<{width}>(t{op.results[1].id} + {flat}, {slots});")
        return [*lines, "      }", "    }"]

    def _across_slots(self, op: Op) -> str:
        name, sizes = f"a{op.results[0].id}[n]", f"{self.team}, {self.lanes}"
        reduction = op.target.reduction
        if reduction in ("sum", "prod"):
            return f"{name} = vg_team_{'add' if reduction == 'sum' else 'multiply'}<{sizes}>({name});"
        largest = "true" if reduction == "max" else "false"
        if self._needs_slot(op):
            return f"vg_team_extremum<{largest}, {sizes}>({name}, b{op.results[0].id}[n]);"
        return f"vg_team_extreme<{largest}, {sizes}>({name}, fresh);"

    # ------------------------------------------------------------ statements
    def _statements(self, body: Body, loop: Loop) -> None:
        for sink in loop.sinks:
            self._statement(body, sink)

    def _statement(self, body: Body, sink: Sink) -> None:
        features, value = body.features, sink.value
        width, flat, size = features.width, features.flat(), math.prod(value.row_shape)
        if sink.kind == "reduce":
            self._accumulate(body, sink.op)
        elif sink.kind == "feature":
            body.add_features(sink.op)
        elif sink.kind == "product":
            body.multiply(sink.op)
        elif sink.kind in ("left", "right"):
            name = f"{sink.kind}{sink.op.results[0].id}"
            place = f"{name} + rows{sink.op.results[0].id} * {size} + {flat}"
            body.put(f"vg_store<{width}>({place}, {body.get(value, reader=sink.op)});")
        elif sink.kind == "store":
            row = "e" if value.space == EDGE else "v"
            body.put(f"vg_store<{width}>(o{value.id} + {row} * {size} + {flat}, {body.get(value)});")
        else:
            body.put(f"vg_store<{width}>(t{value.id} + {flat}, {body.get(value)});")

    def _accumulate(self, body: Body, op: Op) -> None:
        (operand,) = op.operands()
        result, given, width = op.results[0], body.get(operand, reader=op), body.features.width
        target = f"a{result.id}[n]"
        if op.target.reduction in ("sum", "prod"):
            sign = "+" if op.target.reduction == "sum" else "*"
            body.put(f"{target} = {target} {sign} {given};")
            return
        vector = f"vg_t<{NUMBER_TYPES[result.dtype]}, {width}>"
        largest = "true" if op.target.reduction == "max" else "false"
        if self._needs_slot(op):
            place = f"vg_set<vg_t<int32_t, {width}>>((int32_t)j)"
            body.put(f"vg_extremum<{largest}>({target}, b{result.id}[n], vg_set<{vector}>({given}), {place});")
        else:
            body.put(f"vg_extreme<{largest}>({target}, vg_set<{vector}>({given}), fresh);")


def _hands_over(loop: Loop) -> bool:
    """Whether other lanes may read what this loop writes to scratch."""
    return any(sink.kind in ("array", "feature", "product", "left", "right") for sink in loop.sinks)


def _reductions(loop: Loop) -> list[Op]:
    return [sink.op for sink in loop.sinks if isinstance(sink.op.target, SegmentReduce) and sink.kind == "reduce"]
